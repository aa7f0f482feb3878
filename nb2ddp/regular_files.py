"""Read regular files alone: a pipe waits for its writer, and a device may never end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

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


def bytes_of(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Return what a file of ours, or one beside it, holds.

    Raises:
        OSError: it is no regular file, cannot be read, or has over ``most`` bytes.
    """
    with open(path, "rb", opener=opened) as file:
        is_large = os.fstat(file.fileno()).st_size > most
        data = b"" if is_large else file.read(most + 1)  # some files of the system have no size
    if is_large or len(data) > most:
        raise OSError(errno.EFBIG, f"it has over {most // 1_000_000} MB")
    return data


def json_object(path: Path, most: int = _MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file of at most ``most`` bytes; an empty one where none can be read."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(bytes_of(path, most))
        return content if isinstance(content, dict) else {}
    return {}
