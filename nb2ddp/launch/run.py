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
import importlib.util
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
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from nb2ddp.ddp_folder import LOGS, SETUP
from nb2ddp.errors import LaunchError
from nb2ddp.launch import processes
from nb2ddp.launch.cell_map import read_cell_map
from nb2ddp.launch.command import (
    takes_several_hosts,
    torchrun_command,
    torchrun_environment,
    visible_gpus,
)
from nb2ddp.launch.failure import ending, say, stopped_sentence, tell_restart, tell_verdict
from nb2ddp.launch.ranks import TORCHRUN_LOG, Ranks, clear_logs, held_logs
from nb2ddp.waiting import waiting

GRACE_SECONDS = 10.0
"""How long (seconds) processes that are asked to end may take before they are killed."""

_GUARD = Path(__file__).with_name("guard.py")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Observer(Protocol):
    """Callbacks for a running launch. Called on the launcher's thread; must not block."""

    def install(self) -> contextlib.AbstractContextManager[tuple[int, int]]:
        """Give the file descriptors for stdout and stderr of the install step, while it runs."""

    def begin(self, logs: Path, *, cpu: bool, stopped: Callable[[], bool]) -> tuple[int, int]:
        """Return the file descriptors for rank 0's stdout and stderr. Called when the run starts.

        ``stopped`` says whether we got a signal since.
        """

    def started(self, rank: int, local_rank: int, pid: int) -> None:
        """Note that a rank starts, or starts again. ``pid``: of its guard, whose child is the script."""

    def ended(self, rank: int, code: int) -> None:
        """Note that a rank's script has ended; ``code`` is negative for a signal."""

    def end(self) -> None:
        """Note that all processes have ended. Called whatever happens."""


def default_log_dir(script: Path) -> Path:
    """Return the folder for the ranks' output when none is given: ``logs`` beside the script."""
    return script.parent / LOGS


def refuse_beside_another(logs: Path, torchrun_options: Sequence[str]) -> None:
    """Raise LaunchError where another run writes its logs here: told before a notebook is converted for nothing."""
    try:
        if not logs.is_dir():
            return
    except OSError:  # a name that is too long, say: what reads the target says so
        return
    with held_logs(logs, shared=takes_several_hosts(torchrun_options)):
        pass


@dataclass(frozen=True)
class Launch:
    """A script, and how it is to run on several processes of this machine.

    nproc: how many; None: one per visible GPU, or 2 with ``cpu``.
    cpu: hide the GPUs, so that the script takes the CPU and gloo.
    log_dir: gets ``rank1.log`` and so on (stdout and stderr in one file), and ``torchrun.log`` when torchrun
        itself failed. Files of these names from an earlier run are removed first, other files are left
        alone. When torchrun starts the ranks again (--max-restarts), the logs of the attempt that failed are
        moved to ``attempt1``, ``attempt2`` and so on. Default: ``logs`` beside the script. Rank 0 writes to
        our own stdout and stderr.
    setup: a Python file that is run once, first.
    runner: a Python program that each rank starts with the script as its argument, in place of the script.
    cwd: the working folder of the script, which finds modules in it too; default: the current one.
    grace: seconds from asking the processes to end (or from the first failure) to killing them.
    repeat_trace: show the traceback of a failed rank 0 at the end too, although rank 0 has printed it.
    quiet: of our own sentences print those about failures alone.
    resume: the command that goes on from a checkpoint, for whoever stops the run.
    """

    script: Path
    nproc: int | None
    cpu: bool
    log_dir: Path | None = None
    setup: Path | None = None
    runner: Path | None = None
    torchrun_options: Sequence[str] = ()
    python: str = sys.executable
    cwd: Path | None = None
    grace: float = GRACE_SECONDS
    repeat_trace: bool = False
    quiet: bool = False
    resume: str | None = None

    @property
    def logs(self) -> Path:
        """The folder for the ranks' output."""
        return default_log_dir(self.script) if self.log_dir is None else self.log_dir


def launch(plan: Launch, observer: Observer | None = None) -> int:
    """Run a script on several processes of this machine and wait for them.

    observer: hears how the run goes, and takes rank 0's output in place of our stdout and stderr.

    Returns 0 when all ranks succeed; else the exit code of ``setup`` or of the rank that failed first, with
    128 + n for a signal n. After SIGINT, SIGTERM or SIGHUP to this process all ranks are ended and 128 + n is
    returned (130 for Ctrl-C); a second signal kills them at once. What failed and where the logs are is
    printed on stderr.

    Raises LaunchError when there is nothing to start, or nothing to start it on.
    """
    script, setup, nproc, python = plan.script, plan.setup, plan.nproc, plan.python
    for path in (script, *([setup] if setup else [])):
        if not path.is_file():
            raise LaunchError(f"There is no file {path}.")
    torchrun_command(script, nproc=1 if nproc is None else nproc, torchrun_options=plan.torchrun_options)
    with _Signals(quiet=plan.quiet) as signals:
        if setup is not None:
            follow = observer.install() if observer else contextlib.nullcontext((1, 2))
            with follow as output:
                run_id, command = uuid.uuid4().hex, [python, "-u", str(setup.absolute())]
                process = _start(command, os.environ, run_id, cwd=plan.cwd, output=output)
                _wait(process, run_id, signals, plan.grace, None)
            if process.returncode and not signals.received:
                say(f"the install step {setup} failed ({ending(process.returncode)})")
            code = processes.exit_code(process.returncode)
            if code or signals.received:
                return signals.exit_code or code
        _require_torch(python, script)
        if nproc is None:
            what = "starting Python with torch, to count the GPUs"
            with waiting(what) if observer and not plan.quiet else contextlib.nullcontext():
                nproc = 2 if plan.cpu else visible_gpus(python, lambda: bool(signals.received))
            if signals.received:
                say("interrupted; nothing was started")
                return signals.exit_code
            if nproc == 0:
                raise LaunchError("No GPU is visible here; use --cpu to run on the CPU.")
        with held_logs(plan.logs, shared=takes_several_hosts(plan.torchrun_options)):
            return _train(plan, nproc, signals, observer)


