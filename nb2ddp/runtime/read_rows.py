"""Read the rows of a batch, in the script's process or in a worker, and see what this does beside giving them."""

import collections
import contextlib
import gc
import io
import sys
import time
import types
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.kept_values import _SIMPLE, _is_array, _is_generator
from nb2ddp.runtime.random_numbers import _are_same_states, _random_state, _set_random_state
from nb2ddp.runtime.run_state import _is_power_of_two, _run
from nb2ddp.runtime.script_location import _is_own
from nb2ddp.runtime.sent_rows import _as_tensor, _of_tensor
from nb2ddp.runtime.value_copies import _are_same_items, _generator_state

_ROWS_DRAW = "its rows draw random numbers, each after those before it"
_CHANGES = "reading it changes what the script can see: a counter, a cache, a generator of its own"
_PRINTS = "it prints while it is read"
_WRITES = "rank 0 alone writes while it is read"
_DIFFERS = "a row is not the same when it is read again, after others"
_FAILS = "a row cannot be read"
_MOST_HELD = 20_000  # values that are looked at
_MOST_IN_ONE = 1_000  # of a long list
_MOST_OF_ARRAY = 2**16  # of an array


class _Effects:
    """A block that reads; ``why`` says what it does beside. With ``undo`` it neither prints nor draws."""

    def __init__(self, *held: Any, undo: bool = False) -> None:
        self.held, self.undo = held, undo

    def __enter__(self) -> "_Effects":
        self.contents = _contents(*self.held) if self.held else []
        self.before, self.out, self.uses = _random_state(), sys.stdout, _SeenModule.uses
        self.module, self.kind = sys.modules[__name__], sys.modules[__name__].__class__
        self.printed = io.StringIO()
        self.module.__class__, sys.stdout = _SeenModule, self.printed
        return self

    def __exit__(self, *_: object) -> None:
        printed, sys.stdout, self.module.__class__ = self.printed.getvalue(), self.out, self.kind
        self.draws = not _are_same_states(self.before, _random_state())
        self.changes = any(not _are_same_items(held, _inside(value)) for value, held in self.contents)
        seen = printed, _SeenModule.uses > self.uses, self.draws, self.changes
        whys = _PRINTS, _WRITES, _ROWS_DRAW, _CHANGES
        self.why = next((why for found, why in zip(seen, whys, strict=True) if found), "")
        if not self.undo:
            self.out.write(printed)
        elif self.draws:
            _set_random_state(self.before)


class _SeenModule(types.ModuleType):
    """This module while rows are read: it counts what the script asks of it, whether this is rank 0, say."""

    uses = 0

    def __getattribute__(self, name: str) -> Any:
        _SeenModule.uses += not name.startswith("_")
        return super().__getattribute__(name)


def _contents(*roots: Any) -> list[tuple[Any, list[Any]]]:
    """Return values that objects and the script's names hold, each with what it holds itself."""
    modules = ((name, module) for name, module in [*sys.modules.items()] if hasattr(module, "__dict__"))
    libraries = {id(vars(module)) for name, module in modules if not _is_own(name)}
    seen: dict[int, tuple[Any, list[Any]]] = {}
    waiting = collections.deque([*roots, vars(sys.modules["__main__"])])
    while waiting and len(seen) < _MOST_HELD:
        value = waiting.popleft()
        if (
            id(value) not in seen
            and id(value) not in libraries
            and not isinstance(value, (*_SIMPLE, types.ModuleType))
        ):
            seen[id(value)] = value, _inside(value)
            waiting += seen[id(value)][1][:_MOST_IN_ONE]
    return [*seen.values()]


def _inside(value: Any) -> list[Any]:
    """Return what a value holds; of a random generator its state too, of an array its bytes."""
    if isinstance(value, type):
        return [*vars(value).values()] if _is_own(value.__module__) else []
    held, of_numpy = gc.get_referents(value), type(value).__module__.startswith("numpy")
    if isinstance(value, torch.Tensor):
        held.append(0 if value.is_inference() else value._version)
    elif _is_generator(value):
        held.append(_generator_state(value))
    elif _is_array(value) or (of_numpy and hasattr(value, "nbytes")):  # a record, too
        held.append(value.tobytes() if value.nbytes < _MOST_OF_ARRAY else b"")
    elif of_numpy and hasattr(value, "spawn"):  # what seeds generators, and counts them
        held.append(str(value.state))
    return held


