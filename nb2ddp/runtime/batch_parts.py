"""Divide the arguments of a model's call over the ranks."""

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.rows import _TakeRows
from nb2ddp.runtime.run_state import _run


class _Parts:
    """How the arguments of a call are divided: the leaves with a row for each sample, and the rows of each rank."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_list_of_values)
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor) and leaf.ndim]
        self.rows = len(tensors[0]) if tensors else 0
        self.divided = [
            self.rows > 0
            and ((isinstance(leaf, torch.Tensor) and leaf.ndim > 0) or isinstance(leaf, list))
            and len(leaf) == self.rows
            for leaf in self.leaves
        ]
        bounds = [self.rows * rank // _run.world_size for rank in range(_run.world_size + 1)]
        self.ranges = list(itertools.pairwise(bounds))
        self.sizes = [end - start for start, end in self.ranges]
        # for each way to combine a number that was asked for: what each rank's counts
        self.counts: dict[Any, list[float]] = {
            "mean over rows": [float(size) for size in self.sizes],
            "sum": [self.rows / _run.world_size] * _run.world_size,
        }

    @property
    def known(self) -> bool:
        """Whether nothing is passed whose rows cannot be told."""
        plain = (torch.Tensor, list, str, int, float, bool, type(None), torch.dtype, torch.device)
        return min(self.sizes) > 0 and all(isinstance(leaf, plain) for leaf in self.leaves)

    @property
    def has_one_row(self) -> bool:
        """Whether the part of some rank has one row, whose outputs ``squeeze()`` gives another form."""
        return min(self.sizes) == 1

    @property
    def has_lists(self) -> bool:
        """Whether a list is divided, whose values Python sees."""
        return any(
            own and isinstance(leaf, list) for leaf, own in zip(self.leaves, self.divided, strict=True)
        )

    @property
    def shape(self) -> tuple[Any, ...]:
        """What calls of one kind have in common."""
        kinds = tuple(leaf.ndim if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in self.leaves)
        return (kinds, tuple(self.divided), str(self.spec))

    @property
    def words(self) -> tuple[Any, ...]:
        """The arguments that may choose what the model computes: the name of a task, say."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, str | int))

    def of(self, start: int, end: int, *, differentiable: bool = False) -> tuple[Any, Any]:
        """Return the arguments for some rows; ``differentiable`` ones are this rank's."""

        def part(leaf: Any) -> Any:
            if differentiable and isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                return _TakeRows.apply(leaf, self.sizes, _run.rank)
            return leaf[start:end]

        taken = [part(leaf) if own else leaf for leaf, own in zip(self.leaves, self.divided, strict=True)]
        args, kwargs = pytree.tree_unflatten(taken, self.spec)
        return args, kwargs

    def weights(self, ways: Iterable[Any] | None = None) -> dict[Any, list[float]]:
        """Return, for each way to combine a number (or each of ``ways``), the weight of each rank's.

        A mean may run over rows, or over the positions of an integer argument (labels, a mask) that do not hold
        one value; "shifted" ones are compared with the position before them.
        """
        counts = {}
        for number, (leaf, own) in enumerate(zip(self.leaves, self.divided, strict=True)):
            if not own or not isinstance(leaf, torch.Tensor) or leaf.is_floating_point() or leaf.is_complex():
                continue
            for ignored, shifted in itertools.product((-100, -1, 0), (False, True)):
                way = (number, ignored, shifted)
                wanted = (ways is None or way in ways) and way not in self.counts
                if wanted and not (shifted and leaf.ndim < 2):
                    counts[way] = (leaf[:, 1:] if shifted else leaf).ne(ignored).reshape(self.rows, -1).sum(1)
        if counts:
            for way, of_rows in zip(counts, torch.stack(list(counts.values())).tolist(), strict=True):
                self.counts[way] = [float(sum(of_rows[start:end])) for start, end in self.ranges]
        shares = {
            way: [w / sum(weights) for w in weights] for way, weights in self.counts.items() if sum(weights)
        }
        shares["sum"] = [1.0] * _run.world_size
        return shares if ways is None else {way: shares[way] for way in ways if way in shares}


def _is_list_of_values(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(v, torch.Tensor) for v in value)
