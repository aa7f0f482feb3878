"""Start a script on several processes of this machine, wait for them, and leave none of them behind.

How a run is put together::

    launch() -> torchrun (its output: torchrun.log) -> a guard per rank -> the script

torchrun does the rendezvous and sets RANK, WORLD_SIZE and the rest. In place of the script it starts, for
each rank, a *guard* (`guard.py`), run with nothing but the standard library: it must neither need nor disturb
the script's environment. The guard connects to ``launch`` through a Unix socket (`ranks.py`) and gets the two
file descriptors that its script shall write to: the console (or what an `Observer` gives in its place) for
rank 0, ``rank<i>.log`` for the others. It tells ``launch`` how and when the script ended, to the millisecond;
torchrun looks only ten times a second and cannot say which rank failed first (`failure.py`). When the
connection breaks, ``launch`` has died, and the guard ends its rank.

Every process of a run carries the variable ``NB2DDP_RUN_ID``, so that those that are left in the end
(data loader workers, programs that the script started) are found in /proc and ended too (`processes.py`).
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

from nb2ddp.errors import LaunchError
from nb2ddp.launch.cell_map import CellMap, read_cell_map
from nb2ddp.launch.command import torchrun_command, torchrun_environment, visible_gpus
from nb2ddp.launch.failure import Failure, describe, ending, log_tail
from nb2ddp.launch.outputs import Outputs, files_written
from nb2ddp.launch.processes import (
    RUN_ID_VARIABLE,
    Process,
    end_processes,
    end_with_parent,
    exit_code,
    processes_of,
    send_signal,
)
from nb2ddp.launch.ranks import TORCHRUN_LOG, Ranks, attempt_logs, clear_logs

GRACE_SECONDS = 10.0
"""How long (seconds) processes that are asked to end may take before they are killed."""

_GUARD = Path(__file__).with_name("guard.py")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Observer(Protocol):
    """Callbacks for a running launch. Called on the launcher's thread; must not block."""

    def begin(self, logs: Path, *, cpu: bool) -> tuple[int, int]:
        """Return the file descriptors for rank 0's stdout and stderr. Called when the run starts."""

    def started(self, rank: int, local_rank: int, pid: int) -> None:
        """A rank starts, or starts again. ``pid``: of its guard, whose child is the script."""

    def ended(self, rank: int, code: int) -> None:
        """A rank's script has ended; ``code`` is negative for a signal."""

    def end(self, stopped: Callable[[], bool]) -> None:
        """All processes have ended. Called whatever happens; ``stopped`` says whether we got a signal."""


def default_log_dir(script: Path) -> Path:
    """Return the folder for the ranks' output when none is given: ``logs`` beside the script."""
    return script.parent / "logs"


