"""Divide the arguments of a model's call over the ranks."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_collectives import _rows_first, _TakeRows
from nb2ddp.runtime.dropout_rows import _tensor_hooks
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.script_location import _is_own

# Of an argument, the positions that a mean may run over; weights are what it holds, or those of its classes.
# "not as the first" is no weighting: it marks an argument whose values were all equal and now differ.
_COUNTED = ("not -100", "not -1", "not 0", "not as the first")
_COUNTED_OF_FLOATS = ("above 0", "a number")
_CHECKPOINT = "torch.utils.checkpoint"
_SMALL_ARGUMENT = 16  # values of a tensor of integers that is not divided
_MOST_OF_ROW = 4096  # of a row of floats that are all looked at; but their sum is that of all


class _Parts:
    """How the arguments of a call are divided: the leaves with a row for each sample, and the rows of each rank.

    ``layout`` says where the rows lie: in dimension 0; also in dimension 1 of what has as many there (an RNN's hidden
    states); or in dimension 1 of all (its sequences).
    """

    def __init__(self, args: Any, kwargs: Any, layout: int = 0) -> None:
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_list_of_values)
        beside = {len(leaf) for leaf in self.leaves if isinstance(leaf, list)}
        is_rows = functools.partial(_is_list_of_rows, beside=beside)
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs), is_leaf=is_rows)
        layouts = [_layout(self.leaves, number) for number in range(3)]
        self.layouts = [*dict.fromkeys(of for of in layouts if of[0] or of is layouts[0])]
        self.layout = min(layout, len(self.layouts) - 1)
        self.rows, self.dims = self.layouts[self.layout]
        self.divided = [dim is not None for dim in self.dims]
        pairs = zip(self.leaves, self.divided, strict=True)
        self.of_whole = [of.grad_fn for of, own in pairs if not own and getattr(of, "grad_fn", None)]
        bounds = [self.rows * rank // _run.world_size for rank in range(_run.world_size + 1)]
        self.ranges = list(itertools.pairwise(bounds))
        self.sizes = [end - start for start, end in self.ranges]
        self.mean_over_rows = [size / max(self.rows, 1) for size in self.sizes]  # each rank's weight in it
        # some rank's part, whose outputs `squeeze()` gives another form
        self.has_one_row = min(self.sizes) == 1
        self._shares: dict[Any, list[float] | None] = {}  # by way to combine a number
        self._uneven = set[Any]()
        # by argument of integers, its least and largest value
        self.extremes: dict[int, tuple[float, float]] = {}

    @property
    def obstacle(self) -> str:
        """Return why the arguments cannot be divided; "" where they can."""
        plain = (torch.Tensor, list, str, int, float, bool, type(None), torch.dtype, torch.device)
        seeing = (*torch.overrides._get_current_function_mode_stack(), *(_tensor_hooks() or ()))
        kinds = [getattr(of, "__module__", None) for of in seeing]
        if torch._C._len_torch_dispatch_stack() or any(map(_is_own, kinds)) or _CHECKPOINT in kinds:
            return "a mode or a hook of PyTorch's, a checkpoint around the model say, sees what is computed"
        if torch.autograd.forward_ad._current_level >= 0:
            return "it has derivatives in forward mode"
        if not all(isinstance(leaf, plain) and not hasattr(leaf, "get_mask") for leaf in self.leaves):
            return "its arguments hold an object that is no plain tensor, list or value"
        if not self.rows:
            return "its arguments hold no tensor with a batch dimension"
        return "" if min(self.sizes) > 0 else "it holds fewer rows than there are ranks"

    def shape(self, *, words: bool) -> tuple[Any, ...]:
        """Return what calls of one kind have in common; with ``words`` also texts and flags: a task's name, say."""
        kept = (str, bool) if words else ()
        kinds = tuple(
            (x.ndim, x.dtype) if isinstance(x, torch.Tensor) else x if isinstance(x, kept) else type(x)
            for x in self.leaves
        )
        return (kinds, self.dims, str(self.spec))

    @property
    def values(self) -> tuple[Any, ...]:
        """The numbers among the arguments, which may change what the model computes: the weight of a loss, say."""

        def value(leaf: Any) -> Any:
            if isinstance(leaf, int | float):
                return leaf
            if not isinstance(leaf, torch.Tensor) or leaf.is_cuda or not _is_plain(leaf):
                return None
            small = leaf.numel() <= _SMALL_ARGUMENT and not leaf.is_floating_point()
            return str(leaf.tolist()) if small else None

        pairs = zip(self.leaves, self.divided, strict=True)
        return tuple(None if own else value(leaf) for leaf, own in pairs)

    def some(self, rows: int, *, extreme: bool = False, unlike: bool = False) -> "_Parts":
        """Return the first rows as a batch of their own; all where there are not many more, or it would look alike.

        With ``extreme`` those that hold an argument's least and largest integer come first. With ``unlike`` each rank's
        are one row, several times: what is selected among all rows, the largest say, is then not among each rank's.
        """
        rows = min(rows, self.rows) if unlike else rows
        if self.rows < 2 * rows and not unlike:
            return self
        places: list[int] = []
        for number in self.extremes if extreme else ():
            leaf = _rows_first(self.leaves[number], self.dims[number])
            places += [int(x) // leaf[0].numel() for x in (leaf.argmin(), leaf.argmax())]
        places = list(dict.fromkeys([*places, *range(rows)]))[:rows]
        places = [place * _run.world_size // rows for place in places] if unlike else places
        taken = self._of(lambda rows: [rows[of] for of in places] if isinstance(rows, list) else rows[places])
        first = _Parts(taken[0], taken[1], self.layout)
        return self if first.obstacle or first.dims != self.dims else first

    def of(self, start: int, end: int, *, differentiable: bool = False) -> Any:
        """Return the arguments for some rows; ``differentiable`` ones are this rank's."""

        def part(rows: Any) -> Any:
            is_taken = differentiable and getattr(rows, "requires_grad", False)
            return _TakeRows.apply(rows, self.sizes, 0) if is_taken else rows[start:end]

        return self._of(part if differentiable or end - start < self.rows else lambda rows: rows)

    def _of(self, part: Callable[[Any], Any]) -> Any:
        """Return the arguments with a ``part`` of what has a row for each sample."""
        pairs = zip(self.leaves, self.dims, strict=True)
        parts = [x if dim is None else _rows_first(part(_rows_first(x, dim)), dim) for x, dim in pairs]
        return pytree.tree_unflatten(parts, self.spec)

    @property
    def weight_tolerance(self) -> float:
        """The relative difference of weights that counts; on GPUs a smaller one is lost in rounding."""
        return 1e-4 if any(leaf.is_cuda for leaf in self.leaves if isinstance(leaf, torch.Tensor)) else 1e-6

    def uneven_ways(self) -> set[Any]:
        """Return the ways by which some rows count more than others."""
        self.weights()
        return self._uneven

    def weights(self) -> dict[Any, list[float] | None]:
        """Return, for each way to combine a number, the weight of each rank's; None where nothing counts.

        A mean may run over rows, or over the positions of an argument (labels, a mask, weights) that count;
        "shifted" ones are predicted from the position before them.
        """
        if self._shares:
            return self._shares
        ways, counts, extremes = list[Any](), list[torch.Tensor](), dict[int, list[torch.Tensor]]()
        for number, (leaf, own) in enumerate(zip(self.leaves, self.divided, strict=True)):
            if not own or not isinstance(leaf, torch.Tensor) or not _is_plain(leaf):
                continue
            leaf = _rows_first(leaf.detach(), self.dims[number])
            if not leaf.is_floating_point() and leaf.dtype is not torch.bool:
                extremes[number] = [*leaf.double().aminmax()]  # PyTorch has none of unsigned integers
            for names, counted in self._counted(leaf):  # (names, rows, ...)
                kind = torch.float32 if counted.is_floating_point() else torch.int32
                counts.append(counted.unsqueeze(-1).flatten(2).sum(2, dtype=kind).float())
                ways += [(number, name, False) for name in names]
                if counted.ndim == 3:
                    counts.append(counted[:, :, 1:].sum(2, dtype=kind).float())
                    ways += [(number, name, True) for name in names]
        values = torch.cat([count.to(counts[0].device) for count in counts]).tolist() if counts else []
        if extremes:
            found = torch.stack([x for of in extremes.values() for x in of]).tolist()
            self.extremes = dict(zip(extremes, zip(found[::2], found[1::2], strict=True), strict=True))
        self._shares["mean over rows"] = self.mean_over_rows
        for way, of_row in zip(ways, values, strict=True):
            of_ranks = [sum(of_row[start:end]) for start, end in self.ranges]
            self._shares[way] = [count / sum(of_ranks) for count in of_ranks] if sum(of_ranks) else None
            if not max(of_row) - min(of_row) <= self.weight_tolerance * abs(max(of_row)):
                self._uneven.add(way)
        self._shares["sum"] = [1.0] * _run.world_size
        return self._shares

    def _counted(self, leaf: torch.Tensor) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
        """Yield what of an argument a mean may run over: names, and for each what each position counts."""
        if not leaf.dtype.is_signed:
            leaf = leaf.short() if leaf.element_size() == 1 else leaf.long()
        if leaf.is_floating_point():
            yield ("weights",), leaf[None]
            if leaf.ndim > 1 and (leaf.ndim == 3 or leaf[0].numel() <= _MOST_OF_ROW):
                yield ("not all 0",), leaf.ne(0).any(-1)[None]
            if leaf[0].numel() > _MOST_OF_ROW:  # an image's, say: some of them, in all columns
                leaf = leaf.flatten(1)[:, :: leaf[0].numel() // 1024 | 1].contiguous()
            yield _COUNTED_OF_FLOATS, torch.stack([leaf > 0, leaf == leaf])
        values = torch.cat([_ignored(leaf.dtype, leaf.device), leaf.flatten()[:1]])
        yield _COUNTED, leaf != values.view(-1, *[1] * leaf.ndim)


@functools.cache
def _ignored(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.tensor([-100, -1, 0], dtype=dtype, device=device)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor can be counted."""
    is_dense = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
    has_8_bits = tensor.is_floating_point() and tensor.element_size() == 1
    return is_dense and tensor.numel() > 0 and not has_8_bits and not tensor.is_complex()


def _layout(leaves: list[Any], number: int) -> tuple[int, tuple[int | None, ...]]:
    """Return how many rows arguments have, and of each in which dimension they lie; None where it has none."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim and not leaf.is_nested]
    lists = [leaf for leaf in leaves if isinstance(leaf, list) and isinstance(leaf[0], torch.Tensor)]
    rows, order = next(map(len, tensors + lists), 0), ((0,), (0, 1), (1, 0))[number]
    if number == 2:  # numbers of words, or vectors
        rows = next((of.shape[1] for of in tensors if of.ndim == 2 + of.is_floating_point()), 0)

    def dim(leaf: Any) -> int | None:
        length = [len(leaf)] if isinstance(leaf, list) else []
        shape = [*leaf.shape] if isinstance(leaf, torch.Tensor) and not leaf.is_nested else length
        return next((of for of in order if shape[of : of + 1] == [rows] and rows), None)

    return rows, tuple(map(dim, leaves))


def _is_list_of_values(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(v, torch.Tensor) for v in value)


def _is_list_of_rows(value: Any, *, beside: set[int]) -> bool:
    """Return whether a list holds something for each row: values, tensors of unlike length, or images.

    Tensors of one length may also be several arguments of a whole batch; as many of them as a list ``beside`` has
    values (what is to be found in each image, say) are rows.
    """
    if _is_list_of_values(value) or not isinstance(value, list) or len(value) < 2:
        return _is_list_of_values(value)
    if not all(isinstance(of, torch.Tensor) and of.ndim and not of.requires_grad for of in value):
        return False
    return len(value) in beside or len({len(of) for of in value}) > 1
