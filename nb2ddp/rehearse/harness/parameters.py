"""The parameters that an optimizer trains, and their gradients, whole on each rank.

The shards of a model over all ranks (FSDP) are gathered: its ranks make the same steps, or wait for one another anyway.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any


def parameters(optimizer: Any) -> list[Any]:
    """Return the numbers of each trained parameter, on the CPU."""
    return [_whole(parameter) for parameter in _trained(optimizer)]


def gradients(optimizer: Any) -> list[Any]:
    """Return the gradient of each trained parameter, zeros where it has none."""
    import torch

    return [
        torch.zeros(parameter.numel()) if parameter.grad is None else _whole(parameter.grad).float()
        for parameter in _trained(optimizer)
    ]


def digest(tensors: Sequence[Any]) -> str:
    """Return a digest of the numbers of tensors."""
    import torch

    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.view(torch.uint8).numpy())
    return found.hexdigest()[:12]


def norm(tensors: Sequence[Any]) -> float:
    """Return the length of all tensors together."""
    return math.sqrt(math.fsum(float(tensor.double().square().sum()) for tensor in tensors))


def _trained(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from (parameter for parameter in group["params"] if parameter.requires_grad)


def _whole(tensor: Any) -> Any:
    held = tensor.detach()
    if hasattr(held, "full_tensor"):
        held = held.full_tensor()
    return (held.to_dense() if held.is_sparse else held).cpu().contiguous().reshape(-1)
