"""Give the gradients of whole batches where a notebook asks `torch.autograd.grad` for them."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_collectives import (
    _apply,
    _GatherRows,
    _is_made_by,
    _rows_first,
    _SumOverRanks,
    _TakeRows,
)
from nb2ddp.runtime.averaged_backward import _backward
from nb2ddp.runtime.call_results import _graph
from nb2ddp.runtime.module_state import _is_of_notebook
from nb2ddp.runtime.run_state import _replaced, _run
from nb2ddp.runtime.same_losses import _register_hook
from nb2ddp.runtime.split_classes import _splits
from nb2ddp.runtime.unseen_gradients import _mean_of_rows


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


def _made_before(first: int, output: Any) -> list[Any]:
    """Return the nodes older than ``first`` that a graph goes on to: of tensors that forward() finds in the model."""
    tensors = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor)]
    return [node for node in _graph(tensors, first=first) if node._sequence_nr() < first]


def _average_asked_gradients() -> None:
    """Let `torch.autograd.grad` give the gradients of whole batches where ranks computed parts of them.

    Behind the outputs of a divided call a rank's gradient is that of its rows. A gradient that all ranks have whole is
    its own mean.
    """
    grad: Callable[..., Any] = torch.autograd.grad

    @functools.wraps(grad)
    def averaged(outputs: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        given = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        divided = _run.meets and any(_is_made_by(node, _GatherRows, _SumOverRanks) for node in _graph(given))
        asked = [inputs] if isinstance(inputs, torch.Tensor) or not divided else list(inputs)
        sources = [_source(given, tensor) if divided else None for tensor in asked]
        of = [tensor if source is None else source for tensor, source in zip(asked, sources, strict=True)]
        with _replaced(_backward, is_paused=True):
            found = grad(outputs, of if divided else inputs, *args, **options)  # frees the graph
        if not divided:
            return found
        for place, (source, tensor) in enumerate(zip(sources, asked, strict=True)):
            if source is not None and found[place] is not None:
                node = tensor.grad_fn
                of_rows = _apply(_GatherRows, found[place], node.sizes, -1, node.dim)
                found = (*found[:place], of_rows, *found[place + 1 :])
        found = tuple(None if of is None else _apply(_MeanOverRanks, of) for of in found)
        if options.get("create_graph") or (len(args) > 2 and args[2]):
            for split in list(_splits.values()):
                split.averaging.watch(found)
        return found

    torch.autograd.grad = averaged


def _source(outputs: list[Any], joined: Any) -> Any:
    """Return where this rank's rows of a joined output come from, if other outputs come from these rows, too."""
    if not _is_joined(joined):
        return None
    source, number = joined.grad_fn.next_functions[0]
    is_shared = any(other is source for other in _graph(outputs, beside=joined.grad_fn))
    return torch.autograd.graph.GradientEdge(source, number) if is_shared else None


def _is_joined(output: Any) -> bool:
    node: Any = getattr(output, "grad_fn", None)
    return _is_made_by(node, _GatherRows) and node.power == 0


def _show_whole_gradients() -> None:
    """Let hooks and `retain_grad()` of a joined output see the gradient of all rows, also what other outputs bring."""
    retain: Any = torch.Tensor.retain_grad

    def see(joined: Any, hook: Callable[[torch.Tensor], Any]) -> Any:
        node = joined.grad_fn
        (source, number), sizes, dim = node.next_functions[0], node.sizes, node.dim

        def of_rows(gradients: Any) -> Any:
            rows = gradients[number]
            found = None if rows is None else hook(_GatherRows.apply(rows, sizes, -1, dim))
            if found is None:
                return None
            own = _rows_first(_TakeRows.apply(_rows_first(found, dim), sizes, 1), dim)
            return (*gradients[:number], own, *gradients[number + 1 :])

        return source.register_prehook(of_rows)

    @functools.wraps(_register_hook)
    def register_hook(tensor: Any, hook: Callable[[torch.Tensor], Any]) -> Any:
        if _run.effect is not None and _is_of_notebook(hook):  # which limits a gradient, say
            _run.effect = "forward() gives a gradient a hook; remove it to divide the work"
        if not _is_joined(tensor):
            return _register_hook(tensor, hook)
        handle = see(tensor, hook)
        if tensor.retains_grad:  # what is kept is what the hooks leave
            tensor._nb2ddp_kept.remove()
            keep(tensor)
        return handle

    def keep(tensor: Any) -> None:
        kept: Any = weakref.ref(tensor)  # which holds the graph that the hook is in
        before: list[Any] = []  # what an earlier backward() has left
        _register_hook(tensor, lambda _: before.append(kept().grad))

        def take(gradient: torch.Tensor) -> None:
            if (of := kept()) is not None:
                old = before.pop() if before else of.grad
                of.grad = gradient if old is None else old + gradient

        tensor._nb2ddp_kept = see(tensor, take)

    @functools.wraps(retain)
    def retain_grad(tensor: Any) -> None:
        if _is_joined(tensor) and not tensor.retains_grad:
            keep(tensor)
        retain(tensor)

    torch.Tensor.register_hook = register_hook
    torch.Tensor.retain_grad = retain_grad
