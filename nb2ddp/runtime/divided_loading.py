"""Divide the reading of a DataLoader's batches over the ranks, where it is what a step waits for.

Without workers each rank reads its rows of a batch, and the ranks exchange them. A worker reads whole batches: each
worker's come from one rank after another. From the first one on that draws random numbers or changes the data set,
they all come from that rank, whose worker is then one process's. Now and then all ranks read a batch whole, and
compare; and what is faster is measured.
"""

import contextlib
import functools
import threading
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._utils import ExceptionWrapper
from torch.utils.data import _utils, dataloader

from nb2ddp.runtime.read_rows import _DIFFERS, _FAILS, _ROWS_DRAW, _Asked, _looked_at, _Read, _sent_share
from nb2ddp.runtime.run_state import _replaced, _run, _say, _warn
from nb2ddp.runtime.sent_rows import _as_tensor, _of_tensor, _rows_of_rank, _rows_of_ranks
from nb2ddp.runtime.split_classes import _calls
from nb2ddp.runtime.spot_checks import _checks

_LEAST_WAIT = 0.005  # seconds that a batch is waited for, below which nothing is divided
_LEAST_SHARE = 0.05  # of a step's time
_GAIN = 0.9  # of the time for whole batches, below which divided ones are faster


class _Loading:
    """How the batches of one DataLoader are read."""

    def __init__(self, loader: Any) -> None:
        self.name = type(loader.dataset).__name__
        self.ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self.is_divided = self.is_over = False
        self.wants_look = False
        self.batches, self.good, self.next_look = 0, 0, 0  # so far; at the latest look; when to look again
        self.length, self.left_out = self.ahead + 2, self.ahead
        self.waits = list[tuple[float, float]]()  # for the latest batches, with the time of the step
        self.whole = 0.0  # seconds for a batch that is read whole
        self.last: float | None = None

    def looks_now(self) -> bool:
        """Return whether all ranks read the next batch whole, to compare it."""
        looks = self.wants_look or (self.is_divided and self.batches >= self.next_look)
        if looks:
            self.wants_look, self.next_look = False, 3 * self.batches + 8
        return looks and not self.is_over

    def judge(self, seen: tuple[str, Any, float]) -> None:
        """Divide batches from here on if all ranks have seen the same one, and nothing against it. A collective."""
        whys, digests, times = zip(*_rows_of_ranks(_as_tensor(seen)), strict=True)
        differ = "" if all(of == digests[0] for of in digests) else "its rows are not the same on all ranks"
        if why := next(filter(None, whys), differ):
            self.stop(why)
            return
        self.good, self.whole = self.batches, max(times) or self.whole
        if not self.is_divided:
            self.is_divided, self.left_out = True, self.ahead
            self.waits.clear()

    def stop(self, why: str) -> None:
        """Read whole batches from here on, and say why: a failed check, if what was read may have been wrong."""
        if why == _DIFFERS or (self.good and why != _ROWS_DRAW):
            _checks.failed(
                f"{self.name}: {why}. From here on every rank reads all rows",
                f" Its batches may differ from one process's since the {self.good or self.batches}th.",
            )
        elif (self.name, why) not in _said:
            _said.add((self.name, why))
            _say(f"every rank reads all rows of {self.name}, which saves no time: {why}")
        self.is_over, self.is_divided = True, False

    def see(self, start: float, how: str) -> None:
        """Note how long the script has waited for a batch, and now and then decide what is faster. A collective."""
        step, self.last = None if self.last is None else start - self.last, start
        self.batches += 1
        if self.is_over or step is None or how != ("rows" if self.is_divided else "whole"):
            return
        if self.left_out:
            self.left_out -= 1
            return
        self.waits.append((time.perf_counter() - start, step))
        if len(self.waits) == self.length:
            waits, steps = zip(*self.waits, strict=True)
            own = sum(waits) / len(waits), sorted(steps)[len(steps) // 2]
            wait, step = max(_rows_of_ranks(_as_tensor(own)))
            self.waits.clear()
            self.length = min(4 * self.length, 256)
            if self.is_divided:
                self.is_divided = wait < _GAIN * self.whole
            else:
                self.whole, self.wants_look = wait, wait > max(_LEAST_WAIT, _LEAST_SHARE * step)


_said = set[tuple[str, str]]()
_loadings: weakref.WeakKeyDictionary[Any, _Loading] = weakref.WeakKeyDictionary()  # by DataLoader


class _ScriptsIterator(dataloader._SingleProcessDataLoaderIter):
    """Read batches in the script's process: each rank some rows of each."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._loading = _loading_of(loader)

    # a rank may compute rows alone: the calls of models in it are not divided
    @_replaced(_calls.of_thread, reads=True)
    def _next_data(self) -> Any:
        """Return the next batch. A collective."""
        loading, fetcher, start = self._loading, self._dataset_fetcher, time.perf_counter()
        rows, how = self._next_index(), "whole"
        is_plain = not _all_are_here() or not isinstance(rows, list | tuple) or len(rows) < _run.world_size
        if loading is None or is_plain:
            return _pinned(self, fetcher.fetch(rows))
        if loading.looks_now():
            how = "look"
            batch, seen = _looked_at(fetcher, rows)
            loading.judge(seen)
        elif loading.is_divided:
            how = "rows"
            of_ranks = _rows_of_ranks(_sent_share(fetcher, rows))
            why = next((why for _, why in of_ranks if why), "")
            if why and why != _FAILS:
                loading.stop(why)
            found = [row for of_rank, _ in of_ranks for row in of_rank]
            batch = fetcher.fetch(rows) if why else fetcher.collate_fn(found)
        else:
            batch = fetcher.fetch(rows)
        loading.see(start, how)
        return _pinned(self, batch)


class _WorkersIterator(dataloader._MultiProcessingDataLoaderIter):
    """Ask each rank's workers for some of the batches, and get the others from the other ranks."""

    def __init__(self, loader: Any) -> None:
        self._loading = _loading_of(loader)
        self._keepers = dict[int, int]()  # by worker: the rank whose one reads all its batches
        self._first: int | None = None  # from which batch on the ranks take turns
        super().__init__(loader)

    def _next_index(self) -> Any:
        """Return the rows of the next batch, and for which rank's worker they are."""
        rows, loading, worker = super()._next_index(), self._loading, self._send_idx % self._num_workers
        if loading is None or not isinstance(rows, list):
            return rows
        if not _all_are_here():
            if self._keepers:
                _warn(
                    f"workers of {loading.name} draw other numbers than one process's: other ranks have read for them"
                )
            return rows
        asked = _Asked(rows)
        # in a new epoch each worker begins with a batch of its own: it may open files then
        if self._first is None and loading.is_divided and self._send_idx >= self._num_workers:
            self._first = self._send_idx
        if self._first is not None:
            turn = worker + (self._send_idx - self._first) // self._num_workers
            asked.owner = self._keepers.get(worker, turn % _run.world_size)
            asked.is_settled = worker in self._keepers
        asked.looks = worker not in self._keepers and loading.looks_now()
        return asked if asked.looks or asked.owner is not None else rows

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin an epoch; workers that stay may have drawn for batches that the last one has left."""
        if self._first is not None and _all_are_here():
            self._sampler_iter: Any = iter(())
            for _ in range(self._send_idx - self._rcvd_idx):
                with contextlib.suppress(Exception):
                    self._next_data()
        super()._reset(loader, first_iter)

    def _next_data(self) -> Any:
        """Return the next batch, which a worker of this rank or of another one has read. A collective.

        Raises:
            Exception: what that worker has raised.
        """
        start, how = time.perf_counter(), "whole"
        batch = super()._next_data()
        if isinstance(batch, _Read):
            how = "look" if batch.asked.looks else "rows"
            batch = self._of_ranks(batch)
        if self._loading is not None and _all_are_here():
            self._loading.see(start, how)
        return batch

    def _of_ranks(self, read: _Read) -> Any:
        asked, loading, worker = read.asked, self._loading, (self._rcvd_idx - 1) % self._num_workers
        owner = self._keepers.get(worker, asked.owner)
        assert loading is not None
        if not _all_are_here():
            given = self._dataset, self._auto_collation, self._collate_fn, self._drop_last
            return dataloader._DatasetKind.create_fetcher(self._dataset_kind, *given).fetch(list(asked))
        if owner is None:
            assert read.sent is not None
            batch, _, _ = _of_tensor(read.sent)
            loading.judge(read.seen)
        else:
            batch, why, keeps = _rows_of_rank(read.sent, owner)
            if keeps:
                self._keepers[worker] = owner
            elif asked.looks:
                loading.judge(read.seen)
            if why:
                loading.stop(why)
        if isinstance(batch, ExceptionWrapper):
            batch.reraise()
        return _pinned(self, batch)


def _pinned(of: Any, batch: Any) -> Any:
    return _utils.pin_memory.pin_memory(batch, of._pin_memory_device) if of._pin_memory else batch


def _all_are_here() -> bool:
    """Return whether the other ranks take the same batch, here in the main thread."""
    has_group = dist.distributed_c10d.is_initialized()
    is_main = threading.current_thread() is threading.main_thread()
    return _run.meets and has_group and not _calls.reads_whole and is_main


def _loading_of(loader: Any) -> _Loading | None:
    """Return how a DataLoader is read; None for one whose rows have no numbers, or whose workers are not forks."""
    kind, context = loader._dataset_kind, loader.multiprocessing_context or torch.multiprocessing
    if kind != dataloader._DatasetKind.Map or not loader._auto_collation or not _all_are_here():
        return None
    in_order, by = getattr(loader, "in_order", True), getattr(loader, "worker_method", "multiprocessing")
    if loader.num_workers and (
        not in_order or by != "multiprocessing" or context.get_start_method() != "fork"
    ):
        return None
    loading = _loadings.setdefault(loader, _Loading(loader))
    loading.last = None
    return loading


def _divide_loading() -> None:
    """Let DataLoaders iterate as above, and their fetchers read for it."""
    if _run.world_size == 1:
        return
    # a Trainer's batches have an order of their own
    _run.at_trainer.append(lambda: setattr(_calls, "reads_whole", True))
    module, fetcher = dataloader, _utils.fetch._MapDatasetFetcher
    module._SingleProcessDataLoaderIter = _ScriptsIterator
    module._MultiProcessingDataLoaderIter = _WorkersIterator
    fetch = fetcher.fetch

    @functools.wraps(fetch)
    def read(self: Any, rows: Any) -> Any:
        return rows.read(self) if isinstance(rows, _Asked) else fetch(self, rows)

    fetcher.fetch = read


_divide_loading()
