"""Note the files that the script writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import notes
from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import note


def begin() -> None:
    """Watch the files that Python opens and renames."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, mode, flags = arguments
        writes = (
            any(letter in mode for letter in "wax+")
            if isinstance(mode, str)
            else bool(flags & (os.O_WRONLY | os.O_RDWR))
        )
        if writes and isinstance(path, str):
            _wrote(path)
    elif event == "os.rename" and isinstance(arguments[1], str):
        _wrote(arguments[1])


def _wrote(path: str) -> None:
    if not path.startswith((notes.FOLDER, "/dev/", "/proc/")):
        note("write", path=os.path.abspath(path), line=notes.line_of_script())


def _watch_native_writer(owner: Any, name: str, argument: int) -> None:
    """Watch a function whose native code opens the file itself, which no audit hook sees."""

    def writes(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        path = [*arguments, *options.values()][argument] if argument < len(arguments) + len(options) else None
        if isinstance(path, str | os.PathLike):
            _wrote(os.fspath(path))
        return original(*arguments, **options)

    around(owner, name, writes)


def _watch_safetensors(module: Any) -> None:
    _watch_native_writer(module, "save_file", 1)


def _watch_torch(torch: Any) -> None:
    around(torch, "save", _torch_save)


def _torch_save(original: Callable[..., Any], obj: Any, f: Any, *arguments: Any, **options: Any) -> Any:
    if isinstance(f, str | os.PathLike):
        _wrote(os.fspath(f))
    return original(obj, f, *arguments, **options)


PATCHES: dict[str, Patch] = {"torch": _watch_torch, "safetensors.torch": _watch_safetensors}
