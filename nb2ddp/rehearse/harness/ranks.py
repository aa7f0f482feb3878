"""What ranks on several GPUs do with one another, on CPUs: NCCL, synchronised batch norm, Accelerate."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import notes
from nb2ddp.rehearse.harness.gpus import NO_GPU
from nb2ddp.rehearse.harness.imports import Patch, around, patched
from nb2ddp.rehearse.harness.notes import PLAN, note, replaced


def _patch_torch(torch: Any) -> None:
    if not PLAN.get("handmade") or torch.cuda.is_available() or not torch.distributed.is_available():
        return
    from torch.nn.parallel import DistributedDataParallel

    dist = torch.distributed
    for module in (dist, dist.distributed_c10d):
        around(module, "init_process_group", _group)
        around(module, "new_group", _group)
        around(module, "barrier", _barrier)
        around(module, "all_reduce", _all_reduce)
    around(DistributedDataParallel, "__init__", _wrap)
    around(DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *arguments: None)
    around(torch.nn.SyncBatchNorm, "forward", _synchronised_norm)
    around(torch.nn.modules.batchnorm._BatchNorm, "forward", _norm)


def _group(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    asked = inspect.signature(original).bind(*arguments, **options).arguments
    if "nccl" in str(asked.get("backend")):
        asked["backend"] = "gloo"
        replaced("NCCL", "gloo", NO_GPU)
    asked.pop("device_id", None)
    return original(**asked)


def _barrier(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    options.pop("device_ids", None)
    return original(*arguments, **options)


def _all_reduce(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Sum and divide where the mean is asked for, which gloo does not have."""
    import torch.distributed as dist

    asked = inspect.signature(original).bind(*arguments, **options).arguments
    if asked.get("op") != dist.ReduceOp.AVG or asked.get("async_op"):
        return original(**asked)
    original(**{**asked, "op": dist.ReduceOp.SUM})
    asked["tensor"] /= dist.get_world_size(asked.get("group"))
    return None


def _wrap(original: Callable[..., Any], self: Any, module: Any, *others: Any, **options: Any) -> None:
    note("wrap", line=notes.line_of_script())
    if all(parameter.device.type == "cpu" for parameter in module.parameters()):
        others = ()  # device_ids, output_device
        for name in ("device_ids", "output_device"):
            options.pop(name, None)
    original(self, module, *others, **options)


_normed = False


def _norm(original: Callable[..., Any], self: Any, value: Any) -> Any:
    """Note the first batch norm that uses the statistics of one rank's rows."""
    global _normed
    if not _normed and self.training and notes.is_rank() and _is_one_of_several():
        _normed = True
        note("norm", layer=type(self).__name__, line=notes.line_of_script())
    return original(self, value)


def _is_one_of_several(group: Any = None) -> bool:
    import torch.distributed as dist

    return bool(dist.is_initialized() and dist.get_world_size(group) > 1)


def _synchronised_norm(original: Callable[..., Any], self: Any, value: Any) -> Any:
    """Compute SyncBatchNorm, which torch has for GPUs alone, with an all-reduce of sums and counts."""
    import torch
    from torch.distributed.nn.functional import all_reduce

    if value.device.type != "cpu" or not self.training or not _is_one_of_several(self.process_group):
        return original(self, value)
    replaced("SyncBatchNorm", "the same sums on the CPU", NO_GPU)
    width = value.size(1)
    shape = [1, -1] + [1] * (value.dim() - 2)
    dims = [n for n in range(value.dim()) if n != 1]
    exact = value.double()
    count = exact.new_full((1,), value.numel() / width)
    parts = torch.cat([exact.sum(dims), (exact * exact).sum(dims), count])
    sums = all_reduce(parts, group=self.process_group or torch.distributed.group.WORLD)
    total = sums[-1].detach()
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


def _accelerator(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    if PLAN.get("handmade"):
        precision = options.get("mixed_precision")
        if precision not in (None, "no"):
            replaced(f"{precision} arithmetic", "32 bit", "rounding would hide small differences")
            options["mixed_precision"] = "no"
        os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    original(self, *others, **options)


PATCHES: dict[str, Patch] = {
    "torch": _patch_torch,
    "accelerate.accelerator": patched("Accelerator.__init__", _accelerator),
}