def _rows(dataset: Any, rows: Any) -> Any:
    """Return rows as PyTorch's fetcher reads them."""
    if rows and getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(rows)
    return [dataset[row] for row in rows]


def _part(rows: Any) -> slice:
    """Return which rows of a batch are this rank's."""
    return slice(*(len(rows) * rank // _run.world_size for rank in (_run.rank, _run.rank + 1)))


def _share(fetcher: Any, rows: Any) -> tuple[Any, str]:
    """Return this rank's rows of a batch; or why every rank is to read all of them, as if none had been read."""
    found, why = [], _FAILS
    with _Effects(undo=True) as effects, contextlib.suppress(Exception):
        found, why = _rows(fetcher.dataset, rows[_part(rows)]), ""
    return ([] if effects.why else found), effects.why or why


def _sent_share(fetcher: Any, rows: Any) -> torch.Tensor:
    """Return what `_share` returns as bytes."""
    found, why = _share(fetcher, rows)
    try:
        return _as_tensor((found, why))
    except Exception as error:  # __reduce__ of any class may raise anything
        return _as_tensor(([], f"its rows cannot be sent: {error}"))


def _looked_at(fetcher: Any, rows: Any) -> tuple[Any, tuple[str, Any, float]]:
    """Return the batch that one process reads, why it cannot be divided, digests of its rows, and how long it took."""
    start = time.perf_counter()
    with _Effects(fetcher.dataset, fetcher.collate_fn) as effects:
        found = _rows(fetcher.dataset, rows)
    batch, why, digests = fetcher.collate_fn(found), effects.why, list[str]()
    seconds = time.perf_counter() - start
    try:
        digests = [_digest(row) for row in found]
        own, fails = ([], "") if why else _of_tensor(_sent_share(fetcher, rows))
        differs = len(digests) != len(rows) or [_digest(row) for row in own] != digests[_part(rows)]
        why = why or (fails if fails != _FAILS else _DIFFERS) or (_DIFFERS if differs else "")
    except Exception as error:  # rows may be anything
        why = f"its rows cannot be compared: {error}"
    return batch, (why, digests, seconds)


class _Asked(list[Any]):
    """The rows of a batch that workers are asked for: that of rank ``owner``; each rank's one where all look at it."""

    owner: int | None = None
    is_settled = looks = False

    def read(self, fetcher: Any) -> "_Read":
        """Read the batch in a worker, if it is this one's."""
        reads = self.looks or self.owner == _run.rank or (_Read.keeps and not self.is_settled)
        return _Read(self, *_read_by_worker(fetcher, self)) if reads else _Read(self)


class _Read:
    """What a worker gives of a batch: for the other ranks as bytes, and what was seen when it was read."""

    # what this worker reads depends on what it has read: it reads all of its batches from here on
    keeps = False
    count = 0  # of those that it has read

    def __init__(
        self, asked: _Asked, sent: torch.Tensor | None = None, seen: tuple[str, Any, float] = ("", None, 0.0)
    ) -> None:
        self.asked, self.sent, self.seen = asked, sent, seen


def _read_by_worker(fetcher: Any, asked: _Asked) -> tuple[torch.Tensor, tuple[str, Any, float]]:
    """Read a batch as one process's worker does."""
    _Read.count += 1
    where = f"in DataLoader worker process {get_worker_info().id}"
    with _Effects(*[fetcher.dataset, fetcher.collate_fn] * _is_power_of_two(_Read.count)) as effects:
        try:
            batch = fetcher.fetch(list(asked))
        except Exception:
            batch = ExceptionWrapper(where=where)
    _Read.keeps |= asked.owner == _run.rank and (effects.draws or effects.changes)
    why = effects.why if effects.why in (_PRINTS, _WRITES) else ""
    try:
        return _as_tensor((batch, why, _Read.keeps)), (why, _digest(batch) if asked.looks else None, 0.0)
    except Exception as error:
        why = f"its batches cannot be sent: {error}"
        return _as_tensor((ExceptionWrapper(where=where), why, _Read.keeps)), (why, None, 0.0)
