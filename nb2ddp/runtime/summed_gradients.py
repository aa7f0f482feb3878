"""Compare summed gradients with those of one process, and put them aside meanwhile."""

from typing import Any

import torch
import torch.distributed as dist


def _take_gradients_of_rank_0(parameters: list[Any], model: torch.nn.Module) -> None:
    """Give all ranks rank 0's gradients and buffers: on GPUs two computations of one batch differ in the last bits."""
    for parameter in parameters:
        if parameter.grad is not None and not parameter.grad.is_sparse:
            dist.broadcast(parameter.grad, 0)
    for buffer in _persistent(model):
        if buffer.is_floating_point():
            dist.broadcast(buffer, 0)


def _distance(parameters: list[Any], whole: list[Any]) -> float:
    """Return how far summed gradients are from those of all micro-batches, relative to their norm."""
    apart, norm = 0.0, 0.0
    for parameter, other in zip(parameters, whole, strict=True):
        if parameter.grad is None or other is None:
            apart += float(parameter.grad is not other) * 1e9
            continue
        one, other = parameter.grad.float(), other.to(parameter.device).float()
        if bool(other.isfinite().all()):
            apart += float((one - other).square().sum())
            norm += float(other.square().sum())
    return float((apart / norm) ** 0.5) if norm else apart


def _persistent(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the buffers of a model that are saved with it: others are caches."""
    parts = model.named_modules()
    left = {f"{of}.{name}" if of else name for of, part in parts for name in part._non_persistent_buffers_set}
    return [buffer for name, buffer in model.named_buffers() if name not in left]


def _rounding(trainer: Any) -> float:
    """Return how far two computations of one micro-batch may lie apart: on GPUs sums run in no fixed order."""
    halves = (
        trainer.args.bf16
        or trainer.args.fp16
        or any(p.dtype in (torch.float16, torch.bfloat16) for p in trainer.model.parameters())
    )
    return 5e-3 if halves else 1e-3 if torch.cuda.is_available() else 1e-5


def _aside(parameters: list[Any]) -> list[Any]:
    """Return copies of gradients in the memory of the CPU: a GPU that is full has no room for several."""
    return [None if p.grad is None else p.grad.to("cpu", copy=True) for p in parameters]


def _taken(parameters: list[Any]) -> list[Any]:
    """Take the gradients away from parameters, and return them."""
    taken = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return taken
