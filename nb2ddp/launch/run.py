"""Start a script on several processes of this machine, and leave none of them behind.

How a run is put together::

    launch() -> torchrun (its output: torchrun.log) -> a guard per rank -> the script

torchrun does the rendezvous and sets RANK, WORLD_SIZE and the rest. In place of the script it starts,
for each rank, a *guard*: this very file, run with nothing but the standard library. The guard connects to
``launch`` through a Unix socket and gets the two file descriptors that its script shall write to: the
console (or what an `Observer` gives in its place) for rank 0, ``rank<i>.log`` for the others. It tells
``launch`` how and when the script ended, to the millisecond; torchrun looks only ten times a second and
cannot say which rank failed first. When the connection breaks, ``launch`` has died, and the guard ends its
rank.

Every process of a run carries the variable ``NB2DDP_RUN_ID``, so that those that are left in the end
(data loader workers, programs that the script started) are found in /proc and ended too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn, Protocol

GRACE_SECONDS = 10.0
"""How long (seconds) processes that are asked to end may take before they are killed."""

RUN_ID_VARIABLE = "NB2DDP_RUN_ID"

LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK".split()
)
"""What torchrun sets for each rank."""

_PROC = Path("/proc")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# torchrun sends these to a rank's whole process group: the script is to act on them, the guard is not.
_GROUP_SIGNALS = (*_STOP_SIGNALS, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_GIVE_UP_SECONDS = 5.0  # a process in an uninterruptible system call does not even end on SIGKILL
_CLOCK_TICK = 0.01  # the time stamp of a file may lie this much (seconds) in the past
_TAIL_LINES = 30
_TAIL_BYTES = 65536

_SIGNAL_HINTS = {
    "SIGKILL": "often because the machine ran out of memory",
    "SIGBUS": "often because /dev/shm is too small for the data loader workers",
    "SIGABRT": "native code gave up; with NCCL often because a collective timed out",
    "SIGSEGV": "a crash in native code",
}

_OUTPUT_REASON = "nb2ddp writes the output of the ranks; its folder is set with --log-dir before the --"
_START_REASON = "the script is started as a file, with Python"
_REFUSED_OPTIONS = {
    "--nproc-per-node": "the number of processes is set with --nproc before the --",
    "--log-dir": _OUTPUT_REASON,
    "--redirects": _OUTPUT_REASON,
    "--tee": _OUTPUT_REASON,
    "--local-ranks-filter": _OUTPUT_REASON,
    "--logs-specs": _OUTPUT_REASON,
    "--duplicate-stdout-filters": _OUTPUT_REASON,
    "--duplicate-stderr-filters": _OUTPUT_REASON,
    "--module": _START_REASON,
    "--no-python": _START_REASON,
    "--run-path": _START_REASON,
}
_REFUSED_SHORT = {"-r": "--redirects", "-t": "--tee", "-m": "--module"}
_RENDEZVOUS_OPTIONS = ("--nnodes", "--node-rank", "--rdzv-", "--master-")


def _fail(sentence: str) -> NoReturn:
    # Imported here: a guard runs this file alone, without the package.
    from nb2ddp.errors import LaunchError

    raise LaunchError(sentence)


# ---------------------------------------------------------------------------------------------------------
# What would be run


def torchrun_command(
    script: Path,
    *,
    nproc: int,
    torchrun_options: Sequence[str] = (),
    python: str = sys.executable,
    guard: Sequence[str] = (),
    error_dir: Path | None = None,
) -> list[str]:
    """The command that starts ``script`` on ``nproc`` processes.

    Without ``guard`` and ``error_dir`` this is what one would type by hand. ``guard`` is a command that
    torchrun starts for each rank in place of Python, with Python's command line behind it. ``error_dir``
    is where torchrun keeps the folders with the ranks' error.json. ``--standalone`` is left out when
    ``torchrun_options`` set the rendezvous themselves (several machines).

    Raises LaunchError for ``nproc`` below 1 and for options that would change what nb2ddp itself sets.
    """
    if nproc < 1:
        _fail(f"The number of processes must be at least 1, not {nproc}.")
    names = [option.split("=")[0].replace("_", "-") for option in torchrun_options]
    for option, name in zip(torchrun_options, names, strict=True):
        reason = _refusal(name)
        if reason:
            _fail(f"The torchrun option {option} cannot be used here: {reason}.")
    command = [python, "-m", "torch.distributed.run"]
    if not any(name.startswith(_RENDEZVOUS_OPTIONS) for name in names):
        command.append("--standalone")
    command.append(f"--nproc_per_node={nproc}")
    if error_dir is not None:
        command.append(f"--log-dir={error_dir}")
    command += torchrun_options
    if not guard:
        return [*command, str(script)]
    # torchrun fills in ${local_rank} in what it starts; a dollar in a path has to be doubled.
    started = [argument.replace("$", "$$") for argument in (*guard, python, "-u", str(script))]
    return [*command, "--no-python", *started]


def _refusal(name: str) -> str | None:
    if name.startswith("--"):  # torchrun takes shortened names too
        matches = [reason for option, reason in _REFUSED_OPTIONS.items() if option.startswith(name)]
        return matches[0] if matches and len(name) > 4 else None
    return _REFUSED_OPTIONS.get(_REFUSED_SHORT.get(name[:2], ""))


def torchrun_environment(
    base: Mapping[str, str], *, nproc: int, cpu: bool, cores: int | None = None
) -> dict[str, str]:
    """The environment to run torchrun in, made from ``base`` (normally ``os.environ``).

    Shares ``cores`` (default: the CPU cores this process may use) among the processes through
    OMP_NUM_THREADS, unless ``base`` sets it. ``cpu`` hides the GPUs. Output is unbuffered.
    """
    environment = {**base, "PYTHONUNBUFFERED": "1"}
    if cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // nproc)))
    return environment


def default_log_dir(script: Path) -> Path:
    """The folder for the ranks' output when none is given: ``logs`` beside the script."""
    return script.parent / "logs"


