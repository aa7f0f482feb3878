"""Divide the rows of a micro-batch over the ranks: where ranks would have none, or to even out what they compute.

Whether a loss is a sum over the step's items or a mean over rows or labels is not looked up: in a checked step a
micro-batch is computed whole and in parts, and those weights are taken by which losses, gradients and figures of the
parts give the whole's. So it is found out too whether common padding can be left out. Where none do, one rank
computes it whole.
"""

from collections.abc import Collection
from typing import Any

from nb2ddp.runtime.figure_rules import _Change, _in_words, _Note, _sum_of
from nb2ddp.runtime.kept_values import _Path
from nb2ddp.runtime.micro_batch_rows import _SUM, _WEIGHTS, _Part, _Rows
from nb2ddp.runtime.value_copies import _agree

_Weights = dict[str, list[float]]  # of each part, by the way to put losses or figures together
_SET = ", set anew"
_MOST_KINDS = 32  # of what batches hold: a text in them may be another one each time
_CLOSE_FIGURES = 1e-3  # figures of parts and of the whole, in 16 bits
_CLOSEST = (1e-6, 1e-5, 1e-4, _CLOSE_FIGURES)  # in 16 bits several ways lie near: the nearest
_OF_FEW_ROWS = (0.05,)  # what adds and what sets are told apart, averages are not


class _RowParts:
    """How micro-batches are divided, as far as the checks have shown."""

    def __init__(self, keeps: set[_Path], copies: Collection[_Path]) -> None:
        self.keeps = keeps  # figures whose values are needed where they stay, too
        self.copies = copies  # those that are another figure's
        self.blocks = 1  # chosen and rejected answers stand in two blocks of rows in a batch of preferences
        self.trims: bool | None = None  # whether parts leave out padding; None where no check has shown it
        self.drops = False  # the model drops out
        self.compared: set[Any] = set()  # what batches hold of which parts were compared with the whole
        self.rules: list[str] = []  # by which the parts gave the whole in all checks so far
        self.of_figures: dict[_Path, list[str]] = {}
        self.why_not = ""
        self.branches = set[int]()  # decisions of Python, by their number in a call, that may differ
        self.asked = set[int]()  # those that are to be tried
        self.doubts = 0  # steps computed again for a figure by which two ways differed

    def weights(self, rows: _Rows, parts: list[_Part]) -> _Weights:
        """Return, for each way to put losses together, the weight of each part's."""
        return {_SUM: [1.0] * len(parts), **_shares(rows.counts, parts)}

    def figure_weights(self, rows: _Rows, parts: list[_Part]) -> _Weights:
        """Return, for each way to put figures together, the weight of each part's."""
        return {**self.weights(rows, parts), **_shares(rows.figure_counts, parts)}

    def weight(self, rows: _Rows, parts: list[_Part]) -> list[float]:
        """Return each part's weight of a micro-batch's loss."""
        return self.weights(rows, parts).get(self.rules[0], [1.0] * len(parts))

    def is_unsure(self, rows: _Rows, parts: list[_Part]) -> bool:
        """Return whether this kind of batch was not compared, or two ways that have held give it other losses."""
        is_new = len(self.compared) < _MOST_KINDS and not self.kinds(rows, parts) <= self.compared
        if not self.rules or is_new:
            return bool(self.rules)
        weights = self.weights(rows, parts) if len(self.rules) > 1 else {}
        known = [weights[rule] for rule in self.rules if rule in weights]
        return any(not _agree(known[0], other, 1e-6) for other in known[1:])

    def kinds(self, rows: _Rows, parts: list[_Part]) -> set[Any]:
        return rows.kinds(parts) | ({len(rows.lengths)} if self.drops else set())

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
        self, weights: _Weights, parts: list[_Note], whole: _Note, near: Collection[float]
    ) -> str:
        """Find by which weights the figures of the parts give the whole's; return what has none, or ""."""
        if whole.events or any(part.events for part in parts):
            return "what it prints or logs"
        for path, (*changes, wanted) in self._changes([*parts, whole]).items():
            known = self.of_figures.get(path, [])
            if path in self.copies:
                known = ["copies"]
            elif known in ([], ["copies"]):
                known = [*self.rules, *_WEIGHTS[::-1], *weights]
                known += [*(rule + _SET for rule in known), "alike"]
            made = {rule: _combined(changes, weights, rule) for rule in known}
            found: list[str] = []
            for tolerance in near:
                found = found or [r for r in made if _is_same_change(made[r], wanted, tolerance, _SET in r)]
            if not (found := known if path in self.copies else found):
                return _in_words(path)
            self.of_figures[path] = found
            (self.keeps.add if any(_SET in rule for rule in found) else self.keeps.discard)(path)
        return ""

    def knows(self, parts: list[_Note]) -> bool:
        """Return whether the figures of parts can be put together."""
        known = self._changes(parts).keys() <= self.of_figures.keys()
        return known and not any(part.events for part in parts)

    def _changes(self, parts: list[_Note]) -> dict[_Path, list[_Change | None]]:
        """Return how each part changed each figure that one of them changed, or may have set to what it was."""
        found: dict[_Path, list[_Change | None]] = {}
        kept = [path for part in parts for path in part.values if path in self.keeps]
        for path in dict.fromkeys([path for part in parts for path in part.changes] + kept):
            stays = {id(part): _Change(of, of) for part in parts if (of := part.values.get(path)) is not None}
            found[path] = [part.changes.get(path) or stays.get(id(part)) for part in parts]
        return found

    def are_unclear(self, weights: _Weights, parts: list[_Note]) -> bool:
        """Return whether a figure cannot be put together, or is another by another way: at 0 all ways hold."""
        for path, changes in self._changes(parts).items():
            made = self._made(path, changes, weights)
            if not made or any(not _is_same_change(made[0], of, _CLOSE_FIGURES) for of in made[1:]):
                return True
        return False

    def unlike(self, parts: list[_Note]) -> set[int]:
        """Return decisions in which Python went different ways, and (below -1) sizes of graphs that none has shown."""
        chosen, found = [part.chosen for part in parts], {-2 - part.nodes for part in parts}
        if len({*map(len, chosen)}) > 1:
            return {-1, *found} - self.branches
        found |= {place for place, of in enumerate(zip(*chosen, strict=True)) if len({*of}) > 1}
        return found - self.branches

    def joined(self, weights: _Weights, parts: list[_Note]) -> _Note:
        """Return what the parts of a micro-batch give together."""
        note = _Note()
        of_loss = weights.get(self.rules[0], [1.0] * len(parts))
        pairs = zip(of_loss, (part.result for part in parts), strict=True)
        note.result = sum(w * value for w, (value, _) in pairs if w), parts[0].result[1]
        for path, changes in self._changes(parts).items():
            note.changes[path] = self._made(path, changes, weights)[0]
        return note

    def _made(self, path: _Path, changes: list[_Change | None], weights: _Weights) -> list[_Change]:
        """Return what a figure's changes give together, in each way that has held so far."""
        made = [_combined(changes, weights, rule) for rule in self.of_figures.get(path, ())]
        return [change for change in made if change is not None]


