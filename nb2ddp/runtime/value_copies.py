"""Copy values that the notebook's code may change, compare them, and put them back."""

import array
import collections
import contextlib
import contextvars
import functools
import gc
import io
import itertools
import math
import operator
import pickle
import random
import sys
import types
from typing import Any

import torch

from nb2ddp.runtime.kept_values import (
    _GROWS,
    _MOST,
    _SIMPLE,
    _cannot_go_back,
    _is_array,
    _is_generator,
    _plain_type,
)

_ABSENT = "nb2ddp: there was none"
_NOT_COPIED = object()  # of what is known by its identity alone
_MOST_COMPARED = 1 << 14  # entries of a dict
_MOST_CELLS = 1 << 12  # of a table


def _copied(value: Any, most: int = _MOST) -> Any:
    """Return a copy of a value that may be changed in place; of a list with more items its length alone."""
    if isinstance(value, torch.Tensor):
        # a subclass for quantised weights may not know how
        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
            return value.detach().clone()
        return value
    if _is_array(value):
        return value.copy()
    if isinstance(value, dict):
        return [x for pair in itertools.islice(_plain_type(value).items(value), _MOST_COMPARED) for x in pair]
    if isinstance(value, _GROWS):
        if len(value) > (most if isinstance(value, list) else max(most, _MOST_COMPARED)):
            return len(value)
        of = _plain_type(value)
        items = of.__iter__(value)
        return of(items, value.maxlen) if isinstance(value, collections.deque) else of(items)
    if isinstance(value, functools._lru_cache_wrapper):
        return value.cache_info()
    if isinstance(value, array.array | bytearray | io.StringIO):
        return value.getvalue() if isinstance(value, io.StringIO) else value[:]
    if _is_generator(value):
        return _generator_state(value)
    return _IteratorState(value) if _cannot_go_back(value) else value


def _refill(value: Any, copy: Any) -> None:
    """Make a value hold what it held."""
    if isinstance(value, torch.Tensor):
        if not _are_equal(value, copy):  # a write leaves a trace
            with torch.no_grad():
                if value.shape != copy.shape:
                    value.data = copy.clone()
                value.copy_(copy)
    elif _is_array(value):
        value[...] = copy
    elif isinstance(value, list) and isinstance(copy, int):
        del value[copy:]
    elif isinstance(value, _GROWS) and not isinstance(copy, int):
        base: Any = _plain_type(value)
        base.clear(value)
        add: Any = base.update if base is set else base.extend
        add(value, copy)
    elif isinstance(value, dict) and len(copy) < 2 * _MOST_COMPARED:
        _plain_type(value).clear(value)
        _plain_type(value).update(value, zip(copy[::2], copy[1::2], strict=True))
    elif isinstance(value, io.StringIO):
        value.seek(0)
        value.truncate()
        value.write(copy)
    elif isinstance(value, array.array | bytearray):
        value[:] = copy
    elif _is_generator(value):
        _set_generator_state(value, copy)


def _is_as_it_was(value: Any, copy: Any) -> bool:
    """Return whether a value holds what it held when the copy was made."""
    if isinstance(value, dict):
        now = _copied(value)
        return len(now) == len(copy) and all(map(operator.is_, now, copy))
    if isinstance(value, _GROWS) and isinstance(copy, int):
        return len(value) == copy
    return _agree(copy, value if isinstance(value, torch.Tensor) else _copied(value, sys.maxsize))


def _generator_state(value: Any) -> bytes:
    """Return the state of a random generator, to be compared and set: as bytes, for it is no sum of what was drawn."""
    source = getattr(value, "bit_generator", value)  # NumPy's
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().numpy())
    if isinstance(value, random.Random):
        return pickle.dumps(value.getstate())
    return pickle.dumps(source.state if hasattr(source, "state") else value.get_state(legacy=False))


def _set_generator_state(value: Any, state: bytes) -> None:
    source = getattr(value, "bit_generator", value)
    if isinstance(value, torch.Generator):
        value.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(value, random.Random):
        value.setstate(pickle.loads(state))
    elif hasattr(source, "state"):
        source.state = pickle.loads(state)
    else:
        value.set_state(pickle.loads(state))


class _IteratorState:
    """Where an iterator is, or what a table holds. It cannot be put back."""

    def __init__(self, value: Any) -> None:
        is_table = hasattr(value, "equals")
        self.table: Any = value.copy() if is_table and value.size <= _MOST_CELLS else None
        self.held = list(value.shape) if is_table else _iterator_state(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _IteratorState) or not _are_same_items(self.held, other.held):
            return False
        return self.table is None or bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]


