"""Note what a micro-batch leaves behind beside its gradients, and put together what the ranks' micro-batches left.

A Trainer keeps figures by itself (TRL's lists of metrics, counts of tokens), and so does the notebook's own code: a
list that ``compute_loss`` fills, a counter, what it prints or logs. Each rank computes some micro-batches of a step
alone. What one of them changed is noted, and every rank then applies the notes of all micro-batches in the
notebook's order.

How a value changes (a list grows, a number is added to, a value is replaced) is not guessed: in a step that is
checked every rank computes every micro-batch, each from another state, and only the rule that explains what all of
them saw is taken.
"""

import collections
import contextlib
import io
import math
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from nb2ddp.runtime.metrics import _is_metric
from nb2ddp.runtime.random_numbers import _every_random_state, _seed_for, _set_every_random_state

_Path = tuple[Any, ...]
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_GROWS = (list, collections.deque, set)
_MOST = 256  # values of a container that are looked at; of a longer list only what is appended
_ABSENT = "nb2ddp: there was none"
# attributes of a Trainer that hold no figures, or none that a micro-batch changes
_NO_FIGURES = frozenset(
    "model model_wrapped ref_model optimizer lr_scheduler accelerator args train_dataset eval_dataset control state "
    "callback_handler data_collator processing_class _memory_tracker _turns label_names _signature_columns".split()
)


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
        if isinstance(after, torch.Tensor):
            if isinstance(before, torch.Tensor) and before.shape == after.shape and after.dtype != torch.bool:
                return after - before
            return None
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
        self.drew = False
        self.state: Any = None  # the random states after the first micro-batch, if it drew


