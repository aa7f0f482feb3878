"""Find the values that the notebook's own code keeps.

A micro-batch or a call may leave more behind than gradients: a name that counts, a list that grows, an attribute, a
variable of a closure, a generator's state. What a library keeps for itself is not looked into.
"""

import array
import collections
import contextlib
import contextvars
import enum
import functools
import io
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.script_location import _is_own

_Path = tuple[Any, ...]
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_VALUES = ("datetime", "decimal", "fractions")  # modules whose objects never change
_GROWS = (list, collections.deque, set)
_MOST = 256  # items of a container that are looked at; of a longer one only what is appended
_MOST_OBJECTS = 5000  # that are looked into
_OF_ALL_MODULES = frozenset(torch.nn.Module().__dict__)  # parameters, hooks and the like
_CODE = (types.FunctionType, type)
_LEAVES = (array.array, bytearray, io.StringIO, functools._lru_cache_wrapper)  # that are copied whole
# kinds of objects of Python's and PyTorch's own that hold values for the notebook
_HOLDERS = ("argparse", "types", "queue", "weakref", "_thread", "torch.quasirandom")
_WRAPPERS = (types.MethodType, staticmethod, classmethod, functools.partial, property)
_WRAPPED = ("__self__", "__func__", "func", "args", "keywords", "fget", "fset")


class _Place(NamedTuple):
    """Where a value is kept: ``holder`` is a dict, a list, or has the attribute ``key``; None where it is only read."""

    path: _Path = ()
    holder: Any = None
    key: Any = None
    value: Any = None


def _names() -> Iterator[_Place]:
    """Yield the script's names, without those of this file where the script contains it."""
    main = vars(sys.modules["__main__"])
    for name, value in list(main.items()):
        if name[:2] != "__" and name not in _run.names:
            yield _Place(("the notebook", name), main, name, value)


def _of_modules(parts: Iterable[tuple[str, torch.nn.Module]], root: _Path = ("model",)) -> Iterator[_Place]:
    """Yield the attributes and the buffers of modules, and their classes."""
    for name, part in parts:
        for holder in (vars(part), part._buffers):
            for key, value in list(holder.items()):
                if key not in _OF_ALL_MODULES:
                    yield _Place((*root, name, key), holder, key, value)
        yield _Place(value=type(part))


_parts: weakref.WeakKeyDictionary[Any, list[tuple[str, Any]]] = weakref.WeakKeyDictionary()


def _own_parts(model: Any) -> list[tuple[str, torch.nn.Module]]:
    """Return the modules of a model whose classes are the notebook's: they may keep values."""
    if not isinstance(model, torch.nn.Module):
        return []
    model = next(model.modules())  # not a weak proxy of it
    if model not in _parts:  # a walk through a large model takes milliseconds
        parts = model.named_modules()
        _parts[model] = [(name, weakref.ref(of)) for name, of in parts if _is_own(type(of).__module__)]
    return [(name, part) for name, reference in _parts[model] if (part := reference()) is not None]


def _walk(
    roots: Iterable[_Place], fits: Callable[[_Place], bool], known: Iterable[int] = (),
    owners: dict[_Path, Any] | None = None, slots: list[_Place] | None = None, lists: bool = True,
) -> Iterator[_Place]:  # fmt: skip
    """Yield the places of all values that can be copied, from those of ``roots`` inwards.

    ``fits`` says of a tensor or an array whether it is small enough; objects with the ids ``known`` are left out;
    ``owners`` gets what was looked into, by its path, and ``slots`` the places of that. Without ``lists`` their items
    are left out.
    """
    waiting, seen = list(roots)[::-1], {*known}
    while waiting:
        place = waiting.pop()
        value = place.value
        if isinstance(value, _SIMPLE) or _is_record(value):
            yield place
            continue
        if id(value) in seen or len(seen) > _MOST_OBJECTS:  # or known by another name
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
            if not (isinstance(value, torch.Tensor) or _is_array(value)) or fits(place):
                yield place
        elif isinstance(value, _LEAVES) or _cannot_go_back(value):
            yield place
        else:
            is_long = isinstance(value, dict) and len(value) > _MOST
            if isinstance(value, _GROWS) or is_long or _is_generator(value):
                yield place
            path = ("class", value.__qualname__) if isinstance(value, type) else place.path
            if owners is not None:
                owners[path] = value
            if slots is not None:
                slots.append(place)
            if not lists and isinstance(value, (*_GROWS, tuple)):
                continue
            waiting += list(_held_in(path, value, seen))[::-1]


