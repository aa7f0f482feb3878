"""GPU memory that the live kernel itself holds, and how to free it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Held:
    """What this kernel holds on one GPU: bytes in tensors, bytes reserved, bytes that are free there."""

    device: int
    allocated: int
    reserved: int
    free: int


def held() -> list[Held]:
    """Return the GPUs that this process holds memory on. Does not import torch: without it, none is held."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return []
    return [
        Held(device, torch.cuda.memory_allocated(device), reserved, torch.cuda.mem_get_info(device)[0])
        for device in range(torch.cuda.device_count())
        if (reserved := torch.cuda.memory_reserved(device))
    ]


def holders(names: Mapping[str, object], device: str = "cuda") -> dict[str, int]:
    """Return the objects that hold memory on a kind of device, with their bytes, the largest first.

    Objects that share tensors (a model and its trainer) are each counted in full.
    """
    sizes = {name: sum(_storages(value, device).values()) for name, value in names.items()}
    return {name: size for name, size in sorted(sizes.items(), key=lambda item: -item[1]) if size}


def _storages(value: object, device: str) -> dict[int, int]:
    """Return bytes by address, of the storages in a tensor, a module, an optimizer, and what holds them."""
    found: dict[int, int] = {}
    for tensor in _tensors(value, depth=3):
        if tensor.device.type == device:
            try:
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
            except RuntimeError:  # a quantised tensor that is made of others
                found[id(tensor)] = tensor.numel() * tensor.element_size()
    return found


def _tensors(value: object, depth: int) -> Iterator[Any]:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
        grad = getattr(value, "grad", None) if value.is_leaf else None
        if grad is not None:
            yield grad
    elif isinstance(value, torch.nn.Module):
        for tensor in (*value.parameters(), *value.buffers()):
            yield from _tensors(tensor, depth)
    elif depth == 0 or isinstance(value, type):
        return
    elif isinstance(value, torch.optim.Optimizer):
        yield from _tensors([group["params"] for group in value.param_groups], depth)
        yield from _tensors(list(value.state.values()), depth)
    elif isinstance(value, Mapping):
        for item in list(value.values()):
            yield from _tensors(item, depth - 1)
    elif isinstance(value, list | tuple | set):
        for item in list(value)[:10_000]:
            yield from _tensors(item, depth - 1)
    elif type(value).__module__.split(".")[0] not in ("builtins", "torch", "numpy", "pandas", "datasets"):
        for name in ("model", "ref_model", "optimizer", "model_wrapped"):  # a Trainer, a pipeline
            item = vars(value).get(name) if hasattr(value, "__dict__") else None
            if item is not None:
                yield from _tensors(item, depth - 1)


def free(names: MutableMapping[str, object], device: str = "cuda") -> list[str]:
    """Drop the objects that hold GPU memory and give the memory back; return the names that are gone."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    gone = list(holders(names, device))
    for name in gone:
        if name in ("Out", "_oh") and isinstance(history := names[name], dict):
            history.clear()  # IPython goes on to use it
        else:
            del names[name]  # no name of ours may hold it while the memory is given back
    for attribute in ("last_value", "last_traceback", "last_exc"):  # a traceback keeps its frames' tensors
        if hasattr(sys, attribute):
            setattr(sys, attribute, None)
    gc.collect()
    torch.cuda.empty_cache()
    return gone
