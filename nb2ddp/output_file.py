"""A file that the user names for our output: what it holds already is not to be lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_LONGEST_LINE = 1 << 24  # of a file that may be anything


def unwritable(path: Path, is_ours: Callable[[bytes], bool], otherwise: str) -> str:
    """Return why a file cannot be written; empty where it can. What it holds stays as it is.

    It may be new, empty, or a file whose first line ``is_ours`` knows; of another ``otherwise`` is returned.
    """
    if path.exists() and not path.is_file():
        return "it is not a file"
    is_new = not path.exists()
    try:
        with path.open("a+b") as file:
            file.seek(0)
            first = file.readline(_LONGEST_LINE)
        if is_new:
            path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return otherwise if first and not is_ours(first) else ""
