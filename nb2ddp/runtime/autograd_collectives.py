"""Exchange rows and gradients between ranks that each computed a part of a batch."""

from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.unseen_gradients import _all_rows


class _TakeRows(torch.autograd.Function):
    """This rank's rows of a tensor that every rank has; backward gives every rank the gradient of all rows."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        start = sum(sizes[:rank])
        return whole[start : start + sizes[rank]].clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _GatherGradient.apply(grad, ctx.sizes, _run.rank), None, None


class _GatherRows(torch.autograd.Function):
    """The rows of all ranks; backward gives each rank the gradient of its own, to be averaged."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        return _all_rows(own, sizes)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _TakeGradient.apply(grad, ctx.sizes, _run.rank), None, None


class _SumOverRanks(torch.autograd.Function):
    """A number summed over the ranks with their weights; backward as for `_GatherRows`."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        total = own.detach() if own.is_floating_point() or own.is_complex() else own.detach().double()
        total = total * weight if weight else torch.zeros_like(total)  # a mean of nothing is no number
        dist.all_reduce(total)
        return (total if own.is_floating_point() or own.is_complex() else total.round()).to(own.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _WeighGradient.apply(grad, ctx.weight), None


# The gradient of one of this rank's rows is world_size times the row's, to be averaged. Each goes back by the other.
class _TakeGradient(torch.autograd.Function):
    """Slice this rank's rows out of the whole batch's gradient, times world_size, for the mean over ranks."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        start = sum(sizes[:rank])
        return whole[start : start + sizes[rank]] * _run.world_size

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _GatherGradient.apply(grad * _run.world_size, ctx.sizes, _run.rank), None, None


class _GatherGradient(torch.autograd.Function):
    """The gradient of all rows from those of each rank's rows."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        return _all_rows(own / _run.world_size, sizes)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _TakeGradient.apply(grad / _run.world_size, ctx.sizes, _run.rank), None, None


class _WeighGradient(torch.autograd.Function):
    """Of the gradient of a number, that of this rank's part of it."""

    @staticmethod
    def forward(ctx: Any, grad: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        return grad * (weight * _run.world_size)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _SumOverRanks.apply(grad, ctx.weight), None
