"""The notes of a rehearsed process: a JSON object per line for each event."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

FOLDER = os.environ.get("NB2DDP_REHEARSAL", "")
RANK = int(os.environ.get("NB2DDP_REHEARSAL_RANK", "0"))
SEED = 3407 + RANK
"""Random numbers start the same in the notebook and on rank 0, and not on the others: what depends on them
without a seed of its own is found."""

PLAN: dict[str, Any] = {}
"""The settings of the rehearsal, as `nb2ddp.rehearse.runs` has written them."""

OWNER = "NB2DDP_REHEARSAL_PID"


def begin() -> None:
    """Read the plan; in the first process of a rank, note its start and dump its stack on SIGUSR1."""
    with open(os.path.join(FOLDER, "plan.json"), encoding="utf-8") as file:
        PLAN.update(json.load(file))
    if os.environ.setdefault(OWNER, str(os.getpid())) == str(os.getpid()):
        stacks = os.open(os.path.join(FOLDER, f"stack-{RANK}.txt"), os.O_WRONLY | os.O_CREAT)
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        note("start", pid=os.getpid())


def is_rank() -> bool:
    """Return whether this process is a rank itself, not one that a rank has started."""
    return os.environ.get(OWNER) == str(os.getpid())


def note(kind: str, **values: Any) -> None:
    """Append one event, in a single write: lines of several threads and processes stay whole."""
    line = json.dumps({"kind": kind, "time": time.time(), **values}, default=str) + "\n"
    file = os.open(os.path.join(FOLDER, f"notes-{RANK}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def replaced(what: str, by: str, why: str = "") -> None:
    """Note what is replaced, by what, and why."""
    note("replaced", what=what, by=by, why=why)


def line_of_script() -> int | None:
    """Return the line of the script that this call comes from, through whatever modules."""
    frame: FrameType | None = sys._getframe(1)
    script = PLAN.get("script")
    while frame is not None:
        if frame.f_code.co_filename == script:
            return frame.f_lineno
        frame = frame.f_back
    return None


def runtime() -> Any:
    """Return the state of a converted script's runtime module, or of its text in the script; None in other scripts."""
    return getattr(sys.modules.get("ddp_support") or sys.modules.get("__main__"), "_run", None)


def called_by_script(depth: int = 2) -> bool:
    """Return whether the function that asks was called by the script or a module beside it, not a library."""
    return beside_script(sys._getframe(depth).f_code.co_filename)


def beside_script(path: str | None) -> bool:
    """Return whether a file is the script or a module of its own folder, such as its runtime."""
    script = PLAN.get("script")
    return path is not None and script is not None and os.path.dirname(path) == os.path.dirname(script)
