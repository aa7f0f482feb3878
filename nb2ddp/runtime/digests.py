"""Compare what ranks have by its content."""

import hashlib
from typing import Any

import torch
from torch.utils import _pytree as pytree

_ON_ONE_RANK = "what sets that runs on one rank alone, below `if rank == 0` say. Let every rank run it"
_SEED = (
    "The ranks have prepared other data: one reads a file or a cache that another has just made, so draws and counts "
    "less (prepare it in a statement of its own, below `with ddp.main_process_first():`); or one draws without a seed "
    "(random.seed, numpy.random.seed, torch.manual_seed, seed=, random_state=), or takes from a set or a folder: sort "
    "it (dict.fromkeys(), instead of set(), keeps the order of what cannot be sorted: NaN, classes, objects)"
)


def _digest(value: Any) -> str:
    """Return a digest of a row or a batch by its content."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(dict(value) if hasattr(value, "keys") else value):
        if isinstance(leaf, torch.Tensor) and (leaf.is_nested or leaf.layout == torch.sparse_coo):
            whole = leaf.detach() if leaf.is_nested else leaf.detach().coalesce()
            held = whole.unbind() if leaf.is_nested else [*whole.shape, whole.indices(), whole.values()]
            digest.update(_digest([*held]).encode())
        elif isinstance(leaf, torch.Tensor):
            whole = leaf.int_repr() if leaf.is_quantized else leaf.detach()
            dense = whole if whole.layout is torch.strided else whole.to_dense()
            digest.update(torch.stack([dense.cpu()]).flatten().view(torch.uint8).numpy().tobytes())
        elif hasattr(leaf, "tobytes"):
            digest.update(leaf.tobytes())
        else:
            is_plain = isinstance(leaf, str | int | float | bool | bytes | None)
            digest.update((repr(leaf) if is_plain else type(leaf).__name__).encode())
    return digest.hexdigest()
