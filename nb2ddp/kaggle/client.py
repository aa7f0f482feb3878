"""The official ``kaggle`` client, signed in and quiet. The only module that imports it, as late as can be.

``import kaggle`` signs in, prints help and may end the process; the client knows no time limit, and shows
an HTTP error without the reason that came with it. Here all that becomes values and sentences.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from nb2ddp.errors import (
    CredentialsError,
    DownloadError,
    ForbiddenError,
    KaggleError,
    NotFoundError,
    QuotaError,
    RefusedError,
    ServerError,
    SessionLimitError,
    SignInError,
    SourcesError,
    TitleError,
    TooManyRequestsError,
    UnreachableError,
)

TIMEOUT = 120.0
"""Seconds without a byte from the server before a call is given up. Kaggle's load balancer cuts a log stream
that is silent for a few minutes, so that this is no loss there."""

ACTIVE = ("NEW_SCRIPT", "QUEUED", "RUNNING", "CANCEL_REQUESTED")
"""States of a kernel that has not ended."""

_NO_CLIENT = "the Kaggle client is not installed{why}; install it with `pip install 'nb2ddp[kaggle]'`."
_NO_CREDENTIALS = """no Kaggle credentials that work are on this machine. Any one of these will do:
  - a token: make one at https://www.kaggle.com/settings/api ("Generate New Token"), and put it into
    ~/.kaggle/access_token or the environment variable KAGGLE_API_TOKEN
  - an older API key: the downloaded kaggle.json in ~/.kaggle, or KAGGLE_USERNAME and KAGGLE_KEY
  - a login in the browser: `kaggle auth login`, which writes ~/.kaggle/credentials.json
If you have one of them, it has expired or was revoked: make a new one."""


@dataclass(frozen=True)
class Quota:
    """GPU hours of this week."""

    used: float
    allowed: float
    refresh: datetime | None

    @property
    def left(self) -> float:
        return max(0.0, self.allowed - self.used)


@dataclass(frozen=True)
class State:
    """What Kaggle says of a kernel's latest run; ``name`` as in ``KernelWorkerStatus``."""

    name: str
    failure: str = ""

    @property
    def is_active(self) -> bool:
        return self.name in ACTIVE


@dataclass(frozen=True)
class Pushed:
    """A kernel that Kaggle has taken."""

    ref: str
    url: str
    version: int | None


@dataclass(frozen=True)
class RemoteFile:
    """A file of a kernel's output; the URL is signed and good for a while only."""

    name: str
    url: str


