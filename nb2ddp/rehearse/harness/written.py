"""Note the files that the script writes."""

from __future__ import annotations

import inspect
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
        writes = set("wax+") & set(mode) if isinstance(mode, str) else flags & (os.O_WRONLY | os.O_RDWR)
        if writes and isinstance(path, str):
            _wrote(path)
    elif event == "os.rename" and isinstance(arguments[1], str):
        _wrote(arguments[1])


def _wrote(path: str) -> None:
    if not path.startswith((notes.FOLDER, "/dev/", "/proc/")):
        note("write", path=os.path.abspath(path), line=notes.line_of_script())


def _writes(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Note the file, the second argument, of a function whose native code opens it, which no audit hook sees."""
    _, file, *_ = inspect.signature(original).bind(*arguments, **options).arguments.values()
    if isinstance(file, str | os.PathLike):
        _wrote(os.fspath(file))
    return original(*arguments, **options)


PATCHES: dict[str, Patch] = {
    "torch": lambda torch: around(torch, "save", _writes),
    "safetensors.torch": lambda module: around(module, "save_file", _writes),
}
