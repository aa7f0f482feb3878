"""Print how a run ended: the first failure, the restarts, or what is kept after Ctrl-C."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from nb2ddp.launch.cell_map import CellMap
from nb2ddp.launch.failure import Failure, describe, ending, log_tail
from nb2ddp.launch.outputs import Outputs, files_written
from nb2ddp.launch.processes import exit_code
from nb2ddp.launch.ranks import TORCHRUN_LOG, Ranks, attempt_logs
from nb2ddp.plain_text import terminal_safe


def tell_verdict(agent_code: int, ranks: Ranks, cells: CellMap, *, alone: bool, repeat_trace: bool) -> int:
    """Print how the run failed, if it did, and return its exit code: those of the last attempt."""
    torchrun_log = ranks.log_dir / TORCHRUN_LOG
    if agent_code == 0 and ranks.all:
        torchrun_log.unlink(missing_ok=True)
        return 0
    failure = describe(ranks.of_attempt(ranks.attempt), cells, alone=alone, killed=ranks.killed)
    if failure is None:
        what = f"failed ({ending(agent_code)})" if agent_code else "ended without starting the script"
        say(f"torchrun itself {what}; its output:", log_tail(torchrun_log))
        return exit_code(agent_code) or 1
    torchrun_log.unlink(missing_ok=True)  # it only says that some process ended
    _tell_failure(failure, ranks, repeat_trace=repeat_trace)
    return failure.exit_code


def _tell_failure(failure: Failure, ranks: Ranks, *, repeat_trace: bool) -> None:
    """Print the traceback, unless it stands above, and then the rank, the cell and line, and what to do."""
    log, lines = failure.rank.log, []
    if failure.where is not None:
        lines.append(f"at {failure.where}")
    if log is not None:
        if failure.trace:
            say(f"rank {failure.rank.rank} printed last:", failure.trace)
            lines.append(f"all it printed is in {log}")
        else:
            lines.append("it has printed nothing")
    elif failure.message and failure.trace and repeat_trace:
        say("the traceback:", failure.trace)
    else:
        lines.append(f"{'its traceback' if failure.message else 'what it printed'} is above")
    if failure.after:
        lines.append(f"{failure.after} had ended before it, with exit code 0")
    if ranks.attempt:
        kept = ", ".join(str(attempt_logs(ranks.log_dir, number)) for number in range(ranks.attempt))
        lines.append(f"this was attempt {ranks.attempt + 1}, the last; logs of the earlier ones: {kept}")
    lines.append(f"what to do: {failure.advice}")
    say(failure.headline, "\n".join(f"        {line}" for line in lines))


def tell_restart(ranks: Ranks, attempt: int, cells: CellMap) -> None:
    """Print how an attempt (from 0) failed, when torchrun starts all ranks again."""
    members = ranks.of_attempt(attempt)
    failure = describe(members, cells, alone=len(members) == 1)
    why = failure.headline if failure else "torchrun starts all ranks again"
    where = f", at {failure.where}" if failure and failure.where else ""
    kept = attempt_logs(ranks.log_dir, attempt)
    logs = f"; logs: {kept}" if kept.is_dir() else ""
    say(f"attempt {attempt + 1} failed: {why}{where}{logs}; attempt {attempt + 2} starts")


def stopped_sentence(
    number: signal.Signals, folder: Path, since: float, logs: Path, resume: str | None
) -> str:
    """Return the line after a signal: what is kept, and the command that goes on (None: there is none)."""
    checkpoint = Outputs(files_written(folder, since, without=[logs.absolute()])).checkpoint
    if checkpoint is None:
        return f"stopped by {number.name}; no checkpoint was written, so the next run begins at step 0"
    how = f"; to go on from it: {resume}" if resume else ""
    return f"stopped by {number.name}; kept: {checkpoint}{how}"


def say(sentence: str, text: str = "") -> None:
    """Print one of our sentences on stderr, and text below it."""
    lines = [f"nb2ddp: {sentence}", *([text] if text else [])]
    # the line that says what is waited for may stand there; a display keeps its lines by itself
    clear = "\r\x1b[K" if sys.stderr.isatty() and sys.stderr is sys.__stderr__ else ""
    print(f"{clear}{terminal_safe(chr(10).join(lines))}", file=sys.stderr, flush=True)
