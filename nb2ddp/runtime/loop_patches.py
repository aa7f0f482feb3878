"""Change what libraries do where a loop's model is divided; a Trainer's script changes none of it."""

import functools

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from nb2ddp.runtime.autograd_patches import _average_asked_gradients
from nb2ddp.runtime.gradients import _reduce_unseen
from nb2ddp.runtime.repeated_writes import _warn_of_repeated_writes
from nb2ddp.runtime.saving import _save_whole_files
from nb2ddp.runtime.split_classes import _splits


@functools.cache
def _patch_for_loops() -> None:
    """Average gradients that are asked for, watch steps and what is written: from the first divided model on."""
    _average_asked_gradients()
    _save_whole_files()
    _warn_of_repeated_writes()
    register_optimizer_step_pre_hook(_reduce_unseen)
    register_optimizer_step_post_hook(lambda *_: [split.notice_step() for split in list(_splits.values())])
