"""The trained parameters of a rank: all of them, or the shards that it holds of a model over all ranks (FSDP)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

Piece = tuple[int, int, int]
"""Where the numbers of a rank belong in a parameter: the first one's place, how many, and how many there are."""


def trained(optimizer: Any) -> Iterator[Any]:
    """Yield the parameters that an optimizer trains."""
    for group in optimizer.param_groups:
        yield from (parameter for parameter in group["params"] if parameter.requires_grad)


def numbers(optimizer: Any) -> Iterator[Any]:
    """Yield what this rank holds of each trained parameter, on the CPU. Nothing is gathered."""
    for parameter in trained(optimizer):
        held = parameter.detach()
        yield (held.to_local() if is_sharded(held) else held).cpu().contiguous()


def digest(optimizer: Any) -> str:
    """Return a digest of the numbers that this rank holds."""
    import torch

    found = hashlib.sha256()
    for held in numbers(optimizer):
        found.update(held.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()[:12]


def gradients(optimizer: Any) -> list[Any] | None:
    """Return the gradient of each trained parameter, zeros where it has none; None where one is sharded."""
    import torch

    found = []
    for parameter in trained(optimizer):
        if is_sharded(parameter):
            return None
        held = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach()
        found.append((held.to_dense() if held.is_sparse else held).float().cpu().contiguous().reshape(-1))
    return found


def is_sharded(parameter: Any) -> bool:
    return hasattr(parameter, "to_local")


def pieces(optimizer: Any) -> list[Piece] | None:
    """Return which numbers of each trained parameter this rank holds.

    None where no parameter is sharded, or one otherwise than by its first dimension.
    """
    parameters = list(trained(optimizer))
    if not any(map(is_sharded, parameters)):
        return None
    found = [_piece(parameter) for parameter in parameters]
    return [piece for piece in found if piece is not None] if None not in found else None


def _piece(parameter: Any) -> Piece | None:
    total = parameter.numel()
    if not is_sharded(parameter):
        return 0, total, total
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    if any(offset[1:]) or tuple(shape[1:]) != tuple(parameter.shape[1:]):
        return None
    held = parameter.to_local().numel()
    return (offset[0] * (total // parameter.shape[0]) if held else 0), held, total
