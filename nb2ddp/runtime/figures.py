"""Note what a micro-batch leaves behind beside its gradients, and put together what the ranks' micro-batches left.

A Trainer keeps figures (TRL's lists of metrics, counts of tokens), and so does the notebook's own code: a list that
``compute_loss`` fills, a counter, what it prints or logs. What a micro-batch changed is noted by the rank that
computed it, and every rank applies the notes of all in the notebook's order. How a value changes (a list grows, a
number is added to, a value is replaced) is not guessed: in a checked step only the rule that explains what all ranks
saw is taken.
"""

import collections
import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.figure_rules import (
    _are_same_events,
    _changed,
    _copied_from,
    _explains,
    _in_words,
    _Note,
    _sum_of,
)
from nb2ddp.runtime.figure_values import _UNTRACKED, _is_small, _places, _Printed, _sent
from nb2ddp.runtime.kept_values import _GROWS, _MOST, _is_generator, _own_parts, _Path, _Place, _walk
from nb2ddp.runtime.object_collectives import _exchange
from nb2ddp.runtime.random_draws import _NOTHING, _drawn
from nb2ddp.runtime.random_numbers import _are_same_states, _random_state, _set_random_state
from nb2ddp.runtime.run_state import _replaced, _run, _warn_once
from nb2ddp.runtime.value_copies import (
    _ABSENT,
    _copied,
    _is_as_it_was,
    _read,
    _refill,
    _remove,
    _write,
)

_Values = dict[_Path, tuple[_Place, Any]]  # places, with copies of what is there


