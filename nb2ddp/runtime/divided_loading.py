"""Let each rank read its rows of every batch that a DataLoader gives, where reading is what a step waits for.

The ranks exchange their rows, and each puts the whole batch together: what the script sees is the same either way.
A batch that is read whole, twice, tells beforehand whether rows depend on one another; a row that draws random numbers
is noticed at any time, and its batch read whole with the numbers of one process. What is faster is measured, and
measured again.
"""

import contextlib
import functools
import sys
import threading
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils, dataloader, get_worker_info

from nb2ddp.runtime.object_collectives import _as_raised, _as_sent
from nb2ddp.runtime.random_numbers import _every_random_state, _set_every_random_state
from nb2ddp.runtime.read_effects import _content_of
from nb2ddp.runtime.recomputed_calls import _Prints
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.same_data import _digest
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.sent_rows import _as_tensor, _rows_of_ranks
from nb2ddp.runtime.spot_checks import _checks

_LEAST = 0.002  # seconds that a batch is waited for, below which nothing is divided
_LEAST_SHARE = 0.05  # of a step's time
_DRAWS = "its rows draw random numbers, each after those before it"
_CHANGES = "reading it changes what the script can see: a counter, a cache, a generator of its own"
_PRINTS = "it prints while it is read"
_DIFFER = "a row is not the same when it is read again, after others"
_RANKS_DIFFER = "its rows are not the same on all ranks"


class _Asked(list[Any]):
    """The numbers of a batch's rows, and how it is read: "tested", by "rows", or once more ("again")."""

    how = ""

    def read(self, fetcher: Any) -> Any:
        """Return what is asked for, in the process that reads: a batch once more, or a `_Read`."""
        rows = list(self)
        if self.how == "again":
            if before := _of_worker.pop("before", None):
                _set_every_random_state(before)
            return fetcher.fetch(rows)
        return _tested(fetcher, rows) if self.how == "tested" else _share(fetcher, rows)


class _Read:
    """What has been read of a batch: its rows for the others, or the batch itself and what its test has shown."""

    def __init__(self, rows: list[int], sent: torch.Tensor, how: str = "rows", batch: Any = None) -> None:
        self.rows, self.how, self.sent, self.batch = rows, how, sent, batch
        self.worker = info.id if (info := get_worker_info()) else None
        self.error: Exception | None = None


_of_worker: dict[str, Any] = {}  # "before": the random state before the first row that drew


def _share(fetcher: Any, rows: list[int]) -> _Read:
    """Read this rank's rows. One that draws random numbers leaves the generators as they were."""
    before, why, error, sent = _every_random_state(), "", None, list[Any]()
    try:
        sent = _rows(fetcher.dataset, _rows_of_rank(rows, _run.rank))
    except Exception as raised:
        error = _of_reader(raised)
    if not _is_same_state(before):
        why = _DRAWS
        _of_worker.setdefault("before", before)
        _set_every_random_state(before)
    try:
        read = _Read(rows, _as_tensor(([] if why else sent, why, _as_sent(error) if error else [])))
    except Exception as raised:  # __reduce__ of any class may raise anything
        read = _Read(rows, _as_tensor(([], f"its rows cannot be sent: {raised}", [])))
    read.error = error if read.worker is None else None
    return read


def _tested(fetcher: Any, rows: list[int]) -> _Read:
    """Read a batch as one process does, and its parts once more, the last ones first."""
    before, held = _every_random_state(), _content_of(fetcher.collate_fn, fetcher.dataset)
    with contextlib.redirect_stdout(_Prints(sys.stdout)) as out:
        found = _rows(fetcher.dataset, rows)
    after, digests = _every_random_state(), [_digest(row) for row in found]
    why = _PRINTS if out.wrote else "" if _is_same_state(before) else _DRAWS
    if not why and held != _content_of(fetcher.collate_fn, fetcher.dataset):
        why = _CHANGES
    if not isinstance(found, list) or len(found) != len(rows):
        why = "its rows come all at once"
    if not why:
        shares = [
            _rows(fetcher.dataset, _rows_of_rank(rows, rank)) for rank in reversed(range(_run.world_size))
        ]
        why = "" if digests == [_digest(row) for share in reversed(shares) for row in share] else _DIFFER
        _set_every_random_state(after)
        try:
            _as_tensor(found)
        except Exception as raised:
            why = why or f"its rows cannot be sent: {raised}"
    batch = fetcher.collate_fn(found)
    if not why and get_worker_info() and not _is_same_state(after):
        why = "its batches are put together with random numbers"
    elif not why and get_worker_info() and held != _content_of(fetcher.collate_fn, fetcher.dataset):
        why = _CHANGES
    return _Read(rows, _as_tensor((why, digests)), "tested", batch)


def _rows(dataset: Any, rows: list[int]) -> Any:
    """Return rows as PyTorch's fetcher reads them."""
    if rows and getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(rows)
    return [dataset[row] for row in rows]