def _iterator_state(iterator: Any, depth: int = 0) -> list[Any]:
    """Return what changes as items are taken: an index, a generator's place and variables, those of others inside."""
    found = [getattr(iterator, "_num_yielded", None)]  # a DataLoader's
    with contextlib.suppress(Exception):
        found.append(operator.length_hint(iterator, -1))
        found.append(getattr(iterator, "total_changes", None))  # of a database
    found.append(repr(iterator) if isinstance(iterator, itertools.count) else None)
    if isinstance(iterator, io.IOBase):
        with contextlib.suppress(OSError, ValueError):  # within a loop over its lines
            found.append(iterator.tell())
        return found
    frame = getattr(iterator, "gi_frame", None)
    found.append(None if frame is None else frame.f_lasti)
    parts = gc.get_referents(iterator) if depth < 4 else []
    parts = [part for part in parts if part is not type(iterator)]  # which Python 3.12 counts among them
    if isinstance(iterator, itertools.cycle) and len(parts) == 1 and len(parts[0]) <= _MOST_CELLS:
        found += [next(iterator) for _ in parts[0]]  # its index is out of sight; a whole round brings it back
    for inner in parts:
        if not isinstance(inner, type | types.FunctionType | types.ModuleType | types.CodeType | dict):
            is_inside = _cannot_go_back(inner) or isinstance(inner, tuple)  # of map and zip
            found.append(_iterator_state(inner, depth + 1) if is_inside else inner)
    return found


def _are_same_items(one: Any, other: Any) -> bool:
    """Return whether two values are one object, equal numbers or texts, or lists of such."""
    if isinstance(one, list) and isinstance(other, list) and one is not other:
        return len(one) == len(other) and all(map(_are_same_items, one, other))
    return one is other or (isinstance(one, _SIMPLE) and type(one) is type(other) and bool(one == other))


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values, NaN included. Those that cannot be compared count as equal."""
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        same = one if one.device == other.device else one.to(other.device)
        return torch.equal(same, other) or bool(((same == other) | ((same != same) & (other != other))).all())
    return True


def _agree(one: Any, other: Any, tolerance: float = 0.0, least: float | None = None) -> bool:
    """Return whether two values are equal, numbers up to a relative ``tolerance`` and an absolute one, ``least``."""
    least = tolerance if least is None else least
    tensors = [isinstance(value, torch.Tensor) for value in (one, other)]
    if any(tensors):
        if not all(tensors) or one.shape != other.shape:
            return False
        if not tolerance or not one.is_floating_point():
            return _are_equal(one, other)
        here, there = one.double().cpu(), other.double().cpu()
        return bool(torch.allclose(here, there, rtol=tolerance, atol=least, equal_nan=True))
    if _is_array(one) or _is_array(other):
        if type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        same = (one == other) | ((one != one) & (other != other))  # both are NaN
        if tolerance and one.dtype.kind in "fc":
            same |= abs(one - other) <= least + tolerance * abs(one)
        return bool(same.all())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(a is b or _agree(a, b, tolerance, least) for a, b in pairs)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[of], other[of], tolerance, least) for of in one)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool) and not isinstance(other, bool):
        are_close = math.isclose(one, other, rel_tol=tolerance, abs_tol=least * 1e-2)
        return one == other or are_close or (one != one and other != other)
    try:
        return bool(type(one) is type(other) and (one is other or one == other))
    except Exception:  # __eq__ of any class may do anything
        return False


def _read(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return dict.get(holder, key, _ABSENT)
    if isinstance(holder, list | tuple | collections.deque):
        return holder[key] if key < len(holder) else _ABSENT
    if isinstance(holder, contextvars.ContextVar):
        with contextlib.suppress(LookupError):
            return holder.get()
        return _ABSENT
    return _ABSENT if holder is None else getattr(holder, key, _ABSENT)


def _write(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, dict) or (isinstance(holder, list | collections.deque) and key < len(holder)):
        _plain_type(holder).__setitem__(holder, key, value)
    elif isinstance(holder, contextvars.ContextVar):
        holder.set(value)
    elif holder is not None and not isinstance(holder, tuple | list | collections.deque):
        setattr(holder, key, value)


def _remove(holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        _plain_type(holder).pop(holder, key, None)
    elif not isinstance(holder, list | tuple | collections.deque | None) and hasattr(holder, key):
        delattr(holder, key)