class _Figures:
    """The values that a Trainer's micro-batches may change, and the rules by which they do."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.rules: dict[_Path, str] = {}
        self.sources: dict[_Path, _Path] = {}  # of what copies another figure: a total that is logged, say
        self.model: Any = None
        self.modules: list[tuple[str, Any]] = []  # of the model, whose classes are the notebook's
        self.draws = True  # micro-batches draw random numbers, as far as is known
        self.noting: _Note | None = None  # the micro-batch under way
        self.holders: dict[_Path, tuple[Any, Any]] = {}
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
        self.now = taken
        return taken

    def record(self, compute: Callable[[], Any], number: int, start: tuple[Any, ...]) -> _Note:
        """Compute micro-batch ``number``, and note what it did; its effects stay. ``start``: the random states.

        The first micro-batch draws the numbers that it has in one process. The others draw numbers that depend on
        their place in the step, not on the rank.
        """
        before, note = self.now, _Note()
        self.noting = note
        _set_every_random_state(start)
        if number and self.draws:
            _seed_for(start, number)
        drawn = _every_random_state()
        printed = _Printed(note)
        try:
            with contextlib.redirect_stdout(printed):
                note.result = compute()
        except BaseException:
            for kind, value in note.events:
                if kind == "print":
                    sys.stdout.write(value)
            raise
        finally:
            self.noting = None
        note.state = _every_random_state()
        note.drew = not _are_same_states(drawn, note.state)
        if number or not note.drew:
            note.state = None
        now = self.snapshot()
        for path in {**before, **now}:
            change = _changed(before.get(path), now.get(path))
            if change is not None:
                note.changes[path] = change
        return note

    def restore(self, taken: dict[_Path, Any]) -> None:
        """Make all values what they were; the last snapshot says which are not."""
        for path, (value, copy) in self.now.items():
            if path not in taken:
                self._remove(path)
                continue
            old, old_copy = taken[path]
            if value is not old:
                self._put(path, old)
            if copy is not old_copy and not (isinstance(copy, _SIMPLE) and copy == old_copy):
                _refill(old, old_copy)
        for path in taken.keys() - self.now.keys():
            self._put(path, taken[path][0])
            _refill(*taken[path])
        self.now = taken

    def apply(self, note: _Note) -> None:
        """Apply what a micro-batch did, after those before it."""
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
            else:
                self._put(path, change.after)
        for kind, value in note.events:
            if kind == "print":
                sys.stdout.write(value)
            else:
                logs, args, options = value
                self.trainer.log(dict(logs), *args, **options)

    def learn(self, seen: list[list[_Note]]) -> str:
        """Find the rule of each change from what all ranks saw of each micro-batch; return what has none, or "".

        ``seen``: by micro-batch, the notes of the ranks that computed it.
        """
        paths = {path: None for notes in seen for note in notes for path in note.changes}
        for path in paths:
            if (other := _copied_from(path, paths, seen)) is not None:
                self.rules[path], self.sources[path] = "copies", other
                continue
            rules = [rule for rule in ("grows", "adds", "is set") if _explains(rule, path, seen)]
            if not rules:
                return _in_words(path)
            self.rules[path] = rules[0]
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
            self.holders[path] = (inner if isinstance(inner, dict) else vars(inner)), path[-1]
        return self.holders[path]

    def _put(self, path: _Path, value: Any) -> None:
        _write(*self._place(path), value)

    def _remove(self, path: _Path) -> None:
        holder, key = self._place(path)
        if isinstance(holder, dict):
            holder.pop(key, None)


class _Printed(io.TextIOBase):
    """Stands for ``sys.stdout`` while a micro-batch is computed."""

    def __init__(self, note: _Note) -> None:
        self.note = note

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.note.events.append(("print", text))
        return len(text)


def _root(trainer: Any, name: str) -> tuple[Any, Any]:
    if name == "model":
        return dict(trainer.model.named_modules()), None
    return vars(trainer if name == "trainer" else sys.modules["__main__"]), None


def _walk(trainer: Any, modules: list[tuple[str, Any]]) -> Iterator[tuple[_Path, Any, Any, Any]]:
    """Yield the plain values and containers that a micro-batch may change: path, holder, key, value."""
    main = vars(sys.modules["__main__"])
    own = {name: value for name, value in vars(trainer).items() if name not in _NO_FIGURES}
    waiting: list[tuple[_Path, Any, Any, Any]] = [
        *(
            (("the notebook", name), main, name, value)
            for name, value in list(main.items())
            if name[:2] != "__"
        ),
        *((("trainer", name), vars(trainer), name, value) for name, value in own.items()),
    ]
    for name, module in modules:
        waiting += [
            (("model", name, key), vars(module), key, value) for key, value in list(vars(module).items())
        ]
    seen: set[int] = {id(trainer), id(vars(trainer)), id(main)}
    waiting.reverse()  # taken from the end
    while waiting:
        path, holder, key, value = waiting.pop()
        if isinstance(value, _SIMPLE) or _is_small_tensor(value) or type(value).__module__ == "numpy":
            yield path, holder, key, value
            continue
        if id(value) in seen or len(seen) > 20 * _MOST:  # or known by another name
            continue
        inner: list[tuple[_Path, Any, Any, Any]] = []
        if isinstance(value, _GROWS):
            seen.add(id(value))
            yield path, holder, key, value
        elif isinstance(value, dict):
            seen.add(id(value))
            if len(value) <= _MOST:
                inner = [((*path, name), value, name, item) for name, item in list(value.items())]
        elif _is_metric(value):  # torchmetrics': what it counts, and how often
            seen.add(id(value))
            names = [*value._defaults, "_update_count"]
            inner = [((*path, name), value, name, getattr(value, name, None)) for name in names]
        elif isinstance(value, types.FunctionType) and _is_own(value.__module__):
            seen.add(id(value))
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # not filled yet
                    inner.append(((*path, name), cell, "cell_contents", cell.cell_contents))
            inner += [((*path, name), vars(value), name, item) for name, item in list(vars(value).items())]
        elif isinstance(value, type) and _is_own(value.__module__):
            seen.add(id(value))
            names = [name for name in vars(value) if name[:2] != "__"]
            inner = [((*path, name), value, name, vars(value)[name]) for name in names]
        elif (
            _is_own(type(value).__module__)
            and hasattr(value, "__dict__")
            and not isinstance(value, torch.nn.Module)
        ):
            seen.add(id(value))
            inner = [((*path, name), vars(value), name, item) for name, item in list(vars(value).items())]
            inner.append(((*path, "class"), None, None, type(value)))
        waiting += reversed(inner)


def _own_modules(trainer: Any) -> list[tuple[str, Any]]:
    """Return the modules of a Trainer's model whose classes are the notebook's: they may count their calls."""
    model = getattr(trainer, "model", None)
    if not isinstance(model, torch.nn.Module):
        return []
    return [(name, part) for name, part in model.named_modules() if _is_own(type(part).__module__)]


_LIBRARIES: dict[str, bool] = {}


def _is_own(module: str | None) -> bool:
    """Return whether a module is the notebook's: the script itself, or a file in the folder where it runs."""
    if module == "__main__":
        return True
    if module not in _LIBRARIES:
        file = getattr(sys.modules.get(module or ""), "__file__", None)
        folders = (os.getcwd(), os.path.abspath(sys.path[0]))
        near = file is not None and os.path.dirname(os.path.abspath(file)) in folders
        _LIBRARIES[module or ""] = not near or os.path.basename(str(file)).startswith("ddp_support")
    return not _LIBRARIES[module or ""]