def _rows_of_rank(rows: list[int], rank: int) -> list[int]:
    return rows[len(rows) * rank // _run.world_size : len(rows) * (rank + 1) // _run.world_size]


def _of_reader(error: Exception) -> Exception:
    """Return an exception as a DataLoader raises it: one of a worker says so in its text."""
    if (info := get_worker_info()) is None:
        return error
    try:
        ExceptionWrapper(where=f"in DataLoader worker process {info.id}").reraise()
    except Exception as as_raised:
        return as_raised
    return error


def _is_same_state(before: tuple[Any, ...]) -> bool:
    """Return whether the generators are as before; numpy may have been imported meanwhile."""
    now = _every_random_state()
    same_gpu = before[3] is None or torch.equal(before[3], now[3])
    return before[0] == now[0] and before[1] in (None, now[1]) and torch.equal(before[2], now[2]) and same_gpu


class _Loading:
    """How one DataLoader is read: by the ranks, each its rows, or whole by each of them."""

    def __init__(self, loader: Any) -> None:
        self.name = type(loader.dataset).__name__
        self.ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self.by_rows, self.to_test, self.over = False, False, False
        self.times: dict[bool, float] = {}  # seconds that a step waits for a batch: read by rows, or whole
        self.waits = list[tuple[float, float]]()  # of the latest batches, with the time of the step
        self.length, self.left_out, self.is_trial = 2, 1, False
        self.long = 4 * (self.ahead + 2)
        self.is_testing = False
        self.good = self.batches = 0
        self.last: float | None = None

    def ask(self, iterator: Any, rows: Any) -> Any:
        """Return what the reader of a batch is asked for."""
        if not _all_are_here() or not isinstance(rows, list | tuple) or len(rows) < _run.world_size:
            return rows
        asked = _Asked(rows)
        asked.how, self.to_test = "tested" if self.to_test else "rows" if self.by_rows else "", False
        return asked if asked.how else rows

    def take(self, iterator: Any, read: _Read) -> Any:
        """Return the batch of what this rank has read, and the others. A collective.

        Raises:
            Exception: what the first row that cannot be read has raised, on whichever rank.
        """
        if not _all_are_here():
            return read.batch if read.how == "tested" else self._once_more(iterator, read)
        if read.how == "tested":
            self.is_testing = False
            (why, first), *others = _rows_of_ranks(read.sent)
            why = next((of for of, _ in [(why, first), *others] if of), "")
            self._judge(why or ("" if all(other == first for _, other in others) else _RANKS_DIFFER))
            return _pinned(iterator, read.batch)
        of_ranks = _rows_of_ranks(read.sent)
        if why := next((why for _, why, _ in of_ranks if why), ""):
            self._stop(why)
            return self._once_more(iterator, read)
        for rank, (_, _, error) in enumerate(of_ranks):
            if error:
                raise (rank == _run.rank and read.error) or _as_raised(error, rank, _place())
        return _pinned(iterator, iterator._collate_fn([row for rows, _, _ in of_ranks for row in rows]))

    def _judge(self, why: str) -> None:
        """Go on after a test: by rows at first, to see whether that is faster."""
        if not why:
            self.good = self.batches
            if True not in self.times and not self.by_rows:
                self._go_on(by_rows=True, length=4, is_trial=True)
            return
        if self.good and why != _DRAWS:
            _checks.failed(
                f"{self.name}: {why}. Its batches may differ from one process's since its {self.good}th, "
                "which was read whole as well; from here on every rank reads all rows"
            )
        self._stop(why)

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
        if self.over or step is None or how != ("rows" if self.by_rows else ""):
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
        self.times[self.by_rows] = wait
        if True not in self.times:  # whole until now
            is_slow = wait > max(_LEAST, _LEAST_SHARE * step)
            self.length = 2 if is_slow else min(4 * self.length, 256)
            self.to_test, self.is_testing = is_slow and not self.is_testing, is_slow or self.is_testing
        elif self.is_trial:
            self.long *= 4
            self._go_on(by_rows=self.times[True] < 0.9 * self.times[False], length=self.long)
        else:
            self.to_test = True
            self._go_on(by_rows=not self.by_rows, length=2, is_trial=True)

    def _go_on(self, *, by_rows: bool, length: int, is_trial: bool = False) -> None:
        if by_rows != self.by_rows:
            self.left_out = self.ahead
        self.by_rows, self.length, self.is_trial = by_rows, length, is_trial
        self.waits.clear()


_said = set[tuple[str, str]]()
_loadings: weakref.WeakKeyDictionary[Any, _Loading] = weakref.WeakKeyDictionary()  # by DataLoader


def _all_are_here() -> bool:
    """Return whether the other ranks take the same batch, here in the main thread."""
    return _run.meets and not _run.reads_whole and threading.current_thread() is threading.main_thread()


def _pinned(iterator: Any, batch: Any) -> Any:
    return _utils.pin_memory.pin_memory(batch, iterator._pin_memory_device) if iterator._pin_memory else batch


def _loading_of(loader: Any) -> _Loading | None:
    """Return how a DataLoader is read; None for one whose rows have no numbers, or whose workers are not forks."""
    context = loader.multiprocessing_context or torch.multiprocessing
    is_plain = (
        getattr(loader, "in_order", True) and getattr(loader, "worker_method", "multiprocessing") != "thread"
    )
    if (
        loader._dataset_kind != dataloader._DatasetKind.Map
        or not loader._auto_collation
        or not (loader.num_workers == 0 or (is_plain and context.get_start_method() == "fork"))
        or not dist.distributed_c10d.is_initialized()
        or not _all_are_here()
    ):
        return None
    if loader not in _loadings:
        _loadings[loader] = _Loading(loader)
    _loadings[loader].last = None
    return _loadings[loader]


def _divide_loading() -> None:
    """Let DataLoaders ask for a rank's rows, their fetchers read them, and their batches be put together."""
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

    def begin_and_look(self: Any, loader: Any) -> None:
        self._loading, self._rows_asked, self._stale = _loading_of(loader), {}, set()
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


if _run.world_size > 1:
    _divide_loading()
    _run.at_trainer.append(
        lambda: setattr(_run, "reads_whole", True)
    )  # its batches have an order of their own
