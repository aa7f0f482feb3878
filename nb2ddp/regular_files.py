"""Read regular files alone: a pipe waits for its writer, and a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MOST_BYTES = 100_000_000


def opened(path: str, flags: int) -> int:
    """Open a file, as the ``opener`` of `open`, without waiting for the other end of a pipe.

    Raises:
        OSError: it is no regular file.
    """
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket, and not a file")
    return handle


def bytes_of(path: Path) -> bytes:
    """Return what a file of ours, or one beside it, holds.

    Raises:
        OSError: it is no regular file, cannot be read, or has over 100 MB.
    """
    with open(path, "rb", opener=opened) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has over {_MOST_BYTES // 1_000_000} MB")
    return data
