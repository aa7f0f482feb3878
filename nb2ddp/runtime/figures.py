"""Note what a micro-batch leaves behind beside its gradients, and put together what the ranks' micro-batches left.

A Trainer keeps figures by itself (TRL's lists of metrics, counts of tokens), and so does the notebook's own code: a
list that ``compute_loss`` fills, a counter, what it prints or logs. Each rank computes some micro-batches of a step
alone. What one of them changed is noted, and every rank then applies the notes of all micro-batches in the
notebook's order.

How a value changes (a list grows, a number is added to, a value is replaced) is not guessed: in a step that is
checked every rank computes every micro-batch, each from another state, and only the rule that explains what all of
them saw is taken.
"""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.figure_values import (
    _ABSENT,
    _GROWS,
    _MOST,
    _SIMPLE,
    _agree,
    _appended,
    _copied,
    _is_array,
    _own_modules,
    _Path,
    _Printed,
    _printed,
    _put_prints_in_order,
    _read,
    _refill,
    _root,
    _sent,
    _walk,
    _write,
)
from nb2ddp.runtime.random_draws import _NOTHING, _Counts, _drawn
from nb2ddp.runtime.random_numbers import _are_same_states, _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run


class _Change:
    """How a value was before and after a micro-batch; ``items``: what was added at the end of a container."""

    def __init__(self, before: Any, after: Any, items: Any = None) -> None:
        self.before, self.after, self.items = before, after, items

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


class _Note:
    """What one micro-batch gave: its result, changes by path, and the prints and logs in their order."""

    def __init__(self) -> None:
        self.result: Any = None
        self.changes: dict[_Path, _Change] = {}
        self.events: list[tuple[str, Any]] = []
        self.values: dict[_Path, Any] = {}  # that it left as they were, or set to what they were
        self.chosen = b""  # where Python decided by values of a tensor
        self.draws: _Counts | None = _NOTHING  # random numbers; None where they cannot be counted
        self.is_near = False  # of rows for which this rank drew its own random numbers