def visible_gpus(python: str = sys.executable) -> int:
    """How many GPUs the torch of ``python`` sees, with CUDA_VISIBLE_DEVICES taken into account.

    Asks in a process of its own, which takes as long as importing torch does (seconds).
    Raises LaunchError when that Python has no working torch.
    """
    command = [python, "-c", "import torch; print(torch.cuda.device_count())"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        _fail(f"Python cannot be started as {python}: {error.strerror}.")
    try:
        return int(answer.stdout.split()[-1])
    except (IndexError, ValueError):
        reason = (answer.stderr.strip() or "no answer").splitlines()[-1]
        _fail(f"{python} cannot import torch, which is needed to run the script ({reason}).")


# ---------------------------------------------------------------------------------------------------------
# Running it


class Observer(Protocol):
    """Somebody who looks on while a run goes on. Called in its thread, which must not wait long."""

    def begin(self, logs: Path, *, cpu: bool) -> tuple[int, int]:
        """The run starts now. Returns the file descriptors that rank 0 shall write to: stdout and stderr."""

    def started(self, rank: int, local_rank: int, pid: int) -> None:
        """A rank starts, or starts again. ``pid``: of its guard, whose child is the script."""

    def ended(self, rank: int, code: int) -> None:
        """A rank's script has ended; ``code`` is negative for a signal."""

    def end(self, stopped: Callable[[], bool]) -> None:
        """All processes have ended. Called whatever happens; ``stopped`` says whether we got a signal."""


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
    observer: Observer | None = None,
) -> int:
    """Run ``script`` on ``nproc`` processes of this machine and wait for them.

    nproc: how many; None: one per visible GPU, or 2 with ``cpu``.
    cpu: hide the GPUs, so that the script takes the CPU and gloo.
    log_dir: gets ``rank1.log`` and so on (stdout and stderr in one file), and ``torchrun.log`` when torchrun
        itself failed. Files of these names from an earlier run are removed first, other files are left
        alone. Default: ``logs`` beside the script. Rank 0 writes to our own stdout and stderr.
    setup: a Python file that is run once, first.
    cwd: the working folder of the script; default: the current one.
    grace: seconds from asking the processes to end (or from the first failure) to killing them.
    repeat_trace: show the traceback of a failed rank 0 at the end too, although rank 0 has printed it.
    observer: hears how the run goes, and takes rank 0's output in place of our stdout and stderr.

    Returns 0 when all ranks succeed; else the exit code of ``setup`` or of the rank that failed first, with
    128 + n for a signal n. After SIGINT, SIGTERM or SIGHUP to this process all ranks are ended and 128 + n is
    returned (130 for Ctrl-C); a second signal kills them at once. What failed and where the logs are is
    printed on stderr.

    Raises LaunchError when there is nothing to start, or nothing to start it on.
    """
    for path in (script, *([setup] if setup else [])):
        if not path.is_file():
            _fail(f"There is no file {path}.")
    torchrun_command(script, nproc=1 if nproc is None else nproc, torchrun_options=torchrun_options)
    with _Signals() as signals:
        if setup is not None:
            code = _run_setup(setup, python=python, cwd=cwd, signals=signals, grace=grace)
            if code or signals.received:
                return signals.exit_code or code
        if nproc is None:
            nproc = 2 if cpu else visible_gpus(python)
            if signals.received:
                return signals.exit_code
            if nproc == 0:
                _fail("No GPU is visible here; use --cpu to run on the CPU.")
        logs = default_log_dir(script) if log_dir is None else log_dir
        _clear_logs(logs)
        _say(f"{_count(nproc)} on the {'CPU' if cpu else 'GPU'}; {_where(nproc, logs)}")
        # The path of a Unix socket has about 100 characters at most.
        short = None if len(tempfile.gettempdir()) < 70 else "/tmp"
        with (
            tempfile.TemporaryDirectory(prefix="nb2ddp-", dir=short, ignore_cleanup_errors=True) as folder,
            _Run(Path(folder) / "socket", logs, observer) as run,
        ):
            command = torchrun_command(
                script.absolute(),
                nproc=nproc,
                torchrun_options=torchrun_options,
                python=python,
                guard=[sys.executable, "-I", "-S", __file__, str(run.address), str(grace)],
                error_dir=Path(folder) / "torchrun",
            )
            environment = torchrun_environment(os.environ, nproc=nproc, cpu=cpu)
            run_id = uuid.uuid4().hex
            with (logs / "torchrun.log").open("wb") as output, _observed(run, signals, cpu=cpu):
                agent = _start(command, environment, run_id, cwd=cwd, output=output.fileno())
                _wait(agent, run_id, signals, grace, run)
            return _verdict(agent.returncode, run, signals, nproc, repeat_trace)


