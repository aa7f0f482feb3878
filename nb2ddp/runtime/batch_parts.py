"""Divide the arguments of a model's call over the ranks."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.rows import _TakeRows
from nb2ddp.runtime.run_state import _run

# What a mean may run over: the positions of an argument that count, or what each counts. No mean runs over those that
# are as the first; they tell that an argument whose values were all one has another one now.
_COUNTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "not -100": lambda values: values.ne(-100),
    "not -1": lambda values: values.ne(-1),
    "not 0": lambda values: values.ne(0),
    "as the first": lambda values: values.eq(values.flatten()[:1]),
}
_COUNTED_OF_FLOATS = {
    **_COUNTED,
    "weights": lambda values: values,
    "above 0": lambda values: values.gt(0),
    "a number": lambda values: values.eq(values),
    "not all 0": lambda values: (values.unsqueeze(-1) if values.ndim == 1 else values).ne(0).any(-1),
}


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
        self._class_weights: tuple[torch.Tensor, int] | None = None
        self._shares: dict[Any, list[float] | None] = {}  # by way to combine a number
        self._uneven = set[Any]()

    @property
    def known(self) -> bool:
        """Whether nothing is passed whose rows cannot be told."""
        plain = (torch.Tensor, list, str, int, float, bool, type(None), torch.dtype, torch.device)
        return min(self.sizes) > 0 and all(isinstance(leaf, plain) for leaf in self.leaves)

    @property
    def mean_over_rows(self) -> list[float]:
        """What each rank's number counts where all rows count alike."""
        return [size / self.rows for size in self.sizes]

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

    @property
    def least(self) -> float:
        """The relative difference of weights that counts; on GPUs a smaller one is lost in rounding."""
        return 1e-4 if any(leaf.is_cuda for leaf in self.leaves if isinstance(leaf, torch.Tensor)) else 1e-6

    def uneven_ways(self) -> set[Any]:
        """Return the ways by which some rows count more than others."""
        self.weights()
        return self._uneven

    def know_classes(self, weights: tuple[torch.Tensor, int] | None) -> None:
        """Know the weights of the classes that integer arguments may name, and the label that is ignored."""
        self._class_weights = weights
        self._shares.clear()

    def weights(self) -> dict[Any, list[float] | None]:
        """Return, for each way to combine a number, the weight of each rank's; None where nothing counts.

        A mean may run over rows, or over the positions of an argument (labels, a mask, weights) that count;
        "shifted" ones are predicted from the position before them.
        """
        if self._shares:
            return self._shares
        counts: dict[Any, torch.Tensor] = {}
        for number, (leaf, own) in enumerate(zip(self.leaves, self.divided, strict=True)):
            if not own or not isinstance(leaf, torch.Tensor) or not _is_plain(leaf):
                continue
            for name, count in self._counted(leaf).items():
                of_rows = count(leaf.detach())
                counts[number, name, False] = of_rows.unsqueeze(-1).flatten(1).sum(1, dtype=torch.float64)
                if of_rows.ndim > 1:
                    counts[number, name, True] = of_rows[:, 1:].flatten(1).sum(1, dtype=torch.float64)
        device = next((count.device for count in counts.values()), None)
        values = [count.to(device) for count in counts.values()]
        self._shares["mean over rows"] = self.mean_over_rows
        for way, of_row in zip(counts, torch.stack(values).tolist() if counts else [], strict=True):
            of_ranks = [sum(of_row[start:end]) for start, end in self.ranges]
            self._shares[way] = [count / sum(of_ranks) for count in of_ranks] if sum(of_ranks) else None
            if not max(of_row) - min(of_row) <= self.least * abs(max(of_row)):
                self._uneven.add(way)
        self._shares["sum"] = [1.0] * _run.world_size
        return self._shares

    def _counted(self, leaf: torch.Tensor) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
        """Return what of an argument a mean may run over."""
        if leaf.is_floating_point():
            return _COUNTED_OF_FLOATS
        if self._class_weights is None:
            return _COUNTED
        weights, ignored = self._class_weights

        def weights_of(labels: torch.Tensor) -> torch.Tensor:
            classes = labels.long().clamp(0, len(weights) - 1)
            return weights.to(labels.device)[classes] * labels.ne(ignored)

        return {**_COUNTED, "class weights": weights_of}


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_complex()


def _is_list_of_values(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(v, torch.Tensor) for v in value)
