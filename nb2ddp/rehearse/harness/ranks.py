"""What a script for several GPUs asks of them, answered on a CPU: NCCL, device numbers, synchronised batch norm."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import notes, replace
from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import PLAN, note, replaced

_NO_GPU = "there is no GPU here"
_FACTORIES = (
    "tensor as_tensor zeros ones full empty arange linspace eye rand randn randint randperm zeros_like ones_like "
    "full_like empty_like rand_like randn_like normal load"
).split()
_device = 0  # the GPU that torch.cuda.set_device has chosen


def _patch_torch(torch: Any) -> None:
    if not PLAN.get("handmade"):
        return
    _keep_constructors()
    if torch.cuda.is_available():
        return
    for name in _FACTORIES:
        around(torch, name, _made_on_cpu)
    around(torch.nn.Module, "to", _module_to)
    around(torch.nn.Module, "cuda", _module_cuda)
    around(torch.cuda, "set_device", _set_device)
    around(torch.cuda, "current_device", lambda original: _device)
    around(torch.cuda, "device_count", _device_count)
    around(torch.nn.DataParallel, "__init__", _data_parallel)
    if torch.distributed.is_available():
        _patch_distributed(torch.distributed)


def _keep_constructors() -> None:
    """Have torch list its own functions that make tensors, before any is wrapped.

    ``with torch.device("meta")`` looks there for what is called, and would not know a wrapped one.
    """
    from torch.utils._device import _device_constructors

    _device_constructors()


def _patch_distributed(dist: Any) -> None:
    from torch.nn.parallel import DistributedDataParallel

    for module in (dist, dist.distributed_c10d):
        for name in ("init_process_group", "new_group"):
            around(module, name, _group)
        around(module, "barrier", _barrier)
        around(module, "all_reduce", _all_reduce)
    around(DistributedDataParallel, "__init__", _wrap)
    around(DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *arguments: None)
    import torch

    around(torch.nn.SyncBatchNorm, "forward", _synchronised_norm)
    around(torch.nn.modules.batchnorm._BatchNorm, "forward", _norm)


# ---------------------------------------------------------------------------------------------------------
# Devices


def _on_cpu(value: Any) -> Any:
    return "cpu" if replace.is_gpu(value) else value


def _made_on_cpu(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    for name in ("device", "map_location"):
        value = options.get(name)
        if isinstance(value, dict):
            options[name] = {str(_on_cpu(key)): _on_cpu(to) for key, to in value.items()}
        elif value is not None:
            options[name] = _on_cpu(value)
    return original(*arguments, **options)


def _set_device(original: Callable[..., Any], device: Any) -> None:
    global _device
    _device = _index(device)


def _index(device: Any) -> int:
    """Return the number of the GPU that a device names; of "cuda" the one that was chosen."""
    if isinstance(device, int):
        return device
    _, _, number = str(device).partition(":")
    return int(number) if number.isdigit() else _device


def _module_to(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> Any:
    asked = [value for value in (*others[:1], options.get("device")) if replace.is_gpu(value)]
    if asked and notes.called_by_script(3):
        note("placed", gpu=_index(asked[0]), line=notes.line_of_script(), model=type(self).__name__)
    return original(self, *others, **options)


def _module_cuda(original: Callable[..., Any], self: Any, device: Any = None) -> Any:
    if notes.called_by_script(3):
        gpu = _device if device is None else _index(device)
        note("placed", gpu=gpu, line=notes.line_of_script(), model=type(self).__name__)
    return original(self, device)


def _device_count(original: Callable[..., Any]) -> int:
    """Answer the script with as many GPUs as there are ranks; libraries hear the truth."""
    if notes.called_by_script(3):
        return int(PLAN["nproc"])
    count: int = original()
    return count


def _data_parallel(
    original: Callable[..., Any], self: Any, module: Any, *others: Any, **options: Any
) -> None:
    note("data_parallel", line=notes.line_of_script())
    original(self, module)


# ---------------------------------------------------------------------------------------------------------
# Between the ranks


def _group(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    names = ("backend",) if original.__name__ == "init_process_group" else ("ranks", "timeout", "backend")
    options = {**dict(zip(names, arguments, strict=False)), **options}
    rest = arguments[len(names) :]
    if "nccl" in str(options.get("backend")):
        options["backend"] = "gloo"
        replaced("NCCL", "gloo", _NO_GPU)
    options.pop("device_id", None)
    return original(*(options.pop(name) for name in names if name in options and rest), *rest, **options)


def _barrier(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    options.pop("device_ids", None)
    return original(*arguments, **options)


def _all_reduce(original: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
    """Sum and divide where the mean is asked for, which gloo does not have."""
    import torch.distributed as dist

    op = others[0] if others else options.get("op")
    if op != dist.ReduceOp.AVG or options.get("async_op"):
        return original(tensor, *others, **options)
    options.pop("op", None)
    original(tensor, dist.ReduceOp.SUM, *others[1:], **options)
    tensor /= dist.get_world_size(options.get("group"))
    return None


def _wrap(original: Callable[..., Any], self: Any, module: Any, *others: Any, **options: Any) -> None:
    note("wrap", line=notes.line_of_script())
    on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters())
    if on_cpu:
        others = ()
        for name in ("device_ids", "output_device"):
            options.pop(name, None)
    original(self, module, *others, **options)


_normed = False


def _norm(original: Callable[..., Any], self: Any, value: Any) -> Any:
    """Note the first batch norm that uses the statistics of one rank's rows."""
    global _normed
    import torch.distributed as dist

    if (
        not _normed
        and self.training
        and notes.is_rank()
        and dist.is_initialized()
        and dist.get_world_size() > 1
    ):
        _normed = True
        note("norm", layer=type(self).__name__, line=notes.line_of_script())
    return original(self, value)