@contextlib.contextmanager
def _observed(run: _Run, signals: _Signals, *, cpu: bool) -> Iterator[None]:
    if run.observer is None:
        yield
        return
    try:
        run.console = run.observer.begin(run.log_dir, cpu=cpu)
        yield
    finally:
        run.observer.end(lambda: bool(signals.received))


def _run_setup(setup: Path, *, python: str, cwd: Path | None, signals: _Signals, grace: float) -> int:
    run_id = uuid.uuid4().hex
    process = _start([python, "-u", str(setup.absolute())], os.environ, run_id, cwd=cwd, output=None)
    _wait(process, run_id, signals, grace, None)
    code = _exit_code(process.returncode)
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
        _fail(f"{command[0]} cannot be started in {cwd or Path.cwd()}: {error.strerror}.")


def _wait(
    process: subprocess.Popen[bytes], run_id: str, signals: _Signals, grace: float, run: _Run | None
) -> None:
    """Wait for a process, then end what is left of its run. Passes our signals on, and loses patience."""
    heard = 0
    deadline = math.inf
    known: set[_Process] = set()
    try:
        while process.poll() is None:
            if run is None:
                time.sleep(0.05)
            else:
                run.serve(0.1)
            now = time.monotonic()
            if len(signals.received) > heard:
                if heard == 0:
                    known = processes_of(run_id)  # who may hide when its parent ends
                    first = signals.received[0]
                    _send(process.pid, signal.SIGINT if first == signal.SIGINT else signal.SIGTERM)
                    _say("stopping all processes; a second signal (Ctrl-C) kills them at once")
                    deadline = min(deadline, now + grace)
                else:
                    deadline = now
                heard = len(signals.received)
            elif deadline == math.inf and run is not None and run.failed():
                deadline = now + grace
            if now >= deadline:
                end_processes(run_id, grace=0, known=known, groups=[process.pid])
        if run is not None:
            run.finish()
    finally:
        left = grace if deadline == math.inf else min(grace, deadline - time.monotonic())
        groups = [process.pid, *(rank.pid for rank in run.ranks)] if run else [process.pid]
        end_processes(
            run_id, grace=left, known=known, groups=groups, hurry=lambda: len(signals.received) > heard
        )
        process.wait()