def launch(
    script: Path,
    *,
    nproc: int | None,
    cpu: bool,
    log_dir: Path | None,
    setup: Path | None = None,
    torchrun_options: Sequence[str] = (),
    python: str = sys.executable,
    cwd: Path | None = None,
    grace: float = GRACE_SECONDS,
    repeat_trace: bool = False,
    quiet: bool = False,
    observer: Observer | None = None,
) -> int:
    """Run ``script`` on ``nproc`` processes of this machine and wait for them.

    nproc: how many; None: one per visible GPU, or 2 with ``cpu``.
    cpu: hide the GPUs, so that the script takes the CPU and gloo.
    log_dir: gets ``rank1.log`` and so on (stdout and stderr in one file), and ``torchrun.log`` when torchrun
        itself failed. Files of these names from an earlier run are removed first, other files are left
        alone. When torchrun starts the ranks again (--max-restarts), the logs of the attempt that failed are
        moved to ``attempt1``, ``attempt2`` and so on. Default: ``logs`` beside the script. Rank 0 writes to
        our own stdout and stderr.
    setup: a Python file that is run once, first.
    cwd: the working folder of the script; default: the current one.
    grace: seconds from asking the processes to end (or from the first failure) to killing them.
    repeat_trace: show the traceback of a failed rank 0 at the end too, although rank 0 has printed it.
    quiet: of our own sentences print those about failures alone.
    observer: hears how the run goes, and takes rank 0's output in place of our stdout and stderr.

    Returns 0 when all ranks succeed; else the exit code of ``setup`` or of the rank that failed first, with
    128 + n for a signal n. After SIGINT, SIGTERM or SIGHUP to this process all ranks are ended and 128 + n is
    returned (130 for Ctrl-C); a second signal kills them at once. What failed and where the logs are is
    printed on stderr.

    Raises LaunchError when there is nothing to start, or nothing to start it on.
    """
    for path in (script, *([setup] if setup else [])):
        if not path.is_file():
            raise LaunchError(f"There is no file {path}.")
    torchrun_command(script, nproc=1 if nproc is None else nproc, torchrun_options=torchrun_options)
    with _Signals(quiet=quiet) as signals:
        if setup is not None:
            code = _run_setup(setup, python=python, cwd=cwd, signals=signals, grace=grace)
            if code or signals.received:
                return signals.exit_code or code
        if nproc is None:
            nproc = 2 if cpu else visible_gpus(python)
            if signals.received:
                return signals.exit_code
            if nproc == 0:
                raise LaunchError("No GPU is visible here; use --cpu to run on the CPU.")
        logs = default_log_dir(script) if log_dir is None else log_dir
        clear_logs(logs)
        if not quiet:
            _say(f"{_count(nproc)} on the {'CPU' if cpu else 'GPU'}; {_where(nproc, logs)}")
        # The path of a Unix socket has about 100 characters at most.
        short = None if len(tempfile.gettempdir()) < 70 else "/tmp"
        cells = read_cell_map(script)
        since = time.time()
        with (
            tempfile.TemporaryDirectory(prefix="nb2ddp-", dir=short, ignore_cleanup_errors=True) as folder,
            Ranks(Path(folder) / "socket", logs, observer) as ranks,
        ):
            ranks.restarted = lambda attempt: _tell_restart(ranks, attempt, cells)
            command = torchrun_command(
                script.absolute(),
                nproc=nproc,
                torchrun_options=torchrun_options,
                python=python,
                guard=[sys.executable, "-I", "-S", str(_GUARD), str(ranks.address), str(grace)],
                error_dir=Path(folder) / "torchrun",
            )
            environment = torchrun_environment(
                os.environ, nproc=nproc, cpu=cpu, torchrun_options=torchrun_options
            )
            run_id = uuid.uuid4().hex
            with (logs / TORCHRUN_LOG).open("wb") as output, _observed(ranks, signals, cpu=cpu):
                agent = _start(command, environment, run_id, cwd=cwd, output=output.fileno())
                _wait(agent, run_id, signals, grace, ranks)
            if signals.received:
                (logs / TORCHRUN_LOG).unlink(missing_ok=True)
                _say(_stopped(signals.received[0], cwd or Path.cwd(), since, logs))
                return signals.exit_code
            return _verdict(agent.returncode, ranks, cells, alone=nproc == 1, repeat_trace=repeat_trace)


@contextlib.contextmanager
def _observed(ranks: Ranks, signals: _Signals, *, cpu: bool) -> Iterator[None]:
    if ranks.observer is None:
        yield
        return
    try:
        ranks.console = ranks.observer.begin(ranks.log_dir, cpu=cpu)
        yield
    finally:
        ranks.observer.end(lambda: bool(signals.received))


def _run_setup(setup: Path, *, python: str, cwd: Path | None, signals: _Signals, grace: float) -> int:
    run_id = uuid.uuid4().hex
    process = _start([python, "-u", str(setup.absolute())], os.environ, run_id, cwd=cwd, output=None)
    _wait(process, run_id, signals, grace, None)
    code = exit_code(process.returncode)
    if code and not signals.received:
        _say(f"the install step {setup} failed ({ending(process.returncode)})")
    return code


