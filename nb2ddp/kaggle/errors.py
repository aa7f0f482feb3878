"""Translate what Kaggle answers, and what fails on the way, to our errors and their sentences."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, NoReturn

from nb2ddp.errors import (
    ForbiddenError,
    KaggleError,
    NotFoundError,
    QuotaError,
    RefusedError,
    ServerError,
    SessionLimitError,
    SignInError,
    TitleError,
    TooManyRequestsError,
    UnreachableError,
)
from nb2ddp.kaggle.untrusted import dict_of, shown, text_of

_BY_REASON: list[tuple[str, type[KaggleError], str]] = [
    (r"batch (?:\w+ )?session count", SessionLimitError, "all your GPU sessions are in use"),
    (
        r"quota",
        QuotaError,
        "your GPU hours of this week are used up; see `kaggle quota` for when there are new ones",
    ),
    (
        r"(?:title|slug) .*(?:in use|exists|taken)",
        TitleError,
        "you have a kernel of that title already; choose another with --title",
    ),
    (r"phone", ForbiddenError, "verify your phone number at https://www.kaggle.com/settings to use GPUs"),
    (
        r"not found",
        NotFoundError,
        "there is none of that name, or you may not see it; look at its address on kaggle.com",
    ),
    (r"too large|maximum .*size|exceeds", RefusedError, "move data from the notebook to a dataset"),
]
_BY_STATUS: dict[int, tuple[type[KaggleError], str]] = {
    400: (RefusedError, "correct what it names and push again"),
    401: (
        SignInError,
        "your credentials are wrong, have expired or were revoked: make new ones at kaggle.com/settings/api",
    ),
    403: (ForbiddenError, "the owner or the name is wrong, or it is another user's and private"),
    404: (NotFoundError, "there is none of that name; look at the owner and the name in its address"),
    409: (TitleError, "the title is in use; choose another with --title"),
    413: (RefusedError, "the code is too large: move data from the notebook to a dataset"),
    429: (TooManyRequestsError, "wait some minutes before you try again"),
}


_URL = re.compile(r"\s*(?:for url: )?https?://\S+")  # one that is signed gives access to the file


def raise_for(what: str, status: int, reason: str) -> NoReturn:
    """Raise the error for an HTTP status and the reason that came with it."""
    reason = shown(reason.strip().rstrip("."))
    for pattern, kind, advice in _BY_REASON:
        if re.search(pattern, reason, re.IGNORECASE) and status < 500:
            raise kind(f"{what}: Kaggle says {reason!r}: {advice}.") from None
    if status >= 500:
        raise ServerError(
            f"{what}: Kaggle has a problem (HTTP {status}, {reason!r}); try again later."
        ) from None
    kind, advice = _BY_STATUS.get(status, (RefusedError, "see https://www.kaggle.com/docs/api"))
    raise kind(f"{what}: Kaggle says {reason!r}: {advice}.") from None


def translate(what: str, error: Exception, timeout: float) -> NoReturn:
    """Raise the KaggleError for whatever the client has raised."""
    import requests

    if isinstance(error, ValueError) and isinstance(error.__context__, requests.HTTPError):
        error = error.__context__  # kernels_status and the logs put a guess in place of the reason
    if isinstance(error, requests.HTTPError) and error.response is not None:
        raise_for(what, *_reason(error))
    if isinstance(error, requests.Timeout):
        raise UnreachableError(f"{what}: Kaggle has not answered for {timeout:.0f} seconds.") from None
    if isinstance(error, json.JSONDecodeError):
        raise ServerError(
            f"{what}: the answer is not Kaggle's; is there a proxy that asks for a login?"
        ) from None
    if isinstance(error, requests.RequestException | OSError):
        raise UnreachableError(
            f"{what}: Kaggle cannot be reached ({type(error).__name__}); look at your network and any proxy."
        ) from None
    is_setter = isinstance(error, TypeError) and "must be of type" in str(error)  # of kagglesdk's requests
    if type(error) is ValueError or is_setter:  # the client checks some values itself
        raise RefusedError(f"{what}: {_URL.sub('', shown(str(error)))}.") from None
    raise unexpected(what, type(error).__name__) from None


def unexpected(what: str, detail: str) -> ServerError:
    """Return the error for an answer of another shape than Kaggle's."""
    return ServerError(
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
