"""Tell the rows of a micro-batch apart: what each costs and counts, and some of them as a batch."""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import torch

_SUM = "a sum over items"
_WEIGHTS = (_SUM, "a mean over predicted labels", "a mean over labels", "a mean over rows")
_Part = tuple[int, ...]  # the numbers of its rows


class _Rows:
    """The rows of a micro-batch: those of its tensors, or the sequences that one without padding holds."""

    def __init__(self, inputs: Any, blocks: int = 1, *, divides: bool = True) -> None:
        self.inputs, self.blocks, self.cost = inputs, blocks, _cost(inputs)
        self.columns = 0  # of what is padded
        self.lengths = _sequences(inputs) if divides else []  # none where rows cannot be told apart
        self.is_flat = bool(self.lengths)
        if not divides:
            return
        if not self.lengths:
            rows = _count_rows(inputs) // blocks
            self.lengths = self._ends(rows) or [1] * rows
        try:
            self.of((0,), trims=True)
        except ValueError:
            self.lengths = []

    def _ends(self, rows: int) -> list[int]:
        """Return where the last token or label of each row stands; nothing where the batch has no mask."""
        given = self.inputs if isinstance(self.inputs, Mapping) else {}
        mask, labels = given.get("attention_mask"), given.get("labels")
        if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or len(mask) != rows * self.blocks:
            return []
        self.columns, kept = mask.shape[1], mask != 0
        if isinstance(labels, torch.Tensor) and labels.shape == mask.shape:
            kept = kept | (labels != -100)
        places = torch.arange(1, self.columns + 1, device=mask.device)
        return list((kept * places).amax(1).view(self.blocks, rows).amax(0).clamp(min=1).tolist())

    def width(self, part: _Part, *, trims: bool) -> int:
        """Return how many columns of a padded batch its rows need: a multiple of 8, as kernels like it."""
        longest = max(self.lengths[row] for row in part)
        return min(self.columns, -(-longest // 8) * 8) if trims else self.columns

    def cost_of(self, part: _Part, *, trims: bool) -> float:
        """Return what some rows cost, in the unit of `cost`."""
        if self.is_flat:
            return self.cost * sum(self.lengths[row] for row in part) / sum(self.lengths)
        share = self.width(part, trims=trims) / self.columns if self.columns else 1
        return self.cost * share * len(part) / len(self.lengths)

    def of(self, part: _Part, *, trims: bool) -> Any:
        """Return some rows as a batch; ``trims`` leaves out columns that are padding in all of them.

        Raises:
            ValueError: something in it has another number of rows.
        """
        return self._of(self.inputs, part, self.width(part, trims=trims) if self.columns else 0)

    def _of(self, value: Any, part: _Part, width: int) -> Any:
        if isinstance(value, Mapping):
            kind: Any = type(value)
            return kind({name: self._of(item, part, width) for name, item in value.items()})
        is_tensor = isinstance(value, torch.Tensor)
        if (is_tensor and not value.ndim) or isinstance(value, str | int | float | bool | None):
            return value
        if self.is_flat and is_tensor:
            return self._of_sequences(value, part)
        if is_tensor or isinstance(value, list | tuple):
            for count in {1, self.blocks}:
                if len(value) != len(self.lengths) * count:
                    continue
                places = [len(self.lengths) * block + row for block in range(count) for row in part]
                if not is_tensor:
                    return [value[place] for place in places]
                taken = value[torch.tensor(places, device=value.device)]
                trims = taken.ndim == 2 and taken.shape[1] == self.columns and not taken.is_floating_point()
                return taken[:, :width].contiguous() if trims else taken  # models view labels flat
        raise ValueError("a value of the batch has other rows")

    def _of_sequences(self, value: torch.Tensor, part: _Part) -> torch.Tensor:
        ends = list(itertools.accumulate(self.lengths))
        if value.ndim > 1 and value.shape[:2] == (1, ends[-1]):
            return torch.cat([value[:, ends[row] - self.lengths[row] : ends[row]] for row in part], 1)
        if value.ndim == 1 and len(value) == len(ends):
            return value[list(part)]
        if value.ndim == 1 and value.tolist() == [0, *ends]:  # where sequences begin and end, for kernels
            return value.new_tensor([0, *itertools.accumulate(self.lengths[row] for row in part)])
        raise ValueError("a value of the batch has other rows")

    def _by_row(self, counted: torch.Tensor, shift: int = 0) -> list[list[int]]:
        """Return how many positions of each row count, for each block of rows, without the first ``shift``."""
        if self.is_flat:
            sums = [of_row[shift:].sum() for of_row in counted[0].split(self.lengths)]
            return [torch.stack(sums).tolist()]
        summed = counted[..., shift:].reshape(len(counted), -1).sum(1)
        return list(summed.view(-1, len(self.lengths)).tolist())

    def kinds(self, parts: list[_Part]) -> set[Any]:
        """What tells batches apart: names, types, and signs of uneven number (a loss may leave out what is below 0)."""
        values = self.inputs if isinstance(self.inputs, Mapping) else dict(enumerate(_leaves(self.inputs)))
        found: set[Any] = {tuple(values)}
        for name, value in values.items():
            ndim = getattr(value, "ndim", 0)
            found.add((name, value if isinstance(value, str) else (type(value), ndim)))
            if ndim == 1 and len(value) == len(self.lengths) and not value.is_complex():
                signs = value.sign().tolist()
                counts = {sign: {sum(signs[row] == sign for row in part) for part in parts} for sign in signs}
                found |= {(name, sign) for sign in counts if len(counts[sign]) > 1}
        return found

    @functools.cached_property
    def counts(self) -> dict[str, list[int]]:
        """What each row counts in each way to put losses together."""
        found = {_WEIGHTS[3]: [1] * len(self.lengths)}
        labels = self.inputs.get("labels") if hasattr(self.inputs, "get") else None
        if isinstance(labels, torch.Tensor) and labels.ndim and self._has_rows(labels, self.blocks):
            for name, shift in ((_WEIGHTS[2], 0), (_WEIGHTS[1], int(labels.ndim > 1))):
                found[name] = [sum(of) for of in zip(*self._by_row(labels.ne(-100), shift), strict=True)]
        return found

    @functools.cached_property
    def figure_counts(self) -> dict[str, list[int]]:
        """What each row counts in each way to put figures together: a mean may be over any mask."""
        found = {}
        for name, value in self.inputs.items() if isinstance(self.inputs, Mapping) else ():
            if isinstance(value, list) and value and all(isinstance(item, bool) for item in value):
                value = torch.tensor(value, device="cpu")
            if not isinstance(value, torch.Tensor) or value.is_floating_point() or not self._has_rows(value):
                continue
            shifted = [(" shifted", value != 0, 1)] if value.ndim > 1 else []
            for what, counted, shift in (("", value != 0, 0), *shifted, (" not", value == 0, 0)):
                blocks = self._by_row(counted, shift)
                for block, of_row in enumerate([*blocks, [sum(of) for of in zip(*blocks, strict=True)]]):
                    found[f"{name}{what} {block}"] = of_row
        return found

    def _has_rows(self, value: torch.Tensor, blocks: int = 0) -> bool:
        if self.is_flat:
            return value.ndim > 1 and list(value.shape[:2]) == [1, sum(self.lengths)]
        count, rows = len(value) if value.ndim else 0, len(self.lengths)
        return count > 0 and (count == blocks * rows if blocks else count % rows == 0)


def _count_rows(inputs: Any) -> int:
    """Return the number of rows of a batch: of its labels, or what most of its tensors begin with."""
    counts = [len(value) for value in _leaves(inputs) if isinstance(value, torch.Tensor) and value.ndim]
    return max(counts, key=lambda count: (counts.count(count), count), default=0)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]


def _sequences(inputs: Any) -> list[int]:
    """Return the lengths of the sequences of a batch without padding, whose positions begin anew; else nothing."""
    places = inputs.get("position_ids") if isinstance(inputs, Mapping) else None
    if not isinstance(places, torch.Tensor) or places.ndim != 2 or len(places) != 1:
        return []
    starts: list[int] = (places[0] == 0).nonzero()[:, 0].tolist()
    return [b - a for a, b in itertools.pairwise([*starts, places.shape[1]])] if starts[:1] == [0] else []


def _cost(inputs: Any) -> int:
    """Return about how much a micro-batch costs: the largest tensor of integers, or any, that it holds."""
    found = _leaves(dict(enumerate(inputs)) if isinstance(inputs, list | tuple) else inputs)
    tensors = [value for value in found if isinstance(value, torch.Tensor)]
    whole = [tensor for tensor in tensors if not tensor.is_floating_point()]
    return max((tensor.numel() for tensor in whole or tensors), default=1)
