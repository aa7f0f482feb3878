"""Patch modules when the script imports them."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Mapping[str, Sequence[Patch]]) -> None:
        self.patches = dict(patches)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                for patch in self.patches.pop(name, ()):
                    patch(module)

            loader.exec_module = exec_module
        return spec


def begin(patches: Mapping[str, Sequence[Patch]]) -> None:
    """Patch these modules when they are imported, and those at once that are imported already."""
    for name in patches.keys() & sys.modules.keys():
        for patch in patches[name]:
            patch(sys.modules[name])
    later = {name: found for name, found in patches.items() if name not in sys.modules}
    sys.meta_path.insert(0, _Finder(later))


def patched(path: str, wrapper: Callable[..., Any]) -> Patch:
    """Return the patch that puts ``wrapper`` around ``path`` in a module, such as ``Trainer.__init__``."""
    *owners, name = path.split(".")

    def patch(module: Any) -> None:
        around(
            functools.reduce(lambda owner, part: getattr(owner, part, None), owners, module), name, wrapper
        )

    return patch


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *arguments, **options)``; nothing where there is none.

    Static and class methods stay what they are. ``__wrapped__`` leads to the original: Unsloth reads its
    source.
    """
    kind = inspect.getattr_static(owner, name, None)
    if kind is None:
        return
    original = kind.__func__ if isinstance(kind, staticmethod | classmethod) else kind

    @functools.wraps(original)
    def replacement(*arguments: Any, **options: Any) -> Any:
        return wrapper(original, *arguments, **options)

    setattr(owner, name, type(kind)(replacement) if original is not kind else replacement)