class _Signals:
    """Notes SIGINT, SIGTERM and SIGHUP instead of ending this process; ignored ones stay ignored (nohup)."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
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


@dataclass
class _Rank:
    """What the guard of one rank told us.

    ``code`` is negative for a signal. It is None when there is no report: the rank still runs (then ``ended``
    is infinite), or its guard was killed.
    """

    rank: int
    pid: int
    local_rank: int = 0
    attempt: int = 0
    last_attempt: bool = True
    error_file: str = ""
    code: int | None = None
    ended: float = math.inf  # seconds since the epoch


class _Run:
    """Our end of the guards' connections."""

    def __init__(self, address: Path, log_dir: Path, observer: Observer | None = None) -> None:
        self.address = address
        self.log_dir = log_dir
        self.observer = observer
        self.console = (1, 2)
        self.ranks: list[_Rank] = []
        self._connected: dict[socket.socket, _Rank] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> _Run:
        self._listener.bind(str(self.address))
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, bytearray())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._listener.close()

    def serve(self, timeout: float) -> bool:
        """Answer the guards for ``timeout`` seconds at most; False when none had anything to say."""
        events = self._selector.select(timeout)
        for key, _ in events:
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is self._listener:
                guard, _ = connection.accept()
                self._selector.register(guard, selectors.EVENT_READ, bytearray())
                continue
            try:
                data = connection.recv(65536)
                key.data.extend(data)
                while b"\n" in key.data:
                    line, _, rest = key.data.partition(b"\n")
                    key.data[:] = rest
                    self._handle(connection, json.loads(line))
            except OSError:  # the guard was killed
                data = b""
            if not data:
                rank = self._connected.get(connection)
                if rank is not None and rank.code is None:
                    rank.ended = time.time()
                self._selector.unregister(connection)
                connection.close()
        return bool(events)

    def finish(self) -> None:
        """Take what the guards said last; nobody is let in any more."""
        self._selector.unregister(self._listener)
        self._listener.close()
        while self.serve(0):
            pass

    def failed(self) -> bool:
        """Whether a rank failed and torchrun will not try again."""
        return any(rank.code and rank.last_attempt for rank in self.ranks)

    def _handle(self, connection: socket.socket, message: dict[str, object]) -> None:
        if connection in self._connected:
            rank = self._connected[connection]
            rank.code, rank.ended = int(str(message["code"])), float(str(message["ended"]))
            if self.observer is not None:
                self.observer.ended(rank.rank, rank.code)
            return
        console = bool(message.pop("console"))
        rank = self._connected[connection] = _Rank(**message)  # type: ignore[arg-type]
        self.ranks.append(rank)
        if self.observer is not None:
            self.observer.started(rank.rank, rank.local_rank, rank.pid)
        if console:
            socket.send_fds(connection, [b"."], self.console)
            return
        path = self.log_dir / f"rank{rank.rank}.log"
        try:
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            _fail(f"The log {path} cannot be written ({error.strerror}).")
        try:
            if rank.attempt:
                os.write(log, b"\n--- restart %d ---\n" % rank.attempt)
            socket.send_fds(connection, [b"."], [log, log])
        finally:
            os.close(log)


