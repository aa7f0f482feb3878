"""Exchange what ranks have read: as bytes, with the contents of tensors and arrays beside the pickle."""

import array
import functools
import io
import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import get_worker_info

from nb2ddp.runtime.run_state import _GROUP_TIMEOUT, _run

_ALIGNED = 64


class _RowsPickler(pickle.Pickler):
    """Pickle tensors and arrays with the layout in memory that they have, or get on the way from a worker."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise pickle.PicklingError("a tensor is not in the CPU's memory")
        if type(value) is torch.Tensor and _is_plain_memory(value):
            extent = 1 + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
            if extent != value.numel():  # a part of another one, or expanded: dense, in the same order
                return self.reducer_override(value.clone())
            content = pickle.PickleBuffer(value.as_strided((extent,), (1,)).view(torch.uint8).numpy())
            return _tensor_of, (content, value.dtype, tuple(value.shape), value.stride())
        if type(value).__name__ == "ndarray" and not (value.flags.c_contiguous or value.flags.f_contiguous):
            if get_worker_info() is not None:
                return pickle.loads(pickle.dumps(value)).__reduce_ex__(5)
            order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
            back = tuple(map(order.index, range(value.ndim)))
            return type(value).transpose, (value.transpose(order).copy(), back)
        return NotImplemented


def _is_plain_memory(value: torch.Tensor) -> bool:
    is_dense = value.layout is torch.strided and not value.is_quantized and value.numel() > 0
    return is_dense and not (value.requires_grad or value.is_conj() or value.is_neg())


def _tensor_of(content: Any, dtype: torch.dtype, shape: Any, strides: Any) -> torch.Tensor:
    return torch.frombuffer(content, dtype=dtype).as_strided(shape, strides)


def _as_tensor(value: Any) -> torch.Tensor:
    """Return a value as bytes in one tensor, which `_of_tensor` reads; raises what pickling raises."""
    body, contents, packed = io.BytesIO(), list[pickle.PickleBuffer](), bytearray()
    _RowsPickler(body, protocol=5, buffer_callback=contents.append).dump(value)
    parts = [body.getbuffer(), *(content.raw() for content in contents)]
    sizes: Any = array.array("q", [len(parts), *map(len, parts)]).tobytes()
    for part in (sizes, *parts):
        packed += part
        packed += bytes(-len(packed) % _ALIGNED)
    return torch.frombuffer(packed, dtype=torch.uint8)


def _of_tensor(packed: torch.Tensor) -> Any:
    """Return the value of `_as_tensor`; its tensors and arrays lie within ``packed``."""
    view, numbers, parts = memoryview(packed.numpy()), packed.view(torch.int64), []
    sizes = numbers[1 : 1 + int(numbers[0])].tolist()
    start = 8 * (1 + len(sizes))
    for size in sizes:
        start += -start % _ALIGNED
        parts.append(view[start : start + size])
        start += size
    return pickle.loads(parts[0], buffers=parts[1:])


@functools.cache
def _group_of_rows() -> Any:
    """Return a process group for rows alone: what another thread exchanges meanwhile cannot come between."""
    return dist.new_group(backend="gloo", timeout=_GROUP_TIMEOUT)


def _rows_of_ranks(packed: torch.Tensor) -> list[Any]:
    """Return what each rank has packed, in the order of ranks. A collective."""
    group, ranks = _group_of_rows(), range(_run.world_size)
    sizes = [torch.zeros(1, dtype=torch.int64, device="cpu") for _ in ranks]
    dist.all_gather(sizes, torch.tensor([len(packed)], device="cpu"), group=group)
    most = max(map(int, sizes))
    own = packed if len(packed) == most else torch.cat([packed, packed.new_zeros(most - len(packed))])
    received = [torch.empty(most, dtype=torch.uint8, device="cpu") for _ in ranks]
    dist.all_gather(received, own, group=group)
    return [_of_tensor(of_rank) for of_rank in received]


def _rows_of_rank(packed: torch.Tensor | None, rank: int) -> Any:
    """Return what one rank has packed. A collective."""
    size = torch.tensor([0 if packed is None else len(packed)], device="cpu")
    dist.broadcast(size, rank, group=_group_of_rows())
    if packed is None or rank != _run.rank:
        packed = torch.empty(int(size), dtype=torch.uint8, device="cpu")
    dist.broadcast(packed, rank, group=_group_of_rows())
    return _of_tensor(packed)
