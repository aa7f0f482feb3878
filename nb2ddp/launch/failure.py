"""Which rank failed first, why, and what to do about it; and how that, or what is kept after Ctrl-C, is printed.

When one rank of a DDP run fails, the others fail too: their connections to it break, and torchrun sends them
SIGTERM. These consequences may be *reported* before the cause (a rank that is killed cannot report at all),
so ranks are compared by kind of ending first and by time only then.
"""

from __future__ import annotations

import enum
import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nb2ddp.ddp_folder import SETUP
from nb2ddp.launch.cell_map import CellMap, CellPlace
from nb2ddp.launch.outputs import Outputs, files_written
from nb2ddp.launch.processes import exit_code
from nb2ddp.launch.ranks import TORCHRUN_LOG, Rank, Ranks, attempt_logs
from nb2ddp.plain_text import terminal_safe

_CLOCK_TICK = 0.01  # the time stamp of a file may lie this much (seconds) in the past
_TRACEBACK = re.compile(r"(?:\[rank\d+\]: )?Traceback \(most recent call last\)")  # torch adds the rank
_ENDED = "RuntimeError: the run was ended: "  # what begins the sentence that a rank's watchdog records
_TAIL_LINES = 30
_TAIL_BYTES = 65536

_SIGNAL_HINTS = {
    "SIGKILL": "often because the machine ran out of memory",
    "SIGTERM": "by another program, or by who owns the machine",
    "SIGBUS": "often because /dev/shm is too small for the data loader workers",
    "SIGABRT": "native code gave up; with NCCL often because a collective timed out",
    "SIGSEGV": "a crash in native code",
}

