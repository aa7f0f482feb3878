"""Note where a script draws random numbers, what it prints, and the files that it writes.

Draws and prints are noted where the script itself makes them, files whoever writes them.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import random
import sys
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import notes, samples
from nb2ddp.rehearse.harness.imports import Patch, around, patched
from nb2ddp.rehearse.harness.notes import PLAN, note

_MOST = 2000  # notes of a kind
_TEXT = 500  # characters of a line that is printed
_RANDOM = "shuffle sample random randint randrange choice choices uniform gauss".split()
_NUMPY = "shuffle permutation rand randn randint random choice normal uniform default_rng".split()
_TORCH = "randperm randn rand randint normal".split()
_counts = {"draw": 0, "print": 0}


def begin() -> None:
    """Watch files that Python opens and renames, ``print``, and ``random`` where any script is judged."""
    sys.addaudithook(_audit)
    around(builtins, "print", _print)
    _patched("random.", _RANDOM)(random)


def _noted(kind: str, **values: Any) -> None:
    if notes.is_rank() and _counts[kind] < _MOST:
        _counts[kind] += 1
        note(kind, **values)


def _print(original: Callable[..., Any], *values: Any, **options: Any) -> None:
    if options.get("file") in (None, sys.stdout) and notes.called_by_script(3):
        said = options.get("sep") or " "
        _noted("print", text=said.join(map(str, values))[:_TEXT], line=notes.line_of_script())
    original(*values, **options)


def _draw(name: str, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    result = original(*arguments, **options)
    if notes.called_by_script(3):
        drawn = arguments[0] if result is None and arguments else result
        if name.endswith("default_rng") and not arguments and not options:
            drawn = f"rank {notes.RANK}"  # without a seed, no other process draws this
        _noted("draw", name=name, line=notes.line_of_script(), digest=samples.digest(drawn))
    return result


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


def _patched(prefix: str, names: list[str], owner: str = "") -> Patch:
    def patch(module: Any) -> None:
        for name in names if PLAN.get("handmade") else ():
            patched(f"{owner}{name}", functools.partial(_draw, f"{prefix}{name}"))(module)

    return patch


def _patch_torch(torch: Any) -> None:
    _patched("torch.", _TORCH)(torch)
    _patched("", ["random_split"], "utils.data.")(torch)
    around(torch, "save", _writes)


PATCHES: dict[str, Patch] = {
    "torch": _patch_torch,
    "safetensors.torch": patched("save_file", _writes),
    "numpy": _patched("numpy.random.", _NUMPY, "random."),
    "datasets.arrow_dataset": _patched("Dataset.", ["shuffle", "train_test_split"], "Dataset."),
    "sklearn.model_selection._split": _patched("", ["train_test_split"]),
}