# ---------------------------------------------------------------------------------------------------------
# Telling what happened


def _verdict(agent_code: int, run: _Run, signals: _Signals, nproc: int, repeat_trace: bool) -> int:
    """Say what became of the run, and return its exit code."""
    torchrun_log = run.log_dir / "torchrun.log"
    rank = first_failure(run.ranks)
    succeeded = agent_code == 0 and run.ranks
    if succeeded or rank is not None or signals.received:
        torchrun_log.unlink(missing_ok=True)  # it only says that some process ended
    if signals.received:
        _say(f"stopped by {signals.received[0].name}; {_where(nproc, run.log_dir)}")
        return signals.exit_code
    if succeeded:
        return 0
    if rank is None:
        what = f"failed ({ending(agent_code)})" if agent_code else "ended without starting the script"
        _say(f"torchrun itself {what}; its output:", log_tail(torchrun_log))
        return _exit_code(agent_code) or 1

    message, trace = recorded_exception(rank.error_file)
    who = "the script" if nproc == 1 else f"rank {rank.rank}"
    first = "" if nproc == 1 else " first"
    headline = f"{who} failed{first} ({ending(rank.code, message is not None)})"
    if message:
        headline += f": {message.splitlines()[0]}"
    log = run.log_dir / f"rank{rank.rank}.log"
    if not log.exists() and trace and repeat_trace:
        _say(headline, trace)
    elif not log.exists():  # the rank that wrote to the console
        _say(
            f"{headline}\n        {'its traceback' if message else 'what it printed'} is above; "
            f"{_where(nproc, run.log_dir)}"
        )
    else:
        _say(f"{headline}; all it printed is in {log}", trace or log_tail(log))
    if message is not None and (rank.code is None or rank.code < 0):
        return 1
    return 1 if rank.code is None else _exit_code(rank.code)


def first_failure(ranks: Iterable[_Rank]) -> _Rank | None:
    """The rank that failed before the others, or None when none did.

    Ranks that were ended because of the failure come later, and so do those that lost their connection to
    the failed one. A rank fails when it records its exception or when its process ends. Of a run that was
    restarted only the last attempt counts.
    """
    ranks = list(ranks)
    last = max((rank.attempt for rank in ranks), default=0)
    failed = [rank for rank in ranks if rank.attempt == last and rank.code != 0 and rank.ended < math.inf]
    return min(failed, key=_failed_at, default=None)


def _failed_at(rank: _Rank) -> float:
    try:
        return min(rank.ended, os.stat(rank.error_file).st_mtime + _CLOCK_TICK)
    except OSError:
        return rank.ended


def recorded_exception(error_file: str) -> tuple[str | None, str]:
    """The message and the traceback that a rank left in its error.json.

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
    """The last 30 lines of a log; more when the last traceback in it is longer. Empty without a log.

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
    traces = [
        number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")
    ]
    return "\n".join(lines[min([start, *traces[-1:]]) :])


def ending(code: int | None, recorded: bool = False) -> str:
    """How a process ended, in words: "exit code 3", "ended by SIGBUS, often because ..."; None: killed."""
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


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


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


def _clear_logs(log_dir: Path) -> None:
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        for path in log_dir.glob("rank*.log"):
            if path.stem[4:].isdigit():
                path.unlink()
        (log_dir / "torchrun.log").write_bytes(b"")
    except OSError as error:
        _fail(
            f"The logs cannot be written to {log_dir} ({error.strerror}); give another folder with --log-dir."
        )


# ---------------------------------------------------------------------------------------------------------
# Ending processes


_Process = tuple[int, int]
"""Process id and start time, which no two processes share; or minus a process group's id and 0."""


