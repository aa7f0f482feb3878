"""Change what libraries do where a loop's model is divided; a Trainer's script changes none of it."""

import functools
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from nb2ddp.runtime.autograd_patches import _average_asked_gradients, _show_whole_gradients
from nb2ddp.runtime.averaged_backward import _backward, _share_errors
from nb2ddp.runtime.object_collectives import _take_from_rank_0
from nb2ddp.runtime.run_state import _run, _warn_once
from nb2ddp.runtime.split_classes import _splits
from nb2ddp.runtime.unseen_gradients import _reduce_unseen, _reduced


@functools.cache
def _patch_for_loops() -> None:
    """Average gradients that are asked for, watch steps and what is written: from the first divided model on."""
    _average_asked_gradients()
    _show_whole_gradients()
    _share_errors()
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(lambda *_: _notice_step())


def _before_step(optimizer: Any, *_: Any) -> None:
    """Exchange gradients, and take rank 0's numbers: a learning rate may follow the clock."""
    if _run.effect is None:  # else a model fits something to its rows
        _backward.flush()
        _reduce_unseen(optimizer)
        if _run.meets and _reduced:
            _take_from_rank_0(optimizer.param_groups)


def _notice_step() -> None:
    """Say that an optimizer has taken steps while nobody called a model; other processes divide no calls."""
    for split in list(_splits.values()):
        split.steps += _run.meets
        if split.steps == 4 and not split.calls and any(p.grad is not None for p in split.model.parameters()):
            _warn_once(
                f"{split.model.__class__.__name__} trains without being called: parts of it are, and every rank "
                "computes whole batches, which saves no time. Call the model, or a method of it that takes the batch"
            )