class Client:
    """The client, signed in as ``user``. Every failure is a ``KaggleError``."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.user: str | None = api.config_values.get("username")

    def quota(self) -> Quota | None:
        """This week's GPU hours; None where Kaggle does not tell."""
        with _calls("the quota"):
            answer = self._api.quota_view()
        gpu = answer.gpu_quota
        if gpu is None or gpu.total_time_allowed is None:
            return None
        used = sum(t.total_seconds() for t in (gpu.time_used, gpu.time_reserved) if t) / 3600
        return Quota(used, gpu.total_time_allowed.total_seconds() / 3600, answer.quota_refresh_time)

    def push(self, folder: Path, timeout: int | None) -> Pushed:
        """Send the bundle in a folder; timeout: seconds after which Kaggle ends the session.

        An error that comes with HTTP 200, or a source that Kaggle turns down, is raised as any other.
        """
        with _calls("the push"):
            answer = self._api.kernels_push(str(folder), timeout and str(timeout))
        if answer.error:
            _raise_for("the push", 200, answer.error)
        refused = {
            kind: list(getattr(answer, f"invalid_{kind}_sources", None) or [])
            for kind in ("dataset", "competition", "kernel", "model")
        }
        if any(refused.values()):
            names = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in refused.items() if names)
            raise SourcesError(
                f"Kaggle has taken the kernel without sources that are unknown or closed to you ({names}). "
                f"Stop it at {answer.url}, correct the names or accept their terms, and push it again."
            )
        return Pushed(answer.ref or "", answer.url or "", answer.version_number)

    def version(self, ref: str) -> int | None:
        """The number of the kernel's latest version; None when there is no kernel of that name."""
        try:
            answer = self._kernel(ref)
        except (ForbiddenError, NotFoundError):  # Kaggle says 403 for what is not there, too
            return None
        number: int | None = answer.metadata.current_version_number if answer.metadata else None
        return number

    def source(self, ref: str) -> str:
        """Return the text of a kernel: a notebook's JSON, or a script.

        Raises NotFoundError where Kaggle has no text of it.
        """
        answer = self._kernel(ref)
        text = answer.blob.source if answer.blob else None
        if not text:
            raise NotFoundError(f"Kaggle gives no source for {ref}.")
        return str(text)

    def _kernel(self, ref: str) -> Any:
        from kagglesdk.kernels.types.kernels_api_service import ApiGetKernelRequest

        request = ApiGetKernelRequest()
        request.user_name, request.kernel_slug = ref.split("/")
        with _calls(ref), self._api.build_kaggle_client() as kaggle:
            return kaggle.kernels.kernels_api_client.get_kernel(request)

    def state(self, ref: str) -> State:
        with _calls(ref):
            answer = self._api.kernels_status(ref)
        return State(getattr(answer.status, "name", str(answer.status)), answer.failure_message or "")

    def log(self, ref: str) -> str:
        """All that the latest run has printed."""
        with _calls(ref):
            text = self._api.kernels_logs(ref)
        with contextlib.suppress(ValueError):
            events = json.loads(text)
            if isinstance(events, list):
                return "".join(_data(event) for event in events if isinstance(event, dict))
        return str(text)

    def stream(self, ref: str) -> Iterator[tuple[float, str]]:
        """The log as it comes, from its beginning on: seconds since the start, and a piece of text."""
        with _calls(ref):
            events = iter(self._api.kernels_logs_stream(ref))
        while True:
            with _calls(ref):
                event = next(events, None)
            if event is None:
                return
            with contextlib.suppress(TypeError, ValueError):
                yield float(event.get("time") or 0), _data(event)

    def output(self, ref: str) -> Iterator[RemoteFile]:
        """The files of the output, from all pages."""
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelSessionOutputRequest

        request = ApiListKernelSessionOutputRequest()
        request.user_name, request.kernel_slug = ref.split("/")
        request.page_size = 100
        while True:
            with _calls(ref), self._api.build_kaggle_client() as kaggle:
                page = kaggle.kernels.kernels_api_client.list_kernel_session_output(request)
            yield from (RemoteFile(file.file_name, file.url) for file in page.files or [])
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def download(self, file: RemoteFile, path: Path) -> bool:
        """Fetch a file, going on where an earlier try broke off; False when it is here already.

        The client compares the size at the end. Raises DownloadError.
        """
        import requests

        unfinished = path.with_name(f"{path.name}.kaggle-partial")  # the client's own mark
        try:
            with (
                _calls(file.name),
                requests.get(file.url, stream=True, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                answer.raise_for_status()
                is_here = path.is_file() and str(path.stat().st_size) == answer.headers.get("Content-Length")
                if is_here and not unfinished.exists() and not self._api.download_needed(answer, str(path)):
                    return False
                self._api.download_file(
                    answer, str(path), None, quiet=True, resume=True, chunk_size=2**16, timeout=TIMEOUT
                )
        except (KaggleError, OSError) as error:
            raise DownloadError(
                f"{file.name} could not be fetched ({error}). What is here is kept: the same command goes on "
                "with it."
            ) from None
        return True


# ---------------------------------------------------------------------------------------------------------
# Signing in


def connect() -> Client:
    """Sign in with whatever credentials this machine has.

    Raises CredentialsError when there are none that work, or no client.
    """
    api = _api()
    try:
        with _calls("signing in"):
            api.authenticate()
    except SystemExit:
        raise CredentialsError(_NO_CREDENTIALS) from None
    return Client(api)


def request_of(folder: Path, timeout: int | None) -> tuple[str, dict[str, Any]]:
    """The URL and the JSON that ``push`` would send, made by the real client and caught before it leaves."""
    with _caught():
        api = _api()
    with contextlib.suppress(_Caught), _calls("the request"), _caught():
        api.kernels_push(str(folder), timeout and str(timeout))
    request = _Caught.request
    return request.url, json.loads(request.body)


def user_known_here() -> str | None:
    """The user name that stands in the environment or in kaggle.json; nothing is asked of Kaggle."""
    with _caught():
        api = _api()
        with contextlib.suppress(Exception, SystemExit):
            api.authenticate()
    name: str | None = api.config_values.get("username")
    return name


def credentials_known_here() -> str | None:
    """Where the credentials stand that the client would use first; nothing is asked of Kaggle.

    Raises CredentialsError where the client cannot be imported.
    """
    with _caught():
        api = _api()
        from kagglesdk.kaggle_creds import KaggleCredentials
        from kagglesdk.kaggle_env import get_access_token_from_env

        token, source = get_access_token_from_env()
        if token:
            return "~/.kaggle/access_token" if source == "access_token" else f"the variable {source}"
        with contextlib.suppress(Exception, SystemExit):
            api.authenticate()
        if {"username", "key"} <= api.config_values.keys():
            in_variables = {"KAGGLE_USERNAME", "KAGGLE_KEY"} <= os.environ.keys()
            return "the variables KAGGLE_USERNAME and KAGGLE_KEY" if in_variables else str(api.config)
        login = str(KaggleCredentials.DEFAULT_CREDENTIALS_FILE)
        return login if Path(login).expanduser().is_file() else None


def _api() -> Any:
    """A client that has not signed in.

    Raises CredentialsError where it cannot be imported.
    """
    try:
        with _quiet(), _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from kaggle.api.kaggle_api_extended import KaggleApi
    except ModuleNotFoundError as error:
        why = "" if error.name in ("kaggle", "requests") else f" completely (there is no {error.name})"
        raise CredentialsError(_NO_CLIENT.format(why=why)) from None
    except SystemExit:  # kaggle up to 2.2.3 without credentials
        raise CredentialsError(_NO_CREDENTIALS) from None
    except OSError as error:  # it makes its folder
        raise CredentialsError(
            f"the Kaggle client cannot make its folder ({error}); let KAGGLE_CONFIG_DIR name another."
        ) from None
    return KaggleApi()


# ---------------------------------------------------------------------------------------------------------
# Around every call


@contextlib.contextmanager
def _calls(what: str) -> Iterator[None]:
    """The client says nothing, does not wait for ever, and fails with a sentence."""
    import requests

    try:
        with _quiet(), _time_limit():
            yield
    except (requests.RequestException, TypeError, ValueError) as error:
        _translate(what, error)


def _translate(what: str, error: Exception) -> NoReturn:
    import requests

    if isinstance(error, ValueError) and isinstance(error.__context__, requests.HTTPError):
        error = error.__context__  # kernels_status and the logs put a guess in place of the reason
    if isinstance(error, requests.HTTPError) and error.response is not None:
        _raise_for(what, *_reason(error))
    if isinstance(error, requests.Timeout):
        raise UnreachableError(f"{what}: Kaggle has not answered for {TIMEOUT:.0f} seconds.") from None
    if isinstance(error, json.JSONDecodeError):
        raise ServerError(
            f"{what}: the answer is not Kaggle's; is there a proxy that asks for a login?"
        ) from None
    if isinstance(error, requests.RequestException):
        raise UnreachableError(
            f"{what}: Kaggle cannot be reached ({type(error).__name__}); look at your network and any proxy."
        ) from None
    raise RefusedError(f"{what}: {error}.") from None  # the client checks some values itself


def _reason(error: Any) -> tuple[int, str]:
    """The status and the reason of an HTTP error; both can be in the body of an HTTP 200."""
    status, reason = int(error.response.status_code), str(error)
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        body = error.response.json()
        inner = body.get("error") if isinstance(body.get("error"), dict) else body
        reason = inner.get("message") or reason
        status = int(inner.get("code") or status) if status < 400 else status
    if wait := error.response.headers.get("Retry-After"):
        reason += f" (Retry-After: {wait})"
    return status, reason


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
        "there is no such kernel, or you may not see it; look at its address on kaggle.com",
    ),
    (r"too large|maximum .*size|exceeds", RefusedError, "move data from the notebook to a dataset"),
]
_BY_STATUS: dict[int, tuple[type[KaggleError], str]] = {
    400: (RefusedError, "correct what it names and push again"),
    401: (
        SignInError,
        "your credentials have expired or were revoked: make new ones at kaggle.com/settings/api",
    ),
    403: (ForbiddenError, "the owner or the name is wrong, or the credentials are another user's"),
    404: (NotFoundError, "there is no such kernel; look at the owner and the name in its address"),
    409: (TitleError, "the title is in use; choose another with --title"),
    413: (RefusedError, "the code is too large: move data from the notebook to a dataset"),
    429: (TooManyRequestsError, "wait some minutes before you try again"),
}


