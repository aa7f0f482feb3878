"""Show a loop's Accelerator one process."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.rank_zero import main_process_only
from nb2ddp.runtime.run_state import _RANK_VARIABLES, _T, _run
from nb2ddp.runtime.trackers import _NoWriter


def as_one_process(make: Callable[[], _T]) -> _T:
    """Return what ``make`` makes where it sees one process: an Accelerator that leaves the batches alone.

    ``parallelize`` divides the work instead, so that what the loop computes is computed from whole batches.
    Each rank calls ``make``, waits for no other, and raises what it raises. The Accelerator saves on rank 0 alone,
    while the others wait, and logs there.
    """
    module: Any = sys.modules.get("accelerate.state")
    for kind in (module.PartialState, module.AcceleratorState) if module else ():
        if kind._shared_state.get("num_processes", 1) > 1:  # a Trainer's that generates: it keeps that one
            kind._shared_state = type(kind._shared_state)()
    told = (*_RANK_VARIABLES, "ACCELERATE_USE_CPU")
    hidden = {name: os.environ.pop(name) for name in told if name in os.environ}
    try:
        made = make()
    finally:
        os.environ.update(hidden)
    accelerator: Any = made
    if _run.world_size > 1 and hasattr(accelerator, "init_trackers"):
        for name in ("save", "save_model", "save_state"):
            setattr(accelerator, name, _once(getattr(accelerator, name)))
        # end_training() would destroy the process group, which is not the Accelerator's, before a further loop
        accelerator.state.destroy_process_group = lambda *_, **__: None
        if _run.rank > 0:
            accelerator.init_trackers = lambda *_, **__: None
            accelerator.get_tracker = lambda *_, **__: _NoWriter()
    return made


def _once(save: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function: all ranks meet, rank 0 alone calls it, and all get its result."""

    @functools.wraps(save)
    def on_rank_0(*args: Any, **options: Any) -> Any:
        made: list[Any] = []
        with main_process_only() as is_main:
            if is_main:
                made.append(save(*args, **options))
        return from_main_process(lambda: made[0])

    return on_rank_0
