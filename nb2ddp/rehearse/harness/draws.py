"""Note where a script draws random numbers and what it prints: what must be the same on all ranks, and is not.

Only calls of the script itself are noted, those of libraries are not.
"""

from __future__ import annotations

import builtins
import functools
import random
import sys
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import notes, samples
from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import PLAN, note

_MOST = 2000  # notes of a kind
_TEXT = 500  # characters of a line that is printed
_RANDOM = "shuffle sample random randint randrange choice choices uniform gauss".split()
_NUMPY = "shuffle permutation rand randn randint random choice normal uniform default_rng".split()
_TORCH = "randperm randn rand randint normal".split()
_counts = {"draw": 0, "print": 0}


def begin() -> None:
    """Watch ``print``, and the module ``random`` where any script is judged."""
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


def _patched(prefix: str, names: list[str], owner: str = "") -> Patch:
    def patch(module: Any) -> None:
        if not PLAN.get("handmade"):
            return
        target = module
        for part in filter(None, owner.split(".")):
            target = getattr(target, part)
        for name in names:
            around(target, name, functools.partial(_draw, f"{prefix}{name}"))

    return patch


def _patch_torch(torch: Any) -> None:
    _patched("torch.", _TORCH)(torch)
    _patched("", ["random_split"], "utils.data")(torch)


PATCHES: dict[str, Patch] = {
    "torch": _patch_torch,
    "numpy": _patched("numpy.random.", _NUMPY, "random"),
    "datasets.arrow_dataset": _patched("Dataset.", ["shuffle", "train_test_split"], "Dataset"),
    "sklearn.model_selection._split": _patched("", ["train_test_split"]),
}
