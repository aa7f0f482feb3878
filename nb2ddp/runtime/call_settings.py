"""Notice that a model is called with other values or settings than before: its calls are compared again then."""

import argparse
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.module_state import _holders, _is_of_library, _values

_MOST_ENTRIES = 50  # of a dict that is looked into, a configuration say
_NONE_YET = object()
_PLAIN_KINDS = frozenset({bool, int, float, str, type(None), types.FunctionType})


class _Settings:
    """What may change the way a model computes: modes, plain values, and the values of a call.

    Plain values are those that the model's own classes hold, that the script and its modules name, and those in
    their dicts and configurations. What a call of the model changes by itself is no change.
    """

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.holders: list[Any] = []
        self.files: list[Any] = []  # the names of modules beside the script
        self.loaded = 0  # how many modules Python had imported
        self.seen: dict[Any, Any] = {}  # by setting, its latest value
        self.changes: dict[Any, int] = {}  # by setting, how often it has changed
        self.calls = 0
        self.moves = False  # a call of the model changes some by itself, long before one is looked at

    def changed(self, model: torch.nn.Module, kind: Any, values: Any) -> int:
        """Return 1 where a setting has changed for the first time, more where it had before; 0 for no reason.

        A setting of the model counts in its 1st, 2nd, 4th, 8th change and so on; one that changes in most calls, a
        step's number say, in the 1st, 4th and 16th. What the script names counts once: counters change all the time.
        """
        self.calls += 1
        self._see(model)
        found = 0
        now = {**dict(self._settings()), **{(kind, place): value for place, value in enumerate(values)}}
        for setting, value in now.items():
            old = self.seen.get(setting, _NONE_YET)
            if old is _NONE_YET and (self.calls == 1 or setting[0] is kind or setting[0] is sys):
                continue
            if not _is_same(old, value):
                count = self.changes[setting] = self.changes.get(setting, 0) + 1
                often = 2 * count > self.calls
                if count & (count - 1) or (often and not count.bit_length() % 2):
                    continue
                if count == 1 or setting[0] is not sys:
                    found = max(found, count)
        self.seen.update(now)
        return found

    def note(self, model: torch.nn.Module) -> None:
        """Leave out what the call that ends here has changed: the model counts its calls, say."""
        self._see(model)
        now = dict(self._settings())
        own = [name for name in now if name in self.seen and name[0] is not sys]
        self.moves = self.moves or any(not _is_same(self.seen[name], now[name]) for name in own)
        self.seen.update(now)

    def _see(self, model: torch.nn.Module) -> None:
        modules = [(type(part), part.training) for part in model.modules()]
        if [kind for kind, _ in modules] != [kind for kind, _ in self.modules]:
            library = [part for part in model.modules() if _is_of_library(part)]
            left = {id(of) for part in library for of in (part.__dict__, part._buffers)}
            self.holders = [of for _, of in _holders(model, with_names=False) if id(of) not in left]
        self.modules = modules
        if len(sys.modules) != self.loaded:
            self.loaded = len(sys.modules)
            self.files = [vars(sys.modules["__main__"]), *map(vars, _modules_beside_script())]

    def _settings(self) -> Iterator[tuple[Any, Any]]:
        yield "modules", self.modules
        for number, holder in enumerate(self.holders):
            for place, value in _plain_values(_values(holder)):
                yield (number, *place), value
        for number, names in enumerate(self.files):
            for place, value in _plain_values(names):
                yield (sys, number, *place), value


def _plain_values(holder: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the numbers and texts of a mapping, and those in its dicts and configurations, by their places."""
    for name, value in list(holder.items()):
        if type(value) in _PLAIN_KINDS:
            yield (name,), value
            continue
        inside = value if isinstance(value, dict) else None
        if isinstance(value, argparse.Namespace | types.SimpleNamespace) or _is_configuration(value):
            inside = vars(value)
        if inside is not None and len(inside) <= _MOST_ENTRIES:
            for key, inner in list(inside.items()):
                if type(inner) in _PLAIN_KINDS:
                    yield (name, str(key)), inner


def _is_configuration(value: Any) -> bool:
    """Return whether a value is a class of the notebook's, or an object of one, that holds settings."""
    if isinstance(value, torch.nn.Module | types.ModuleType):
        return False
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__ == "__main__" and hasattr(value, "__dict__")


def _modules_beside_script() -> list[Any]:
    """Return the imported modules that a notebook has written beside its script."""
    folder = os.path.dirname(getattr(sys.modules["__main__"], "__file__", "")) or "."
    beside: dict[str, bool] = {}  # by the folder of a module
    found = []
    for name, module in list(sys.modules.items()):
        if name in ("__main__", __name__) or "." in name or not isinstance(module, types.ModuleType):
            continue  # a module of a package is not beside the script
        if file := getattr(module, "__file__", None):
            place = os.path.dirname(file) or "."
            if place not in beside:
                beside[place] = os.path.isdir(place) and os.path.samefile(place, folder)
            if beside[place]:
                found.append(module)
    return found


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one is other or bool(one == other) or repr(one) == repr(other))
