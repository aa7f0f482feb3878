"""Let rank 0 decide for all ranks what a Trainer's callbacks decide: to stop, to save, to evaluate, to log."""

import functools
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _run

_DECIDING = "on_train_begin on_epoch_begin on_step_end on_epoch_end on_log on_evaluate on_save".split()


def _decide_on_rank_0(handler: Any) -> None:
    """Give every rank rank 0's decisions after each event.

    A callback may look at the clock, the disk or a file, and the ranks do not look at the same moment: one would stop
    and the others wait for it. A broadcast of some bytes per event.
    """
    call = handler.call_event

    @functools.wraps(call)
    def call_event(event: str, args: Any, state: Any, control: Any, **options: Any) -> Any:
        control = call(event, args, state, control, **options)
        if event in _DECIDING and _run.meets:
            names = sorted(name for name, value in vars(control).items() if isinstance(value, bool))
            decided = torch.tensor([getattr(control, name) for name in names], dtype=torch.uint8)
            dist.broadcast(decided, 0, group=_run.cpu_group)
            for name, value in zip(names, decided.tolist(), strict=True):
                setattr(control, name, bool(value))
        return control

    handler.call_event = call_event
