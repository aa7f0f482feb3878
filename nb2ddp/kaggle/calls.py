"""Wrap calls of the Kaggle client: nothing printed, a time limit, and errors as sentences."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

from nb2ddp.errors import KaggleError
from nb2ddp.kaggle.errors import translate, unexpected

TIMEOUT = 120.0
"""Seconds without a byte from the server before a call is given up. Kaggle's load balancer cuts a log stream
that is silent for a few minutes, so that this is no loss there."""

MOST_BYTES = 128_000_000
"""Of one answer; a log or a list of files has far fewer. Files are not read as a whole."""


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
            return own(session, request, **options)
        return _read(own(session, request, **{**options, "stream": True}))

    with _sending(send):
        yield


def _read(answer: Any) -> Any:
    """Read an answer, unpacked, up to ``MOST_BYTES``: what is sent may be a thousandth of it.

    Raises ServerError for a longer one.
    """
    data = bytearray()
    for piece in answer.iter_content(2**16):
        data += piece
        if len(data) > MOST_BYTES:
            answer.close()
            raise unexpected("Kaggle", f"over {MOST_BYTES // 1_000_000} MB in one answer")
    answer._content = bytes(data)
    return answer


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
    """Let requests leave through ``send(session, request, **options)``."""
    import requests

    own = requests.Session.send
    setattr(requests.Session, "send", send)  # noqa: B010, a plain assignment is an error for mypy
    try:
        yield
    finally:
        setattr(requests.Session, "send", own)  # noqa: B010
