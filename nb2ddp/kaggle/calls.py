"""Wrap calls of the Kaggle client: nothing printed, a time limit, and our errors with their sentences."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from nb2ddp import errors
from nb2ddp.kaggle.untrusted import dict_of, shown, text_of
from nb2ddp.waiting import waiting

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
def call(what: str, meter: Meter | None = None) -> Iterator[None]:
    """Run the client quietly, with a time limit; every failure is a KaggleError.

    An OSError of this machine's files passes. ``what`` names the call in the sentence, ``meter`` counts what is
    downloaded.
    """
    import requests

    try:
        with waiting(f"waiting for Kaggle: {what}", keep=True), quiet(), time_limit(meter):
            yield
    except (errors.KaggleError, CaughtRequest):
        raise
    except (requests.RequestException, ConnectionError, TimeoutError) as error:  # OSErrors of the network
        _translate(what, error)
    except OSError:
        raise
    except Exception as error:  # the client does not check the shape of an answer
        _translate(what, error)


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
def time_limit(meter: Meter | None = None) -> Iterator[None]:
    """Give each request a time limit, and each answer a size; requests has none, and the client sets none."""
    import requests

    own = requests.Session.send
    if meter is not None:
        meter.begin()

    def send(session: Any, request: Any, **options: Any) -> Any:
        options["timeout"] = options.get("timeout") or TIMEOUT
        if options.get("stream"):
            answer = own(session, request, **options)
            if meter is not None:
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

    def begin(self) -> None:
        """Begin the time of a file, with the tries that the client makes anew."""
        self._began = time.monotonic() + TIMEOUT

    def read(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of an answer. Raises DownloadError where they are too many, or too slow."""
        count = 0
        for piece in pieces:
            count += len(piece)
            self._left -= len(piece)
            if self._left < 0:
                raise errors.DownloadError(
                    f"the output has over {self._most / 1e9:.0f} GB; fetch it on its page."
                )
            if (time.monotonic() - self._began) * _SLOWEST > count:
                raise errors.DownloadError(
                    f"a file came with less than {_SLOWEST // 1000} kB per second; the same command goes on with it."
                )
            yield piece


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


# ---- what Kaggle answers, and what fails on the way ---------------------------------------------------------

_BY_REASON: list[tuple[str, type[errors.KaggleError], str]] = [
    (r"batch (?:\w+ )?session count", errors.SessionLimitError, "all your GPU sessions are in use"),
    (
        r"quota",
        errors.QuotaError,
        "your GPU hours of this week are used up; see `kaggle quota` for when there are new ones",
    ),
    (
        r"(?:title|slug) .*(?:in use|exists|taken)",
        errors.TitleError,
        "you have a kernel of that title already; choose another with --title",
    ),
    (
        r"phone",
        errors.ForbiddenError,
        "verify your phone number at https://www.kaggle.com/settings to use GPUs",
    ),
    (
        r"not found",
        errors.NotFoundError,
        "there is none of that name, or you may not see it; look at its address on kaggle.com",
    ),
    (r"too large|maximum .*size|exceeds", errors.RefusedError, "move data from the notebook to a dataset"),
]
_BY_STATUS: dict[int, tuple[type[errors.KaggleError], str]] = {
    400: (errors.RefusedError, "correct what it names and push again"),
    401: (
        errors.SignInError,
        "your credentials are wrong, have expired or were revoked: make new ones at kaggle.com/settings/api",
    ),
    403: (errors.ForbiddenError, "the owner or the name is wrong, or it is another user's and private"),
    404: (errors.NotFoundError, "there is none of that name; look at the owner and the name in its address"),
    409: (errors.TitleError, "the title is in use; choose another with --title"),
    413: (errors.RefusedError, "the code is too large: move data from the notebook to a dataset"),
    429: (errors.TooManyRequestsError, "wait some minutes before you try again"),
}


_URL = re.compile(r"\s*(?:for url: )?https?://\S+")  # one that is signed gives access to the file


def raise_for(what: str, status: int, reason: str) -> NoReturn:
    """Raise the error for an HTTP status and the reason that came with it."""
    reason = shown(reason.strip().rstrip("."))
    for pattern, kind, advice in _BY_REASON:
        if re.search(pattern, reason, re.IGNORECASE) and status < 500:
            raise kind(f"{what}: Kaggle says {reason!r}: {advice}.") from None
    if status >= 500:
        raise errors.ServerError(
            f"{what}: Kaggle has a problem (HTTP {status}, {reason!r}); try again later."
        ) from None
    kind, advice = _BY_STATUS.get(status, (errors.RefusedError, "see https://www.kaggle.com/docs/api"))
    raise kind(f"{what}: Kaggle says {reason!r}: {advice}.") from None


def _translate(what: str, error: Exception) -> NoReturn:
    """Raise the KaggleError for whatever the client has raised."""
    import requests

    if isinstance(error, ValueError) and isinstance(error.__context__, requests.HTTPError):
        error = error.__context__  # kernels_status and the logs put a guess in place of the reason
    if isinstance(error, requests.HTTPError) and error.response is not None:
        raise_for(what, *_reason(error))
    if isinstance(error, requests.Timeout):
        raise errors.UnreachableError(f"{what}: Kaggle has not answered for {TIMEOUT:.0f} seconds.") from None
    if isinstance(error, json.JSONDecodeError):
        raise errors.ServerError(
            f"{what}: the answer is not Kaggle's; is there a proxy that asks for a login?"
        ) from None
    if isinstance(error, requests.RequestException | OSError):
        raise errors.UnreachableError(
            f"{what}: Kaggle cannot be reached ({type(error).__name__}); look at your network and any proxy."
        ) from None
    is_setter = isinstance(error, TypeError) and "must be of type" in str(error)  # of kagglesdk's requests
    if type(error) is ValueError or is_setter:  # the client checks some values itself
        raise errors.RefusedError(f"{what}: {_URL.sub('', shown(str(error)))}.") from None
    raise unexpected(what, type(error).__name__) from None


def unexpected(what: str, detail: str) -> errors.ServerError:
    """Return the error for an answer of another shape than Kaggle's."""
    return errors.ServerError(
        f"{what}: Kaggle's answer has an unexpected form ({detail}); try again later, and update the client "
        "with `pip install --upgrade kaggle` if that does not help."
    )


def _reason(error: Any) -> tuple[int, str]:
    """Return the status and the reason of an HTTP error; both can be in the body of an HTTP 200."""
    status, reason = int(error.response.status_code), _URL.sub("", str(error))
    with contextlib.suppress(ValueError, AttributeError, TypeError, RecursionError):
        body = error.response.json()
        inner = dict_of(body.get("error")) or body
        reason = text_of(inner.get("message")) or reason
        status = int(inner.get("code") or status) if status < 400 else status
    if wait := error.response.headers.get("Retry-After"):
        reason += f" (Retry-After: {wait})"
    return status, reason
