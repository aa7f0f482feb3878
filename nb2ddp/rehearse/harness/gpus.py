"""The GPUs that a script asks for, in a process that has none.

What it puts there stays on the CPU, and is noted; so is what ranks on several GPUs do with one another: NCCL,
synchronised batch norm, Accelerate.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nb2ddp.rehearse.harness import notes
from nb2ddp.rehearse.harness.imports import Patch, around, patched
from nb2ddp.rehearse.harness.notes import PLAN, note, replaced

NO_GPU = "there is no GPU here"
_FACTORIES = (
    "tensor as_tensor zeros ones full empty arange linspace eye rand randn randint randperm zeros_like ones_like "
    "full_like empty_like rand_like randn_like normal load"
).split()
_ANSWERS: dict[str, Any] = {
    **dict.fromkeys("synchronize empty_cache reset_peak_memory_stats ipc_collect".split()),
    **dict.fromkeys("max_memory_reserved max_memory_allocated memory_reserved memory_allocated".split(), 0),
    "get_device_name": "no GPU",
    "get_device_capability": (7, 5),
}
_device = 0  # the GPU that torch.cuda.set_device has chosen


def _patch_torch(torch: Any) -> None:
    if torch.cuda.is_available():
        return
    around(torch.autocast, "__init__", _autocast)
    around(torch.Tensor, "to", _on_cpu)
    around(torch.Tensor, "cuda", lambda original, self, *others, **options: self)
    around(torch.nn.Module, "to", _module_to)
    around(torch.nn.Module, "cuda", _module_cuda)
    for name, answer in _ANSWERS.items():
        around(torch.cuda, name, lambda *arguments, answer=answer, **options: answer)
    around(torch.cuda, "get_device_properties", _properties)
    around(torch.cuda, "set_device", _set_device)
    around(torch.cuda, "current_device", lambda original: _device)
    if PLAN.get("handmade"):
        around(torch.cuda, "device_count", _device_count)
        around(torch.nn.DataParallel, "__init__", _data_parallel)
        # `with torch.device("meta")` looks in this list for what is called, and would not know a wrapped one
        from torch.utils._device import _device_constructors

        _device_constructors()
        for name in _FACTORIES:
            around(torch, name, _made_on_cpu)
        if torch.distributed.is_available():
            _patch_distributed(torch)


def _is_gpu(value: Any) -> bool:
    """Return whether a device is a GPU: "cuda:0", ``torch.device("cuda")``, or a number alone."""
    if isinstance(value, str):
        return value.startswith("cuda")
    if isinstance(value, int):
        return not isinstance(value, bool)
    return type(value).__name__ == "device" and value.type == "cuda"


def _moved(value: Any) -> Any:
    """Return the CPU for a GPU, anything else as it is."""
    if not _is_gpu(value):
        return value
    replaced("the device cuda", "the CPU", NO_GPU)
    return "cpu"


def _on_cpu(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return original(*map(_moved, arguments), **{name: _moved(value) for name, value in options.items()})


def _made_on_cpu(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    for name in options.keys() & {"device", "map_location"}:
        value = options[name]
        if isinstance(value, dict):
            options[name] = {str(_moved(key)): _moved(to) for key, to in value.items()}
        else:
            options[name] = _moved(value)
    return original(*arguments, **options)


def _number(device: Any) -> int:
    """Return the number that a device names among the visible GPUs; of "cuda" the one that was chosen."""
    _, _, number = str(device).rpartition(":")
    return int(number) if number.isdigit() else _device


def _set_device(original: Callable[..., Any], device: Any) -> None:
    global _device
    _device = _number(device)


def _module_to(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> Any:
    asked = [value for value in (*others[:1], options.get("device")) if _is_gpu(value)]
    if asked and notes.called_by_script(3):
        _placed(asked[0])
    return _on_cpu(original, self, *others, **options)


def _module_cuda(original: Callable[..., Any], self: Any, device: Any = None) -> Any:
    if notes.called_by_script(3):
        _placed("cuda" if device is None else device)
    return self


def _placed(device: Any) -> None:
    """Note a model that is put on a GPU; in a conversion of ours, each rank sees its own alone, as GPU 0."""
    if PLAN.get("handmade") and notes.runtime() is None:
        index = _number(device)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")  # a rank may see its own alone
        gpu = int(visible[index]) if index < len(visible) and visible[index].isdigit() else index
        note("placed", gpu=gpu, line=notes.line_of_script())


def _properties(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    replaced("the properties of the GPU", "those of no GPU", NO_GPU)
    return SimpleNamespace(
        name="no GPU", total_memory=15 << 30, major=7, minor=5, multi_processor_count=1, uuid="none"
    )


def _device_count(original: Callable[..., Any]) -> int:
    """Answer the script with as many GPUs as there are ranks; libraries hear the truth."""
    count: int = PLAN["nproc"] if notes.called_by_script(3) else original()
    return count


def _data_parallel(
    original: Callable[..., Any], self: Any, module: Any, *others: Any, **options: Any
) -> None:
    note("data_parallel", line=notes.line_of_script())
    original(self, module)


# ---- several ranks -----------------------------------------------------------------------------------------


def _patch_distributed(torch: Any) -> None:
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


def _autocast(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    original(self, *others, **options)
    if self._enabled:
        replaced("16-bit autocast", "32 bit", "rounding would hide small differences")
        self._enabled = False


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
