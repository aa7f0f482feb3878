"""Detect data-dependent control flow in a model's call, and check that all ranks took the same branch."""

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from nb2ddp.runtime.module_state import _ModuleState
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.random_rows import _generators, _set_generators

# What gives Python the values of a tensor, or a tensor whose size depends on them.
_LOOKS = frozenset(
    (
        *("__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__"),
        *("allclose", "equal", "is_nonzero", "item", "numpy", "tolist"),
        *("argwhere", "bincount", "masked_select", "nonzero", "unique", "unique_consecutive"),
        *("repeat_interleave", "_pad_packed_sequence"),
    )
)
_SIZED_BY_NUMBERS = frozenset({"arange", "empty", "full", "ones", "zeros"})


_CHOICES = frozenset({"__getitem__", "argwhere", "masked_select", "nonzero", "where"})
_NUMBERS = frozenset({"__float__", "__int__", "item"})
_DIVISIONS = frozenset(
    {"__truediv__", "__itruediv__", "__rtruediv__", "div", "div_", "divide", "true_divide"}
)

# What is known of a kind of call in which Python sees values: whether it changes the model's state; and by place in the
# code where values choose what is computed, how often ranks chose differently and it was right.
_Known = tuple[bool, dict[Any, int]]
_ENOUGH = 3  # right results after which ranks may choose differently at a place; a single one may be chance


class _Looks(TorchFunctionMode):
    """Record where Python reads tensor values during a call (`.item()`, `bool(x)`, boolean indexing).

    A rank's rows may take another branch there than the whole batch. ``chosen`` holds, by function and line, the
    booleans that were read; and, divided by the number of ``rows``, how many elements were selected, the numbers that
    were read, and the divisors: a mean may run over so many. ``weighted`` holds, for each mean cross entropy with class
    weights or another ignored label than -100, its labels, the weights and that label.
    """

    other_branch = "data-dependent control flow: one rank's rows took another branch than the rest"

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.found = rows, False
        self.chosen: dict[Any, list[float]] = {}
        self.weighted: list[tuple[torch.Tensor, torch.Tensor | None, int]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in ("cross_entropy", "nll_loss") and kwargs.get("reduction") == "mean":
            labels, weights, ignored = args[1], kwargs.get("weight"), kwargs.get("ignore_index", -100)
            if (weights is not None or ignored != -100) and not labels.is_floating_point():
                self.weighted.append((labels, weights, ignored))
        if _looks(name, args, kwargs):
            self.found = True
            selected = []
            if name in _CHOICES:
                selected = [x.numel() / self.rows for x in pytree.tree_leaves(result)]
            elif name in _NUMBERS and not isinstance(result, complex):
                selected = [result / self.rows]
            elif name in _DIVISIONS:
                selected = [_divisor(name, args).item() / self.rows]
            if selected or isinstance(result, bool):
                frame = sys._getframe(1)
                of_place = self.chosen.setdefault((frame.f_code.co_name, frame.f_lineno), [])
                of_place += selected or [float(result)]
        return result

    def choices(self, known: _Known) -> str:
        """Return as text what was chosen, but at places where it is free."""
        return str([(place, of) for place, of in self.chosen.items() if known[1].get(place, 0) < _ENOUGH])


def _looks(name: str, args: Any, kwargs: Any) -> bool:
    """Return whether a function of PyTorch shows Python the values of a tensor, or a size that comes from them."""
    if name == "__getitem__":
        indices = args[1] if isinstance(args[1], tuple) else (args[1],)
        ends = [end for index in indices if isinstance(index, slice) for end in (index.start, index.stop)]
        chosen = [index for index in indices if getattr(index, "dtype", None) in (torch.bool, torch.uint8)]
        return bool(chosen) or _has_tensor(ends)
    if name in _DIVISIONS:
        divisor = _divisor(name, args)
        return isinstance(divisor, torch.Tensor) and divisor.numel() == 1 and not divisor.is_complex()
    if name in _SIZED_BY_NUMBERS:
        return _has_tensor(args)
    return name in _LOOKS or (name == "where" and len(args) + len(kwargs) == 1)


def _divisor(name: str, args: Any) -> Any:
    return args[0] if name == "__rtruediv__" else args[1] if len(args) > 1 else None


def _learn(known: _Known | None, of_ranks: list[_Looks], *, changes: bool, is_right: bool) -> _Known:
    """Return what a trial shows: where it ``is_right`` though the ranks chose differently, they may do so again."""
    changed, places = known or (False, {})
    first, learned = of_ranks[0].chosen, dict(places)
    for place in {place for looks in of_ranks for place in looks.chosen}:
        differs = any(looks.chosen.get(place) != first.get(place) for looks in of_ranks)
        learned[place] = learned.get(place, 0) + (is_right and differs)
    return changed or changes, learned


def _has_tensor(values: Any) -> bool:
    return any(isinstance(value, torch.Tensor) for value in pytree.tree_leaves(values))


def _looks_compiled(compute: Callable[[], Any]) -> bool:
    """Return whether a model looks at its values that must not be compiled within a mode; it is not compiled here."""
    set_stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if set_stance is None:  # before torch 2.6
        return True
    looks = _Looks(1)
    try:
        with set_stance("force_eager"), looks:
            compute()
    except Exception:  # it works compiled alone
        return True
    return looks.found


class _Start:
    """What a call starts from, for the same call to be computed once more."""

    def __init__(self, model: torch.nn.Module, *, changes: bool) -> None:
        self.random, self.of_gpus = _random_state(), _generators()
        self.state = _ModuleState(model) if changes else None

    def put_back(self) -> None:
        if self.state is not None:
            self.state.put_back()
        _set_random_state(self.random)
        _set_generators(self.of_gpus)


def _are_on_all_ranks(*texts: str | None) -> list[bool]:
    """Return of each text whether every rank has the same; None is what a rank does not know. A collective."""
    digests = [int.from_bytes(hashlib.sha256((x or "").encode()).digest()[:7], "big") for x in texts]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    most = torch.tensor([(d, -d, x is None) for d, x in zip(digests, texts, strict=True)], device=device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return [bool(highest == -lowest and not unknown) for highest, lowest, unknown in most.tolist()]
