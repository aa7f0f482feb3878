"""Tell by which rule a value changed (a list grows, a number is added to, one is set), from what all ranks saw."""

import operator
import pickle
import re
from typing import Any

import torch

from nb2ddp.runtime.figure_values import _UNTRACKED, _appended, _sent
from nb2ddp.runtime.kept_values import _GROWS, _MOST, _SIMPLE, _Path, _Place
from nb2ddp.runtime.random_draws import _NOTHING, _Counts
from nb2ddp.runtime.value_copies import _ABSENT, _agree


class _Change:
    """How a value was before and after a micro-batch; ``items``: what was added at the end of a container."""

    def __init__(self, before: Any, after: Any, items: Any = None) -> None:
        self.before, self.after, self.items = before, after, items
        self.in_place = False  # a tensor or a container stayed the same one: it may have other names

    @property
    def added(self) -> Any:
        """Return what was added to a number, or to each of a list's; None where that cannot be told."""
        before, after = self.before, self.after
        if isinstance(after, list) and len(after) <= _MOST:
            if before is _ABSENT or before == _ABSENT:
                before = [0] * len(after)
            if isinstance(before, list) and len(before) == len(after):
                added = [_Change(one, other).added for one, other in zip(before, after, strict=True)]
                return None if None in added else added
            return None
        if hasattr(after, "dtype"):  # a tensor, or NumPy's
            same = type(before) is type(after) and before.shape == after.shape
            return after - before if same and "bool" not in str(after.dtype) else None
        if isinstance(after, bool) or not isinstance(after, int | float):
            return None
        if isinstance(before, str) and before == _ABSENT:
            before = 0
        return after - before if isinstance(before, int | float) else None

    @property
    def is_untracked(self) -> bool:
        return isinstance(self.after, str) and self.after == _UNTRACKED


class _Note:
    """What one micro-batch gave: its result, changes by path, and the prints and logs in their order."""

    def __init__(self) -> None:
        self.result: Any = None
        self.changes: dict[_Path, _Change] = {}
        self.events: list[tuple[str, Any]] = []
        self.values: dict[_Path, Any] = {}  # that it left as they were, or set to what they were
        self.chosen, self.nodes = b"", 0  # where Python decided by values of a tensor; of the loss's graph
        self.draws: _Counts | None = _NOTHING  # random numbers; None where they cannot be counted
        self.is_near = False  # of rows for which this rank drew its own random numbers


_CLOSE = 1e-4  # two ranks' figures of one micro-batch: float sums in another order


def _sum_of(before: Any, added: Any) -> Any:
    """Return a number, a tensor or a list of them with what was added; what was not there yet counts as 0."""
    if isinstance(added, list):
        before = before if isinstance(before, list) else [0] * len(added)
        return [_sum_of(one, other) for one, other in zip(before, added, strict=True)]
    if isinstance(before, str):
        return added
    return before + (added.to(before.device) if isinstance(before, torch.Tensor) else added)


def _changed(before: tuple[_Place, Any] | None, after: tuple[_Place, Any] | None) -> _Change | None:
    """Return how a value changed; None where it did not. Both are as `snapshot` gives them, or None."""
    if after is None:
        assert before is not None
        return _Change(_sent(before[1]), _ABSENT)
    value, copy = after[0].value, after[1]
    old = _ABSENT if before is None else before[1]
    if isinstance(value, dict):  # of many entries
        same = isinstance(old, list) and len(old) == len(copy) and all(map(operator.is_, old, copy))
        return None if same else _Change(_UNTRACKED, _UNTRACKED)
    if isinstance(value, _GROWS):
        if int in (type(copy), type(old)):  # of a long one the length is known
            length = old if isinstance(old, int) else len(old) if isinstance(old, _GROWS) else 0
            items, same = None if isinstance(value, set) else list(value)[length:], length == len(value)
        else:
            items = _appended(old, value)
            same = type(old) is type(copy) and len(old) == len(copy) and (items is not None and not items)
            ids = [[isinstance(x, _SIMPLE) or id(x) for x in of] for of in (old, copy) if type(of) is list]
            same |= len(ids) == 2 and ids[0] == ids[1] and {*ids[0]} != {True}  # of numbers places count
        is_long = len(value) > _MOST
        if same or (is_long and items is None):
            return None if same else _Change(_UNTRACKED, _UNTRACKED)
        return _change_to_send(None if is_long else old, None if is_long else copy, items)
    if _agree(old, copy):
        return None
    return _Change(_sent(old), _sent(copy))


