"""Wrap calls of the Kaggle client: nothing printed, a time limit, and errors as sentences."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from nb2ddp.errors import DownloadError, KaggleError
from nb2ddp.kaggle.errors import translate, unexpected

TIMEOUT = 120.0
"""Seconds without a byte from the server before a call is given up. Kaggle's load balancer cuts a log stream
that is silent for a few minutes, so that this is no loss there."""

MOST_BYTES = 128_000_000
"""Of one answer; a log or a list of files has far fewer. Files are not read as a whole."""


MOST_SECONDS = 600.0
"""Of one answer, and of a whole list of files."""

_SLOWEST = 10_000
"""Bytes per second that a file has to come with, once it has had ``TIMEOUT`` seconds."""


class CaughtRequest(Exception):
    """A request that was not sent."""

    request: Any = None


@contextlib.contextmanager
def call(what: str) -> Iterator[None]:
    """Run the client quietly, with a time limit; every failure is a KaggleError.

    An OSError of this machine's files passes. ``what`` names the call in the sentence.
    """
    import requests

    try:
        with quiet(), time_limit():
            yield
    except (KaggleError, CaughtRequest):
        raise
    except (requests.RequestException, ConnectionError, TimeoutError) as error:  # OSErrors of the network
        translate(what, error, TIMEOUT)
    except OSError:
        raise
    except Exception as error:  # the client does not check the shape of an answer
        translate(what, error, TIMEOUT)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard what the client prints: it is for its own command line, and with VERBOSE=1 holds the token.

    Its standard input is its own too: without credentials it calls `exit()`, which closes it.
    """
    own, sys.stdin = sys.stdin, io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.stdin = own


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Give each request a time limit, and each answer a size; requests has none, and the client sets none."""
    import requests

    own = requests.Session.send

    def send(session: Any, request: Any, **options: Any) -> Any:
        options["timeout"] = options.get("timeout") or TIMEOUT
        if options.get("stream"):
            answer = own(session, request, **options)
            if (meter := _meter.get()) is not None:
                pieces = answer.iter_content
                answer.__dict__["iter_content"] = lambda *a, **b: meter.read(pieces(*a, **b))
            return answer
        return _read(own(session, request, **{**options, "stream": True}))

    with _sending(send):
        yield


def _read(answer: Any) -> Any:
    """Read an answer, unpacked, up to ``MOST_BYTES``: what is sent may be a thousandth of it.

    Raises ServerError for a longer one.
    """
    data = bytearray()
    end = time.monotonic() + MOST_SECONDS
    for piece in answer.iter_content(2**16):
        data += piece
        is_large = len(data) > MOST_BYTES
        if is_large or time.monotonic() > end:
            answer.close()
            size = f"{MOST_BYTES // 1_000_000} MB" if is_large else f"{MOST_SECONDS:.0f} seconds"
            raise unexpected("Kaggle", f"over {size} in one answer")
    answer._content = bytes(data)
    return answer


class Meter:
    """Count the bytes of the files of an output, and end a file that is too much or never ends."""

    def __init__(self, most: int) -> None:
        self._most, self._left, self._began = most, most, 0.0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count what the block downloads, with the tries that the client makes anew; its time begins here."""
        self._began = time.monotonic() + TIMEOUT
        token = _meter.set(self)
        try:
            yield
        finally:
            _meter.reset(token)

    def read(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of an answer. Raises DownloadError where they are too many, or too slow."""
        count = 0
        for piece in pieces:
            count += len(piece)
            self._left -= len(piece)
            if self._left < 0:
                raise DownloadError(f"the output has over {self._most / 1e9:.0f} GB; fetch it on its page.")
            if (time.monotonic() - self._began) * _SLOWEST > count:
                raise DownloadError(
                    f"a file came with less than {_SLOWEST // 1000} kB per second; the same command goes on with it."
                )
            yield piece


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def caught() -> Iterator[None]:
    """Send nothing: the first request ends the call with ``CaughtRequest``."""

    def send(session: Any, request: Any, **options: Any) -> Any:
        CaughtRequest.request = request
        raise CaughtRequest

    with quiet(), _sending(send):
        yield


@contextlib.contextmanager
def _sending(send: Callable[..., Any]) -> Iterator[None]:
    """Let requests leave through ``send(session, request, **options)``, without a login of ~/.netrc.

    requests looks one up for each host, that of a redirection or of an address that an answer names too.
    """
    import requests

    own, netrc = requests.Session.send, vars(requests.sessions)["get_netrc_auth"]
    setattr(requests.Session, "send", send)  # noqa: B010, a plain assignment is an error for mypy
    setattr(requests.sessions, "get_netrc_auth", lambda *_, **__: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(requests.Session, "send", own)  # noqa: B010
        setattr(requests.sessions, "get_netrc_auth", netrc)  # noqa: B010
