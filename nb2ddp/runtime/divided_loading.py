"""Let each rank read its rows of every batch that a DataLoader gives, where reading is what a step waits for.

The ranks exchange their rows, and each puts the whole batch together: what the script sees is the same either way.
A batch that is read whole, twice, tells beforehand whether rows depend on one another; a row that draws random
numbers is noticed at any time, and its batch read whole with the numbers of one process. What is faster is measured,
and measured again. Where rows depend on one another, and workers do not have a core each, each worker runs on one
rank: its batches are then those of one process's worker, and the other ranks get them.
"""

import functools
import pickle
import threading
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._utils import ExceptionWrapper
from torch.utils import _pytree as pytree
from torch.utils.data import _utils, dataloader

from nb2ddp.runtime.object_collectives import _as_raised
from nb2ddp.runtime.read_rows import (
    _CHANGES,
    _DIFFER,
    _PRINTS,
    _RANKS_DIFFER,
    _ROWS_DRAW,
    _WRITES,
    _Asked,
    _Read,
)
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.sent_rows import _as_tensor, _rows_of_ranks
from nb2ddp.runtime.spot_checks import _checks

_LEAST_WAIT = 0.005  # seconds that a batch is waited for, below which nothing is divided
_LEAST_SHARE = 0.05  # of a step's time
_GAIN, _CLEAR_GAIN = 0.9, 0.75  # of the time for whole batches, below which reading by rows is faster