def _raise_for(what: str, status: int, reason: str) -> NoReturn:
    reason = reason.strip().rstrip(".")
    for pattern, kind, advice in _BY_REASON:
        if re.search(pattern, reason, re.IGNORECASE) and status < 500:
            raise kind(f"{what}: Kaggle says {reason!r}: {advice}.") from None
    if status >= 500:
        raise ServerError(
            f"{what}: Kaggle has a problem (HTTP {status}, {reason!r}); try again later."
        ) from None
    kind, advice = _BY_STATUS.get(status, (RefusedError, "see https://www.kaggle.com/docs/api"))
    raise kind(f"{what}: Kaggle says {reason!r}: {advice}.") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the client prints is for its own command line, and with VERBOSE=1 it holds the token."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
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


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """requests waits for ever, unless it is told otherwise, and the client does not tell it."""
    import requests

    own = requests.Session.send

    def send(session: Any, request: Any, **options: Any) -> Any:
        return own(session, request, **{**options, "timeout": options.get("timeout") or TIMEOUT})

    with _sending(send):
        yield


class _Caught(Exception):
    """A request that was not sent."""

    request: Any = None


@contextlib.contextmanager
def _caught() -> Iterator[None]:
    """Nothing is sent: the first request ends the call with ``_Caught``."""

    def send(session: Any, request: Any, **options: Any) -> Any:
        _Caught.request = request
        raise _Caught

    try:
        with _quiet(), _sending(send):
            yield
    except ImportError:
        raise CredentialsError(_NO_CLIENT.format(why="")) from None


def _data(event: dict[str, Any]) -> str:
    """The text of a log event, which the client decodes as Latin-1 where the stream names no charset."""
    text = str(event.get("data") or "")
    with contextlib.suppress(UnicodeError):
        return text.encode("latin-1").decode()
    return text
