"""Average the gradients that DDP does not: those left out of a step, or of parameters unfrozen later."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.batch_share import _tell_batch
from nb2ddp.runtime.run_state import _run

_DENSE = 99  # more than the sparse dimensions that a gradient may have
_BUCKET = 2**25  # bytes of gradients that are exchanged together, as in DDP


def _leaves_out(name: str) -> bool:
    """Return whether a step may leave a parameter of this name without a gradient: experts, towers."""
    return any(part in name for part in ("expert", "vision", "visual", "image", "audio"))


def _fill_gradients(trainer: Any) -> None:
    """Give what a step leaves out, an expert or a tower for images or sound, say, a gradient of zero.

    DDP waits for the gradients of all trained parameters. Its own search for those left out does not see through
    re-entrant checkpoints, which Unsloth uses.
    """
    backward = trainer.accelerator.backward
    if backward.__name__ == "backward_and_fill":  # a second train()
        return
    trained = {name: value for name, value in trainer.model_wrapped.named_parameters() if value.requires_grad}
    reached: set[str] = set()  # in this backward()
    used: set[str] = set()  # since the last step of an optimizer
    steps = _run.steps
    for name, parameter in trained.items():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: reached.add(name))

    def backward_and_fill(loss: torch.Tensor, **options: Any) -> None:
        nonlocal steps
        if steps != _run.steps:
            used.clear()
            steps = _run.steps
        reached.clear()
        backward(loss, **options)
        used.update(reached)
        if not trainer.model_wrapped.require_backward_grad_sync:  # the step goes on accumulating
            return
        left_out = [parameter for name, parameter in trained.items() if name not in reached]
        if left_out:
            torch.autograd.backward(left_out, [torch.zeros_like(parameter) for parameter in left_out])
        ranks_that_used = torch.tensor(
            [name in used for name in trained], dtype=torch.int, device=loss.device
        )
        dist.all_reduce(ranks_that_used)
        for parameter, count in zip(trained.values(), ranks_that_used.tolist(), strict=True):
            if count == 0:
                parameter.grad = None  # as in one process: the optimizer leaves the parameter alone

    trainer.accelerator.backward = backward_and_fill


def _clip_all_gradients(trainer: Any) -> None:
    """Average the gradients outside DDP before clipping too: each rank would clip by a norm of its own."""
    clip = trainer.accelerator.clip_grad_norm_
    if getattr(clip, "_averages", False):
        return

    def average_and_clip(parameters: Any, *args: Any, **options: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _average_unseen(parameters)
        return clip(parameters, *args, **options)

    average_and_clip._averages = True  # type: ignore[attr-defined]
    trainer.accelerator.clip_grad_norm_ = average_and_clip


def _reduce_unseen(optimizer: Any, *_: Any) -> None:
    """Average what DDP does not before a step."""
    _tell_batch()
    _average_unseen([parameter for group in optimizer.param_groups for parameter in group["params"]])


def _average_unseen(parameters: list[Any]) -> None:
    """Average gradients that DDP does not: of parameters unfrozen later, or outside the wrapped model.

    To do so once more changes nothing.
    """
    if not _run.reduced or not _run.meets or not dist.is_initialized():
        return
    unseen = [p for p in parameters if p.requires_grad and not _is_reduced(p)]
    if not unseen:
        return
    kinds = [0 if p.grad is None else p.grad.sparse_dim() if p.grad.is_sparse else _DENSE for p in unseen]
    of_ranks = torch.tensor(kinds, dtype=torch.int, device=unseen[0].device)
    # ranks that disagree would average the gradients of different parameters
    dist.all_reduce(of_ranks, dist.ReduceOp.MAX)
    dense = []
    with torch.no_grad():
        for parameter, kind in zip(unseen, of_ranks.tolist(), strict=True):
            if 0 < kind < _DENSE:
                parameter.grad = _mean_of_rows(_sparse_like(parameter, kind))
            elif kind == _DENSE:
                found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = found.to_dense() if found.is_sparse else found
                dense.append(parameter.grad)
        for bucket in _buckets(dense):
            _average(bucket)


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


def _average(bucket: list[torch.Tensor]) -> None:
    """Average gradients over the ranks, in one exchange."""
    if len(bucket) == 1 and bucket[0].is_contiguous():
        dist.all_reduce(bucket[0])
        bucket[0] /= _run.world_size
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
    dist.all_reduce(flat)
    flat /= _run.world_size
    for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
        gradient.copy_(part.view_as(gradient))


def _is_reduced(parameter: Any) -> bool:
    """Return whether DDP averages a parameter's gradient; the id of one that is gone may be another's."""
    known = _run.reduced.get(id(parameter))
    return known is not None and known() is parameter


def _count_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    _run.steps += 1
    _run.steps_of[optimizer] = _run.steps_of.get(optimizer, 0) + 1
    _run.most_steps = max(_run.most_steps, _run.steps_of[optimizer])
