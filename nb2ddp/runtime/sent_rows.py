"""Exchange the rows that ranks have read: as bytes, with the contents of tensors and arrays copied once."""

import functools
import io
import itertools
import pickle
import struct
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _GROUP_TIMEOUT, _run

_ALIGNED = 64


class _RowsPickler(pickle.Pickler):
    """Pickle rows with the contents of tensors and arrays beside them; memory formats stay what they were."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise pickle.PicklingError("a tensor is not in the CPU's memory")
        if type(value) is torch.Tensor and _is_plain_memory(value):
            extent = 1 + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
            if (
                extent != value.numel()
            ):  # a part of another one, or expanded: dense, in the same order of memory
                return self.reducer_override(value.clone())
            content = pickle.PickleBuffer(value.as_strided((extent,), (1,)).view(torch.uint8).numpy())
            return _tensor_of, (content, value.dtype, tuple(value.shape), value.stride())
        if type(value).__name__ == "ndarray" and not (value.flags.c_contiguous or value.flags.f_contiguous):
            order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
            return _transposed, (value.transpose(order).copy(), tuple(map(order.index, range(value.ndim))))
        return NotImplemented


def _is_plain_memory(value: torch.Tensor) -> bool:
    is_dense = value.layout is torch.strided and not value.is_quantized and value.numel() > 0
    return is_dense and not (value.requires_grad or value.is_conj() or value.is_neg())


def _tensor_of(content: Any, dtype: torch.dtype, shape: Any, strides: Any) -> torch.Tensor:
    return torch.frombuffer(content, dtype=dtype).as_strided(shape, strides)


def _transposed(array: Any, order: Any) -> Any:
    return array.transpose(order)


def _as_tensor(value: Any) -> torch.Tensor:
    """Return a value as bytes in one tensor, which `_of_tensor` reads; raises what pickling raises."""
    body, contents = io.BytesIO(), list[pickle.PickleBuffer]()
    _RowsPickler(body, protocol=5, buffer_callback=contents.append).dump(value)
    parts = [body.getbuffer(), *(content.raw() for content in contents)]
    table = struct.pack(f"<{len(parts) + 1}q", len(parts), *map(len, parts))
    places = _places(len(table), [len(part) for part in parts])
    packed = torch.empty(places[-1], dtype=torch.uint8)
    view = memoryview(packed.numpy())
    view[: len(table)] = table
    for start, part in zip(places, parts, strict=False):
        view[start : start + len(part)] = part
    return packed


def _of_tensor(packed: torch.Tensor) -> Any:
    """Return the value of `_as_tensor`; its tensors and arrays lie within ``packed``."""
    view = memoryview(packed.numpy())
    (count,) = struct.unpack_from("<q", view)
    sizes = struct.unpack_from(f"<{count}q", view, 8)
    starts = _places(8 * (count + 1), sizes)
    body, *contents = [view[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    return pickle.loads(body, buffers=contents)


def _places(start: int, sizes: Any) -> list[int]:
    """Return where parts of some sizes begin, and where the last one ends."""
    aligned = (-(-size // _ALIGNED) * _ALIGNED for size in sizes)
    return list(itertools.accumulate(aligned, initial=-(-start // _ALIGNED) * _ALIGNED))


@functools.cache
def _group_of_rows() -> Any:
    """Return a process group for rows alone: what another thread exchanges meanwhile cannot come between."""
    return dist.new_group(backend="gloo", timeout=_GROUP_TIMEOUT)


def _rows_of_ranks(packed: torch.Tensor) -> list[Any]:
    """Return what each rank has packed, in the order of ranks. A collective."""
    group, ranks = _group_of_rows(), range(_run.world_size)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in ranks]
    dist.all_gather(sizes, torch.tensor([len(packed)]), group=group)
    most = max(map(int, sizes))
    own = packed if len(packed) == most else torch.cat([packed, packed.new_zeros(most - len(packed))])
    received = [torch.empty(most, dtype=torch.uint8) for _ in ranks]
    dist.all_gather(received, own, group=group)
    return [_of_tensor(of_rank) for of_rank in received]