class _Figures:
    """The values that a Trainer's micro-batches may change, and the rules by which they do."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.rules: dict[_Path, str] = {}
        self.sources: dict[_Path, _Path] = {}  # of what copies another figure: a total that is logged, say
        self.model: Any = None
        self.modules: list[tuple[str, Any]] = []  # of the model, whose classes are the notebook's
        self.counters: dict[_Path, int] = {}  # what each micro-batch adds to a number, the same each time
        self.no_counters: set[_Path] = set()
        self.keeps: set[_Path] = set()  # whose values a note holds also where they stayed
        self.base: dict[_Path, Any] = {}  # as of the beginning of the step
        self.noting: _Note | None = None  # the micro-batch under way
        self.holders: dict[_Path, tuple[Any, Any]] = {}
        self.tentative: dict[_Path, list[str]] = {}  # several rules explain the one micro-batch that was seen
        self.now: dict[_Path, Any] = {}  # as of the last snapshot

    def snapshot(self) -> dict[_Path, Any]:
        """Return what all values are now."""
        self.holders.clear()
        taken: dict[_Path, Any] = {}
        if self.model is not self.trainer.model:
            self.model = self.trainer.model
            self.modules = _own_modules(self.trainer)
        for path, holder, key, value in _walk(self.trainer, self.modules):
            self.holders[path] = holder, key
            taken[path] = value, _copied(value)
        self.now = dict(taken)
        return taken

    def begin(self) -> dict[_Path, Any]:
        """Return what all values are at the beginning of a step."""
        self.base = self.snapshot()
        return self.base

    def record(
        self, compute: Callable[[], Any], number: int, state: tuple[Any, ...], *, checked: bool = False
    ) -> _Note:
        """Compute micro-batch ``number`` from random states, and note what it did; its effects stay.

        Counters stand where they do in one process. ``checked``: note what it left unchanged, too.
        """
        self._set_counters(number)
        before, note = self.now, _Note()
        self.noting = note
        _set_random_state(state)
        printed = _Printed(note.events)
        _run.is_one_process = True  # a library keeps some figures on the main process alone
        try:
            with contextlib.redirect_stdout(printed):
                note.result = compute()
        except BaseException:
            for kind, value in note.events:
                if kind == "print":
                    sys.stdout.write(value)
            raise
        finally:
            self.noting, _run.is_one_process = None, False
        after = _random_state()
        note.draws = _NOTHING if _are_same_states(state, after) else _drawn(state, after)
        now = self.snapshot()
        for path in {**before, **now}:
            change = _changed(before.get(path), now.get(path))
            if change is not None:
                note.changes[path] = change
            elif (
                self.rules.get(path) == "is set"
                or path in self.keeps
                or (checked and not isinstance(now[path][0], _GROWS))
            ):
                note.values[path] = _sent(now[path][1])
        return note

    def _set_counters(self, number: int) -> None:
        for path, added in self.counters.items():
            if path not in self.base and not number:
                self._remove(path)
                self.now.pop(path, None)
                continue
            value = (self.base[path][1] if path in self.base else 0) + number * added
            self._put(path, value)
            self.now[path] = value, value

    def learn_counters(self, seen: list[list[_Note]], *, finds: bool) -> bool:
        """Find what each micro-batch adds the same to; return whether all counters stood where they should.

        ``finds``: `seen` holds what every rank saw of each micro-batch, so that new ones show.
        """
        notes = [note for of_turn in seen for note in of_turn]
        if not notes:  # the rows of all micro-batches were divided
            return True
        paths = {path for note in notes for path in note.changes} if finds else set()
        known = dict(self.counters)
        for path in (paths | known.keys()) - self.no_counters:
            added = [note.changes[path].added if path in note.changes else None for note in notes]
            first: Any = added[0]
            is_counter = type(first) is int and added.count(first) == len(added)
            if is_counter and self.counters.get(path, first) == first:
                self.counters[path] = first
            elif path in self.counters:
                del self.counters[path]
                self.no_counters.add(path)
        return len(seen) == 1 or known == self.counters

    def restore(self, taken: dict[_Path, Any]) -> None:
        """Make all values what they were; the last snapshot says which are not."""
        for path, (value, copied) in self.now.items():
            if path not in taken:
                self._remove(path)
                continue
            old, old_copy = taken[path]
            if value is not old:
                self._put(path, old)
            if copied is not old_copy and not (isinstance(copied, _SIMPLE) and copied == old_copy):
                _refill(old, old_copy)
        for path in taken.keys() - self.now.keys():
            self._put(path, taken[path][0])
            _refill(*taken[path])
        self.now = dict(taken)

    def apply(self, note: _Note) -> None:
        """Apply what a micro-batch did, after those before it."""
        for path, value in note.values.items():
            if self.rules.get(path) == "is set":
                self._put(path, value)
        new = [path for path in note.changes if _read(*self._place(path)) is _ABSENT]
        for path, change in sorted(note.changes.items(), key=lambda of: self.rules.get(of[0]) == "copies"):
            rule = self.rules.get(path, "")
            if rule == "copies":
                self._put(path, [_read(*self._place(self.sources[path]))])
                continue
            holder, key = self._place(path)
            now = _read(holder, key)
            if rule == "grows":
                if now is _ABSENT:
                    now = [] if not isinstance(change.items, set) else set()
                    self._put(path, now)
                (now.update if isinstance(now, set) else now.extend)(change.items)
            elif rule == "adds":
                self._put(path, _sum_of(now, change.added))
            elif rule in _CHOOSES and now is not _ABSENT:
                self._put(path, _CHOOSES[rule](now, change.after))
            else:
                self._put(path, change.after)
        for path in new:  # in the order in which one process makes them: logs are printed in it
            holder, key = self._place(path)
            if isinstance(holder, dict) and key in holder:
                holder[key] = holder.pop(key)
        for kind, value in note.events:
            if kind == "print":
                sys.stdout.write(value)
            else:
                logs, args, options = value
                self.trainer.log(dict(logs), *args, **options)

    def learn(self, seen: list[list[_Note]], orders: list[list[int]]) -> str:
        """Find the rule of each change from what all ranks saw of each micro-batch; return what has none, or "".

        ``seen``: by micro-batch, the ranks' notes; ``orders``: by rank, in which order it computed them.
        """
        paths = {path: None for notes in seen for note in notes for path in note.changes}
        for path in paths:
            rules = [rule for rule in ("grows", "adds", "is set", *_CHOOSES) if _explains(rule, path, seen)]
            self.sources.pop(path, None)
            if (other := _copied_from(path, paths, seen)) is not None:
                rules.insert(0, "copies")
                self.sources[path] = other
            earlier = self.tentative.pop(path, None)
            rules = [rule for rule in rules if earlier is None or rule in earlier]
            if not rules:
                return _in_words(path)
            self.rules[path] = rules[0]
            if rules[0] != "copies":
                self.sources.pop(path, None)
            if len(seen) == 1 and earlier is None and len(rules) > 1:
                self.tentative[path] = rules
        _put_prints_in_order(seen, orders)
        for notes in seen:
            if any(not _are_same_events(notes[0].events, note.events) for note in notes[1:]):
                return "what a micro-batch prints or logs"
        return ""

    def unknown(self, notes: dict[int, _Note]) -> bool:
        """Return whether a micro-batch changed what has no rule yet, or in another way than by its rule."""
        return any(
            (rule := self.rules.get(path)) is None
            or (rule == "grows" and change.items is None)
            or (rule == "adds" and change.added is None)
            for note in notes.values()
            for path, change in note.changes.items()
        )

    def _place(self, path: _Path) -> tuple[Any, Any]:
        if path not in self.holders:
            holder, key = self._place(path[:-1]) if len(path) > 2 else _root(self.trainer, path[0])
            inner = _read(holder, key) if len(path) > 2 else holder
            if inner is _ABSENT:
                inner = {}
                _write(holder, key, inner)
            self.holders[path] = (inner if isinstance(inner, dict | type) else vars(inner)), path[-1]
        return self.holders[path]

    def _put(self, path: _Path, value: Any) -> None:
        _write(*self._place(path), value)

    def _remove(self, path: _Path) -> None:
        holder, key = self._place(path)
        if isinstance(holder, dict):
            holder.pop(key, None)


_CHOOSES: dict[str, Callable[..., Any]] = {"is the least": min, "is the largest": max}
_CLOSE = 1e-4  # two ranks' figures of one micro-batch: float sums in another order


def _changed(before: Any, after: Any) -> _Change | None:
    """Return how a value changed; None where it did not. Both are as `snapshot` gives them, or None."""
    if after is None:
        return _Change(before[1], _ABSENT)
    value, copy = after
    old = _ABSENT if before is None else before[1]
    if isinstance(copy, int) and isinstance(value, _GROWS):  # a long one
        length = old if isinstance(old, int) else len(old) if isinstance(old, _GROWS) else 0
        return _Change(None, None, list(value)[length:]) if length != len(value) else None
    if isinstance(value, _GROWS):
        items = _appended(old, value)
        same = type(old) is type(copy) and len(old) == len(copy) and (items is not None and not items)
        return None if same else _Change(_sent(old), _sent(copy), _sent(items))
    if _agree(old, copy):
        return None
    return _Change(_sent(old), _sent(copy))


def _explains(rule: str, path: _Path, seen: list[list[_Note]]) -> bool:
    """Return whether a rule explains what the ranks saw of a value in all micro-batches."""
    for notes in seen:
        changes = [note.changes.get(path) for note in notes]
        if all(change is None for change in changes):
            continue
        if rule == "is set":  # to what it was already, perhaps
            values = [change.after for change in changes if change is not None]
            values += [note.values[path] for note in notes if path in note.values]
        elif rule in _CHOOSES:
            values = [change.after for change in changes if change is not None]
            left = [note.values[path] for note in notes if path in note.values]
            if any(hasattr(value, "dtype") for value in (*values, *left)):
                return False
            try:
                if any(_CHOOSES[rule](value, values[0]) != value for value in left):
                    return False
            except TypeError:  # no numbers
                return False
        elif any(change is None for change in changes):
            return False
        else:
            values = [
                change.items if rule == "grows" else change.added for change in changes if change is not None
            ]
        if any(value is None and rule in ("grows", "adds") for value in values):
            return False
        if any(not _agree(values[0], value, _CLOSE) for value in values[1:]):
            return False
    return True


def _copied_from(path: _Path, paths: dict[_Path, None], seen: list[list[_Note]]) -> _Path | None:
    """Return of which number a list holds what that has become, in each micro-batch and on each rank; else None."""
    values = [note.changes[path].after for notes in seen for note in notes if path in note.changes]
    if not all(isinstance(value, list) and len(value) == 1 for value in values):
        return None
    for other in paths:
        changes = [note.changes.get(other) for notes in seen for note in notes if path in note.changes]
        pairs = zip(changes, values, strict=True)
        if all(
            c is not None and type(c.after) is int and c.after and c.after == value[0] for c, value in pairs
        ):
            return other
    return None


def _are_same_events(one: list[Any], other: list[Any]) -> bool:
    """Return whether two ranks printed and logged the same of a micro-batch, up to the last digits of numbers."""
    texts = [_printed(events) for events in (one, other)]
    logs = [[value[0] for kind, value in events if kind == "log"] for events in (one, other)]
    return _agree(_numbers_apart(texts[0]), _numbers_apart(texts[1]), 1e-3) and _agree(
        logs[0], logs[1], _CLOSE
    )


def _numbers_apart(text: str) -> list[Any]:
    import re

    parts = re.split(r"(\d+\.\d+(?:e[-+]?\d+)?)", text)
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _sum_of(now: Any, added: Any) -> Any:
    if isinstance(added, list):
        now = now if isinstance(now, list) else [0] * len(added)
        now[:] = [_sum_of(one, other) for one, other in zip(now, added, strict=True)]
        return now
    if _is_array(now):
        now += added
        return now
    if isinstance(added, torch.Tensor):
        return now + added.to(now.device) if isinstance(now, torch.Tensor) else added
    return added if now is _ABSENT else now + added


def _in_words(path: _Path) -> str:
    names = ".".join(str(part) for part in path[1:] if part)
    return f"`{'self.' if path[0] == 'trainer' else 'model.' if path[0] == 'model' else ''}{names}`"
