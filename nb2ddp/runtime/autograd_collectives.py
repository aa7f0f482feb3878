"""Exchange rows and gradients between ranks that each computed a part of a batch."""

from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.unseen_gradients import _all_rows


class _GatherRows(torch.autograd.Function):
    """The rows of all ranks (``power`` 0), or the gradient of all rows from that of each rank's (-1).

    The gradient of one of this rank's rows is world_size times the row's, to be averaged over the ranks: what goes back
    is multiplied by the next ``power`` of it.
    """

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: list[int], power: int) -> torch.Tensor:
        ctx.sizes, ctx.power = sizes, power
        return _all_rows(own / _run.world_size if power else own, sizes)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _TakeRows.apply(grad, ctx.sizes, ctx.power + 1), None, None


class _TakeRows(torch.autograd.Function):
    """This rank's rows of what every rank has (``power`` 0), or of the gradient of all rows (1)."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, sizes: list[int], power: int) -> torch.Tensor:
        ctx.sizes, ctx.power, start = sizes, power, sum(sizes[: _run.rank])
        own = whole[start : start + sizes[_run.rank]]
        return own * _run.world_size if power else own.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _GatherRows.apply(grad, ctx.sizes, ctx.power - 1), None, None


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


class _WeighGradient(torch.autograd.Function):
    """Of the gradient of a number, that of this rank's part of it."""

    @staticmethod
    def forward(ctx: Any, grad: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        return grad * (weight * _run.world_size)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _SumOverRanks.apply(grad, ctx.weight), None