class _Figures:
    """The values that a Trainer's micro-batches may change, and the rules by which they do."""

    def __init__(self, trainer: Callable[[], Any]) -> None:
        self.trainer = trainer
        self.rules: dict[_Path, str] = {}
        self.sources: dict[_Path, _Path] = {}  # of what copies another figure: a total that is logged, say
        self.counters: dict[_Path, int] = {}  # what each micro-batch adds to a number, the same each time
        self.no_counters: set[_Path] = set()
        # counters are set before a micro-batch, for those before it may be another rank's; what one raises, all do
        self.sets_counters = self.shares_errors = True
        # arrays of which two micro-batches changed one value, and both counted
        self.summed: set[_Path] = set()
        self.keeps: set[_Path] = set()  # whose values a note holds also where they stayed
        self.base: _Values = {}  # as of the beginning of the step
        self.most = _MOST  # items of a list that are compared in this step
        self.current_note: _Note | None = None  # the micro-batch under way
        self.holders: dict[_Path, tuple[Any, Any]] = {}
        self.owners: dict[_Path, Any] = {}  # what was looked into
        self.tentative: set[_Path] = set()  # of a step's only micro-batch: other rules may explain it too
        self.now: _Values = {}  # as of the last snapshot
        self.devices: dict[_Path, torch.device] = {}  # where tensors were in the last snapshot
        self.large: dict[_Path, _Place] = {}  # tensors and arrays that are no figures, as of then

    def snapshot(self) -> _Values:
        """Return what all values are now."""
        trainer = self.trainer()
        known = [trainer, trainer.model, *(part for _, part in _own_parts(trainer.model))]
        self.owners = {("trainer",): trainer, ("the notebook",): sys.modules["__main__"]}
        self.large.clear()
        fits: Any = lambda place: _is_small(place) or not self.large.setdefault(place.path, place)  # noqa: E731
        places = _walk(_places(trainer), fits, map(id, known), self.owners)
        taken = {place.path: (place, _copied(place.value, self.most)) for place in places}
        self.holders = {path: (place.holder, place.key) for path, (place, _) in taken.items()}
        values = {path: place.value for path, (place, _) in taken.items()}
        last = {path: of[-1] if isinstance(of, list) and of else of for path, of in values.items()}
        self.devices |= {path: of.device for path, of in last.items() if isinstance(of, torch.Tensor)}
        self.now = dict(taken)
        return taken

    def record(
        self, compute: Callable[[], Any], number: int, state: tuple[Any, ...], *, checked: bool = False
    ) -> _Note:
        """Compute micro-batch ``number`` from random states, and note what it did; its effects stay.

        Counters stand where they do in one process. ``checked``: note what it left unchanged, too.
        """
        if self.sets_counters:
            self._set_counters(number)
        before, note = self.now, _Note()
        _set_random_state(state)
        # libraries keep some figures on the main process alone
        is_main, noted = _replaced(_run, is_one_process=True), _replaced(self, current_note=note)
        try:
            with contextlib.redirect_stdout(_Printed(note.events)), is_main, noted:
                note.result = compute()
        except BaseException as error:
            sys.stdout.writelines(value for kind, value in note.events if kind == "print")
            if self.shares_errors and isinstance(error, Exception):  # the notebook may handle it on all ranks
                _exchange(None, error)
            raise
        after = _random_state()
        note.draws = _NOTHING if _are_same_states(state, after) else _drawn(state, after)
        now = self.snapshot()
        every = {**before, **now}
        for path, (place, taken) in every.items():
            change = _changed(before.get(path), now.get(path))
            stays = self.rules.get(path) == "is set" or path in self.keeps
            if change is not None and path not in now and not self._is_gone(path, place):
                change.after = _UNTRACKED  # it holds now what is not looked at
            if change is not None and isinstance(place.value, functools._lru_cache_wrapper):
                _warn_once(_CACHES.format(_in_words(path)))
            elif change is not None:
                note.changes[path] = change
                change.in_place = path in before and before[path][0].value is place.value
            elif stays or (checked and not isinstance(place.value, _GROWS)):
                note.values[path] = _sent(taken)
        lists = {path for path in note.changes if isinstance(every[path][0].value, _GROWS)}
        for path in [path for path in note.changes if any(path[:size] in lists for size in range(len(path)))]:
            del note.changes[path]  # an item that has come, or moved to another place
        return note

    def _set_counters(self, number: int) -> None:
        for path, added in self.counters.items():
            if path not in self.base and not number:
                _remove(*self._place(path))
                self.now.pop(path, None)
                continue
            value = (self.base[path][1] if path in self.base else 0) + number * added
            self._put(path, value)
            self.now[path] = _Place(path, *self.holders[path], value), value

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

    def restore(self, taken: _Values) -> None:
        """Make all values what they were, in the dicts of today; the last snapshot says which are not."""
        now = {path: place for path, (place, _) in self.now.items()}
        for path in now.keys() - taken.keys():
            _remove(now[path].holder, now[path].key)
        for path, (place, held) in taken.items():
            owner = self.owners.get(path[:-1], _ABSENT)  # another dict than before, perhaps
            holder = place.holder if owner is _ABSENT else _holder(owner)
            for of in (now[path].holder if path in now else holder, place.holder):
                if _read(of, place.key) is not place.value:
                    _write(of, place.key, place.value)
            if not _is_as_it_was(place.value, held):
                _refill(place.value, held)
        self.now = {p: (at._replace(holder=now.get(p, at).holder), v) for p, (at, v) in taken.items()}

    def apply(self, note: _Note) -> None:
        """Apply what a micro-batch did, after those before it."""
        for path, value in note.values.items():
            if self.rules.get(path) == "is set":
                self._put(path, value)
        old = {path: _read(*self._place(path)) for path in note.changes}
        added = {p: c.added for p, c in note.changes.items() if self.rules.get(p) == "adds"}
        # before any is put: one may be a view of another
        sums = {path: _sum_of(old[path], of) for path, of in added.items() if of is not None}
        for path, change in sorted(note.changes.items(), key=lambda of: self.rules.get(of[0]) == "copies"):
            rule = self.rules.get(path) or ("" if change.items is None else "grows")
            now = _read(*self._place(path))
            if rule == "copies":
                self._put(path, [_read(*self._place(self.sources[path]))])
            elif rule == "grows":
                if now is _ABSENT:
                    now = [] if not isinstance(change.items, set) else set()
                    self._put(path, now)
                (now.update if isinstance(now, set) else now.extend)(self._on_device(path, change.items))
            elif path in sums:
                self._put(path, sums[path], in_place=change.in_place or isinstance(now, list))
            elif not change.is_untracked:
                self._put(path, change.after, in_place=change.in_place)
        for path in old:  # new ones in the order in which one process makes them: logs are printed in it
            holder, key = self._place(path)
            if old[path] is _ABSENT and isinstance(holder, dict) and key in holder:
                holder[key] = holder.pop(key)
        self.replay(note.events)

    def replay(self, events: list[tuple[str, Any]]) -> None:
        """Print and log what a micro-batch did."""
        for kind, value in events:
            if kind == "print":
                sys.stdout.write(value)
            else:
                logs, args, options = value
                self.trainer().log(dict(logs), *args, **options)

    def learn(self, seen: list[list[_Note]]) -> str:
        """Find the rule of each change from what all ranks saw of each micro-batch; return what has none, or ""."""
        paths = {path: None for notes in seen for note in notes for path in note.changes}
        for path in paths:
            rules = [rule for rule in ("grows", "adds", "is set") if _explains(rule, path, seen)]
            self.sources.pop(path, None)
            if (other := _copied_from(path, paths, seen)) is not None:
                rules.insert(0, "copies")
                self.sources[path] = other
            values = [n.changes[path].after for of in seen for n in of if path in n.changes]
            is_array = any(hasattr(value, "dtype") for value in values)
            # of an array: micro-batches set slots of it, now and then the same one
            if not rules or (is_array and self.rules.get(path) == "adds" and "adds" not in rules):
                return _in_words(path)
            self.rules[path] = rules[0]
            (self.tentative.add if len(seen) == 1 else self.tentative.discard)(path)
        alike = all(_are_same_events(of[0].events, note.events) for of in seen for note in of[1:])
        return "" if alike else "what a micro-batch prints or logs"

    def overlapping(self, seen: list[list[_Note]]) -> set[_Path]:
        """Return the arrays of which two micro-batches changed one value: they add to it, or the later one sets it."""
        counts = dict[_Path, Any]()
        for path, change in ((p, c) for notes in seen if notes for p, c in notes[0].changes.items()):
            if self.rules.get(path) == "adds" and path not in self.summed and hasattr(change.after, "dtype"):
                counts[path] = (change.after != change.before) * 1 + counts.get(path, 0)
        return {path for path, count in counts.items() if (count > 1).any()}

    def unknown(self, notes: dict[Any, _Note], count: int) -> bool:
        """Return whether one of ``count`` micro-batches changed what has no sure rule yet, or in another way."""
        return any(
            (rule := self.rules.get(path)) is None
            or (count > 1 and path in self.tentative)
            or change.is_untracked
            or (rule == "grows" and change.items is None)
            or (rule == "adds" and change.added is None)
            for note in notes.values()
            for path, change in note.changes.items()
        )

    def _is_gone(self, path: _Path, place: _Place) -> bool:
        """Return whether nothing is at a path any more."""
        holder = place.holder
        if isinstance(holder, dict) and path[0] != "model":  # there may be another one now
            holder = _holder(self.owners[path[:-1]]) if path[:-1] in self.owners else None
        return _read(holder, place.key) is _ABSENT

    def _place(self, path: _Path) -> tuple[Any, Any]:
        if path not in self.holders:
            self.holders[path] = _holder(self._owner(path[:-1])), path[-1]
        return self.holders[path]

    def _owner(self, path: _Path) -> Any:
        """Return what holds values below a path; where this rank has none yet, a dict."""
        if path not in self.owners:
            inner = _read(*self._place(path)) if len(path) > 1 else _ABSENT
            if inner is _ABSENT:
                inner = {}
                if len(path) > 1:
                    _write(*self._place(path), inner)
            self.owners[path] = inner
        return self.owners[path]

    def _put(self, path: _Path, value: Any, *, in_place: bool = False) -> None:
        holder, key = self._place(path)
        now = _read(holder, key) if holder is not None else None
        if isinstance(value, str) and value == _ABSENT:
            _remove(holder, key)
        elif _is_generator(now) or (in_place and now is not _ABSENT):
            _refill(now, self._on_device(path, value))
        else:
            _write(holder, key, self._on_device(path, value))

    def _on_device(self, path: _Path, value: Any) -> Any:
        """Return a value, or items, with tensors where they were on this rank: other ranks send them on the CPU."""
        device = self.devices.get(path)
        if device is None or not isinstance(value, torch.Tensor | list):
            return value
        return [self._on_device(path, of) for of in value] if isinstance(value, list) else value.to(device)


def _holder(owner: Any) -> Any:
    """Return what holds the attributes or the items of an object."""
    is_holder = isinstance(owner, dict | list | collections.deque | type) or not hasattr(owner, "__dict__")
    return owner if is_holder else vars(owner)


_CACHES = (
    "{} caches what it gives, on each rank for its own micro-batches: where that depends on more than the arguments, "
    "it is not what one process gives"
)