def _is_small_tensor(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, torch.nn.Parameter)
        and value.numel() <= _MOST
    )


def _copied(value: Any) -> Any:
    """Return a copy of a value that may be changed in place; of a long list its length alone."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, _GROWS):
        return type(value)(value) if len(value) <= _MOST else len(value)
    return value


def _refill(value: Any, copy: Any) -> None:
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            value.copy_(copy)
    elif isinstance(value, list) and isinstance(copy, int):
        del value[copy:]
    elif isinstance(value, list):
        value[:] = copy
    elif isinstance(value, _GROWS) and not isinstance(copy, int):
        value.clear()
        (value.update if isinstance(value, set) else value.extend)(copy)


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


def _appended(before: Any, after: Any) -> Any:
    """Return what was added to a container, for a list at its end; None where other items changed."""
    if isinstance(before, str):
        return after if isinstance(after, set) else list(after)
    if not isinstance(before, _GROWS):
        return None
    if isinstance(after, set):
        return after - before if isinstance(before, set) and before <= after else None
    old, new = list(before), list(after)
    for gone in range(len(old) + 1 if getattr(after, "maxlen", None) else 1):
        kept = len(old) - gone
        if kept <= len(new) and all(
            a is b or _agree(a, b) for a, b in zip(old[gone:], new[:kept], strict=True)
        ):
            return new[kept:]
    return None


def _sent(value: Any) -> Any:
    """Return a value as other ranks get it: tensors on the CPU, without a graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, list | collections.deque):
        return [_sent(item) for item in value]
    if isinstance(value, dict):
        return {name: _sent(item) for name, item in value.items()}
    return value


def _agree(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values are equal, numbers up to a relative ``tolerance``."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        if not (
            isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape
        ):
            return False
        if not tolerance or not one.is_floating_point():
            return bool(torch.equal(one.cpu(), other.cpu()))
        here, there = one.double().cpu(), other.double().cpu()
        return bool(torch.allclose(here, there, rtol=tolerance, atol=tolerance, equal_nan=True))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _agree(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[name], other[name], tolerance) for name in one)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool) and not isinstance(other, bool):
        both_nan = one != one and other != other
        return (
            both_nan or one == other or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * 1e-2)
        )
    try:
        return bool(type(one) is type(other) and (one is other or one == other))
    except Exception:  # __eq__ of any class may do anything
        return False


_CLOSE = 1e-4  # two ranks' figures of one micro-batch: float sums in another order


def _explains(rule: str, path: _Path, seen: list[list[_Note]]) -> bool:
    """Return whether a rule explains what the ranks saw of a value in all micro-batches."""
    for notes in seen:
        changes = [note.changes.get(path) for note in notes]
        if all(change is None for change in changes):
            continue
        if rule == "is set":  # to what it was already, perhaps
            values = [change.after for change in changes if change is not None]
        elif any(change is None for change in changes):
            return False
        else:
            values = [
                change.items if rule == "grows" else change.added for change in changes if change is not None
            ]
        if any(value is None and rule != "is set" for value in values):
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
    texts = ["".join(value for kind, value in events if kind == "print") for events in (one, other)]
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
    if isinstance(added, torch.Tensor):
        return now + added.to(now.device) if isinstance(now, torch.Tensor) else added
    return added if now is _ABSENT else now + added


def _read(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return holder.get(key, _ABSENT)
    return getattr(holder, key, _ABSENT)


def _write(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    else:
        setattr(holder, key, value)


def _are_same_states(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    tensors = zip(one[2:], other[2:], strict=True)
    return one[:2] == other[:2] and all(a is b or torch.equal(a, b) for a, b in tensors)


def _in_words(path: _Path) -> str:
    names = ".".join(str(part) for part in path[1:] if part)
    return f"`{'self.' if path[0] == 'trainer' else 'model.' if path[0] == 'model' else ''}{names}`"