def _shares(counts: dict[str, list[int]], parts: list[_Part]) -> _Weights:
    sums = {name: [sum(of_row[row] for row in part) for part in parts] for name, of_row in counts.items()}
    return {name: [count / sum(of) for count in of] for name, of in sums.items() if sum(of)}


def _combined(changes: list[_Change | None], ways: _Weights, rule: str) -> _Change | None:
    """Return one change for those of the parts; None where they cannot be put together."""
    given = [change for change in changes if change is not None]
    weights = ways.get(rule.removesuffix(_SET))
    items, is_all = [change.items for change in given], len(given) == len(changes)
    if rule == "copies":
        return given[0]
    if rule == "alike":
        same = is_all and all(_agree([given[0].after, items[0]], [of.after, of.items]) for of in given)
        return given[0] if same else None
    if all(item is not None for item in items):
        values = _weighted(items, weights) if is_all else None
        return None if values is None else _Change(None, None, values)
    before = given[0].before
    stays = [change is None or _agree(change.after, change.before) for change in changes]
    if isinstance(given[0].after, float) and rule != _SUM and any(stays) and not all(stays):
        return None  # the best of all losses, say: some rows change it, others do not
    if rule.endswith(_SET):
        values = _weighted([change.after for change in given], weights) if is_all else None
        return None if values is None else _Change(before, values)
    nothing = [0] * len(given[0].added) if isinstance(given[0].added, list) else 0
    added = _weighted([nothing if change is None else change.added for change in changes], weights)
    return None if added is None else _Change(before, _sum_of(before, added))


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


def _is_same_change(made: _Change | None, wanted: _Change | None, tolerance: float, sets: int = 0) -> bool:
    if made is None or wanted is None:
        return False
    if made.items is not None and wanted.items is not None:
        return _agree(list(made.items), list(wanted.items), tolerance)
    if made.added is None or sets:
        return _agree([made.after, made.items], [wanted.after, wanted.items], tolerance * sets)
    return made.items is None and _agree(made.added, wanted.added, tolerance)