class _Loading:
    """How one DataLoader is read: by the ranks, each its rows, or whole by each of them."""

    def __init__(self, loader: Any) -> None:
        self.name = type(loader.dataset).__name__
        self.ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self.by_rows, self.in_turns, self.to_test, self.over = False, False, False, False
        self.times: dict[bool, float] = {}  # seconds that a step waits for a batch: read by rows, or whole
        self.waits = list[tuple[float, float]]()  # of the latest batches, with the time of the step
        self.length, self.left_out, self.is_trial = 2, 1, False
        self.long = 8 * (self.ahead + 2)
        self.chances, self.may_take_turns = 2, not loader.persistent_workers
        self.good = self.batches = 0
        self.last: float | None = None

    @property
    def how(self) -> str:
        """How batches are read now, but for some that are tested."""
        return "turn" if self.in_turns else "rows" if self.by_rows else ""

    def ask(self, iterator: Any, rows: Any) -> Any:
        """Return what the reader of a batch is asked for."""
        if not _all_are_here() or not isinstance(rows, list | tuple) or len(rows) < _run.world_size:
            return rows
        asked = _Asked(rows)
        asked.how = "turn" if iterator._in_turns else "tested" if self.to_test else self.how
        self.to_test = False
        return asked if asked.how else rows

    def take(self, iterator: Any, read: _Read) -> Any:
        """Return the batch of what this rank has read, and the others. A collective.

        Raises:
            Exception: what the first row that cannot be read has raised, on whichever rank.
        """
        if not _all_are_here():
            return read.batch if read.how == "tested" else self._once_more(iterator, read)
        if read.how == "tested":
            whys, digests, short = zip(*_rows_of_ranks(read.sent), strict=True)
            why = next(filter(None, whys), "" if all(of == digests[0] for of in digests) else _RANKS_DIFFER)
            iterator._in_turns = self._judge(why, is_short_of_cores=all(short))
            return _pinned(iterator, read.batch)
        of_ranks = _rows_of_ranks(read.sent)
        if why := next((why for _, why, _ in of_ranks if why), ""):
            self._stop(why)
            return self._once_more(iterator, read)
        for rank, (_, _, error) in enumerate(of_ranks):
            if error:
                raise (rank == _run.rank and read.error) or _as_raised(error, rank, _place())
        found = [row for rows, _, _ in of_ranks for row in rows]
        batch = found[0] if read.how == "turn" else iterator._collate_fn(found)
        return _pinned(iterator, batch if read.worker is None else _as_of_worker(batch))

    def _judge(self, why: str, *, is_short_of_cores: bool) -> bool:
        """Go on after a test: by rows at first, to see whether that is faster; return whether workers take turns."""
        if not why:
            self.good = self.batches
            if True not in self.times and not self.by_rows:
                self._go_on(by_rows=True, length=4, is_trial=True)
            return False
        if why == _CHANGES and self.chances and not self.good:  # filled when it is first read, perhaps
            self.chances -= 1
            return False
        if why == _DIFFER or (self.good and why != _ROWS_DRAW):
            self.over, self.by_rows = True, False
            _checks.failed(
                f"{self.name}: {why}. From here on every rank reads all rows",
                f" Its batches may differ from one process's since the {self.good or self.batches}th.",
            )
            return False
        if (
            not self.good
            and is_short_of_cores
            and self.may_take_turns
            and why not in (_PRINTS, _RANKS_DIFFER, _WRITES)
        ):
            self.in_turns, self.length, self.left_out = True, self.ahead + 2, self.ahead
            self.waits.clear()
            return True
        self._stop(why)
        return False

    def _stop(self, why: str) -> None:
        self.over, self.by_rows = True, False
        if is_main_process and (self.name, why) not in _said:
            _said.add((self.name, why))
            print(f"nb2ddp: every rank reads all rows of {self.name}, which saves no time: {why}")

    def _once_more(self, iterator: Any, read: _Read) -> Any:
        """Return a batch whose rows drew random numbers, read whole as one process does; with workers, all after it."""
        if read.worker is None:
            return iterator._dataset_fetcher.fetch(read.rows)
        number = iterator._rcvd_idx - 1
        under_way = {number: (read.worker,), **iterator._task_info}
        for batch, (worker, *arrived) in sorted(under_way.items()):
            again = _Asked(iterator._rows_asked[batch])
            again.how = "again"
            iterator._index_queues[worker].put((batch, again))
            if batch != number:
                iterator._task_info[batch] = (worker,)
                iterator._tasks_outstanding += len(arrived)
                iterator._stale |= set() if arrived else {batch}
        while True:
            batch, data = iterator._get_data()
            if batch == number:
                break
            iterator._tasks_outstanding -= 1
            iterator._task_info[batch] += (data,)
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    def see(self, wait: float, start: float, how: str) -> None:
        """Note how long the script has waited for a batch, and now and then decide what is faster. A collective."""
        self.batches += 1
        step, self.last = None if self.last is None else start - self.last, start
        if self.over or step is None or how != self.how:
            return
        if self.left_out:
            self.left_out -= 1
            return
        self.waits.append((wait, step))
        if len(self.waits) == self.length:
            self._decide()

    def _decide(self) -> None:
        waits, steps = zip(*self.waits, strict=True)
        own = sum(waits) / len(waits), sorted(steps)[len(steps) // 2]
        wait, step = max(_rows_of_ranks(_as_tensor(own)))
        self.waits.clear()
        if self.in_turns:
            self.in_turns, self.length = wait < self.times[False], 2 * self.length  # for the next epoch
            self.over = not self.in_turns
            return
        self.times[self.by_rows] = wait
        if True not in self.times:  # whole until now
            self.to_test = wait > max(_LEAST_WAIT, _LEAST_SHARE * step)
            self.length = self.ahead + 2 if self.to_test else min(4 * self.length, 256)
        elif self.is_trial:
            self.long *= 4
            self._go_on(by_rows=self.times[True] < _GAIN * self.times[False], length=self.long)
        else:
            self.to_test, is_clear = True, self.by_rows and wait < _CLEAR_GAIN * self.times[False]
            self.long *= 4 if is_clear else 1
            self._go_on(
                by_rows=self.by_rows == is_clear, length=self.long if is_clear else 2, is_trial=not is_clear
            )

    def _go_on(self, *, by_rows: bool, length: int, is_trial: bool = False) -> None:
        if by_rows != self.by_rows:
            self.left_out = self.ahead
        self.by_rows, self.length, self.is_trial = by_rows, length, is_trial
        self.waits.clear()


_said = set[tuple[str, str]]()
_loadings: weakref.WeakKeyDictionary[Any, _Loading] = weakref.WeakKeyDictionary()  # by DataLoader


def _all_are_here() -> bool:
    """Return whether the other ranks take the same batch, here in the main thread."""
    has_group = dist.distributed_c10d.is_initialized()
    return (
        _run.meets
        and has_group
        and not _run.reads_whole
        and threading.current_thread() is threading.main_thread()
    )


def _pinned(iterator: Any, batch: Any) -> Any:
    return _utils.pin_memory.pin_memory(batch, iterator._pin_memory_device) if iterator._pin_memory else batch


def _as_of_worker(batch: Any) -> Any:
    """Return a batch as a worker sends it: an array that is a view becomes one in the order of its axes."""

    def sent(leaf: Any) -> Any:
        is_view = type(leaf).__name__ == "ndarray" and not leaf.flags.forc
        return pickle.loads(pickle.dumps(leaf)) if is_view else leaf

    return pytree.tree_map(sent, batch)


def _loading_of(loader: Any) -> _Loading | None:
    """Return how a DataLoader is read; None for one whose rows have no numbers, or whose workers are not forks."""
    if (
        loader._dataset_kind != dataloader._DatasetKind.Map
        or not loader._auto_collation
        or not _all_are_here()
    ):
        return None
    if loader.num_workers > 0:
        context = loader.multiprocessing_context or torch.multiprocessing
        in_order, by = getattr(loader, "in_order", True), getattr(loader, "worker_method", "multiprocessing")
        if not in_order or by != "multiprocessing" or context.get_start_method() != "fork":
            return None
    if loader not in _loadings:
        _loadings[loader] = _Loading(loader)
    _loadings[loader].last = None
    return _loadings[loader]


def _divide_loading() -> None:
    """Let DataLoaders ask for a rank's rows, their fetchers read them, and their batches be put together."""
    if _run.world_size == 1:
        return
    # a Trainer's batches have an order of their own
    _run.at_trainer.append(lambda: setattr(_run, "reads_whole", True))
    kind: Any = dataloader._BaseDataLoaderIter
    of_workers: Any = dataloader._MultiProcessingDataLoaderIter
    fetcher: Any = _utils.fetch._MapDatasetFetcher
    begin, next_rows, next_batch, fetch, received = (
        kind.__init__,
        kind._next_index,
        kind.__next__,
        fetcher.fetch,
        of_workers._get_data,
    )

    kind._loading, kind._stale = None, set()  # of classes of other libraries

    def begin_and_look(self: Any, loader: Any) -> None:
        if type(self) in (dataloader._SingleProcessDataLoaderIter, of_workers):
            self._loading, self._rows_asked, self._stale = _loading_of(loader), {}, set()
            self._in_turns = self._loading is not None and self._loading.in_turns
        begin(self, loader)

    def ask(self: Any) -> Any:
        rows = next_rows(self)
        if self._loading is None:
            return rows
        if self._num_workers:
            self._rows_asked[self._send_idx] = rows
            self._rows_asked.pop(self._rcvd_idx - 2, None)
        return self._loading.ask(self, rows)

    def take(self: Any) -> Any:
        start = time.perf_counter()
        batch, how, loading = next_batch(self), "", self._loading
        if isinstance(batch, _Read):
            how, batch = batch.how, loading.take(self, batch)
        if loading is not None and _all_are_here():
            loading.see(time.perf_counter() - start, start, how)
        return batch

    def read(self: Any, rows: Any) -> Any:
        return rows.read(self) if isinstance(rows, _Asked) else fetch(self, rows)

    def receive(self: Any) -> Any:
        while (found := received(self))[0] in self._stale:
            self._stale.discard(found[0])
        return found

    for patched, name, plain, function in (
        (kind, "__init__", begin, begin_and_look),
        (kind, "_next_index", next_rows, ask),
        (kind, "__next__", next_batch, take),
        (fetcher, "fetch", fetch, read),
        (of_workers, "_get_data", received, receive),
    ):
        setattr(patched, name, functools.wraps(plain)(function))


_divide_loading()
