"""Read the rows of a batch that a DataLoader's fetcher is asked for, in the script's process or in a worker."""

import contextlib
import os
import sys
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.object_collectives import _as_sent
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.read_effects import _content_of, _names_rank_0
from nb2ddp.runtime.recomputed_calls import _Prints
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.sent_rows import _as_tensor

_ROWS_DRAW = "its rows draw random numbers, each after those before it"
_CHANGES = "reading it changes what the script can see: a counter, a cache, a generator of its own"
_PRINTS = "it prints while it is read"
_WRITES = "rank 0 alone writes while it is read"
_DIFFER = "a row is not the same when it is read again, after others"
_RANKS_DIFFER = "its rows are not the same on all ranks"


class _Asked(list[Any]):
    """The numbers of a batch's rows, and how it is read: "tested", by "rows", by one "turn", or "again"."""

    how = ""

    def read(self, fetcher: Any) -> Any:
        """Return what is asked for, in the process that reads: a batch once more, or a `_Read`."""
        rows = list(self)
        if self.how == "turn":
            return _in_turn(fetcher, rows)
        if self.how == "again":
            if before := _of_worker.pop("before", None):
                _set_random_state(before)
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
    before, why, error, sent = _random_state(), "", None, list[Any]()
    try:
        sent = _rows(fetcher.dataset, _rows_of_rank(rows, _run.rank))
    except Exception as raised:
        error = _of_reader(raised)
    if not _is_same_state(before):
        why = _ROWS_DRAW
        if get_worker_info() is not None:
            _of_worker.setdefault("before", before)
        _set_random_state(before)
    try:
        read = _Read(rows, _as_tensor(([] if why else sent, why, _as_sent(error) if error else [])))
    except Exception as raised:  # __reduce__ of any class may raise anything
        read = _Read(rows, _as_tensor(([], f"its rows cannot be sent: {raised}", [])))
    read.error = error if read.worker is None else None
    return read


def _tested(fetcher: Any, rows: list[int]) -> _Read:
    """Read a batch as one process does, and its parts once more, the last ones first."""
    before, held = _random_state(), _held(fetcher)
    with contextlib.redirect_stdout(_Prints(sys.stdout)) as out:
        found = _rows(fetcher.dataset, rows)
    after, digests = _random_state(), []
    why = _PRINTS if out.wrote else "" if _is_same_state(before) else _ROWS_DRAW
    if not why and held != _held(fetcher):
        why = _CHANGES
    if not why and _names_rank_0(fetcher.dataset):
        why = _WRITES
    if not isinstance(found, list) or len(found) != len(rows):
        why = "its rows come all at once"
    try:
        _as_tensor(found)
        digests = [_digest(row) for row in found]
        ranks = range(_run.world_size)
        shares = (
            [] if why else [_rows(fetcher.dataset, _rows_of_rank(rows, rank)) for rank in reversed(ranks)]
        )
        if not why and digests != [_digest(row) for share in reversed(shares) for row in share]:
            why = _DIFFER
    except Exception as raised:  # __reduce__ of any class may raise anything
        why = why or f"its rows cannot be sent or read again: {raised}"
    _set_random_state(after)
    batch = fetcher.collate_fn(found)
    if not why and get_worker_info() is not None:  # else all ranks put together the same batches
        why = "" if held == _held(fetcher) else _CHANGES
        why = why if _is_same_state(after) else "its batches are put together with random numbers"
    return _Read(rows, _as_tensor((why, digests, _is_short_of_cores(batch))), "tested", batch)


def _in_turn(fetcher: Any, rows: list[int]) -> _Read:
    """Read a batch as one process's worker does, if this worker runs on this rank, with all its random numbers."""
    info = get_worker_info()
    if info is None or info.id % _run.world_size != _run.rank:
        return _Read(rows, _as_tensor(([], "", [])), "turn")
    try:
        sent = _as_tensor(([fetcher.fetch(rows)], "", []))
    except Exception as raised:
        sent = _as_tensor(([], "", _as_sent(_of_reader(raised))))
    return _Read(rows, sent, "turn")


def _is_short_of_cores(batch: Any) -> bool:
    """Return whether the workers of all ranks must share cores, and a batch can be sent from one rank to another."""
    info = get_worker_info()
    if info is None:
        return False
    with contextlib.suppress(Exception):
        _as_tensor(batch)
        processes: int = (info.num_workers + 1) * _run.world_size // _run.machines
        return len(os.sched_getaffinity(0)) < processes
    return False


def _held(fetcher: Any) -> str:
    with contextlib.suppress(Exception):  # attributes may raise anything
        return _content_of(fetcher.collate_fn, fetcher.dataset)
    return ""


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
    now = _random_state()
    same_gpu = before[3] is None or torch.equal(before[3], now[3])
    return before[0] == now[0] and before[1] in (None, now[1]) and torch.equal(before[2], now[2]) and same_gpu
