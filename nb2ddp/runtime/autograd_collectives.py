"""Exchange rows and gradients between ranks that each computed a part of a batch."""

import functools
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.unseen_gradients import _all_rows


class _GatherRows(torch.autograd.Function):
    """The rows of all ranks (``power`` 0), or the gradient of all rows from that of each rank's (-1).

    They lie in ``dim``. The gradient of one of this rank's rows is world_size times the row's, to be averaged over the
    ranks: what goes back is multiplied by the next ``power`` of it.
    """

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: list[int], power: int, dim: int = 0) -> torch.Tensor:
        ctx.sizes, ctx.power, ctx.dim = sizes, power, dim
        rows = _rows_first(own, dim)
        return _rows_first(_all_rows(rows / _run.world_size if power else rows, sizes), dim)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        own = _TakeRows.apply(_rows_first(grad, ctx.dim), ctx.sizes, ctx.power + 1)
        return _rows_first(own, ctx.dim), None, None, None


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


def _rows_first(value: Any, dim: int | None) -> Any:
    """Exchange the dimension of a tensor's rows with its first one, or back; no view: it may be detached in place."""
    return value.transpose(0, dim).clone(memory_format=torch.contiguous_format) if dim else value


def _apply(function: Any, own: torch.Tensor, *arguments: Any) -> Any:
    """Apply a function to a rank's part; the node has the name of the operation that made it, which users print."""
    made = function if own.grad_fn is None else _named(function, own.grad_fn.name().rpartition("::")[2])
    return made.apply(own, *arguments)


@functools.cache
def _named(function: Any, name: str) -> Any:
    made: Any = type(function)(name, (function,), {})
    made._backward_cls.__name__, made._backward_cls.__module__ = name, "builtins"
    return made


def _is_made_by(node: Any, *functions: Any) -> bool:
    """Return whether a node of a graph is that of one of these functions, whatever its name."""
    return issubclass(getattr(node, "_forward_cls", object), functions)
