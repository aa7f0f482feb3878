"""Find the modules beside a notebook by the names that it imports. Their text is read, never run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from nb2ddp.regular_files import bytes_of

_MOST_BYTES = 200_000


def module_file(name: str, folders: Iterable[Path], written: Mapping[str, str]) -> tuple[Path, str] | None:
    """Return the file of a module, by its dotted name, and its text; None where it is not in sight.

    ``folders``: where it is looked for. ``written``: the files that the notebook writes itself, which go first.
    """
    parts = name.split(".")
    if not all(map(str.isidentifier, parts)):
        return None
    paths = PurePosixPath(*parts).with_suffix(".py"), PurePosixPath(*parts, "__init__.py")
    for path in paths:
        for name, text in written.items():
            if PurePosixPath(name).parts[-len(path.parts) :] == path.parts:
                return Path(name), text
    for file in (folder / path for folder in folders for path in paths):
        with contextlib.suppress(OSError, ValueError):
            if file.is_file():
                return file, bytes_of(file, _MOST_BYTES).decode("utf-8-sig")
    return None
