"""The advisory lock of a converted folder: one process writes it alone, runs share it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from nb2ddp.errors import OutputError

_WAIT_SECONDS = 10.0  # for another process that writes the folder; writing takes milliseconds


@contextlib.contextmanager
def locked(folder: Path, seconds: float | None = None, *, shared: bool = False) -> Iterator[None]:
    """Hold the advisory lock of a folder, which ends with its process; none where its file system knows none."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + (_WAIT_SECONDS if seconds is None else seconds)
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OutputError(f"{folder}: {_who_holds(handle)}") from None
                time.sleep(0.02)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _who_holds(handle: int) -> str:
    """Return the sentence about a lock that another process keeps: writers hold it alone, runs share it."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return "another nb2ddp is writing there; try again when it has ended."
    return (
        "a run goes on with the script there, which stays as it is; wait for its end, or convert the notebook to "
        "another folder: nb2ddp convert NOTEBOOK -o FOLDER."
    )
