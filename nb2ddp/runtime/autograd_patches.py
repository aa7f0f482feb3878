"""Average the gradients that DDP cannot: of `torch.autograd.grad`, and of several `backward()` through one call."""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_collectives import _GatherRows, _SumOverRanks
from nb2ddp.runtime.call_results import _graph
from nb2ddp.runtime.gradients import _average_after_backward, _mean_of_rows
from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.split_classes import _splits

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

    Behind the outputs of a divided call a rank's gradient is that of its rows, for DDP to average; DDP sees only
    what ``backward()`` leaves in parameters. A gradient that all ranks have whole is its own mean.
    """
    grad: Callable[..., Any] = torch.autograd.grad
    if hasattr(grad, "__wrapped__"):
        return

    @functools.wraps(grad)
    def averaged(outputs: Any, *args: Any, **options: Any) -> Any:
        divided = _joins_parts([outputs] if isinstance(outputs, torch.Tensor) else list(outputs))
        found = grad(outputs, *args, **options)  # frees the graph
        if not divided:
            return found
        found = tuple(None if of is None else _MeanOverRanks.apply(of) for of in found)
        if options.get("create_graph") or (len(args) > 3 and args[3]):
            # their backward() may leave out parameters for which DDP waits: the last layer's bias, say
            for split in list(_splits.values()):
                split.leave_ddp()
                _average_after_backward(found, split.apart)
        return found

    torch.autograd.grad = averaged


def _average_repeated_backward() -> None:
    """Let ``backward()`` come several times through one call of a divided model, and apart through several calls.

    DDP averages a gradient once, after the latest call. ``retain_graph=True`` says that more follow, and so does a
    ``backward()`` that leaves out an earlier call: from then on gradients are averaged after each ``backward()``.
    """
    backward: Callable[..., Any] = torch.autograd.backward
    if hasattr(backward, "__wrapped__"):
        return

    @functools.wraps(backward)
    def checked(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        *args: Any,
        **options: Any,
    ) -> Any:
        splits = list(_splits.values())
        if isinstance(tensors, Iterator):  # it can be read once
            tensors = tuple(tensors)
        given = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        waiting = _take_reached([of for of in given if isinstance(of, torch.Tensor)], splits)
        for split in splits:
            if retain_graph or create_graph or split in waiting:
                split.leave_ddp()
        return backward(tensors, grad_tensors, retain_graph, create_graph, *args, **options)

    torch.autograd.backward = checked


def _take_reached(tensors: list[Any], splits: list[Any]) -> list[Any]:
    """Take the open calls that tensors depend on from their models' lists; return the models that keep others."""
    reached: list[Any] = []
    left = {node() for split in splits for call in split.open for node in call} - {None}
    if not left:
        return reached
    met = set()
    for node in _graph(tensors):
        if node in left:
            met.add(node)
            if met == left:
                break
    for split in splits:
        waiting = [call for call in split.open if not any(node() in met for node in call)]
        if waiting and len(waiting) < len(split.open):
            # whether a graph is still there depends on when Python collects garbage, on each rank for itself
            alive = any(node() is not None for call in waiting for node in call)
            if any(from_all_ranks(alive)):
                reached.append(split)
            waiting = []
        split.open = waiting
    return reached


def _open_call(split: Any, output: Any) -> None:
    """Note a call of a model through which no backward() has come yet, by what joins the ranks' parts in its output."""
    joining = []
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            node = next((node for node in _graph([leaf]) if node.name() in _OF_PARTS), None)
            joining += [weakref.ref(node)] if node is not None else []
    if joining and split.open_whole:
        split.leave_ddp()
    if joining and not split.repeats:
        split.open.append(joining)


def _open_whole_call(split: Any, output: Any) -> None:
    """Note a call that every rank computed whole, through which no backward() has come yet.

    DDP would not average the gradients of a divided call that waits for its own backward() beside it.
    """
    through = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.grad_fn is not None]
    if through and split.open:
        if any(from_all_ranks(any(node() is not None for call in split.open for node in call))):
            split.leave_ddp()
        split.open = []
    if not through or split.repeats:
        return
    number = split.calls
    split.open_whole.add(number)

    def close(_: Any) -> None:
        split.open_whole.discard(number)

    for tensor in through:
        tensor.register_hook(close)


def _joins_parts(outputs: list[Any]) -> bool:
    """Return whether tensors depend on outputs that were joined from the ranks' parts."""
    return any(node.name() in _OF_PARTS for node in _graph(outputs))
