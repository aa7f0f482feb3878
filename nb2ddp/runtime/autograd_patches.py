"""Give the gradients of whole batches where a notebook asks `torch.autograd.grad` for them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.autograd_collectives import _GatherRows, _SumOverRanks
from nb2ddp.runtime.averaged_backward import _backward
from nb2ddp.runtime.call_results import _graph
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.split_classes import _splits
from nb2ddp.runtime.unseen_gradients import _mean_of_rows

# what joins the ranks' parts of a model's outputs, as PyTorch names the nodes of the graph
_OF_PARTS = tuple(f"{function.__name__}Backward" for function in (_GatherRows, _SumOverRanks))


class _MeanOverRanks(torch.autograd.Function):
    """The mean of the ranks' tensors; of its gradient too, since each rank may have its rows' part of it alone."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor) -> torch.Tensor:
        if own.is_sparse:
            return _mean_of_rows(own)
        mean = own.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean)
        return mean / _run.world_size

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _MeanOverRanks.apply(grad)


def _average_asked_gradients() -> None:
    """Let `torch.autograd.grad` give the gradients of whole batches where ranks computed parts of them.

    Behind the outputs of a divided call a rank's gradient is that of its rows. A gradient that all ranks have whole is
    its own mean.
    """
    grad: Callable[..., Any] = torch.autograd.grad
    if hasattr(grad, "__wrapped__"):
        return

    @functools.wraps(grad)
    def averaged(outputs: Any, *args: Any, **options: Any) -> Any:
        divided = _run.meets and _joins_parts(
            [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        )
        _backward.asks = True
        try:
            found = grad(outputs, *args, **options)  # frees the graph
        finally:
            _backward.asks = False
        if not divided:
            return found
        found = tuple(None if of is None else _MeanOverRanks.apply(of) for of in found)
        if options.get("create_graph") or (len(args) > 3 and args[3]):
            for split in list(_splits.values()):
                split.watch(found)
        return found

    torch.autograd.grad = averaged


def _joins_parts(outputs: list[Any]) -> bool:
    """Return whether tensors depend on outputs that were joined from the ranks' parts."""
    return any(node.name() in _OF_PARTS for node in _graph(outputs))
