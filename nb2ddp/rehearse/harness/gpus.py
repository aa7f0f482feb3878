"""The GPUs that a script asks for, in a process that has none: what it puts there stays on the CPU, and is noted."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nb2ddp.rehearse.harness import notes
from nb2ddp.rehearse.harness.imports import Patch, around
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
        _placed(self, asked[0])
    return _on_cpu(original, self, *others, **options)


def _module_cuda(original: Callable[..., Any], self: Any, device: Any = None) -> Any:
    if notes.called_by_script(3):
        _placed(self, "cuda" if device is None else device)
    return self


def _placed(module: Any, device: Any) -> None:
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


PATCHES: dict[str, Patch] = {"torch": _patch_torch}