def end_processes(
    run_id: str,
    *,
    grace: float,
    known: Iterable[_Process] = (),
    groups: Iterable[int] = (),
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """End all processes of a run: SIGTERM, then SIGKILL after ``grace`` seconds or when ``hurry`` says so.

    Returns when none is left (at once if there is none), at the latest 5 seconds after the first SIGKILL.
    ``known`` is what ``processes_of`` found before, if anything; ``groups`` are the process groups to end
    where there is no /proc.
    """
    told: set[_Process] = set()
    targets = {*known}
    deadline = time.monotonic() + grace
    while targets := processes_of(run_id, targets, groups):
        now = time.monotonic()
        if now >= deadline + _GIVE_UP_SECONDS:
            return
        if hurry():
            deadline = min(deadline, now)
        for target in targets if now >= deadline else targets - told:
            _send(target[0], signal.SIGKILL if now >= deadline else signal.SIGTERM)
        told |= targets
        time.sleep(0.05)


def processes_of(run_id: str, known: Iterable[_Process] = (), groups: Iterable[int] = ()) -> set[_Process]:
    """The living processes of a run, without this one.

    These are the processes that carry its mark, those of ``known`` that still live, and all others of their
    sessions and all their descendants. Where there is no /proc: those of ``groups`` that still exist.
    """
    if not (_PROC / "self").exists():
        return {(-group, 0) for group in groups if _send(-group, 0)}
    known = set(known)
    started: dict[int, int] = {}
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    found: set[int] = set()
    for name in os.listdir(_PROC):
        if not name.isdigit():
            continue
        pid = int(name)
        try:
            fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            environment = (_PROC / name / "environ").read_bytes()
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if fields[0] in (b"Z", b"X"):
            continue
        parents[pid], sessions[pid], started[pid] = int(fields[1]), int(fields[3]), int(fields[19])
        if (pid, started[pid]) in known or _is_marked(environment, run_id):
            found.add(pid)
    found_sessions = {sessions[pid] for pid in found} - {0, os.getsid(0)}
    found |= {pid for pid, session in sessions.items() if session in found_sessions}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return {(pid, started[pid]) for pid in found - {os.getpid()}}


def _is_marked(environment: bytes, run_id: str) -> bool:
    start = f"{RUN_ID_VARIABLE}={run_id}".encode()
    return any(
        variable == start or variable.startswith(start + b"/") for variable in environment.split(b"\0")
    )


def _send(target: int, number: int) -> bool:
    """Send a signal to a process, or to a group when negative; False when there is none."""
    try:
        os.kill(target, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """For preexec_fn: the kernel shall send ``number`` to the child when we end. None where it cannot."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # we ended before the child could ask
            os._exit(1)

    return ask


# ---------------------------------------------------------------------------------------------------------
# The guard of one rank


def _guard(arguments: Sequence[str]) -> int:
    """Run the command of one rank between ``launch`` and torchrun; returns the exit code for torchrun."""
    address, grace, *command = arguments
    run_id = f"{os.environ[RUN_ID_VARIABLE]}/{os.environ['RANK']}"
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_GROUP_SIGNALS):
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # unlike an ignored one it is back to normal in the script
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    rank = int(os.environ["RANK"])
    hello = {
        "rank": rank,
        "pid": os.getpid(),
        "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
        "attempt": attempt,
        "last_attempt": attempt >= int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")),
        "error_file": os.environ.get("TORCHELASTIC_ERROR_FILE", ""),
        "console": rank % int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == 0,
    }
    connection.sendall(json.dumps(hello).encode() + b"\n")
    _, files, _, _ = socket.recv_fds(connection, 1, 2)
    if len(files) != 2:
        return 1
    process = subprocess.Popen(
        command,
        env={**os.environ, RUN_ID_VARIABLE: run_id},
        stdout=files[0],
        stderr=files[1],
        preexec_fn=end_with_parent(signal.SIGKILL),
    )
    for file in files:
        os.close(file)
    while (code := process.poll()) is None:
        ready, _, _ = select.select([awake, connection.fileno()], [], [])
        if awake in ready:
            os.read(awake, 4096)
        if connection.fileno() in ready and not connection.recv(1):
            # launch() is gone; the group is this guard's own.
            end_processes(run_id, grace=float(grace), groups=[os.getpgrp()])
            return 1
    ended = time.time()
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps({"code": code, "ended": ended}).encode() + b"\n")
    return _exit_code(code)


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1:]))