def _start(
    command: Sequence[str],
    environment: Mapping[str, str],
    run_id: str,
    *,
    cwd: Path | None,
    output: int | None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that Ctrl-C in the terminal reaches only us."""
    sys.stdout.flush()
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment, RUN_ID_VARIABLE: run_id},
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent(signal.SIGTERM),
        )
    except OSError as error:
        raise LaunchError(
            f"{command[0]} cannot be started in {cwd or Path.cwd()}: {error.strerror}."
        ) from None


def _wait(
    process: subprocess.Popen[bytes], run_id: str, signals: _Signals, grace: float, ranks: Ranks | None
) -> None:
    """Wait for a process, then end what is left of its run. Pass our signals on; kill after ``grace``."""
    heard = 0
    deadline = math.inf
    known: set[Process] = set()
    try:
        while process.poll() is None:
            if ranks is None:
                time.sleep(0.05)
            else:
                ranks.serve(0.1)
            now = time.monotonic()
            if len(signals.received) > heard:
                if heard == 0:
                    known = processes_of(run_id)  # a descendant may lose its parent, and so be lost to us
                    first = signals.received[0]
                    send_signal(process.pid, signal.SIGINT if first == signal.SIGINT else signal.SIGTERM)
                    if not signals.quiet:
                        _say("stopping all processes; a second signal (Ctrl-C) kills them at once")
                    deadline = min(deadline, now + grace)
                else:
                    deadline = now
                heard = len(signals.received)
            elif deadline == math.inf and ranks is not None and ranks.failed():
                deadline = now + grace
            if now >= deadline:
                if ranks is not None:
                    ranks.killed = min(ranks.killed, time.time())
                end_processes(run_id, grace=0, known=known, groups=[process.pid])
        if ranks is not None:
            ranks.finish()
    finally:
        left = grace if deadline == math.inf else min(grace, deadline - time.monotonic())
        groups = [process.pid, *(rank.pid for rank in ranks.all)] if ranks else [process.pid]
        end_processes(
            run_id, grace=left, known=known, groups=groups, hurry=lambda: len(signals.received) > heard
        )
        process.wait()


class _Signals:
    """Record SIGINT, SIGTERM and SIGHUP instead of ending this process; ignored ones stay ignored (nohup)."""

    def __init__(self, *, quiet: bool) -> None:
        self.received: list[signal.Signals] = []
        self.quiet = quiet
        self._previous: dict[signal.Signals, object] = {}

    @property
    def exit_code(self) -> int:
        return 128 + self.received[0] if self.received else 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in _STOP_SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------
# The last words of a run


def _verdict(agent_code: int, ranks: Ranks, cells: CellMap, *, alone: bool, repeat_trace: bool) -> int:
    """Print how the run failed, if it did, and return its exit code: those of the last attempt."""
    torchrun_log = ranks.log_dir / TORCHRUN_LOG
    if agent_code == 0 and ranks.all:
        torchrun_log.unlink(missing_ok=True)
        return 0
    failure = describe(ranks.of_attempt(ranks.attempt), cells, alone=alone, killed=ranks.killed)
    if failure is None:
        what = f"failed ({ending(agent_code)})" if agent_code else "ended without starting the script"
        _say(f"torchrun itself {what}; its output:", log_tail(torchrun_log))
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
            _say(f"rank {failure.rank.rank} printed last:", failure.trace)
        lines.append(f"all it printed is in {log}")
    elif failure.message and failure.trace and repeat_trace:
        _say("the traceback:", failure.trace)
    else:
        lines.append(f"{'its traceback' if failure.message else 'what it printed'} is above")
    if failure.after:
        lines.append(f"{failure.after} had ended before it, with exit code 0")
    if ranks.attempt:
        kept = ", ".join(str(attempt_logs(ranks.log_dir, number)) for number in range(ranks.attempt))
        lines.append(f"this was attempt {ranks.attempt + 1}, the last; logs of the earlier ones: {kept}")
    lines.append(f"what to do: {failure.advice}")
    _say(failure.headline, "\n".join(f"        {line}" for line in lines))


def _tell_restart(ranks: Ranks, attempt: int, cells: CellMap) -> None:
    """Print how an attempt (from 0) failed, when torchrun starts all ranks again."""
    members = ranks.of_attempt(attempt)
    failure = describe(members, cells, alone=len(members) == 1)
    why = failure.headline if failure else "torchrun starts all ranks again"
    where = f", at {failure.where}" if failure and failure.where else ""
    kept = attempt_logs(ranks.log_dir, attempt)
    logs = f"; logs: {kept}" if kept.is_dir() else ""
    _say(f"attempt {attempt + 1} failed: {why}{where}{logs}; attempt {attempt + 2} starts")


def _stopped(number: signal.Signals, folder: Path, since: float, logs: Path) -> str:
    """Return the line after a signal: what is kept, and how to go on."""
    checkpoint = Outputs(files_written(folder, since, without=logs.absolute())).checkpoint
    if checkpoint is None:
        return f"stopped by {number.name}; no checkpoint was written, so the next run begins at step 0"
    return (
        f"stopped by {number.name}; kept: {checkpoint}; to go on from it: "
        f'trainer.train(resume_from_checkpoint="{checkpoint}")'
    )


def _count(nproc: int) -> str:
    return "1 process" if nproc == 1 else f"{nproc} processes"


def _where(nproc: int, log_dir: Path) -> str:
    if nproc == 1:
        return "nothing is logged to files"
    if nproc == 2:
        return f"rank 1 writes to {log_dir / 'rank1.log'}"
    return f"the other ranks write to {log_dir / 'rank1.log'} to rank{nproc - 1}.log"


def _say(sentence: str, text: str = "") -> None:
    print(f"nb2ddp: {sentence}", *([text] if text else []), sep="\n", file=sys.stderr, flush=True)
