"""Notice that a model is called with other values or settings than before: its calls are compared again then."""

import types
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.kept_values import (
    _GROWS,
    _OF_ALL_MODULES,
    _SIMPLE,
    _is_array,
    _is_record,
    _names,
    _of_modules,
    _own_parts,
    _Place,
    _walk,
)
from nb2ddp.runtime.module_state import _read_names
from nb2ddp.runtime.run_state import _is_power_of_two

_NONE_YET = object()
_PLAIN_KINDS = frozenset({*_SIMPLE, types.FunctionType, types.MethodType})
_LOOKED_INTO = (torch.Tensor, torch.nn.Module, dict, tuple, *_GROWS)  # whose parts count, each by itself
_MOST_MODULES = 100  # whose attributes are looked at in each call, whoever has made their classes
_MOST_ITEMS = 16  # of a container or a tensor of flags
_MOST_NOTED = 16  # calls after each of which is looked


class _Settings:
    """What may change the way a model computes: modes, plain values, functions, and the values of a call.

    Plain values are those that the notebook's own modules, names, objects, classes and functions keep. What a call of
    the model changes by itself is no change.
    """

    def __init__(self) -> None:
        self.seen: dict[Any, Any] = {}  # by setting, its latest value
        self.changes: dict[Any, int] = {}  # by setting, how often it has changed
        self.calls = 0
        self.parts: list[Any] = []  # weak references to the model's modules
        self.moved: set[Any] = set()  # what a call of the model changes by itself
        # some change all the time, and may change the way that a call takes: for this rank, and for all
        self.vary = self.looks = False
        self.read: set[str] | None = None  # names of the script's that the model reads

    def changed(self, model: torch.nn.Module, parts: list[Any], kind: Any, values: Any) -> int:
        """Return 1 where a setting has changed for the first time, more where it had before; 0 for no reason.

        A setting of the model counts in its 1st, 2nd, 4th, 8th change and so on; one that changes in most calls, a
        step's number say, in the 1st, 4th and 16th. What the script names counts once: counters change all the time.
        """
        self.calls += 1
        self.parts, found = parts, 0
        now = {**dict(self._settings(model)), **{(kind, place): value for place, value in enumerate(values)}}
        for setting, value in now.items():
            old = self.seen.get(setting, _NONE_YET)
            if old is _NONE_YET and (self.calls == 1 or setting[0] is kind or _is_of_script(setting)):
                continue
            if setting not in self.moved and not _is_same_setting(old, value):
                count = self.changes[setting] = self.changes.get(setting, 0) + 1
                often = 2 * count > self.calls
                self.read = _read_names(model) if self.read is None else self.read
                self.vary |= count > 1 and (not _is_of_script(setting) or setting[1] in self.read)
                if not _is_power_of_two(count) or (often and not count.bit_length() % 2):
                    continue
                if count == 1 or not _is_of_script(setting):
                    found = max(found, count)
        self.seen.update(now)
        return found

    def note(self, model: torch.nn.Module) -> None:
        """Leave out what the call that ends here has changed: the model counts its calls, say. Later on seldom."""
        if self.calls > _MOST_NOTED and not _is_power_of_two(self.calls):
            return
        now = dict(self._settings(model))
        known = now.keys() & self.seen.keys()
        self.moved |= {name for name in known if not _is_same_setting(self.seen[name], now[name])}
        self.seen.update(now)
        self.vary |= bool(self.moved)

    def _settings(self, model: torch.nn.Module) -> Iterator[tuple[Any, Any]]:
        parts = [part for of in self.parts if (part := of()) is not None]
        yield ("modules",), [(type(p), getattr(type(p), "forward", None), p.training) for p in parts]
        for number, part in enumerate(parts if len(parts) <= _MOST_MODULES else ()):
            own = (pair for pair in vars(part).items() if pair[0] not in _OF_ALL_MODULES)
            yield from ((("model", number, name), _which(value)) for name, value in own)
        roots = [*_of_modules(_own_parts(model)), *_names()]
        for place in (*roots, *_walk(roots, _is_tiny, map(id, parts), lists=False)):
            value = place.value
            if (isinstance(value, torch.Tensor) or _is_array(value)) and _is_tiny(place):
                yield place.path, str(value.tolist())
            elif place.path:
                yield place.path, _which(value)


def _which(value: Any) -> Any:
    """Return a value that is plain; of an object its kind and identity, for another may take its place."""
    is_number = type(value).__module__ == "numpy" and hasattr(value, "dtype") and not _is_array(value)
    if type(value) in _PLAIN_KINDS or _is_record(value) or is_number:
        return value
    if isinstance(value, (*_GROWS, dict, tuple)) and len(value) <= _MOST_ITEMS:
        items = [*value, *(dict.values(value) if isinstance(value, dict) else ())]
        return repr([x if isinstance(x, _SIMPLE) else isinstance(x, torch.Tensor) or id(x) for x in items])
    return None if isinstance(value, _LOOKED_INTO) else (type(value), id(value))


def _is_of_script(setting: Any) -> bool:
    return isinstance(setting[0], str) and setting[0] not in ("model", "class", "modules")


def _is_tiny(place: _Place) -> bool:
    """Return whether a tensor or an array is a flag, or some, that can be read without waiting for a GPU."""
    x = place.value
    if isinstance(x, torch.Tensor):
        return x.is_cpu and not x.is_nested and x.numel() <= _MOST_ITEMS and x.layout is torch.strided
    return bool(x.size <= _MOST_ITEMS)


def _is_same_setting(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one is other or bool(one == other) or repr(one) == repr(other))
