"""Running a script on several processes: what is started, what is shown, and which failure is named.

The scripts here do without torch where they can, so that a launch takes as long as torchrun needs to start.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launches import (
    HEAD,
    RECORD,
    RECORD_QUICKLY,
    Project,
    needs_proc,
    project_in,
)

pytestmark = [pytest.mark.launch, needs_proc]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with project_in(tmp_path) as project:
        yield project


def test_success(project: Project) -> None:
    project.write(
        """
print(f"out {rank} of {os.environ['WORLD_SIZE']}", os.environ["CUDA_VISIBLE_DEVICES"] == "")
print(f"err {rank}", file=sys.stderr)
print(f"out again {rank}")
sys.stdout.write("\\r 50%\\r100%\\n")
Path(f"written.{rank}").write_text(os.environ["OMP_NUM_THREADS"])
"""
    )
    project.logs.mkdir()
    for name in ("rank1.log", "rank7.log", "torchrun.log", "rankings.log", "notes.txt"):
        (project.logs / name).write_text("from an earlier run")
    ended = project.run(nproc=3)
    assert ended.code == 0
    assert ended.out == "out 0 of 3 True\nout again 0\n\r 50%\r100%\n".replace("\r", "\n")  # read as text
    said, err = ended.err.splitlines()
    assert said.startswith("nb2ddp: 3 processes on the CPU; the other ranks write to ")
    assert err == "err 0"
    for number in (1, 2):
        log = (project.logs / f"rank{number}.log").read_bytes().decode()
        assert log == f"out {number} of 3 True\nerr {number}\nout again {number}\n\r 50%\r100%\n"
    assert {path.name for path in project.logs.iterdir()} == {
        *("rank1.log", "rank2.log", "rankings.log", "notes.txt")
    }
    cores = len(os.sched_getaffinity(0))
    for number in range(3):
        assert (project.folder / f"written.{number}").read_text() == str(max(1, cores // 3))


@pytest.mark.thorough  # as in test_launch_failures.py, where a converted script records it
@pytest.mark.parametrize("bad", [0, 1])
def test_a_recorded_exception_is_shown_once(project: Project, bad: int) -> None:
    wait = f"print('hello from', rank)\nif rank != {bad}:\n    time.sleep(999)\n"
    project.write("raise ValueError('boom')\n", head=HEAD + wait + RECORD)
    ended = project.run()
    assert ended.code == 1
    assert ended.out == "hello from 0\n"
    assert ended.err.count("Traceback (most recent call last)") == 1
    assert f"nb2ddp: rank {bad} failed first (exit code 1): ValueError: boom" in ended.err
    assert f'File "{project.script}", line' in ended.err
    assert "ChildFailedError" not in ended.err
    assert "logs/rank1.log" in ended.err
    assert (project.logs / "rank1.log").read_text().startswith("hello from 1\n")
    if bad == 0:
        assert "its traceback is above" in ended.err


def test_an_exception_that_is_not_recorded(project: Project) -> None:
    project.write("print('step 1')\nif rank == 1:\n    {}['key']\ntime.sleep(999)")
    ended = project.run()
    assert ended.code == 1
    assert "step 1\nTraceback (most recent call last)" in ended.err
    assert "KeyError: 'key'\nnb2ddp: rank 1 failed first (exit code 1)\n" in ended.err
    assert f"        all it printed is in {project.logs / 'rank1.log'}\n" in ended.err


def test_a_killed_rank_and_not_the_one_that_lost_its_connection(project: Project) -> None:
    project.write(
        """
import socket
path = str(Path(__file__).with_name("s"))
if rank == 0:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    peer = server.accept()[0]
    peer.recv(1)
    raise RuntimeError("Connection closed by peer")
peer = socket.socket(socket.AF_UNIX)
while True:
    try:
        peer.connect(path)
        break
    except OSError:
        time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
""",
        head=RECORD_QUICKLY + HEAD,
    )
    ended = project.run()
    assert ended.code == 128 + signal.SIGKILL
    assert "Connection closed by peer" in ended.err  # rank 0 said so itself
    assert "nb2ddp: rank 1 failed first (ended by SIGKILL, often because the machine" in ended.err
    assert "rank 0 failed first" not in ended.err


def test_a_failure_does_not_wait_for_a_rank_that_ignores_sigterm(project: Project) -> None:
    project.write(
        """
if rank == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started()
    time.sleep(999)
while not Path(__file__).with_name("started.0").exists():
    time.sleep(0.02)
sys.exit(3)
"""
    )
    process = project.start(grace=1)
    project.wait_for("started.0")
    begin = time.monotonic()
    ended = project.end(process)
    assert time.monotonic() - begin < 20  # torchrun alone waits for 30 s
    assert project.left() == []
    assert ended.code == 3
    assert "rank 1 failed first (exit code 3)" in ended.err


def test_torchrun_itself_fails(project: Project) -> None:
    project.write("")
    ended = project.run(torchrun_options=["--no-such-option"])
    assert ended.code == 2
    assert "nb2ddp: torchrun itself failed (exit code 2)" in ended.err
    assert "--no-such-option" in ended.err
    assert "--no-such-option" in (project.logs / "torchrun.log").read_text()


@pytest.mark.thorough  # as where torchrun fails
def test_the_script_is_never_started(project: Project) -> None:
    project.write("")
    ended = project.run(torchrun_options=["--help"])
    assert ended.code == 1
    assert "torchrun itself ended without starting the script" in ended.err


def test_restarts(project: Project) -> None:
    project.write(
        """
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"attempt {attempt}", flush=True)
if attempt == "0":
    meet()
    sys.exit(5)
"""
    )
    ended = project.run(torchrun_options=["--max-restarts=1"], grace=0)
    assert ended.code == 0
    assert ended.out.count("attempt 1") == 1
    assert (project.logs / "rank1.log").read_text() == "attempt 1\n"
    assert (project.logs / "attempt1" / "rank1.log").read_text() == "attempt 0\n"
