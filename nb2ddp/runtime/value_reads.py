"""Notice where Python reads the values of a batch during a call: what it computes may depend on its rows."""

import collections
import hashlib
import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from nb2ddp.runtime.object_collectives import _largest_of_ranks
from nb2ddp.runtime.run_state import _is_power_of_two

# What gives Python the values of a tensor, or a tensor whose size depends on them.
_READS = frozenset(
    "__array__ __bool__ __complex__ __contains__ __float__ __index__ __int__ allclose equal is_nonzero item numpy "
    "tolist argwhere bincount masked_select nonzero unique unique_consecutive repeat_interleave "
    "_pad_packed_sequence".split()
)
_SIZED_BY_NUMBERS = frozenset({"arange", "empty", "full", "ones", "zeros"})
_OTHER_BRANCH = "data-dependent control flow: one rank's rows took another branch than the rest"
_MOST_WAYS = 16  # of a kind of call
_NUMBERS = frozenset({bool, int, float})
_CHOICES = frozenset({"__getitem__", "argwhere", "masked_select", "nonzero", "where"})
_COMPARISONS = frozenset(
    f"{prefix}{name}{prefix}" for name in ("eq", "ge", "gt", "le", "lt", "ne") for prefix in ("__", "")
) | frozenset({"greater", "greater_equal", "less", "less_equal"})
_DIVISIONS = frozenset("__truediv__ __itruediv__ __rtruediv__ div div_ divide true_divide".split())


class _Reads(TorchFunctionMode):
    """Whether values are read, and in ``choices`` which, in the order of the call.

    A rank's rows may take another branch there than the whole batch. Kept are booleans; and, divided by the number of
    ``rows``, how many elements were selected, numbers, and divisors: a mean may run over so many. In ``deciding`` are
    the floats that Python sees, or sees compared with another number than 0.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.found = rows, False
        self.choices: list[float] = []
        self.deciding: list[float] = []
        # by id: what came of comparing two numbers, and the first
        self.compared: dict[int, tuple[Any, Any]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _COMPARISONS and _is_decisive(args):
            self.compared[id(result)] = result, args[0] if isinstance(args[0], torch.Tensor) else args[1]
        if _reads_values(name, args, kwargs):
            self.found = True
            of = self.compared.pop(id(args[0]), None) if args else None
            seen = result if of is None else float(of[1].detach())
            self.deciding += [seen] if isinstance(seen, float) else []
            if name in _CHOICES:
                self.choices += [x.numel() / self.rows for x in pytree.tree_leaves(result)]
            elif name in _DIVISIONS:
                self.choices.append(float(_divisor(name, args).item()) / self.rows)
            elif isinstance(result, int | float):
                self.choices.append(result / (1 if isinstance(result, bool) else self.rows))
        return result


class _Paths(TorchFunctionMode):
    """The ways of calls through a model: one that no compared call took may use the batch in another way.

    A way is how many nodes its graph has; within this also which functions are called, and which of their plain
    arguments are 0.
    """

    def __init__(self) -> None:
        super().__init__()
        # by kind of call, the ways of those that were compared; those of the latest calls; and the one under way
        self.known, self.latest, self.way = collections.defaultdict[Any, set[Any]](set), set[Any](), 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.way = hash((self.way, getattr(func, "__name__", "")))
        for value in (*args, *kwargs.values()):
            if type(value) in _NUMBERS and not value:  # a factor that switches a term on, say
                self.way += 1
        return func(*args, **kwargs)

    def are_new(self, kind: Any) -> bool:
        return not self.latest <= self.known[kind]

    def asks(self, kind: Any, call: int) -> bool:
        """Return whether the latest call is to be compared: where there are many ways, seldom."""
        return self.are_new(kind) and (len(self.known[kind]) < _MOST_WAYS or _is_power_of_two(call))


def _reads_values(name: str, args: Any, kwargs: Any) -> bool:
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
    return name in _READS or (name == "where" and len(args) + len(kwargs) == 1)


def _is_decisive(args: Any) -> bool:
    """Return whether a number of a batch is compared with another than 0: a sum's sign is that of its parts' sums."""
    numbers = [x for x in args[:2] if isinstance(x, torch.Tensor) and not x.ndim and x.is_floating_point()]
    return bool(numbers) and not any(isinstance(x, int | float) and x == 0 for x in args[:2])


def _is_no_mean(whole: list[float], of_ranks: list[list[float]]) -> bool:
    """Return whether a number that decides, a sum say, is outside of those of the ranks' rows, as no mean is."""
    if any(len(of_rank) != len(whole) for of_rank in of_ranks):
        return False
    for value, *parts in zip(whole, *of_ranks, strict=True):
        margin = 1e-3 * max(map(abs, (value, *parts)))
        if not min(parts) - margin <= value <= max(parts) + margin and math.isfinite(value):
            return True
    return False


def _divisor(name: str, args: Any) -> Any:
    return args[0] if name == "__rtruediv__" else args[1] if len(args) > 1 else None


def _has_tensor(values: Any) -> bool:
    return any(isinstance(value, torch.Tensor) for value in pytree.tree_leaves(values))


def _are_on_all_ranks(*texts: str | None) -> list[bool]:
    """Return of each text whether every rank has the same; None is what a rank does not know. A collective."""
    digests = [int.from_bytes(hashlib.sha256((x or "").encode()).digest()[:7], "big") for x in texts]
    seen = _largest_of_ranks([(d, -d, x is None) for d, x in zip(digests, texts, strict=True)])
    return [bool(highest == -lowest and not unknown) for highest, lowest, unknown in seen]
