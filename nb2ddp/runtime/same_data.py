"""Compare the training data of all ranks before the first step."""

import hashlib
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.meetings import from_all_ranks, from_main_process
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
    state = from_main_process(_random_state)
    rows = []
    for _ in range(2):  # a row that draws its content with a generator of its own differs from itself
        _set_random_state(state)
        rows.append([_digest(dataset[place]) for place in places])
    _set_random_state(state)
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


def _are_same_batches(leaves: Any) -> bool:
    """Compare the batches of all ranks, and return whether their random generators are alike too.

    If they are not, every rank takes over rank 0's. Waits for all ranks.

    Raises:
        RuntimeError: the batches differ.
    """
    own, drawn = _digest(leaves), _digest(_random_state())
    of_ranks = from_all_ranks((own, drawn))
    for rank, (other, _) in enumerate(of_ranks):
        if other != own:
            raise RuntimeError(f"rank {rank} trains on another batch than rank {_run.rank}. {_SEED}")
    alike = all(other == drawn for _, other in of_ranks)
    if not alike:
        _set_random_state(from_main_process(_random_state))
    return alike


_SEED = (
    "Every rank must make the same data: seed what draws it (random.seed, numpy.random.seed, torch.manual_seed, "
    "seed= or random_state=), sort what comes from a set or a folder, and start again"
)


def _digest(value: Any) -> str:
    """Return a digest of a row or a batch by its content."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(dict(value) if hasattr(value, "keys") else value):
        if isinstance(leaf, torch.Tensor):
            digest.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif hasattr(leaf, "tobytes"):
            digest.update(leaf.tobytes())
        elif isinstance(leaf, str | int | float | bool | bytes | None):
            digest.update(repr(leaf).encode())
        else:
            digest.update(type(leaf).__name__.encode())
    return digest.hexdigest()