def _synchronised_norm(original: Callable[..., Any], self: Any, value: Any) -> Any:
    """Compute SyncBatchNorm, which torch has for GPUs alone, with an all-reduce of sums and counts."""
    import torch
    import torch.distributed as dist

    synchronises = self.training and dist.is_initialized() and dist.get_world_size(self.process_group) > 1
    if value.device.type != "cpu" or not synchronises:
        return original(self, value)
    replaced("SyncBatchNorm", "the same sums on the CPU", _NO_GPU)
    group = self.process_group

    class Sum(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, sums: Any) -> Any:
            sums = sums.clone()
            dist.all_reduce(sums, group=group)
            return sums

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=group)
            return gradient

    shape = [1, -1] + [1] * (value.dim() - 2)
    dims = [n for n in range(value.dim()) if n != 1]
    exact = value.double()
    count = exact.new_full((1,), value.numel() / value.size(1))
    sums = Sum.apply(torch.cat([exact.sum(dims), (exact * exact).sum(dims), count]))
    width, total = value.size(1), sums[-1].detach()
    mean = sums[:width] / total
    variance = sums[width : 2 * width] / total - mean * mean
    if self.track_running_stats:
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        with torch.no_grad():
            unbiased = variance * total / (total - 1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
    out = (exact - mean.view(shape)) / torch.sqrt(variance.view(shape) + self.eps)
    if self.affine:
        out = out * self.weight.double().view(shape) + self.bias.double().view(shape)
    return out.to(value.dtype)


# ---------------------------------------------------------------------------------------------------------
# Accelerate


def _patch_accelerator(module: Any) -> None:
    if not PLAN.get("handmade"):
        return
    around(module.Accelerator, "__init__", _accelerator)


def _accelerator(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    if options.get("mixed_precision") not in (None, "no"):
        replaced(
            f"{options['mixed_precision']} arithmetic", "32 bit", "rounding would hide small differences"
        )
        options["mixed_precision"] = "no"
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    original(self, *others, **options)


PATCHES: dict[str, Patch] = {"torch": _patch_torch, "accelerate.accelerator": _patch_accelerator}
