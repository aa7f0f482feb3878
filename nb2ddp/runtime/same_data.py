"""Compare what the ranks train on.

That is their training data before the first step, and during training the gradients of their losses with respect to
the model's outputs.
"""

import hashlib
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run


def _check_same_data(dataset: Any) -> list[Any] | None:
    """Compare the training data of all ranks: its length, and the content of some of its rows.

    Returns:
        Two of the rows, if no row draws random numbers while it is read; None if one does.

    Raises:
        RuntimeError: they differ, with the row and what to do.
    """
    if isinstance(dataset, torch.utils.data.IterableDataset):  # no row by its number, even with a length
        return []
    try:
        length = len(dataset)
    except TypeError:  # no data set at all
        return []
    places = sorted({round(n * (length - 1) / 15) for n in range(16)}) if length else []
    state = from_main_process(_random_state)
    rows = []
    for _ in range(2):  # a row that draws its content with a generator of its own differs from itself
        _set_random_state(state)
        rows.append([_digest(dataset[place]) for place in places])
    drawn = rows[0] != rows[1] or _digest(_random_state()[:3]) != _digest(state[:3])
    some = [] if drawn else [dataset[place] for place in places[:2]]
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
    return None if drawn else some


_SEED = (
    "Every rank must make the same data: seed what draws it (random.seed, numpy.random.seed, torch.manual_seed, "
    "seed= or random_state=), sort what comes from a set or a folder, and start again"
)


def _digest(value: Any) -> str:
    """Return a digest of a row or a batch by its content."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(dict(value) if hasattr(value, "keys") else value):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.sparse_coo:
            whole = leaf.detach().coalesce()
            digest.update(_digest([*whole.shape, whole.indices(), whole.values()]).encode())
        elif isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided:
            digest.update(_digest(leaf.detach().to_dense()).encode())
        elif isinstance(leaf, torch.Tensor):
            digest.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif hasattr(leaf, "tobytes"):
            digest.update(leaf.tobytes())
        elif isinstance(leaf, str | int | float | bool | bytes | None):
            digest.update(repr(leaf).encode())
        else:
            digest.update(type(leaf).__name__.encode())
    return digest.hexdigest()
