"""Divide the rows of a micro-batch over the ranks: where ranks would have none, or to even out what they compute.

Whether a loss is a sum over the step's items, a mean over rows or a mean over labels is not looked up: in a checked
step the ranks compute the whole micro-batch and their rows of it, and the weights are taken by which the losses, the
gradients and the figures of the parts give those of the whole. Where no weights do, one rank computes it whole. So it
is found out too whether columns that are padding in all rows of a part can be left out.
"""

import contextlib
import functools
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from nb2ddp.runtime.figure_values import _agree, _Path
from nb2ddp.runtime.figures import _CHOOSES, _Change, _Note
from nb2ddp.runtime.run_state import _run

_SUM = "a sum over items"
_WEIGHTS = (_SUM, "a mean over predicted labels", "a mean over labels", "a mean over rows")
_SET = ", set anew"
_CLOSE_FIGURES = 1e-3  # figures of parts and of the whole, in 16 bits
_Part = tuple[int, ...]  # the numbers of its rows


class _Rows:
    """The rows of a micro-batch: those of its tensors, or the sequences that one without padding holds."""

    def __init__(self, inputs: Any, blocks: int = 1, *, divides: bool = True) -> None:
        self.inputs, self.blocks, self.cost = inputs, blocks, _cost(inputs)
        self.columns = 0  # of what is padded
        self.lengths = (
            _sequences(inputs) if divides else []
        )  # of the rows; none where they cannot be told apart
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
        ends: list[int] = (kept * places).amax(1).view(self.blocks, rows).amax(0).clamp(min=1).tolist()
        return ends

    def width(self, part: _Part, *, trims: bool) -> int:
        """Return how many columns of a padded batch its rows need: a multiple of 8, as kernels like it."""
        return (
            min(self.columns, -(-max(self.lengths[row] for row in part) // 8) * 8) if trims else self.columns
        )

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
            made = {name: self._of(item, part, width) for name, item in value.items()}
            kind: Any = type(value)
            return made if kind is dict else kind(made)
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
                is_padded = taken.ndim == 2 and taken.shape[1] == self.columns
                return taken[:, :width] if is_padded and not taken.is_floating_point() else taken
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
        counted = counted[..., shift:] if shift else counted
        rows: list[list[int]] = counted.reshape(len(counted), -1).sum(1).view(-1, len(self.lengths)).tolist()
        return rows

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
                value = torch.tensor(value)
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
        if not value.ndim or not len(value):
            return False
        return len(value) == blocks * len(self.lengths) if blocks else len(value) % len(self.lengths) == 0


class _RowParts:
    """How micro-batches are divided, as far as the checks have shown."""

    def __init__(self, keeps: set[_Path]) -> None:
        self.keeps = keeps  # figures whose values are needed where they stay, too
        self.blocks = 1  # chosen and rejected answers stand in two blocks of rows in a batch of preferences
        self.trims: bool | None = None  # whether parts leave out padding; None where no check has shown it
        self.drops = False  # the model drops out
        self.compared: set[int] = set()  # for how many rows parts were compared with the whole
        self.rules: list[str] = []  # by which the parts gave the whole in all checks so far
        self.of_figures: dict[_Path, list[str]] = {}
        self.why_not = ""
        self.branches = set[int]()  # decisions of Python, by their number in a call, that may differ
        self.asked = set[int]()  # those that are to be tried
        self.doubts = 0  # steps computed again for a figure by which two ways differed

    def weights(self, rows: _Rows, parts: list[_Part]) -> dict[str, list[float]]:
        """Return, for each way to put losses together, the weight of each part's."""
        return {_SUM: [1.0] * len(parts), **_shares(rows.counts, parts)}

    def figure_weights(self, rows: _Rows, parts: list[_Part]) -> dict[str, list[float]]:
        """Return, for each way to put figures together, the weight of each part's."""
        shares = _shares(rows.figure_counts, parts)
        return {**self.weights(rows, parts), **shares}

    def weight(self, rows: _Rows, parts: list[_Part]) -> list[float]:
        """Return each part's weight of a micro-batch's loss."""
        return self.weights(rows, parts).get(self.rules[0], [1.0] * len(parts))

    def is_unsure(self, rows: _Rows, parts: list[_Part]) -> bool:
        """Return whether two ways that have held so far give this micro-batch other losses, or dropout may."""
        weights = self.weights(rows, parts)
        known = [weights[rule] for rule in self.rules if rule in weights]
        return (self.drops and len(rows.lengths) not in self.compared) or any(
            not _agree(known[0], other, 1e-6) for other in known[1:]
        )

    def narrow(
        self, rows: _Rows, parts: list[_Part], losses: list[float], whole: float, tolerance: float
    ) -> list[str]:
        """Return the ways by which the losses of the parts give the whole's."""
        weights = self.weights(rows, parts)
        pairs = {rule: zip(of, losses, strict=True) for rule, of in weights.items()}
        sums = {rule: sum(w * loss for w, loss in of if w) for rule, of in pairs.items()}
        found = [rule for rule in _WEIGHTS if rule in sums and _agree(sums[rule], whole, tolerance)]
        return [rule for rule in found if rule in self.rules] if self.rules else found

    def learn_figures(
        self, weights: dict[str, list[float]], parts: list[_Note], whole: _Note, copies: Collection[_Path]
    ) -> str:
        """Find by which weights the figures of the parts give the whole's; return what has none, or ""."""
        if whole.events or any(part.events for part in parts):
            return "what it prints or logs"
        for path, (*changes, wanted) in self._changes([*parts, whole]).items():
            known = self.of_figures.get(path, [])
            if path in copies:  # of another figure
                known = ["copies"]
            elif known in ([], ["copies"]):
                known = [*self.rules, *_WEIGHTS[::-1], *weights]
                known += [*(rule + _SET for rule in known), *_CHOOSES, "alike"]
            made = {rule: _combined(changes, weights, rule) for rule in known}
            found: list[str] = []
            for tolerance in (1e-6, 1e-5, 1e-4, _CLOSE_FIGURES):  # in 16 bits several lie near: the nearest
                found = found or [rule for rule in made if _is_same_change(made[rule], wanted, tolerance)]
            self.of_figures[path] = found = known if path in copies else found
            if not found:
                return str(path[-1])
            (self.keeps.add if any(_SET in rule for rule in found) else self.keeps.discard)(path)
        return ""

    def knows(self, parts: list[_Note]) -> bool:
        """Return whether the figures of parts can be put together."""
        return self._changes(parts).keys() <= self.of_figures.keys() and not any(
            part.events for part in parts
        )

    def _changes(self, parts: list[_Note]) -> dict[_Path, list[_Change | None]]:
        """Return how each part changed each figure that one of them changed, or may have set to what it was."""
        found: dict[_Path, list[_Change | None]] = {}
        kept = [path for part in parts for path in part.values if path in self.keeps]
        for path in dict.fromkeys([path for part in parts for path in part.changes] + kept):
            stays = {id(part): _Change(of, of) for part in parts if (of := part.values.get(path)) is not None}
            found[path] = [part.changes.get(path) or stays.get(id(part)) for part in parts]
        return found

    def are_unclear(self, weights: dict[str, list[float]], parts: list[_Note]) -> bool:
        """Return whether a figure cannot be put together, or is another by another way: at 0 all ways hold."""
        for path, changes in self._changes(parts).items():
            made = self._made(path, changes, weights)
            if not made or any(not _is_same_change(made[0], of, _CLOSE_FIGURES) for of in made[1:]):
                return True
        return False

    def unlike(self, parts: list[_Note]) -> set[int]:
        """Return the decisions in which Python went different ways, as far as no check has shown that they may."""
        chosen = [part.chosen for part in parts]
        if len({*map(len, chosen)}) > 1:
            return {-1} - self.branches
        return {place for place, of in enumerate(zip(*chosen, strict=True)) if len({*of}) > 1} - self.branches

    def joined(self, weights: dict[str, list[float]], parts: list[_Note]) -> _Note:
        """Return what the parts of a micro-batch give together."""
        note = _Note()
        of_loss = weights.get(self.rules[0], [1.0] * len(parts))
        pairs = zip(of_loss, (part.result for part in parts), strict=True)
        note.result = sum(w * value for w, (value, _) in pairs if w), parts[0].result[1]
        for path, changes in self._changes(parts).items():
            note.changes[path] = self._made(path, changes, weights)[0]
        return note

    def _made(
        self, path: _Path, changes: list[_Change | None], weights: dict[str, list[float]]
    ) -> list[_Change]:
        """Return what a figure's changes give together, in each way that has held so far."""
        made = [_combined(changes, weights, rule) for rule in self.of_figures.get(path, ())]
        return [change for change in made if change is not None]


def _shares(counts: dict[str, list[int]], parts: list[_Part]) -> dict[str, list[float]]:
    found = {}
    for name, of_row in counts.items():
        sums = [sum(of_row[row] for row in part) for part in parts]
        if sum(sums):
            found[name] = [count / sum(sums) for count in sums]
    return found


def _combined(
    changes: list[_Change | None], all_weights: dict[str, list[float]], rule: str
) -> _Change | None:
    """Return one change for those of the parts; None where they cannot be put together."""
    given, weights = (
        [change for change in changes if change is not None],
        all_weights.get(rule.removesuffix(_SET)),
    )
    items, is_all = [change.items for change in given], len(given) == len(changes)
    if rule == "copies":
        return given[0]
    if rule == "alike":
        same = is_all and all(_agree([given[0].after, items[0]], [of.after, of.items]) for of in given)
        return given[0] if same else None
    if all(item is not None for item in items):
        if rule in _CHOOSES:
            if {len(of) for of in items} == {1} and all(isinstance(of[0], int | float) for of in items):
                return _Change(None, None, [_CHOOSES[rule](of[0] for of in items)])
            return None
        values = _weighted(items, weights) if is_all else None
        return None if values is None else _Change(None, None, values)
    before = given[0].before
    if rule.endswith(_SET):
        values = _weighted([change.after for change in given], weights) if is_all else None
        return None if values is None else _Change(before, values)
    nothing = [0] * len(given[0].added) if isinstance(given[0].added, list) else 0
    added = _weighted([nothing if change is None else change.added for change in changes], weights)
    if added is None:
        return None
    if isinstance(added, list):
        start = [0] * len(added) if isinstance(before, str) else before
        return _Change(start, [one + other for one, other in zip(start, added, strict=True)])
    start = 0 if isinstance(before, str) else before
    return _Change(start, start + added)


def _weighted(values: list[Any], weights: list[float] | None) -> Any:
    if all(isinstance(value, list) for value in values):
        if len({len(value) for value in values}) != 1:
            return None
        parts = [_weighted(list(of), weights) for of in zip(*values, strict=True)]
        return None if None in parts else parts
    if not weights or any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return None
    if {*weights} - {0.0, 1.0} and not any(isinstance(value, float) for value in values):
        return None  # a count is no mean
    return sum(value * (1 if w == 1.0 else w) for value, w in zip(values, weights, strict=True) if w)


def _is_same_change(made: _Change | None, wanted: _Change | None, tolerance: float) -> bool:
    if made is None or wanted is None:
        return False
    if made.items is not None and wanted.items is not None:
        return _agree(list(made.items), list(wanted.items), tolerance)
    if made.added is None:
        return _agree([made.after, made.items], [wanted.after, wanted.items])
    return made.items is None and _agree(made.added, wanted.added, tolerance)


def _count_rows(inputs: Any) -> int:
    """Return the number of rows of a batch: of its labels, or what most of its tensors begin with."""
    values = [value for value in _leaves(inputs) if isinstance(value, torch.Tensor) and value.ndim]
    counts = [len(value) for value in values]
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


def _gathers(trainer: Any) -> list[Any]:
    """Return what of a Sentence Transformers loss compares a batch's rows, and can take the other ranks' rows too."""
    losses = getattr(trainer, "loss", None)
    return [
        part
        for loss in (losses.values() if isinstance(losses, dict) else [losses])
        if isinstance(loss, torch.nn.Module)
        for part in loss.modules()
        if getattr(part, "gather_across_devices", None) is False
    ]


@contextlib.contextmanager
def _gathering(trainer: Any) -> Iterator[None]:
    """Let losses of Sentence Transformers that compare a batch's rows take the other ranks' rows too, in a block."""
    found = _gathers(trainer)
    for part in found:
        part.gather_across_devices = True
    before, _run.is_hidden = _run.is_hidden, not found
    try:
        yield
    finally:
        _run.is_hidden = before
        for part in found:
            part.gather_across_devices = False


def _cost(inputs: Any) -> int:
    """Return about how much a micro-batch costs: the largest tensor of integers, or any, that it holds."""
    found = _leaves(dict(enumerate(inputs)) if isinstance(inputs, list | tuple) else inputs)
    tensors = [value for value in found if isinstance(value, torch.Tensor)]
    whole: list[int] = [tensor.numel() for tensor in tensors if not tensor.is_floating_point()]
    every: list[int] = [tensor.numel() for tensor in tensors]
    return max(whole or every or [1])
