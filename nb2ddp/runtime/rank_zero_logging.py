"""Let the notebook's own code log on rank 0 alone, where a Trainer's log() is for all ranks."""

import sys
from types import FrameType
from typing import Any

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.script_location import _place

_RANK_NAMES = frozenset(
    "is_world_process_zero is_local_process_zero is_main_process is_local_main_process get_rank "
    "get_node_local_rank process_index local_process_index should_log should_save".split()
)
_SCRIPT_NAMES = frozenset({"rank", "local_rank"})  # which every script has in its first lines


def _log_on_one_rank(trainer: Any) -> None:
    """Let code that asks for its rank call ``trainer.log()``: the other ranks may not come. No rank waits.

    Such a call logs what it is given. The figures that the Trainer has noted, which all ranks average together, and
    its decision to log after this step are kept for the Trainer's own next log.
    """
    log = trainer.log
    if getattr(log, "_knows_ranks", False):
        return
    notes = getattr(trainer, "_metrics", getattr(trainer, "_stored_metrics", {}))  # TRL's
    said: set[str] = set()

    def log_of_one(*args: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        if not _run.alone and (not _run.meets or not _asks_for_rank(frame)):
            return log(*args, **options)
        place = _place(frame)
        if place not in said:
            said.add(place)
            print(
                f"nb2ddp: log() at {place} is called from code that asks for its rank: it logs its own values only; "
                "the Trainer's averages come with its next log"
            )
        kept, logs_later = (
            {mode: dict(figures) for mode, figures in notes.items()},
            trainer.control.should_log,
        )
        for figures in notes.values():
            figures.clear()
        try:
            return log(*args, **options)
        finally:
            for mode, figures in kept.items():
                notes[mode].update(figures)
            trainer.control.should_log = logs_later

    log_of_one._knows_ranks = True  # type: ignore[attr-defined]
    trainer.log = log_of_one


def _asks_for_rank(frame: FrameType | None) -> bool:
    """Return whether a call comes from code of the notebook that asks which rank it is."""
    while frame is not None and frame.f_globals.get("__name__") == "__main__":
        code = frame.f_code
        names = _RANK_NAMES if code.co_name == "<module>" else _RANK_NAMES | _SCRIPT_NAMES
        if names & {*code.co_names} or {"RANK", "LOCAL_RANK"} & {*code.co_consts}:
            return True
        frame = frame.f_back
    return False
