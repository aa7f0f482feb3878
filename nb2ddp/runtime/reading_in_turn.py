"""Let rank 0 read each batch first where a data set keeps in files what it has computed: it finds none of others.

So rank 0 computes, draws and counts as one process does. The others read what it has saved, with its random state.
"""

import functools
import threading
from typing import Any

import torch.distributed as dist
from torch.utils.data import _utils, dataloader

from nb2ddp.runtime.object_collectives import _exchange
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.whole_files import _save_whole_files


def _read_in_turn() -> None:
    """Let DataLoaders without workers read so, in the main thread."""
    fetcher = _utils.fetch._MapDatasetFetcher
    fetch = fetcher.fetch

    @functools.wraps(fetch)
    def read(self: Any, rows: Any) -> Any:
        has_group = dist.distributed_c10d.is_initialized()
        if not _run.meets or not has_group or threading.current_thread() is not threading.main_thread():
            return fetch(self, rows)
        batch = error = None
        if _run.writes:
            try:
                batch = fetch(self, rows)
            except Exception as raised:
                error = raised
        state = _exchange(_random_state(), error)[0]
        if not _run.writes:
            batch = fetch(self, rows)
        _set_random_state(state)
        return batch

    fetcher.fetch = read
    iterator: Any = dataloader._SingleProcessDataLoaderIter
    if iterator.__module__ == __name__:  # the part `divided_loading` divides rows
        vars(dataloader)["_SingleProcessDataLoaderIter"] = iterator.__base__


_run.at_begin += [_save_whole_files, _read_in_turn]
