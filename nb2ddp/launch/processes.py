"""Start the processes of a run, and find and end all of them, by the run id that each carries in its environment.

Every process of a run inherits the variable ``NB2DDP_RUN_ID``: data loader workers, servers and other
programs that the script starts, also those in a session of their own (setsid) or without a living parent.
`end_processes` finds them in /proc.

Standard library only, and no module of ours: a guard loads this file by its path under ``python -I -S``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

RUN_ID_VARIABLE = "NB2DDP_RUN_ID"
"""Holds the run's id; for a rank's script and what it starts, ``<run id>/<rank>``."""

_PROC = Path("/proc")
_GIVE_UP_SECONDS = 5.0  # a process in an uninterruptible system call does not even end on SIGKILL


Process = tuple[int, int]
"""Process id and start time, which no two processes share; or minus a process group's id and 0."""


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    run_id: str,
    output: tuple[int, int],
    *,
    cwd: Path | None = None,
    stdin: int | None = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start the first process of a run, in a session of its own: Ctrl-C in the terminal reaches only us."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**environment, RUN_ID_VARIABLE: run_id},
        stdin=stdin,
        stdout=output[0],
        stderr=output[1],
        start_new_session=True,
        preexec_fn=end_with_parent(signal.SIGTERM),
    )


def end_processes(
    run_id: str,
    *,
    grace: float,
    known: Iterable[Process] = (),
    groups: Iterable[int] = (),
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """End all processes of a run: SIGTERM, then SIGKILL after ``grace`` seconds or when ``hurry`` says so.

    Returns when none is left (at once if there is none), at the latest 5 seconds after the first SIGKILL.
    ``known`` is what ``processes_of`` found before, if anything; ``groups`` are the process groups to end
    where there is no /proc.
    """
    told: set[Process] = set()
    targets = {*known}
    deadline = time.monotonic() + grace
    while targets := processes_of(run_id, targets, groups):
        now = time.monotonic()
        if now >= deadline + _GIVE_UP_SECONDS:
            return
        if hurry():
            deadline = min(deadline, now)
        for target in targets if now >= deadline else targets - told:
            send_signal(target[0], signal.SIGKILL if now >= deadline else signal.SIGTERM)
        told |= targets
        time.sleep(0.05)


def processes_of(run_id: str, known: Iterable[Process] = (), groups: Iterable[int] = ()) -> set[Process]:
    """Return the living processes of a run, without this one.

    These are the processes that carry its id, those of ``known`` that still live, and all others of their
    sessions and all their descendants. Where there is no /proc: those of ``groups`` that still exist.
    """
    if not (_PROC / "self").exists():
        return {(-group, 0) for group in groups if send_signal(-group, 0)}
    known, carried = set(known), f"{RUN_ID_VARIABLE}={run_id}/".encode()
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
        except OSError:  # it has ended, or belongs to another user
            continue
        if fields[0] in (b"Z", b"X"):
            continue
        parents[pid], sessions[pid], started[pid] = int(fields[1]), int(fields[3]), int(fields[19])
        of_run = ((variable + b"/").startswith(carried) for variable in environment.split(b"\0"))
        if (pid, started[pid]) in known or any(of_run):
            found.add(pid)
    found_sessions = {sessions[pid] for pid in found} - {0, os.getsid(0)}
    found |= {pid for pid, session in sessions.items() if session in found_sessions}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return {(pid, started[pid]) for pid in found - {os.getpid()}}


def send_signal(target: int, number: int) -> bool:
    """Send a signal to a process, or to a group when negative; return False when there is none."""
    try:
        os.kill(target, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """Return a preexec_fn: the kernel sends ``number`` to the child when we end. None where it cannot."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # we ended before the child could ask
            os._exit(1)

    return ask


def exit_code(code: int) -> int:
    """Return a process's exit code as a shell gives it: 128 + n for signal n."""
    return code if code >= 0 else 128 - code
