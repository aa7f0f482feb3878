"""Put gradients together that one exchange can take."""

from collections.abc import Iterator
from typing import Any

import torch

_BUCKET = 2**26  # bytes of gradients that are exchanged together: Python begins each exchange
_nodes = getattr(torch.autograd, "_get_sequence_nr", int)  # how many the graphs of this thread have had


def _buckets(gradients: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield gradients that one all_reduce can take: of one kind, together not much above `_BUCKET`."""
    filling: dict[Any, tuple[list[torch.Tensor], int]] = {}
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
