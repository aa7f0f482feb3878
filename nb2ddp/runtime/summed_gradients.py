"""Compare summed gradients with those of one process; copy, take away and add gradients meanwhile."""

from typing import Any

import torch


def _gradient_error(parameters: list[Any], whole: list[Any]) -> float:
    """Return how far summed gradients are from those of all micro-batches, relative to their norm."""
    error, norm = 0.0, 0.0
    for parameter, other in zip(parameters, whole, strict=True):
        if parameter.grad is None or other is None:
            error += float(parameter.grad is not other) * 1e9
            continue
        one, other = parameter.grad.float(), other.to(parameter.device).float()
        if bool(other.isfinite().all()):
            error += float((one - other).square().sum())
            norm += float(other.square().sum())
    return float((error / norm) ** 0.5) if norm else error


def _persistent(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the buffers of a model that are saved with it: others are caches."""
    parts = model.named_modules()
    left = {f"{of}.{name}" if of else name for of, part in parts for name in part._non_persistent_buffers_set}
    return [buffer for name, buffer in model.named_buffers() if name not in left]


def _rounding(trainer: Any) -> float:
    """Return how far two computations of one micro-batch may lie apart: on GPUs sums run in no fixed order."""
    kinds = {parameter.dtype for parameter in trainer.model.parameters()} & {torch.float16, torch.bfloat16}
    halves = trainer.args.bf16 or trainer.args.fp16 or kinds
    return 5e-3 if halves else 1e-3 if torch.cuda.is_available() else 1e-5


def _cpu_copies(parameters: list[Any], before: list[Any] | None = None) -> list[Any]:
    """Return copies of gradients, less those ``before``, in the CPU's memory: a full GPU has no room for several."""
    copies = []
    for parameter, old in zip(parameters, before or [None] * len(parameters), strict=True):
        copy = None if parameter.grad is None else parameter.grad.to("cpu", copy=True)
        copies.append(copy if copy is None or old is None else copy - old)
    return copies


def _take_gradients(parameters: list[Any]) -> list[Any]:
    """Take the gradients away from parameters, and return them."""
    taken = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return taken


def _add_gradients(parameters: list[Any], gradients: list[Any]) -> None:
    """Add gradients, perhaps in the memory of the CPU, to those that parameters have."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            gradient = gradient.to(parameter.device)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
