"""Average gradients over the ranks: of all parameters, or of those that no divided model averages."""

import weakref
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.gradients import _sum_in_buckets
from nb2ddp.runtime.run_state import _run

_reduced: dict[int, weakref.ref[Any]] = {}  # by id: parameters that divided models average
_DENSE = 99  # more than the sparse dimensions that a gradient may have


def _reduce_unseen(optimizer: Any, *_: Any) -> None:
    """Average before a step what no divided model does."""
    _average_unseen([parameter for group in optimizer.param_groups for parameter in group["params"]])


def _average_unseen(parameters: list[Any]) -> None:
    """Average the gradients that no divided model does, of parameters unfrozen later say; again changes nothing."""
    if _reduced and _run.meets and dist.distributed_c10d.is_initialized():
        # the id of a parameter that is gone may be another's
        averaged = {number for number, known in _reduced.items() if known() is not None}
        _average_gradients([p for p in parameters if p.requires_grad and id(p) not in averaged])


def _average_gradients(parameters: list[Any]) -> None:
    """Average gradients over the ranks; where no rank has one, there is none. A collective."""
    if not parameters:
        return
    kinds = [0 if p.grad is None else p.grad.sparse_dim() if p.grad.is_sparse else _DENSE for p in parameters]
    of_ranks = torch.tensor(kinds, dtype=torch.int, device=parameters[0].device)
    # ranks that disagree would average the gradients of different parameters
    dist.all_reduce(of_ranks, dist.ReduceOp.MAX)
    dense = []
    with torch.no_grad():
        for parameter, kind in zip(parameters, of_ranks.tolist(), strict=True):
            if 0 < kind < _DENSE:
                parameter.grad = _mean_of_rows(_sparse_like(parameter, kind))
            elif kind == _DENSE:
                found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = found.to_dense() if found.is_sparse else found
                dense.append(parameter.grad)
        _sum_in_buckets(dense, mean=True)


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
    places, values = (_all_rows(part, counts.tolist()) for part in (own.indices().t(), own.values()))
    found: torch.Tensor = torch.sparse_coo_tensor(places.t(), values, own.shape, check_invariants=False)
    return (found / _run.world_size).coalesce()


def _all_rows(own: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    rows = own.detach().resolve_conj().contiguous().unsqueeze(-1).view(torch.uint8)  # sent in any type
    if len(rows) < (most := max(sizes)):
        rows = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
    of_ranks = [torch.empty_like(rows) for _ in sizes]
    dist.all_gather(of_ranks, rows)
    pairs = zip(of_ranks, sizes, strict=True)
    return torch.cat([of_rank[:size].view(own.dtype).squeeze(-1) for of_rank, size in pairs])  # and no view