# What a rank says when another one is gone: gloo, NCCL, the TCPStore, and what stands on them.
_LOST_ANOTHER_RANK = re.compile(
    r"""connection \s (?: was \s )? (?: reset | closed | refused | aborted )
    | \b (?: ConnectionReset | BrokenPipe | ConnectionAborted | ConnectionRefused ) Error
    | broken \s pipe
    | ncclRemoteError | ncclSystemError | remote \s process \s exited
    | DistNetworkError | DistStoreError | TCPStore | store \s is \s gone
    | socket \s timeout | \b timed? [ -]? out \b .* \b (?: rank | store | barrier | recv | send | collective )
    | (?: gloo | collective | barrier | store | ProcessGroup ) .* \b timed? [ -]? out
    | application \s timeout \s caused \s pair \s closure
    | failed \s to \s recv
    | rank \s \d+ \s (?: \(step \s \d+\) \s )? (?: has \s )?
      (?: ended | finished | failed | exited | died | is \s gone | left | raised .* while \s rank )
    | (?: another | other ) \s rank s? \b .* \b (?: ended | failed | exited | died | gone )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_WAS_TOLD_TO_END = re.compile(r"SignalException|got signal: ?15|\bSIGTERM\b")

_ADVICE = (
    (
        r"(?<!OutOf)MemoryError|DefaultCPUAllocator|Cannot allocate memory",
        "each rank holds in this machine's memory as much as the notebook alone: read the data piece by piece (a "
        "memory-mapped data set, say), or start fewer processes (--nproc)",
    ),
    (
        r"out ?of ?memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED",
        "halve per_device_train_batch_size and double gradient_accumulation_steps (the same batch), shorten "
        "max_seq_length, or end what else uses the GPU (nvidia-smi)",
    ),
    (
        r"No module named '(?:kaggle_secrets|google\.colab)",
        "the service whose secrets it reads is not here: read os.environ['NAME'] instead; a kernel that `nb2ddp push` "
        "sends to Kaggle sets it from Kaggle's secrets",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "install what is missing{setup}; modules of your own are found in the working folder, so start the run where "
        "the notebook lies",
    ),
    (
        r"mark a variable ready only once|did not receive grad|Expected to have finished reduction",
        "DDP saw a parameter with no gradient, or with two, in one step: freeze parameters that the step does not use, "
        "or do not call backward() twice through them",
    ),
    (r"No space left on device", "free some disk, or write the outputs elsewhere"),
    (r"401 Client Error|GatedRepoError|403 Client Error", "sign in to Hugging Face: `hf auth login`"),
)


class Role(enum.IntEnum):
    """What an ending is in its run; a cause outranks the others."""

    CAUSE = 0
    CONSEQUENCE = 1
    """It lost its connection to a rank that is gone, or waited for it in vain."""
    ENDED = 2
    """torchrun or the launcher has ended it."""


def role(rank: Rank, killed: float = math.inf) -> Role:
    """Return what the ending of a failed rank is. ``killed``: when the launcher killed what was left."""
    recorded, _ = recorded_exception(rank.error_file)
    if not recorded:  # with an exception that it has recorded, it may hang at its exit and be ended there
        if rank.code is None or rank.code == -signal.SIGKILL:
            return Role.ENDED if rank.ended >= killed else Role.CAUSE
        if rank.code in (-signal.SIGTERM, -signal.SIGINT, exit_code(-signal.SIGTERM)):
            return Role.ENDED
        if rank.code == -signal.SIGABRT:  # NCCL's watchdog, or gloo's threads at exit
            return Role.CONSEQUENCE
    said = recorded or last_words(rank)
    if _WAS_TOLD_TO_END.search(said):
        return Role.ENDED
    if said.startswith(_ENDED):
        return Role.CAUSE
    return Role.CONSEQUENCE if _LOST_ANOTHER_RANK.search(said) else Role.CAUSE


def first_failure(ranks: Iterable[Rank], killed: float = math.inf) -> Rank | None:
    """Return the rank whose failure made the others fail, or None when none failed.

    Causes come before all others; among equals the earliest counts, for torchrun and the launcher end ranks once one
    has failed: who was ended before was ended by somebody else. A rank fails when it records its exception or when its
    process ends. Of a run that was restarted only the last attempt counts.
    """
    ranks = list(ranks)
    last = max((rank.attempt for rank in ranks), default=0)
    failed = [rank for rank in ranks if rank.attempt == last and rank.code != 0 and rank.ended < math.inf]

    def order(rank: Rank) -> tuple[bool, float]:
        return role(rank, killed) is not Role.CAUSE, _failed_at(rank)

    return min(failed, key=order, default=None)


def _failed_at(rank: Rank) -> float:
    try:
        return min(rank.ended, os.stat(rank.error_file).st_mtime + _CLOCK_TICK)
    except OSError:
        return rank.ended


def last_words(rank: Rank) -> str:
    """Return the exception that a rank recorded, else the end of its log; empty when there is neither."""
    message, _ = recorded_exception(rank.error_file)
    if message is not None or rank.log is None:
        return message or ""
    lines = [line for line in log_tail(rank.log).splitlines() if line.strip()]
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class Failure:
    """The first failure of an attempt, as it is told.

    ``alone``: world_size is 1. ``place``: the line of ``script``, and the cell. ``after``: the ranks that had
    ended with success when this one lost its connection to them. ``alike``: how many ranks failed in the same way.
    ``lost``: rank 0 may have shown that it lost its connection to this rank.
    """

    rank: Rank
    alone: bool
    message: str | None
    trace: str
    script: Path
    place: tuple[int, CellPlace] | None
    after: str = ""
    alike: int = 1
    lost: bool = False

    @property
    def headline(self) -> str:
        if self.message and self.message.startswith(_ENDED):
            return self.message.splitlines()[0].partition(": ")[2]
        who = "the script" if self.alone else f"rank {self.rank.rank}"
        others = f", and {self.alike - 1} other rank{'s' * (self.alike > 2)} alike"
        first = "" if self.alone else " first" if self.alike == 1 else others
        text = f"{who} failed{first} ({ending(self.rank.code, self.message is not None)})"
        # a MemoryError often has no words
        return f"{text}: {self.message.splitlines()[0].removesuffix(': ')}" if self.message else text

    @property
    def where(self) -> str | None:
        """The cell and the line; None where the traceback has no frame of a cell."""
        return None if self.place is None else f"{self.place[1]} ({self.script.name}, line {self.place[0]})"

    @property
    def exit_code(self) -> int:
        code = self.rank.code
        if code is None or (code < 0 and self.message is not None):
            return 1
        return exit_code(code)

    @property
    def advice(self) -> str:
        said = self.message or last_words(self.rank)
        if said.startswith(_ENDED):
            return "look at the lines of the notebook that are named: what is waited for there does not come"
        for pattern, sentence in _ADVICE:
            if re.search(pattern, said, re.IGNORECASE):
                has_setup = self.script.with_name(SETUP).is_file()
                return sentence.format(setup=" (--setup runs the notebook's own installs)" * has_setup)
        if (self.rank.code is None or self.rank.code < 0) and self.message is None:
            return (
                "`nb2ddp doctor` looks at memory (each rank takes as much as the notebook alone), /dev/shm and the "
                "GPUs of this machine"
            )
        if self.after:
            return "look at the log of the rank that had ended: the others still needed it"
        if self.message is None and 1 < (self.rank.code or 0) < 128:
            return "the script itself ended with this code: look for exit(), SystemExit or os._exit() in the notebook"
        place = f"{self.place[1]} of the notebook" if self.place else "the notebook"
        return f"fix {place} and run again"


def describe(
    ranks: Iterable[Rank], cells: CellMap, *, alone: bool, killed: float = math.inf
) -> Failure | None:
    """Return the first failure of the last attempt; None when no rank failed. ``alone``: world_size is 1."""
    ranks = list(ranks)
    rank = first_failure(ranks, killed)
    if rank is None:
        return None
    members = [of for of in ranks if of.attempt == rank.attempt and of.ended < math.inf]
    alike = [of for of in members if of is rank or _way(of, cells) == _way(rank, cells) != ()]
    rank = next((of for of in alike if of.log is None), rank)  # its traceback stands above
    message, trace = recorded_exception(rank.error_file)
    text = trace or ("" if rank.log is None else log_tail(rank.log))
    lines = text.splitlines()
    place = cells.last(lines)
    after = ""
    console = [role(of, killed) for of in members if of.log is None and of is not rank]
    # it may have been ended before it recorded what it has shown
    lost = Role.CONSEQUENCE in console or (message is None and Role.ENDED in console)
    if role(rank, killed) is Role.CONSEQUENCE:
        gone = [of for of in members if of.code == 0 and of.ended < _failed_at(rank)]
        after = ", ".join(f"rank {other.rank}" for other in gone)
    trace = "\n".join(cells.annotate(lines))
    return Failure(rank, alone, message, trace, cells.script, place, after, len(alike), lost)


def _way(rank: Rank, cells: CellMap) -> tuple[object, ...]:
    """Return what ranks have in common that failed by the same cause; () where it is not known."""
    message, trace = recorded_exception(rank.error_file)
    if message is None:
        return (rank.code,) if 1 < (rank.code or 0) < 128 else ()
    return message, cells.last(trace.splitlines())


def recorded_exception(error_file: str) -> tuple[str | None, str]:
    """Return the message and the traceback that a rank left in its error.json.

    The message is None when there is no such file; the traceback is empty when it was not recorded
    (torch writes "NoneType: None" when it is called outside an except block).
    """
    try:
        message = json.loads(Path(error_file).read_text(encoding="utf-8"))["message"]
        if not isinstance(message, dict):
            return str(message), ""
        trace = str(message.get("extraInfo", {}).get("py_callstack", ""))
        return str(message.get("message", "")), trace.rstrip() if "Traceback" in trace else ""
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None, ""


def log_tail(path: Path) -> str:
    """Return the last 30 lines of a log; more when the last traceback in it is longer. Empty without a log.

    Of a line that was overwritten with carriage returns (a progress bar) only the last state is kept.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.rstrip().split("\n")]
    start = max(0, len(lines) - _TAIL_LINES)
    traces = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    return "\n".join(lines[min([start, *traces[-1:]]) :])


def ending(code: int | None, recorded: bool = False) -> str:
    """Return how a process ended: "exit code 3", "ended by SIGBUS, often because ..."; None: killed."""
    if code is None:
        return "killed"
    if code >= 0:
        return f"exit code {code}"
    if recorded:
        return "an exception"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = _SIGNAL_HINTS.get(name)
    return f"ended by {name}, {hint}" if hint else f"ended by {name}"


# ---- what is printed ----------------------------------------------------------------------------------------


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
    if failure.lost:
        lines.append("an error that rank 0 shows above is a consequence of this")
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
        return f"stopped by {number.name}; there is no checkpoint of this run that nb2ddp could go on from"
    how = f"; to go on from it: {resume}" if resume else ""
    return f"stopped by {number.name}; kept: {checkpoint}{how}"


def say(sentence: str, text: str = "") -> None:
    """Print one of our sentences on stderr, and text below it."""
    lines = [f"nb2ddp: {sentence}", *([text] if text else [])]
    # the line that says what is waited for may stand there; a display keeps its lines by itself
    clear = "\r\x1b[K" if sys.stderr.isatty() and sys.stderr is sys.__stderr__ else ""
    print(f"{clear}{terminal_safe(chr(10).join(lines))}", file=sys.stderr, flush=True)
