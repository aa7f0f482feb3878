"""Let losses of Sentence Transformers that compare rows take those of other ranks, where rows are divided."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.run_state import _replaced, _run


def _gathers(trainer: Any) -> list[Any]:
    """Return what of a Sentence Transformers loss compares a batch's rows, and can take the other ranks' rows too."""
    losses = getattr(trainer, "loss", None)
    return [
        part
        for loss in (losses.values() if isinstance(losses, dict) else [losses])
        if isinstance(loss, torch.nn.Module)
        for part in loss.modules()
        if getattr(part, "gather_across_devices", None) is False
    ]


@contextlib.contextmanager
def _gathering(trainer: Any) -> Iterator[None]:
    """Let losses of Sentence Transformers that compare a batch's rows take the other ranks' rows too, in a block."""
    with contextlib.ExitStack() as block:
        found = _gathers(trainer)
        for part in found:
            block.enter_context(_replaced(part, gather_across_devices=True))
        block.enter_context(_replaced(_run, is_hidden=not found))
        yield


_run.gathering = _gathers, _gathering
