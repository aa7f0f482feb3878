"""The notebooks that the page's users have dropped: taken from the disk at once, held in memory for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nb2ddp.errors import NotebookError
from nb2ddp.web import limits
from nb2ddp.web.conversion import Upload
from nb2ddp.web.worker import too_large


@dataclass(frozen=True)
class _Kept:
    upload: Upload
    folder: str  # whose name is the hash of the content: equal uploads of two users share it
    since: float


class Uploads:
    """What each session has dropped last. Safe to be called from several threads."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = folder.resolve()
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def holds(self, path: object) -> bool:
        """Return whether a path leads to a place below the folder of uploads."""
        if not isinstance(path, str) or not Path(path).is_absolute():
            return False
        try:
            return Path(path).resolve().is_relative_to(self._root)
        except (OSError, ValueError):  # no name of a file
            return False

    def take(self, session: str, path: str) -> None:
        """Read an upload for a session, and delete the file.

        Raises:
            NotebookError: it is no upload, is too large, or is gone.
        """
        if not self.holds(path):
            raise NotebookError("only a file that was dropped on this page is converted.")
        place = Path(path).resolve()
        with self._lock:
            try:
                if (size := place.stat().st_size) > limits.MOST_BYTES:
                    place.unlink()
                    raise NotebookError(too_large(place.name, size))
                data = place.read_bytes()
            except OSError:
                data = self._equal(place)
            # the same file of another session, which is about to take it, is found in memory then
            self._kept.pop(session, None)
            self._kept[session] = _Kept(Upload(place.name, data), place.parent.name, self._clock())
            size = sum(len(kept.upload.data) for kept in self._kept.values())
            while size > limits.MOST_KEPT:
                size -= len(self._kept.pop(next(iter(self._kept))).upload.data)
            place.unlink(missing_ok=True)

    def of(self, session: str) -> Upload | None:
        """Return what a session has dropped; None where it was nothing, or is not kept any more."""
        with self._lock:
            kept = self._kept.get(session)
        return kept.upload if kept else None

    def forget(self, session: str) -> None:
        """Drop what is kept for a session."""
        with self._lock:
            self._kept.pop(session, None)

    def sweep(self) -> None:
        """Drop what was kept for long enough, and delete files that were never taken and empty folders."""
        with self._lock:
            for session, kept in list(self._kept.items()):
                if self._clock() - kept.since > limits.KEEP_SECONDS:
                    del self._kept[session]
        # what a folder holds comes before the folder, whose own time is read before a file in it is deleted
        for path in [path for path in sorted(self._root.rglob("*"), reverse=True) if _is_old(path)]:
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()  # refuses one that is not empty
                else:
                    path.unlink()

    def _equal(self, place: Path) -> bytes:
        """Return the bytes of an upload that another session took as its own: the same content, the same file."""
        for kept in self._kept.values():
            if kept.folder == place.parent.name and place.parent != self._root:
                return kept.upload.data
        raise NotebookError("the dropped file is not here any more: drop it again.")


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > limits.UPLOAD_SECONDS
    except OSError:  # gone
        return False
