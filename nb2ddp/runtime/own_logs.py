"""Let the notebook's own code log on rank 0 alone, where a Trainer's log() is for all ranks."""

import sys
from types import FrameType
from typing import Any

from nb2ddp.runtime.places import _place
from nb2ddp.runtime.run_state import _run

_RANK_NAMES = frozenset(
    "is_world_process_zero is_local_process_zero is_main_process is_local_main_process rank local_rank "
    "process_index local_process_index".split()
)


def _log_on_one_rank(trainer: Any) -> None:
    """Let code that asks for its rank call ``trainer.log()``: the other ranks may not come. No rank waits.

    It logs what it is given. What the Trainer has noted is for all ranks to bring together, and whether it logs
    after this step is decided alike on all ranks: both stay as they are.
    """
    log = trainer.log
    if getattr(log, "_knows_ranks", False):
        return
    notes = getattr(trainer, "_metrics", None)  # TRL's
    said: set[str] = set()

    def log_of_one(*args: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        if not _run.meets or not _asks_for_rank(frame):
            return log(*args, **options)
        place = _place(frame)
        if place not in said:
            said.add(place)
            print(
                f"nb2ddp: log() at {place} may be rank 0's alone: the Trainer's figures are in its next row"
            )
        of_mode = {} if notes is None else notes["train" if trainer.model.training else "eval"]
        kept, logs_later = dict(of_mode), trainer.control.should_log
        of_mode.clear()
        try:
            return log(*args, **options)
        finally:
            of_mode.update(kept)
            trainer.control.should_log = logs_later

    log_of_one._knows_ranks = True  # type: ignore[attr-defined]
    trainer.log = log_of_one


def _asks_for_rank(frame: FrameType | None) -> bool:
    """Return whether a call comes from code of the notebook that asks which rank it is."""
    while frame is not None and frame.f_globals.get("__name__") == "__main__":
        if _RANK_NAMES & {*frame.f_code.co_names}:
            return True
        frame = frame.f_back
    return False
