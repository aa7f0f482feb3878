"""Compare the training data of ranks that read different rows of it."""

from typing import Any

import torch

from nb2ddp.runtime.digests import _SEED, _digest
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run


def _check_same_data(dataset: Any) -> None:
    """Compare the training data of all ranks: its length, and the content of some of its rows.

    Raises:
        RuntimeError: they differ, with the row and what to do.
    """
    if isinstance(dataset, torch.utils.data.IterableDataset):  # no row by its number, even with a length
        return
    try:
        length = len(dataset)
    except TypeError:  # no data set at all
        return
    places = sorted({round(n * (length - 1) / 15) for n in range(16)}) if length else []
    own_state, state = _random_state(), from_main_process(_random_state)
    rows = []
    for _ in range(2):  # a row that draws its content with a generator of its own differs from itself
        _set_random_state(state)
        rows.append([_digest(dataset[place]) for place in places])
    _set_random_state(own_state)  # TRL lets each rank draw other completions
    own = [first if first == second else "" for first, second in zip(*rows, strict=True)]
    for rank, (other_length, other) in enumerate(from_all_ranks((length, own))):
        if other_length != length:
            raise RuntimeError(
                f"rank {rank} has {other_length} training rows, rank {_run.rank} {length}. {_SEED}"
            )
        for place, here, there in zip(places, own, other, strict=True):
            if here and there and here != there:
                raise RuntimeError(
                    f"training row {place} is not the same on ranks {rank} and {_run.rank}. {_SEED}"
                )
