"""Sum gradients over the ranks, or average them: many in each exchange."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from nb2ddp.runtime.run_state import _run

_BUCKET = 2**26  # bytes of gradients that are exchanged together: Python begins each exchange
_nodes = getattr(torch.autograd, "_get_sequence_nr", int)  # how many the graphs of this thread have had


def _sum_in_buckets(gradients: list[torch.Tensor], *, mean: bool = False) -> None:
    """Sum dense gradients over the ranks, or take their mean. A collective."""
    with torch.no_grad():
        for bucket in _buckets(gradients):
            flat = _flatten_dense_tensors(bucket)
            dist.all_reduce(flat)
            if mean:
                flat /= _run.world_size
            torch._foreach_copy_(bucket, list(_unflatten_dense_tensors(flat, bucket)))


def _buckets(gradients: list[Any]) -> Iterator[list[Any]]:
    """Yield gradients, or their parameters, for one all_reduce: of one kind, together not much above `_BUCKET`."""
    filling: dict[Any, tuple[list[Any], int]] = {}
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