def _change_to_send(before: Any, after: Any, items: Any) -> _Change:
    """Return a change of a container as other ranks get it; it is untold where it holds what cannot be sent."""
    change = _Change(_sent(before), _sent(after), _sent(items))
    try:
        pickle.dumps(vars(change))
    except Exception:  # a function made in another one, say: any class may refuse
        return _Change(_UNTRACKED, _UNTRACKED)
    return change


def _explains(rule: str, path: _Path, seen: list[list[_Note]]) -> bool:
    """Return whether a rule explains what the ranks saw of a value in all micro-batches."""
    for notes in seen:
        changes = [note.changes.get(path) for note in notes]
        if any(c and (c.is_untracked or (rule != "grows" and c.after is None and c.items)) for c in changes):
            return False
        if rule == "is set":  # to what it was already, perhaps: no largest one so far, say
            values = [change.after for change in changes if change is not None]
            values += [note.values[path] for note in notes if path in note.values]
        elif all(change is None for change in changes):
            continue
        elif any(change is None for change in changes):
            return False
        else:
            values = [change.items if rule == "grows" else change.added for change in changes if change]
        if any(value is None and rule in ("grows", "adds") for value in values):
            return False
        # what is added to a slow average hangs on what it was, by little: it is no sum unless all but rounding agrees
        sizes = [_magnitude(change.after) for change in changes if change and rule == "adds"]
        least = 1e-6 * max(sizes) if sizes else None
        if any(not _agree(values[0], value, _CLOSE, least) for value in values[1:]):
            return False
    return True


def _magnitude(value: Any) -> float:
    """Return the largest absolute value in a number, a tensor, an array, or a list of them."""
    parts = abs(value).reshape(-1).tolist() if hasattr(value, "dtype") else value
    return max(map(_magnitude, parts), default=0.0) if isinstance(parts, list) else abs(parts)


def _copied_from(path: _Path, paths: dict[_Path, None], seen: list[list[_Note]]) -> _Path | None:
    """Return of which number a list holds what that has become, in each micro-batch and on each rank; else None."""
    values = [note.changes[path].after for notes in seen for note in notes if path in note.changes]
    if not all(isinstance(value, list) and [*map(type, value)] in ([int], [float]) for value in values):
        return None
    for other in paths:
        changes = [note.changes.get(other) for notes in seen for note in notes if path in note.changes]
        pairs = zip(changes, values, strict=True)
        if all(c is not None and type(c.after) is int and 1 < c.after == value[0] for c, value in pairs):
            return other
    return None


def _are_same_events(one: list[Any], other: list[Any]) -> bool:
    """Return whether two ranks printed and logged the same of a micro-batch, up to the last digits of numbers."""
    texts = [_numbers_apart("".join(text for kind, text in of if kind == "print")) for of in (one, other)]
    logs = [[value[0] for kind, value in of if kind == "log"] for of in (one, other)]
    return _agree(texts[0], texts[1], 1e-3) and _agree(logs[0], logs[1], _CLOSE)


def _numbers_apart(text: str) -> list[Any]:
    parts = re.split(r"(\d+\.\d+(?:e[-+]?\d+)?)", text)
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _in_words(path: _Path) -> str:
    names = ".".join(str(part) for part in path[1:] if part != "")
    return f"`{'self.' if path[0] == 'trainer' else 'model.' if path[0] == 'model' else ''}{names}`"