def _require_torch(python: str, script: Path) -> None:
    """Raise LaunchError where this Python has no torch; of another one torchrun's own words are shown."""
    importlib.invalidate_caches()  # the install step may have brought it
    if python != sys.executable or importlib.util.find_spec("torch") is not None:
        return
    step = f"`nb2ddp run {script.parent} --setup` runs the notebook's own installs first; else " * (
        script.with_name(SETUP).is_file()
    )
    raise LaunchError(
        f"PyTorch is not installed for {python}, and the script trains with it: {step}`pip install torch` there, or "
        "install nb2ddp into the environment that trains."
    )


def _train(plan: Launch, nproc: int, signals: _Signals, observer: Observer | None) -> int:
    """Start torchrun, wait for all processes, print how the run failed, and return its exit code."""
    logs = plan.logs
    clear_logs(logs)
    if not signals.quiet:
        count = f"{nproc} process{'es' * (nproc > 1)}"
        say(f"{count} on the {'CPU' if plan.cpu else 'GPU'}; {_where(nproc, logs)}")
    # The path of a Unix socket has about 100 characters at most.
    short = None if len(tempfile.gettempdir()) < 70 else "/tmp"
    cells = read_cell_map(plan.script)
    since = time.time()
    with (
        tempfile.TemporaryDirectory(prefix="nb2ddp-", dir=short, ignore_cleanup_errors=True) as folder,
        Ranks(Path(folder) / "socket", logs, observer) as ranks,
    ):
        ranks.restarted = lambda attempt: tell_restart(ranks, attempt, cells)
        command = torchrun_command(
            plan.script.absolute(),
            nproc=nproc,
            torchrun_options=plan.torchrun_options,
            python=plan.python,
            guard=[sys.executable, "-I", "-S", str(_GUARD), str(ranks.address), str(plan.grace)],
            error_dir=Path(folder) / "torchrun",
            runner=plan.runner.absolute() if plan.runner else None,
        )
        environment = torchrun_environment(
            os.environ, nproc=nproc, cpu=plan.cpu, torchrun_options=plan.torchrun_options
        )
        environment["NB2DDP_SCRATCH"] = folder  # goes with it what a rank that was killed has left
        run_id = uuid.uuid4().hex
        with (logs / TORCHRUN_LOG).open("wb") as output, _observed(ranks, signals, cpu=plan.cpu):
            log = output.fileno()
            agent = _start(command, environment, run_id, cwd=plan.cwd, output=(log, log))
            _wait(agent, run_id, signals, plan.grace, ranks)
        if signals.received:
            (logs / TORCHRUN_LOG).unlink(missing_ok=True)
            say(stopped_sentence(signals.received[0], plan.cwd or Path.cwd(), since, logs, plan.resume))
            return signals.exit_code
        alone = nproc == 1
        return tell_verdict(agent.returncode, ranks, cells, alone=alone, repeat_trace=plan.repeat_trace)


@contextlib.contextmanager
def _observed(ranks: Ranks, signals: _Signals, *, cpu: bool) -> Iterator[None]:
    if ranks.observer is None:
        yield
        return
    try:
        ranks.console = ranks.observer.begin(ranks.log_dir, cpu=cpu, stopped=lambda: bool(signals.received))
        yield
    finally:
        ranks.observer.end()


def _start(
    command: Sequence[str],
    environment: Mapping[str, str],
    run_id: str,
    *,
    cwd: Path | None,
    output: tuple[int, int],
) -> subprocess.Popen[bytes]:
    sys.stdout.flush()
    try:
        return processes.start(command, environment, run_id, output, cwd=cwd, stdin=None)
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
    known: set[processes.Process] = set()
    try:
        while process.poll() is None:
            if ranks is None:
                time.sleep(0.05)
            else:
                ranks.serve(0.1)
            now = time.monotonic()
            if len(signals.received) > heard:
                if heard == 0:
                    # a descendant may lose its parent, and so be lost to us
                    known = processes.processes_of(run_id)
                    is_interrupt = signals.received[0] == signal.SIGINT
                    processes.send_signal(process.pid, signal.SIGINT if is_interrupt else signal.SIGTERM)
                    if not signals.quiet:
                        say("stopping all processes; a second signal (Ctrl-C) kills them at once")
                    deadline = min(deadline, now + grace)
                else:
                    deadline = now
                heard = len(signals.received)
            elif deadline == math.inf and ranks is not None and ranks.failed():
                deadline = now + grace
            if now >= deadline:
                if ranks is not None:
                    ranks.killed = min(ranks.killed, time.time())
                processes.end_processes(run_id, grace=0, known=known, groups=[process.pid])
        if ranks is not None:
            ranks.finish()
    finally:
        left = grace if deadline == math.inf else min(grace, deadline - time.monotonic())
        groups = [process.pid, *(rank.pid for rank in ranks.all)] if ranks else [process.pid]
        processes.end_processes(
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


def _where(nproc: int, log_dir: Path) -> str:
    if nproc == 1:
        return "nothing is logged to files"
    if log_dir.is_relative_to(Path.cwd()):
        log_dir = log_dir.relative_to(Path.cwd())
    if nproc == 2:
        return f"rank 1 writes to {log_dir / 'rank1.log'}"
    return f"the other ranks write to {log_dir / 'rank1.log'} to rank{nproc - 1}.log"
