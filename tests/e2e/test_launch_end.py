"""The end of a launch by a signal or a kill: ranks may save their work, and no process is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from nb2ddp.launch import guard
from nb2ddp.launch.processes import RUN_ID_VARIABLE
from tests.support.launches import Project, needs_proc, project_in


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with project_in(tmp_path) as project:
        yield project


SAVES_ON_CTRL_C = """
try:
    started()
    time.sleep(999)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("saved", rank)
"""


def start_ranks(project: Project, body: str, **options: Any) -> subprocess.Popen[str]:
    """Launch a script on two processes, and return when both run it."""
    project.write(body)
    process = project.start(**options)
    project.wait_for("started.0", "started.1")
    return process


@pytest.mark.launch
@needs_proc
def test_ctrl_c_lets_the_ranks_save_their_work(project: Project) -> None:
    process = start_ranks(project, SAVES_ON_CTRL_C)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 130
    assert ended.out == "saved 0\n"
    assert (project.logs / "rank1.log").read_text() == "saved 1\n"
    assert "nb2ddp: stopped by SIGINT" in ended.err
    assert "Traceback" not in ended.err
    assert [path.name for path in project.logs.iterdir()] == ["rank1.log"]


CHILDREN = """
child = "import time; time.sleep(999)"
subprocess.Popen([sys.executable, "-S", "-c", child])
subprocess.Popen([sys.executable, "-S", "-c", child], start_new_session=True)
started()
time.sleep(999)
"""

STUBBORN_CHILDREN = (
    """
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
    + CHILDREN
)


@pytest.mark.launch
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.thorough)])
def test_a_signal_ends_all_processes(project: Project, number: signal.Signals) -> None:
    process = start_ranks(project, CHILDREN, grace=60)
    assert len(project.left()) == 1 + 1 + 2 * 4  # launch, torchrun; guard, script and two children
    begin = time.monotonic()
    process.send_signal(number)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 128 + number
    assert time.monotonic() - begin < 20  # no process had to be killed
    assert f"stopped by {number.name}" in ended.err


@pytest.mark.launch
@pytest.mark.thorough  # as after a failure in test_launch.py, and below as the launcher or a guard is killed
@needs_proc
def test_ranks_that_ignore_sigterm_are_killed(project: Project) -> None:
    process = start_ranks(project, STUBBORN_CHILDREN, grace=1)
    begin = time.monotonic()
    process.terminate()
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 128 + signal.SIGTERM
    assert 1 <= time.monotonic() - begin < 20


@pytest.mark.launch
@needs_proc
def test_a_second_signal_kills_at_once(project: Project) -> None:
    process = start_ranks(project, STUBBORN_CHILDREN, grace=60)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 130
    assert time.monotonic() - begin < 20


@pytest.mark.launch
@needs_proc
@pytest.mark.parametrize(
    "body",
    [pytest.param(CHILDREN, marks=pytest.mark.thorough), STUBBORN_CHILDREN],
    ids=["children", "stubborn"],
)
def test_nothing_is_left_when_the_launcher_is_killed(project: Project, body: str) -> None:
    process = start_ranks(project, body, grace=1)
    process.kill()
    assert project.all_gone(20)


@pytest.mark.launch
@needs_proc
def test_nothing_is_left_when_launcher_and_guards_are_killed(project: Project) -> None:
    process = start_ranks(
        project, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nstarted()\ntime.sleep(999)", grace=1
    )
    process.kill()
    for found in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            command = found.cmdline()
            if (
                str(project.script) in command
                and guard.__file__ in command
                and "torch.distributed.run" not in command
            ):
                found.kill()
    assert project.all_gone(20)


@pytest.mark.launch
@needs_proc
def test_nothing_is_left_when_torchrun_is_killed(project: Project) -> None:
    process = start_ranks(project, "started()\ntime.sleep(999)", grace=2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 128 + signal.SIGKILL
    assert "torchrun itself failed (ended by SIGKILL" in ended.err


WAITS_FOR_ANOTHER_MACHINE = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]


@pytest.mark.launch
@needs_proc
def test_nothing_is_left_when_the_launcher_is_killed_before_any_rank_runs(project: Project) -> None:
    project.write("")
    process = project.start(torchrun_options=WAITS_FOR_ANOTHER_MACHINE)
    project.wait_for("logs/torchrun.log")
    time.sleep(0.5)
    process.kill()
    assert project.all_gone(20)


@pytest.mark.launch
@needs_proc
def test_signal_while_torchrun_starts(project: Project) -> None:
    project.write("time.sleep(999)")  # on a fast machine the ranks are there already
    process = project.start()
    project.wait_for("logs/torchrun.log")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 130


def test_a_guard_without_its_launcher_starts_nothing(tmp_path: Path) -> None:
    """Its connection is refused, or closed before it gets its files."""
    address = tmp_path / "s"
    command = [
        sys.executable,
        "-I",
        "-S",
        guard.__file__,
        str(address),
        "1",
        "touch",
        str(tmp_path / "x"),
    ]
    environment = {**os.environ, "RANK": "0", RUN_ID_VARIABLE: uuid.uuid4().hex}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        listener.accept()[0].close()
        assert process.wait(10) == 1
    assert subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 1
    assert not (tmp_path / "x").exists()
