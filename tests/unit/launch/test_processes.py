"""Finding and ending the processes of a run, here without torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nb2ddp.launch import processes
from nb2ddp.launch.processes import RUN_ID_VARIABLE, end_processes, processes_of

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(99)
"""


@pytest.fixture
def children() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(code: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("proc", [pytest.param("/proc", marks=needs_proc), "/nothing"])
def test_a_process_that_ignores_sigterm_is_killed(
    children: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, proc: str
) -> None:
    monkeypatch.setattr(processes, "_PROC", Path(proc))
    run_id = uuid.uuid4().hex
    process = children(STUBBORN, **{RUN_ID_VARIABLE: run_id})
    begin = time.monotonic()
    # Without /proc a dead child counts as there until it is waited for.
    end_processes(run_id, grace=0.5, groups=[process.pid], hurry=lambda: bool(process.poll()))
    assert process.wait(1) == -signal.SIGKILL
    assert 0.5 <= time.monotonic() - begin < 20


@needs_proc
def test_hurry_does_not_wait_for_the_grace_period(children: Callable[..., subprocess.Popen[str]]) -> None:
    run_id = uuid.uuid4().hex
    process = children(STUBBORN, **{RUN_ID_VARIABLE: run_id})
    end_processes(run_id, grace=60, hurry=lambda: True)
    assert process.wait(1) == -signal.SIGKILL


@needs_proc
def test_only_the_processes_of_the_run_are_found(children: Callable[..., subprocess.Popen[str]]) -> None:
    run_id = uuid.uuid4().hex
    waits = "import time; print('up', flush=True); time.sleep(99)"
    children(waits)
    children(waits, **{RUN_ID_VARIABLE: f"{run_id}0"})
    first = children(waits, **{RUN_ID_VARIABLE: f"{run_id}/1"})
    tenth = children(waits, **{RUN_ID_VARIABLE: f"{run_id}/10"})
    assert {pid for pid, _ in processes_of(run_id)} == {first.pid, tenth.pid}
    assert {pid for pid, _ in processes_of(f"{run_id}/1")} == {first.pid}


HIDES = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import time; time.sleep(99)"
subprocess.Popen([sys.executable, "-S", "-c", child], env={}, start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("up", flush=True)
time.sleep(99)
"""


@needs_proc
def test_children_that_hide_are_found(children: Callable[..., subprocess.Popen[str]]) -> None:
    """No mark, a session of its own, its parent gone, and SIGTERM ignored."""
    run_id = uuid.uuid4().hex
    parent = children(HIDES, **{RUN_ID_VARIABLE: run_id})
    found = processes_of(run_id)
    assert len(found) == 2
    parent.kill()
    parent.wait()
    assert processes_of(run_id) == set()
    assert len(processes_of(run_id, found)) == 1
    end_processes(run_id, grace=0.3, known=found)
    assert processes_of(run_id, found) == set()


@needs_proc
def test_a_process_that_only_got_the_number_of_an_ended_one_is_left_alone() -> None:
    assert processes_of(uuid.uuid4().hex, [(1, 0), (os.getppid(), 1)]) == set()
