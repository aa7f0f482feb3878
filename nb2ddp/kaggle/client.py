"""The official ``kaggle`` client, signed in and quiet.

The client knows no time limit, shows an HTTP error without the reason that came with it, and does not check
the shape of an answer. Here all that becomes values that were checked, and sentences.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nb2ddp.errors import DownloadError, ForbiddenError, KaggleError, NotFoundError, SourcesError
from nb2ddp.kaggle import calls
from nb2ddp.kaggle.calls import CaughtRequest, Meter, call, caught, raise_for, unexpected
from nb2ddp.kaggle.credentials import api_of_client, signed_in
from nb2ddp.kaggle.untrusted import count_of, dict_of, list_of, number_of, shown, text_of
from nb2ddp.waiting import waiting

ACTIVE = ("NEW_SCRIPT", "QUEUED", "RUNNING", "CANCEL_REQUESTED")
"""States of a kernel that has not ended."""

_MAX_FILES, _MAX_BYTES = 100_000, 200_000_000_000  # of one output; Kaggle's own limits are far below
_MAX_EMPTY_PAGES = 20


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
        self._meter = Meter(_MAX_BYTES)
        self.user: str | None = text_of(api.config_values.get("username")) or None

    def quota(self) -> Quota | None:
        """Return this week's GPU hours; None where Kaggle does not tell."""
        with call("the quota"):
            answer = self._api.quota_view()
            gpu = answer.gpu_quota
            if gpu is None or gpu.total_time_allowed is None:
                return None
            used = sum(t.total_seconds() for t in (gpu.time_used, gpu.time_reserved) if t) / 3600
            refresh = answer.quota_refresh_time
            allowed = gpu.total_time_allowed.total_seconds() / 3600
            return Quota(used, allowed, refresh if isinstance(refresh, datetime) else None)

    def push(self, folder: Path, timeout: int | None) -> Pushed:
        """Send the bundle in a folder; timeout: seconds after which Kaggle ends the session.

        An error that comes with HTTP 200, or a source that Kaggle turns down, is raised as any other.
        """
        with call("the push"):
            answer = self._api.kernels_push(str(folder), timeout and str(timeout))
            if answer.error:
                raise_for("the push", 200, str(answer.error))
            ref, url = text_of(answer.ref), shown(text_of(answer.url))
            refused = {
                kind: [shown(name, 100) for name in list_of(getattr(answer, f"invalid_{kind}_sources", None))]
                for kind in ("dataset", "competition", "kernel", "model")
            }
        if any(refused.values()):
            names = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in refused.items() if names)
            raise SourcesError(
                f"Kaggle has taken the kernel without sources that are unknown or closed to you ({names}). "
                f"Stop it at {url}, correct the names or accept their terms, and push it again."
            )
        return Pushed(ref, url, count_of(answer.version_number))

    def version(self, ref: str) -> int | None:
        """Return the number of the kernel's latest version; None when there is no kernel of that name."""
        try:
            answer = self._kernel(ref)
            return count_of(answer.metadata.current_version_number) if answer.metadata else None
        except (ForbiddenError, NotFoundError):  # Kaggle says 403 for what is not there, too
            return None

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
        with call(ref), self._api.build_kaggle_client() as kaggle:
            return kaggle.kernels.kernels_api_client.get_kernel(request)

    def state(self, ref: str) -> State:
        """Return the state of the kernel's latest run."""
        with call(ref):
            answer = self._api.kernels_status(ref)
            name = text_of(getattr(answer.status, "name", answer.status))
        if not name:
            raise unexpected(ref, "no status")
        return State(shown(name, 40), shown(text_of(answer.failure_message)))

    def dataset_state(self, ref: str) -> str | None:
        """Return the state of a dataset in lower case, such as ``ready``; None when there is none of that name."""
        try:
            with call(ref):
                return shown(text_of(self._api.dataset_status(ref)), 40)
        except (ForbiddenError, NotFoundError):  # Kaggle says 403 for what is not there, too
            return None

    def create_dataset(self, folder: Path, ref: str) -> None:
        """Make a private dataset of the files in a folder, whose dataset-metadata.json names it.

        Raises SourcesError where Kaggle refuses it.
        """
        with call(ref):
            answer = self._api.dataset_create_new(str(folder), public=False, quiet=True)
            error = text_of(getattr(answer, "error", None))
        if error:
            raise SourcesError(f"Kaggle does not take the dataset {ref}: {shown(error, 300)}")

    def log(self, ref: str) -> str:
        """Return all that the latest run has printed."""
        with call(ref):
            text = self._api.kernels_logs(ref)
        if not isinstance(text, str):
            raise unexpected(ref, "a log that is no text")
        with contextlib.suppress(ValueError, RecursionError):
            events = json.loads(text)
            if isinstance(events, list):
                return "".join(_data(dict_of(event)) for event in events)
        return text

    def stream(self, ref: str) -> Iterator[tuple[float, str]]:
        """Yield the log as it comes, from its beginning on: seconds since the start, and a piece of text."""
        with call(ref):
            events = iter(self._api.kernels_logs_stream(ref))
        while True:
            with call(ref):
                event = next(events, None)
            if event is None:
                return
            event = dict_of(event)
            yield number_of(event.get("time")) or 0.0, _data(event)

    def output(self, ref: str) -> Iterator[RemoteFile]:
        """Yield the files of the output, from all pages; what an entry names is checked later.

        Raises ServerError for a list of another shape, or one without an end.
        """
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelSessionOutputRequest

        request = ApiListKernelSessionOutputRequest()
        request.user_name, request.kernel_slug = ref.split("/")
        request.page_size = 100
        seen: set[str] = set()
        files = size = empty = 0
        end = time.monotonic() + calls.MOST_SECONDS
        while True:
            with call(ref), self._api.build_kaggle_client() as kaggle:
                page = kaggle.kernels.kernels_api_client.list_kernel_session_output(request)
                found = [RemoteFile(text_of(f.file_name), text_of(f.url)) for f in list_of(page.files)]
                token = text_of(page.next_page_token)
                request.page_token = token
            end_of_page = time.monotonic()
            yield from found
            end += time.monotonic() - end_of_page  # what is done with the files takes its own time
            files, empty = files + len(found), 0 if found else empty + 1
            size += len(token) + sum(len(file.name) + len(file.url) for file in found)
            if not token:
                return
            is_endless = token in seen or files > _MAX_FILES or empty > _MAX_EMPTY_PAGES
            if is_endless or size > calls.MOST_BYTES or time.monotonic() > end:
                raise unexpected(ref, "a list of files without an end")
            seen.add(token)

    @contextlib.contextmanager
    def download(self, file: RemoteFile) -> Iterator[Download]:
        """Open a file of the output. Raises DownloadError, for whatever fails inside; OSError passes."""
        import requests

        name = shown(file.name)
        if not file.url.startswith(("https://", "http://")):
            raise DownloadError(f"{name} could not be fetched: Kaggle names no address for it.")
        try:
            with (
                call(name, self._meter),
                requests.Session() as session,  # the addresses are signed: no credentials go along
                session.get(file.url, stream=True, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                answer.raise_for_status()
                yield Download(self._api, answer)
        except DownloadError:
            raise
        except KaggleError as error:
            raise DownloadError(
                f"{name} could not be fetched ({error}). What is here is kept: the same command goes on "
                "with it."
            ) from None


@dataclass(frozen=True)
class Download:
    """A file of the output whose content has not been read yet."""

    _api: Any
    _answer: Any

    def is_at(self, path: Path) -> bool:
        """Return whether this very file lies at a path, by its size and its date."""
        if path.is_symlink() or not path.is_file():
            return False
        is_whole = str(path.stat().st_size) == self._answer.headers.get("Content-Length")
        return is_whole and not self._api.download_needed(self._answer, str(path))

    def save(self, path: Path) -> None:
        """Write it, going on where an earlier try broke off; the client compares the size at the end."""
        self._api.download_file(
            self._answer, str(path), None, quiet=True, resume=True, chunk_size=2**16, timeout=calls.TIMEOUT
        )


def connect() -> Client:
    """Sign in with whatever credentials this machine has.

    Raises CredentialsError when there are none that work, or no client.
    """
    with waiting("signing in to Kaggle"):
        return Client(signed_in())


def request_of(folder: Path, timeout: int | None) -> tuple[str, dict[str, Any]]:
    """Return the URL and the JSON that ``push`` would send, made by the real client and not sent."""
    with caught():
        api = api_of_client()
    with contextlib.suppress(CaughtRequest), call("the request"), caught():
        api.kernels_push(str(folder), timeout and str(timeout))
    request = CaughtRequest.request
    return request.url, json.loads(request.body)


def _data(event: dict[str, Any]) -> str:
    """Return the text of a log event; the client decodes as Latin-1 where the stream names no charset."""
    text = text_of(event.get("data"))
    with contextlib.suppress(UnicodeError):
        return text.encode("latin-1").decode()
    return text
