"""Copy values that a call may change, find what has changed, and put it back."""

import collections
import contextlib
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

from nb2ddp.runtime.metrics import _is_metric

_MOST_VALUES = 2**26  # of a tensor that is copied
_MOST_OF_SCRIPT = 2**16  # of one that only the script's names hold
_MOST_OF_PARAMETERS = 2**29  # of all parameters together that are copied
_MOST_OF_OTHERS = 2**28  # of all other tensors together
_MOST_ITEMS = 1000  # of a container that is looked into
_MOST_REACHED = 2000  # values that are looked at in one of the notebook's
_CONTAINERS = (list, dict, set, collections.deque)


class _Copy:
    """A tensor, a container or a random generator, and what it held when this was made."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.held: Any = None
        if isinstance(value, torch.Tensor):
            # a subclass for quantised weights may know neither
            with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
                self.version = value._version
                self.held = value.detach().clone()
        elif isinstance(value, _CONTAINERS):
            self.held = list(_items(value))
        else:
            self.held = _generator_state(value)

    def is_changed(self) -> bool:
        """Return whether the value holds something else; False where it could not be copied."""
        if self.held is None:
            return False
        if isinstance(self.value, torch.Tensor):
            # what is written through `.data`, and by some kernels, leaves the version as it was
            return bool(self.value._version != self.version) or not _are_equal(self.value, self.held)
        if not isinstance(self.value, _CONTAINERS):
            return bool(_generator_state(self.value) != self.held)
        items = list(_items(self.value))
        return len(items) != len(self.held) or any(a is not b for a, b in zip(items, self.held, strict=True))

    def put_back(self) -> None:
        """Make the value hold what it held."""
        if not self.is_changed():
            return
        if isinstance(self.value, torch.Tensor):
            if self.value.shape != self.held.shape:
                self.value.data = self.held.clone()
            with torch.no_grad():
                self.value.copy_(self.held)
        elif isinstance(self.value, _CONTAINERS):
            base = _base(self.value)
            base.clear(self.value)
            if isinstance(self.value, dict):
                for key, value in zip(self.held[::2], self.held[1::2], strict=True):
                    base.__setitem__(self.value, key, value)
            else:
                add: Any = base.update if base is set else base.extend
                add(self.value, self.held)
        else:
            _set_generator_state(self.value, self.held)


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values, NaN included. Those that cannot be compared count as equal."""
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
        if one.shape != other.shape:
            return False
        return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())
    return True


def _generator_state(value: Any) -> Any:
    """Return the state of a random generator, to be compared and set; None for what is no generator."""
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate()
    bits = (
        getattr(value, "bit_generator", None) if type(value).__module__.startswith("numpy.random") else None
    )
    return None if bits is None else _Comparable(bits.state)


def _set_generator_state(value: Any, state: Any) -> None:
    if isinstance(value, torch.Generator):
        value.set_state(torch.tensor(state, dtype=torch.uint8))
    elif isinstance(value, random.Random):
        value.setstate(state)
    else:
        value.bit_generator.state = state.state


class _Comparable:
    """The state of a NumPy generator: a dict, of arrays too in some kinds, which compare by their text."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.text = repr({name: getattr(of, "tolist", lambda of=of: of)() for name, of in _flat(state)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Comparable) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]


def _flat(state: Any) -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        yield from _flat(value) if isinstance(value, dict) else [(name, value)]


def _base(value: Any) -> Any:
    """Return Python's own class of a container, whose methods do nothing of a subclass's own."""
    return next(kind for kind in (collections.OrderedDict, *_CONTAINERS, tuple) if isinstance(value, kind))


def _items(value: Any) -> Iterator[Any]:
    """Yield what a container holds; of a dict, keys and values."""
    for item in _base(value).__iter__(value):
        yield item
        if isinstance(value, dict):
            yield dict.__getitem__(value, item)


def _reachable(value: Any) -> Iterator[Any]:
    """Yield a value, and what containers in it hold that are not very long; no plain numbers and texts."""
    seen: set[int] = set()
    waiting = [value]
    while waiting and len(seen) < _MOST_REACHED:
        found = waiting.pop()
        if isinstance(found, int | float | str | bytes) or found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, (*_CONTAINERS, tuple)) and len(found) <= _MOST_ITEMS:
            waiting += _items(found)


def _copies(values: list[Any], of_script: set[int]) -> dict[int, _Copy]:
    """Return copies by the ids of what they copy: of no very large tensor, and of tensors as far as memory allows.

    Of what the script's names hold, a data set say, no large tensor at all.
    """
    copies: dict[int, _Copy] = {}
    left, left_of_others = _MOST_OF_PARAMETERS, _MOST_OF_OTHERS
    if torch.cuda.is_available():
        left = min(left, torch.cuda.mem_get_info()[0] // 16)  # a quarter of what is free, at four bytes each
    for value in values:
        if id(value) in copies:
            continue
        if isinstance(value, torch.Tensor):
            lazy = isinstance(value, torch.nn.parameter.UninitializedTensorMixin)
            most = _MOST_OF_SCRIPT if id(value) in of_script else _MOST_VALUES
            if lazy or value.is_meta or value.is_inference() or value.numel() > most:
                continue
            if isinstance(value, torch.nn.Parameter):
                left -= value.numel()
                if left < 0 or not value.is_floating_point():  # of quantised weights, say
                    continue
            elif (left_of_others := left_of_others - value.numel()) < 0:
                continue
        if (copy := _Copy(value)).held is not None:
            copies[id(value)] = copy
    return copies


class _Chosen(MutableMapping[str, Any]):
    """Some of the names of a script or a class, as a mapping that changes them."""

    def __init__(
        self,
        values: Mapping[str, Any],
        names: set[str],
        store: Callable[[str, Any], None],
        drop: Callable[[str], None],
    ) -> None:
        self.values_of, self.names = values, names
        self.store, self.drop = store, drop

    def __getitem__(self, name: str) -> Any:
        return self.values_of[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.store(name, value)

    def __delitem__(self, name: str) -> None:
        self.drop(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in sorted(self.names) if name in self.values_of)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _class_attributes(kind: type) -> _Chosen:
    """Return what a class of the notebook's keeps beside its functions."""
    names = {name for name, value in vars(kind).items() if not name.startswith("__") and _is_kept(value)}
    return _Chosen(vars(kind), names, functools.partial(setattr, kind), functools.partial(delattr, kind))


def _names_of_script() -> _Chosen:
    """Return the script's own names for state; the runtime's own, in a script of a single file, begin with "_"."""
    space = sys.modules["__main__"].__dict__
    names = {
        name
        for name, value in space.items()
        if not name.startswith("__") and _is_kept(value) and not type(value).__name__.startswith("_")
    }
    return _Chosen(space, names, space.__setitem__, space.__delitem__)


def _is_kept(value: Any) -> bool:
    """Return whether a value is state: a number, a text, a container, a tensor, a generator or an own object."""
    if isinstance(value, type | types.FunctionType | types.ModuleType | torch.nn.Module):
        return _is_metric(value)
    plain = isinstance(value, (bool, int, float, str, tuple, torch.Tensor, *_CONTAINERS)) or value is None
    return plain or _is_of_own_class(value) or _generator_state(value) is not None


def _is_of_own_class(value: Any) -> bool:
    """Return whether an object is of a class of the notebook's, or a namespace."""
    return type(value).__module__ == "__main__" or isinstance(value, types.SimpleNamespace)