def _held_in(path: _Path, value: Any, seen: set[int]) -> Iterator[_Place]:
    """Yield what a value holds: items, attributes, variables of a closure, default values."""
    if isinstance(value, dict | list | collections.deque | tuple) and len(value) <= _MOST:
        is_dict, of = isinstance(value, dict), _plain_type(value)
        pairs = of.items(value) if is_dict else enumerate(of.__iter__(value))
        # a list of numbers alone is compared with all of them
        every = is_dict or (of is list and not all(isinstance(item, _SIMPLE) for item in value))
        yield from (_Place((*path, k), value, k, x) for k, x in pairs if every or not isinstance(x, _SIMPLE))
    if isinstance(value, _WRAPPERS):
        yield from (_Place(path, value=getattr(value, name, ())) for name in _WRAPPED)
    elif isinstance(value, torch.nn.Module) and not _is_metric(value):
        own = [(name, part) for name, part in _own_parts(value) if part is value or id(part) not in seen]
        seen.update(id(part) for _, part in own)
        yield from _of_modules(own, path)
    elif isinstance(value, contextvars.ContextVar):
        with contextlib.suppress(LookupError):  # it holds nothing yet
            yield _Place((*path, "value"), value, "value", value.get())
    elif _is_metric(value):  # torchmetrics': what it counts, and how often
        counts = {of: getattr(value, of, None) for of in (*value._defaults, "_update_count")}
        yield from (_Place((*path, name), value, name, count) for name, count in counts.items())
    elif _is_notebooks(value):
        yield from _attributes(path, value, seen)


def _attributes(path: _Path, value: Any, seen: set[int]) -> Iterator[_Place]:
    """Yield what the notebook's own objects, classes, functions and modules beside its script keep."""
    if isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            if id(cell) not in seen:  # several functions may share it
                seen.add(id(cell))
                with contextlib.suppress(ValueError):  # not filled yet
                    yield _Place((*path, name), cell, "cell_contents", cell.cell_contents)
        for number, default in enumerate(value.__defaults__ or ()):
            yield _Place((*path, f"default {number}"), value.__defaults__, number, default)
        yield _Place((*path, "defaults"), value=value.__kwdefaults__)
        yield _Place((value.__module__,), value=sys.modules.get(value.__module__))
    if isinstance(value, type):
        yield from (_Place(value=base) for base in type.mro(value)[1:])
    elif not isinstance(value, types.FunctionType | types.ModuleType):
        yield _Place(value=type(value))
        slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
        names = [name for of in slots for name in ((of,) if isinstance(of, str) else of)]
        for name in (name for name in names if name[:2] != "__"):
            with contextlib.suppress(Exception):  # not filled yet: its class may answer for that in any way
                yield _Place((*path, name), value, name, getattr(value, name))
    for name, inner in list(getattr(value, "__dict__", {}).items()):
        if name[:2] != "__" or isinstance(inner, types.FunctionType):
            yield _Place((*path, name), value if isinstance(value, type) else vars(value), name, inner)


def _is_notebooks(value: Any) -> bool:
    """Return whether a value is an object, a class, a function or a module of the notebook's own code."""
    if isinstance(value, types.ModuleType):
        return value is not sys.modules["__main__"] and _is_own(value.__name__)
    if isinstance(value, _CODE):
        return _is_own(value.__module__)
    return type(value).__module__ in _HOLDERS or _is_own(type(value).__module__)


def _is_metric(value: Any) -> bool:
    """Return whether a value is a metric of torchmetrics, which counts what it is given."""
    return isinstance(value, getattr(sys.modules.get("torchmetrics.metric"), "Metric", ()))


def _is_record(value: Any) -> bool:
    """Return whether a value of several parts, or of a class, changes only as another one takes its place."""
    is_fixed = isinstance(value, frozenset | enum.Enum) or type(value).__module__ in _VALUES
    is_short = isinstance(value, tuple) and len(value) <= _MOST
    return is_fixed or (is_short and all(isinstance(item, _SIMPLE) for item in value))


def _is_array(value: Any) -> bool:
    return isinstance(value, getattr(sys.modules.get("numpy"), "ndarray", ()))


def _is_generator(value: Any) -> bool:
    """Return whether a value draws random numbers, from a state that can be set."""
    if isinstance(value, torch.Generator | random.Random):
        return not isinstance(value, random.SystemRandom)
    is_numpys = any(kind.__module__.startswith("numpy.random") for kind in type(value).__mro__)
    return is_numpys and (hasattr(value, "random") or hasattr(value, "random_raw"))  # which gives bits to it


def _cannot_go_back(value: Any) -> bool:
    """Return whether a change cannot be put back: an item that is taken, a cell of a table; not in an own class."""
    kind = type(value)
    if isinstance(value, io.IOBase):
        return not value.closed and value.seekable()
    if kind.__module__.partition(".")[0] == "pandas":
        return hasattr(kind, "equals")
    return (hasattr(kind, "__next__") or hasattr(kind, "executemany")) and not _is_own(kind.__module__)


def _plain_type(value: Any) -> Any:
    """Return Python's own class of a container, whose methods do nothing of a subclass's own."""
    return next(of for of in (collections.OrderedDict, dict, *_GROWS, tuple) if isinstance(value, of))
