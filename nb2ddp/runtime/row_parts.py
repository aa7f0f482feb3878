"""Divide the rows of one micro-batch over the ranks, where there are fewer micro-batches than ranks.

Whether a loss is a sum over the step's items, a mean over rows or a mean over labels is not looked up: in a checked
step the ranks compute the whole micro-batch and their rows of it, and the weights are taken by which the losses, the
gradients and the figures of the parts give those of the whole. Where no weights do, one rank computes it whole.
"""

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from nb2ddp.runtime.figure_values import _agree, _Path
from nb2ddp.runtime.figures import _Change, _Note
from nb2ddp.runtime.run_state import _run

_WEIGHTS = ("a sum over items", "a mean over predicted labels", "a mean over labels", "a mean over rows")


class _RowParts:
    """How a micro-batch is divided, as far as the checks have shown."""

    def __init__(self) -> None:
        self.blocks = 1  # chosen and rejected answers stand in two blocks of rows in a batch of preferences
        self.rules: list[str] = []  # by which the parts gave the whole in all checks so far
        self.of_figures: dict[_Path, list[str]] = {}
        self.why_not = ""
        self.tried = False

    def part(self, inputs: Any, rank: int, blocks: int = 0) -> Any:
        """Return a rank's rows of a micro-batch; None where they cannot be told."""
        rows = _count_rows(inputs) // (blocks or self.blocks)
        if rows < _run.world_size:
            return None
        start, end = rows * rank // _run.world_size, rows * (rank + 1) // _run.world_size
        try:
            return _rows_of(inputs, rows, start, end, blocks or self.blocks)
        except ValueError:
            return None

    def weights(self, inputs: Any, blocks: int = 0) -> dict[str, list[float]]:
        """Return, for each way to put losses together, the weight of each rank's."""
        blocks = blocks or self.blocks
        rows, size = _count_rows(inputs) // blocks, _run.world_size
        bounds = [rows * rank // size for rank in range(size + 1)]
        found = {
            _WEIGHTS[0]: [1.0] * size,
            _WEIGHTS[3]: [(b - a) / rows for a, b in itertools.pairwise(bounds)],
        }
        labels = inputs.get("labels") if hasattr(inputs, "get") else None
        if isinstance(labels, torch.Tensor) and labels.ndim and len(labels) == rows * blocks:
            for name, values in (
                (_WEIGHTS[2], labels),
                (_WEIGHTS[1], labels[..., 1:] if labels.ndim > 1 else labels),
            ):
                of_row = values.ne(-100).reshape(blocks, rows, -1).sum((0, 2)).tolist()
                counts = [sum(of_row[a:b]) for a, b in itertools.pairwise(bounds)]
                if sum(counts):
                    found[name] = [count / sum(counts) for count in counts]
        return found

    def figure_weights(self, inputs: Any) -> dict[str, list[float]]:
        """Return, for each way to put figures together, the weight of each rank's: a mean may be over any mask."""
        found, size = self.weights(inputs), _run.world_size
        rows = _count_rows(inputs) // self.blocks
        bounds = [rows * rank // size for rank in range(size + 1)]
        for name, value in inputs.items() if isinstance(inputs, Mapping) else ():
            if isinstance(value, list) and value and all(isinstance(item, bool) for item in value):
                value = torch.tensor(value)
            if not isinstance(value, torch.Tensor) or value.is_floating_point() or not value.ndim:
                continue
            blocks = len(value) // rows if rows else 0
            if blocks * rows != len(value) or not blocks:
                continue
            shifted = [(" shifted", value[..., 1:] != 0)] if value.ndim > 1 else []
            for what, counted in (("", value != 0), *shifted, (" not", value == 0)):
                of_block = counted.reshape(blocks, rows, -1).sum(2).tolist()
                for block, of_row in enumerate([*of_block, [sum(of) for of in zip(*of_block, strict=True)]]):
                    counts = [sum(of_row[a:b]) for a, b in itertools.pairwise(bounds)]
                    if sum(counts):
                        found[f"{name}{what} {block}"] = [count / sum(counts) for count in counts]
        return {**found, "the least": [], "the largest": []}

    def weight(self, inputs: Any) -> list[float]:
        """Return each rank's weight of a micro-batch's loss."""
        return self.weights(inputs).get(self.rules[0], [1.0] * _run.world_size)

    def is_unsure(self, inputs: Any) -> bool:
        """Return whether two ways that have held so far give this micro-batch other losses."""
        weights = self.weights(inputs)
        known = [weights[rule] for rule in self.rules if rule in weights]
        return any(not _agree(known[0], other, 1e-6) for other in known[1:])

    def narrow(
        self, inputs: Any, losses: list[float], whole: float, tolerance: float, blocks: int
    ) -> list[str]:
        """Return the ways by which the losses of the parts give the whole's."""
        weights = self.weights(inputs, blocks)
        sums = {
            rule: sum(w * loss for w, loss in zip(of, losses, strict=True) if w)
            for rule, of in weights.items()
        }
        found = [rule for rule in _WEIGHTS if rule in sums and _agree(sums[rule], whole, tolerance)]
        return [rule for rule in found if rule in self.rules] if self.rules else found

    def learn_figures(self, inputs: Any, parts: list[_Note], whole: _Note, copies: Collection[_Path]) -> str:
        """Find by which weights the figures of the parts give the whole's; return what has none, or ""."""
        if whole.events or any(part.events for part in parts):
            return "what it prints or logs"
        weights = self.figure_weights(inputs)
        for path in {path for note in (*parts, whole) for path in note.changes}:
            if path in copies:  # of another figure
                self.of_figures[path] = ["copies"]
                continue
            changes = [part.changes.get(path) for part in parts]
            wanted = whole.changes.get(path)
            known = self.of_figures.get(path, ["copies"])
            if known == ["copies"]:
                known = [*self.rules, *_WEIGHTS[::-1], *weights]
            found = []
            for rule in dict.fromkeys(known):
                made = None if rule not in weights else _combined(changes, weights[rule], rule)
                if made is not None and wanted is not None and _is_same_change(made, wanted):
                    found.append(rule)
            if not found:
                return str(path[-1])
            self.of_figures[path] = found
        return ""

    def knows(self, parts: list[_Note]) -> bool:
        """Return whether the figures of parts can be put together."""
        return all(path in self.of_figures for part in parts for path in part.changes) and not any(
            part.events for part in parts
        )

    def are_unclear(self, inputs: Any, parts: list[_Note]) -> bool:
        """Return whether a figure would be another by another way that has held so far: at 0 all ways hold."""
        weights = self.figure_weights(inputs)
        for path in {path for part in parts for path in part.changes}:
            rules = [rule for rule in self.of_figures[path] if rule in weights]
            changes = [part.changes.get(path) for part in parts]
            made = [of for rule in rules if (of := _combined(changes, weights[rule], rule)) is not None]
            if any(not _is_same_change(made[0], of) for of in made[1:]):
                return True
        return False

    def joined(self, inputs: Any, parts: list[_Note]) -> _Note:
        """Return what the parts of a micro-batch give together."""
        note, weights = _Note(), self.figure_weights(inputs)
        pairs = zip(self.weight(inputs), (part.result for part in parts), strict=True)
        note.result = sum(w * value for w, (value, _) in pairs if w), parts[0].result[1]
        for path in dict.fromkeys(path for part in parts for path in part.changes):
            changes = [part.changes.get(path) for part in parts]
            rule = self.of_figures[path][0]
            joined = changes[0] if rule == "copies" else _combined(changes, weights[rule], rule)
            if joined is not None:
                note.changes[path] = joined
        return note


def _combined(changes: list[_Change | None], weights: list[float], rule: str = "") -> _Change | None:
    """Return one change for those of the parts; None where they cannot be put together."""
    given = [change for change in changes if change is not None]
    if len(given) != len(changes):
        return None
    items = [change.items for change in given]
    if all(item is not None for item in items):
        if rule in ("the least", "the largest"):
            choose = min if rule == "the least" else max
            if {len(of) for of in items} == {1} and all(isinstance(of[0], int | float) for of in items):
                return _Change(None, None, [choose(of[0] for of in items)])
            return None
        values = _weighted(items, weights)
        return None if values is None else _Change(None, None, values)
    added = _weighted([change.added for change in given], weights)
    if added is None:
        return None
    before = given[0].before
    if isinstance(added, list):
        start = [0] * len(added) if isinstance(before, str) else before
        return _Change(start, [one + other for one, other in zip(start, added, strict=True)])
    return _Change(
        0 if isinstance(before, str) else before, (0 if isinstance(before, str) else before) + added
    )


def _weighted(values: list[Any], weights: list[float]) -> Any:
    if any(value is None for value in values):
        return None
    if all(isinstance(value, list) for value in values):
        if len({len(value) for value in values}) != 1:
            return None
        parts = [_weighted(list(of), weights) for of in zip(*values, strict=True)]
        return None if None in parts else parts
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    if not weights:
        return None
    return sum(value * (1 if w == 1.0 else w) for value, w in zip(values, weights, strict=True) if w)


def _is_same_change(made: _Change, wanted: _Change) -> bool:
    if made.items is not None:
        return wanted.items is not None and _agree(list(made.items), list(wanted.items), 1e-3)
    return _agree(made.added, wanted.added, 1e-3)


def _count_rows(inputs: Any) -> int:
    """Return the number of rows of a batch: of its labels, or what most of its tensors begin with."""
    values = [value for value in _leaves(inputs) if isinstance(value, torch.Tensor) and value.ndim]
    counts = [len(value) for value in values]
    return max(counts, key=lambda count: (counts.count(count), count), default=0)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]


def _rows_of(value: Any, rows: int, start: int, end: int, blocks: int) -> Any:
    """Return some rows of what a batch holds.

    Raises:
        ValueError: something in it has another number of rows.
    """
    if isinstance(value, Mapping):
        made = {name: _rows_of(item, rows, start, end, blocks) for name, item in value.items()}
        kind: Any = type(value)
        return made if kind is dict else kind(made)
    is_tensor = isinstance(value, torch.Tensor)
    if (is_tensor and not value.ndim) or isinstance(value, str | int | float | bool | None):
        return value
    if is_tensor or isinstance(value, list | tuple):
        for count in {1, blocks}:
            if len(value) == rows * count:
                parts = [value[rows * block + start : rows * block + end] for block in range(count)]
                if count == 1:
                    return parts[0]
                return torch.cat(parts) if is_tensor else [item for part in parts for item in part]
    raise ValueError("a value of the batch has other rows")


@contextlib.contextmanager
def _gathering(trainer: Any) -> Iterator[None]:
    """Let losses of Sentence Transformers that compare a batch's rows take the other ranks' rows too, in a block."""
    losses = getattr(trainer, "loss", None)
    found = [
        part
        for loss in (losses.values() if isinstance(losses, dict) else [losses])
        if isinstance(loss, torch.nn.Module)
        for part in loss.modules()
        if getattr(part, "gather_across_devices", None) is False
    ]
    for part in found:
        part.gather_across_devices = True
    try:
        yield
    finally:
        for part in found:
            part.gather_across_devices = False


def _cost(inputs: Any) -> int:
    """Return about how much a micro-batch costs: the largest tensor of integers, or any, that it holds."""
    values = (
        list(inputs.values())
        if hasattr(inputs, "values")
        else inputs
        if isinstance(inputs, list | tuple)
        else []
    )
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    whole: list[int] = [tensor.numel() for tensor in tensors if not tensor.is_floating_point()]
    every: list[int] = [tensor.numel() for tensor in tensors]
    return max(whole or every or [1])
