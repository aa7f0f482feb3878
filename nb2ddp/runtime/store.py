"""Reach torchrun's key-value store, and wait there for what a rank puts in."""

import contextlib
import functools
import itertools
import json
import os
import time
from typing import Any

import torch.distributed as dist

from nb2ddp.runtime.run_state import _replaced, _run

_CHUNK = 2**22  # bytes; the store takes no value above 8 MiB


@functools.cache
def _store() -> Any:
    """Return torchrun's key-value store, with keys of this attempt: torchrun keeps it when it restarts ranks."""
    return dist.PrefixStore(_prefix(), next(iter(dist.rendezvous("env://")))[0])


def _prefix() -> str:
    """Return what keys begin with: the agent's store outlives a restart; rank 0's is new, and attempts may differ."""
    return f"nb2ddp/{_run.attempt}" if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else "nb2ddp"


@functools.cache
def _second_store() -> Any:
    """Return the watchdog's connection to the same store: a connection answers one call at a time."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
    return dist.PrefixStore(_prefix(), store)


def _wait_for_key(key: str, rank: int, place: str) -> bytes:
    """Return what ``rank`` puts into the store under a key, as soon as it does.

    Raises:
        RuntimeError: that rank, or torchrun, has ended.
    """
    store = _store()
    try:
        with _waiting(rank):
            for tries in itertools.count():  # store.wait() prints a warning for each second that it waits
                if store.check([key]):
                    break
                if tries % 50 == 49 and (end := _end_of(rank)) and not store.check([key]):
                    raise _rank_ended(rank, end, place)
                time.sleep(0.001 if tries < 100 else 0.02)
        size = int(store.get(key) or 0)  # waits no longer, however long many bytes take
        return b"".join(store.get(f"{key} {start}") for start in range(0, size, _CHUNK))
    except dist.DistNetworkError:
        pass
    # Raised outside the except block: `__context__` is then the exception whose `finally` waits here, not the
    # DistNetworkError.
    gone = f"torchrun's store is gone, while rank {_run.rank} waits for rank {rank} at {place}"
    raise _lost(gone, "is gone")


def _waiting(rank: int) -> contextlib.AbstractContextManager[None]:
    """Let the watchdog know, in a block, that this rank waits in the store, for a rank that may take long."""
    # in this order: the watchdog's thread may look between the two
    return _replaced(_run, waits_since=time.monotonic(), waits_for=rank)


def _rank_ended(rank: int, end: str, place: str) -> RuntimeError:
    """Return the error of this rank where it waits for one that has ended; ``end`` says how that one did."""
    error = _lost(f"rank {rank} {end}, while rank {_run.rank} waits for it at {place}", end)
    error.__dict__["_ended_rank"] = rank
    return error


def _lost(sentence: str, end: str) -> RuntimeError:
    error = RuntimeError(sentence)
    error.__dict__["_end_of_rank"] = end
    return error


def _report_end(how: str, place: str = "") -> None:
    """Note in the store how this rank has ended, and where, for those that wait for it."""
    with contextlib.suppress(BaseException):
        _second_store().set(f"end {_run.rank}", f"{how} at {place}" if place else how)


def _end_of(rank: int) -> str:
    store = _second_store()
    return store.get(f"end {rank}").decode() if store.check([f"end {rank}"]) else ""


_heard: dict[int, tuple[int, float]] = {}  # by rank: its last beat, and when it came


def _beat_of(rank: int) -> dict[str, Any]:
    """Return a rank's last report, how long it is silent, and how it has ended; nothing before its first."""
    store = _second_store()
    if not store.check([f"beat {rank}"]):
        return {}
    beat: dict[str, Any] = json.loads(store.get(f"beat {rank}"))
    if rank not in _heard or _heard[rank][0] != beat["beat"]:
        _heard[rank] = beat["beat"], time.monotonic()
    return {**beat, "silent": time.monotonic() - _heard[rank][1], "end": _end_of(rank)}
