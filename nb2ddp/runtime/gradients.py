"""Exchange gradients in buckets, sparse ones by their rows."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _run

_BUCKET = 2**25  # bytes of gradients that are exchanged together, as in DDP


def _sparse_like(parameter: Any, dimensions: int) -> torch.Tensor:
    """Return a parameter's sparse gradient; one without values where this rank has none."""
    gradient: torch.Tensor | None = parameter.grad
    if gradient is not None:
        return gradient
    places = torch.zeros(dimensions, 0, dtype=torch.int64, device=parameter.device)
    values = parameter.new_zeros(0, *parameter.shape[dimensions:])
    return torch.sparse_coo_tensor(places, values, parameter.shape, check_invariants=False)


def _mean_of_rows(own: torch.Tensor) -> torch.Tensor:
    """Return the mean over the ranks of a sparse tensor: the rows that any rank has. NCCL has no sums of these."""
    own = own.detach().coalesce()
    counts = torch.zeros(_run.world_size, dtype=torch.int64, device=own.device)
    counts[_run.rank] = own._nnz()
    dist.all_reduce(counts)
    gathered = []
    for part in (own.indices().t(), own.values()):
        padded = part.new_zeros(int(counts.max()), *part.shape[1:])
        padded[: len(part)] = part
        of_ranks = [torch.empty_like(padded) for _ in range(_run.world_size)]
        dist.all_gather(of_ranks, padded)
        gathered.append(torch.cat([x[:count] for x, count in zip(of_ranks, counts.tolist(), strict=True)]))
    places, values = gathered
    mean: torch.Tensor = torch.sparse_coo_tensor(
        places.t(), values / _run.world_size, own.shape, check_invariants=False
    )
    return mean.coalesce()


def _trained_by_name(model: torch.nn.Module) -> dict[str, Any]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _sparse_names(model: torch.nn.Module) -> set[str]:
    """Return the names of trained parameters whose gradients are sparse: DDP divides each of these in place.

    One may share its values with other gradients of the same backward(), which would be divided too.
    """
    modules = [part for part in model.modules() if getattr(part, "sparse", False) is True]
    sparse = {id(p) for part in modules for p in part.parameters(recurse=False)}
    return {name for name, p in _trained_by_name(model).items() if id(p) in sparse}


def _buckets(gradients: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield gradients that one all_reduce can take: of one kind, together not much above `_BUCKET`."""
    filling: dict[Any, tuple[list[torch.Tensor], int]] = {}
    for gradient in gradients:
        kind = (gradient.dtype, gradient.device, gradient.layout)
        bucket, size = filling.pop(kind, ([], 0))
        bucket.append(gradient)
        size += gradient.numel() * gradient.element_size()
        if size >= _BUCKET:
            yield bucket
        else:
            filling[kind] = bucket, size
    yield from (bucket for bucket, _ in filling.values())
