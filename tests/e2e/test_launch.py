"""Running a script on several processes: what is started, what is shown, and that nothing is left behind.

The scripts here do without torch where they can, so that a launch takes as long as torchrun needs to start.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nb2ddp.launch.run as launch_module
from nb2ddp.errors import LaunchError
from nb2ddp.launch.run import (
    RUN_ID_VARIABLE,
    _Rank,
    end_processes,
    first_failure,
    launch,
    log_tail,
    processes_of,
    recorded_exception,
    torchrun_command,
    torchrun_environment,
    visible_gpus,
)

PACKAGE_PARENT = Path(launch_module.__file__).parents[2]
MARK = "NB2DDP_TEST_MARK"

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)

DRIVER = """
import json, signal, sys
from pathlib import Path
from nb2ddp.errors import LaunchError
from nb2ddp.launch.run import launch
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a shell
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and this under nohup
for name in sys.argv[2].split():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
arguments = json.loads(sys.argv[1])
for name in ("script", "log_dir", "setup", "cwd"):
    if arguments.get(name):
        arguments[name] = Path(arguments[name])
sys.exit(launch(**arguments))
"""

# What the converted scripts do: leave the exception for torchrun, and show it.
RECORD = """
import os, sys
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
handler = get_error_handler()
handler.initialize()
def hook(kind, error, trace):
    try:
        raise error
    except BaseException as again:
        handler.record_exception(again)
    sys.__excepthook__(kind, error, trace)
    os._exit(1)
sys.excepthook = hook
"""

# The same without torch, which is not imported here, so that a test takes less time.
RECORD_QUICKLY = """
import json, os, sys, traceback
def hook(kind, error, trace):
    text = "".join(traceback.format_exception(kind, error, trace))
    message = {"message": f"{kind.__name__}: {error}", "extraInfo": {"py_callstack": text, "timestamp": "1"}}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": message}, file)
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    os._exit(1)
sys.excepthook = hook
"""

HEAD = """
import os, signal, subprocess, sys, time
from pathlib import Path
rank = int(os.environ["RANK"])
def started():
    Path(__file__).with_name(f"started.{rank}").touch()
"""


@dataclass
class Ended:
    """A finished call of ``launch`` in a process of its own."""

    code: int
    out: str
    err: str


class Project:
    """A folder with a script, and a way to launch it and to find its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "train.py"
        self.logs = folder / "logs"
        self.mark = uuid.uuid4().hex
        self._launched: list[subprocess.Popen[str]] = []

    def write(self, body: str, *, head: str = HEAD) -> None:
        self.script.write_text(head + body)

    def start(self, ignored: str = "", **arguments: Any) -> subprocess.Popen[str]:
        """Start ``launch`` on two processes, with ``ignored`` signals ignored."""
        values = {"script": self.script, "nproc": 2, "cpu": True, "log_dir": None, **arguments}
        text = json.dumps(values, default=str)
        path = os.pathsep.join(filter(None, [str(PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, MARK: self.mark, "PYTHONPATH": path}
        environment.pop("OMP_NUM_THREADS", None)
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, text, ignored],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._launched.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=60)
        return Ended(process.returncode, out, err)

    def run(self, **arguments: Any) -> Ended:
        """Launch, wait, and check that nothing is left."""
        ended = self.end(self.start(**arguments))
        assert self.left() == []
        return ended

    def wait_for(self, *names: str) -> None:
        deadline = time.monotonic() + 60
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < deadline, f"no {names}"
            time.sleep(0.02)

    def left(self) -> list[str]:
        """The command lines of all living processes of this project."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                ):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                pass
        return found

    def all_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.left():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        for process in self._launched:
            process.kill()
            process.communicate()
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                ):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    folder = tmp_path / "my $$project"  # torchrun gives a meaning to dollars
    folder.mkdir()
    project = Project(folder)
    yield project
    project.close()


# ---------------------------------------------------------------------------------------------------------
# What would be run


def test_command_is_what_one_would_type() -> None:
    command = torchrun_command(Path("train.py"), nproc=4, python="py")
    assert command == ["py", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=4", "train.py"]


def test_command_with_a_guard_and_options() -> None:
    command = torchrun_command(
        Path("a $b/${local_rank}.py"),
        nproc=2,
        torchrun_options=["--max-restarts", "3"],
        python="py",
        guard=["guard", "x$y"],
        error_dir=Path("errors"),
    )
    assert command == [
        *("py", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--log-dir=errors"),
        *("--max-restarts", "3", "--no-python"),
        *("guard", "x$$y", "py", "-u", "a $$b/$${local_rank}.py"),
    ]


@pytest.mark.parametrize("option", ["--nnodes=2", "--rdzv_endpoint", "--rdzv-backend=c10d", "--master-addr"])
def test_command_for_several_machines_is_not_standalone(option: str) -> None:
    command = torchrun_command(Path("train.py"), nproc=2, torchrun_options=[option, "x"])
    assert "--standalone" not in command


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--nproc_per_node=3", "--nproc before"),
        ("--nproc-per", "--nproc before"),
        ("--log-dir", "--log-dir before"),
        ("--log_dir=x", "--log-dir before"),
        ("-r", "nb2ddp writes the output"),
        ("-t3", "nb2ddp writes the output"),
        ("--tee", "nb2ddp writes the output"),
        ("--redirects=3", "nb2ddp writes the output"),
        ("-m", "as a file"),
        ("--no-python", "as a file"),
        ("--run_path", "as a file"),
    ],
)
def test_options_that_nb2ddp_sets_itself_are_refused(option: str, sentence: str) -> None:
    with pytest.raises(LaunchError, match=sentence) as error:
        torchrun_command(Path("train.py"), nproc=2, torchrun_options=["--max-restarts=1", option])
    assert option in str(error.value)


@pytest.mark.parametrize(
    "option", ["--max-restarts=1", "--monitor-interval", "--rdzv-conf", "--role", "3", "-x"]
)
def test_other_options_are_passed_on(option: str) -> None:
    assert option in torchrun_command(Path("train.py"), nproc=2, torchrun_options=[option])


@pytest.mark.parametrize("nproc", [0, -1])
def test_at_least_one_process(nproc: int) -> None:
    with pytest.raises(LaunchError, match="at least 1"):
        torchrun_command(Path("train.py"), nproc=nproc)


@pytest.mark.parametrize(("nproc", "cores", "threads"), [(2, 8, "4"), (3, 8, "2"), (4, 2, "1"), (1, 6, "6")])
def test_environment_shares_the_cores(nproc: int, cores: int, threads: str) -> None:
    environment = torchrun_environment({"A": "b"}, nproc=nproc, cpu=False, cores=cores)
    assert environment == {"A": "b", "OMP_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}


def test_environment_keeps_what_the_user_set() -> None:
    base = {"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "1,2"}
    environment = torchrun_environment(base, nproc=2, cpu=False)
    assert environment == {**base, "PYTHONUNBUFFERED": "1"}
    assert base == {"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "1,2"}


def test_environment_for_the_cpu_hides_the_gpus() -> None:
    environment = torchrun_environment({"CUDA_VISIBLE_DEVICES": "1,2"}, nproc=1, cpu=True)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert int(environment["OMP_NUM_THREADS"]) >= 1


# ---------------------------------------------------------------------------------------------------------
# Before anything is started


def fake_python(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_gpus_are_counted_by_the_torch_that_runs_the_script(tmp_path: Path) -> None:
    assert visible_gpus(fake_python(tmp_path, "echo a warning; echo 3")) == 3


@pytest.mark.parametrize("text", ["exit 1", "echo ModuleNotFoundError: torch >&2; exit 1", "echo nonsense"])
def test_python_without_torch(tmp_path: Path, text: str) -> None:
    with pytest.raises(LaunchError, match="cannot import torch"):
        visible_gpus(fake_python(tmp_path, text))


def test_no_such_python(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot be started"):
        visible_gpus(str(tmp_path / "nothing"))


def test_no_gpu_and_no_cpu_option(project: Project) -> None:
    project.write("")
    python = fake_python(project.folder, "echo 0")
    with pytest.raises(LaunchError, match="use --cpu"):
        launch(project.script, nproc=None, cpu=False, log_dir=None, python=python)
    assert not project.logs.exists()


@pytest.mark.launch
def test_no_gpu_according_to_torch(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    project.write("")
    with pytest.raises(LaunchError, match="use --cpu"):
        launch(project.script, nproc=None, cpu=False, log_dir=None)


def test_one_process_per_gpu(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def start(command: list[str], *_: object, **__: object) -> None:
        commands.append(command)
        raise LaunchError("enough")

    monkeypatch.setattr(launch_module, "_start", start)
    project.write("")
    with pytest.raises(LaunchError, match="enough"):
        launch(
            project.script, nproc=None, cpu=False, log_dir=None, python=fake_python(project.folder, "echo 3")
        )
    with pytest.raises(LaunchError, match="enough"):
        launch(project.script, nproc=None, cpu=True, log_dir=None)
    assert "--nproc_per_node=3" in commands[0]
    assert "--nproc_per_node=2" in commands[1]


def test_missing_files(project: Project) -> None:
    with pytest.raises(LaunchError, match=r"no file .*train\.py"):
        launch(project.script, nproc=2, cpu=True, log_dir=None)
    project.write("")
    with pytest.raises(LaunchError, match=r"no file .*setup_env\.py"):
        launch(project.script, nproc=2, cpu=True, log_dir=None, setup=project.folder / "setup_env.py")


def test_logs_that_cannot_be_written(project: Project) -> None:
    project.write("")
    project.logs.touch()
    with pytest.raises(LaunchError, match="another folder with --log-dir"):
        launch(project.script, nproc=2, cpu=True, log_dir=None)


def test_bad_values_are_refused_before_the_install_step(project: Project) -> None:
    project.write("")
    setup = project.folder / "setup_env.py"
    setup.write_text("open('ran', 'w')")
    with pytest.raises(LaunchError, match="at least 1"):
        launch(project.script, nproc=0, cpu=True, log_dir=None, setup=setup, cwd=project.folder)
    with pytest.raises(LaunchError, match="--tee"):
        launch(
            project.script,
            nproc=2,
            cpu=True,
            log_dir=None,
            setup=setup,
            cwd=project.folder,
            torchrun_options=["--tee=3"],
        )
    assert not (project.folder / "ran").exists()


# ---------------------------------------------------------------------------------------------------------
# Which rank failed, and what is shown of it


def rank(number: int, code: int | None, ended: float, **values: Any) -> _Rank:
    return _Rank(number, pid=1, code=code, ended=ended, **values)


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ([], None),
        ([rank(0, 0, 1.0), rank(1, 0, 2.0)], None),
        ([rank(0, 1, 1.002), rank(1, 7, 1.001)], 1),
        ([rank(0, -15, 2.0), rank(1, 1, 1.0)], 1),
        ([rank(0, 0, 1.0), rank(1, -9, 2.0)], 1),
        ([rank(0, None, math.inf), rank(1, None, 1.0), rank(2, -15, 2.0)], 1),  # 0 still ran, 1 was killed
        ([rank(0, None, math.inf)], None),
        ([rank(0, 1, 1.0), rank(0, 0, 9.0, attempt=1), rank(1, 3, 9.0, attempt=1)], 1),
    ],
)
def test_first_failure(ranks: list[_Rank], first: int | None) -> None:
    found = first_failure(ranks)
    assert (found and found.rank) == first


def test_a_rank_fails_when_it_records_its_exception(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    error_file.touch()
    os.utime(error_file, (100.0, 100.0))
    slow_to_end = rank(1, -15, 105.0, error_file=str(error_file))
    assert first_failure([rank(0, 1, 101.0), slow_to_end]) is slow_to_end


def test_a_lost_connection_is_not_blamed(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    error_file.touch()
    os.utime(error_file, (99.997, 99.997))  # file times lag behind by some milliseconds
    killed = rank(1, -9, 100.0)
    assert first_failure([rank(0, 1, 100.1, error_file=str(error_file)), killed]) is killed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "Traceback (..)\\nE: x\\n"}}}',
            ("E: x", "Traceback (..)\nE: x"),
        ),
        (
            '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "NoneType: None\\n"}}}',
            ("E: x", ""),
        ),
        ('{"message": {"message": "E: x"}}', ("E: x", "")),
        ('{"message": "E: x"}', ("E: x", "")),
        ('{"message": {"message": "E: x", "extraInfo": 3}}', (None, "")),
        ("[]", (None, "")),
        ("{}", (None, "")),
        ('{"mess', (None, "")),
        ("", (None, "")),
    ],
)
def test_recorded_exception(tmp_path: Path, text: str, expected: tuple[str | None, str]) -> None:
    path = tmp_path / "error.json"
    path.write_text(text)
    assert recorded_exception(str(path)) == expected


def test_nothing_recorded(tmp_path: Path) -> None:
    assert recorded_exception(str(tmp_path / "error.json")) == (None, "")
    assert recorded_exception("") == (None, "")


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    assert log_tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert log_tail(log).splitlines() == [f"line {number}" for number in range(70, 100)]


def test_tail_reaches_back_to_the_last_traceback(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    trace = "Traceback (most recent call last)"
    lines = [f"{trace}: an old one", *["x"] * 9, f"{trace}:", *["  frame"] * 50, "ValueError: boom"]
    log.write_text("\n".join(lines) + "\n")
    assert log_tail(log).splitlines() == lines[10:]


def test_tail_of_a_progress_bar(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    log.write_bytes(b"start\n 1%\r 2%\r100%\ndone\r\n\xff\n")
    assert log_tail(log).splitlines() == ["start", "100%", "done", "\ufffd"]


def test_tail_of_a_huge_log(tmp_path: Path) -> None:
    log = tmp_path / "rank1.log"
    log.write_bytes(b"\r50%" * 100_000 + b"\nlast\n")
    assert log_tail(log).splitlines() == ["50%", "last"]


# ---------------------------------------------------------------------------------------------------------
# Ending processes

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
    monkeypatch.setattr(launch_module, "_PROC", Path(proc))
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


# ---------------------------------------------------------------------------------------------------------
# Real launches


@pytest.mark.launch
@needs_proc
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


@pytest.mark.launch
@needs_proc
def test_other_folders_and_a_process_left_by_a_successful_script(project: Project) -> None:
    project.write(
        """
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(99)"], start_new_session=True)
Path("here").touch()
"""
    )
    work = project.folder / "w $ork"
    work.mkdir()
    logs = project.folder / "else where" / "l"
    ended = project.run(nproc=1, cwd=work, log_dir=logs)
    assert ended.code == 0
    assert (work / "here").exists()
    assert list(logs.iterdir()) == []
    assert not project.logs.exists()


@pytest.mark.launch
@needs_proc
@pytest.mark.parametrize("bad", [0, 1])
def test_a_recorded_exception_is_shown_once(project: Project, bad: int) -> None:
    wait = f"print('hello from', rank)\nif rank != {bad}:\n    time.sleep(99)\n"
    project.write("raise ValueError('boom')\n", head=HEAD + wait + RECORD)
    ended = project.run()
    assert ended.code == 1
    assert ended.out == "hello from 0\n"
    assert ended.err.count("Traceback (most recent call last)") == 1
    assert f"nb2ddp: rank {bad} failed first (exit code 1): ValueError: boom" in ended.err
    assert f'File "{project.script}", line' in ended.err
    assert "ChildFailedError" not in ended.err
    assert str(project.logs / "rank1.log") in ended.err
    assert (project.logs / "rank1.log").read_text().startswith("hello from 1\n")
    if bad == 0:
        assert "its traceback is above" in ended.err


@pytest.mark.launch
@needs_proc
def test_an_exception_that_is_not_recorded(project: Project) -> None:
    project.write("print('step 1')\nif rank == 1:\n    {}['key']\ntime.sleep(99)")
    ended = project.run()
    assert ended.code == 1
    assert "nb2ddp: rank 1 failed first (exit code 1); all it printed is in " in ended.err
    assert "step 1\nTraceback (most recent call last)" in ended.err
    assert ended.err.rstrip().endswith("KeyError: 'key'")


@pytest.mark.launch
@needs_proc
def test_rank_0_fails_without_recording(project: Project) -> None:
    project.write("if rank == 0:\n    {}['key']\ntime.sleep(99)")
    ended = project.run()
    assert ended.code == 1
    assert ended.err.count("KeyError") == 1
    assert "rank 0 failed first (exit code 1)\n        what it printed is above" in ended.err


@pytest.mark.launch
@needs_proc
def test_exit_code_of_a_rank(project: Project) -> None:
    project.write("if rank == 1:\n    sys.exit(7)\ntime.sleep(99)")
    ended = project.run()
    assert ended.code == 7
    assert "rank 1 failed first (exit code 7)" in ended.err


@pytest.mark.launch
@needs_proc
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
    last = ended.err.splitlines()[-1]
    assert last.startswith(
        "nb2ddp: rank 1 failed first (ended by SIGKILL, often because the machine ran out of m"
    )


@pytest.mark.launch
@needs_proc
def test_a_failure_does_not_wait_for_a_rank_that_ignores_sigterm(project: Project) -> None:
    project.write(
        """
if rank == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started()
    time.sleep(99)
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


SAVES_ON_CTRL_C = """
try:
    started()
    time.sleep(99)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("saved", rank)
"""


@pytest.mark.launch
@needs_proc
def test_ctrl_c_lets_the_ranks_save_their_work(project: Project) -> None:
    project.write(SAVES_ON_CTRL_C)
    process = project.start()
    project.wait_for("started.0", "started.1")
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
child = "import time; time.sleep(99)"
subprocess.Popen([sys.executable, "-S", "-c", child])
subprocess.Popen([sys.executable, "-S", "-c", child], start_new_session=True)
started()
time.sleep(99)
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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_processes(project: Project, number: signal.Signals) -> None:
    project.write(CHILDREN)
    process = project.start(grace=60)
    project.wait_for("started.0", "started.1")
    assert len(project.left()) == 1 + 1 + 2 * 4  # launch, torchrun; guard, script and two children
    begin = time.monotonic()
    process.send_signal(number)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 128 + number
    assert time.monotonic() - begin < 20  # nobody had to be killed
    assert f"stopped by {number.name}" in ended.err


@pytest.mark.launch
@needs_proc
def test_ranks_that_ignore_sigterm_are_killed(project: Project) -> None:
    project.write(STUBBORN_CHILDREN)
    process = project.start(grace=1)
    project.wait_for("started.0", "started.1")
    begin = time.monotonic()
    process.terminate()
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 128 + signal.SIGTERM
    assert 1 <= time.monotonic() - begin < 20


@pytest.mark.launch
@needs_proc
def test_a_second_signal_kills_at_once(project: Project) -> None:
    project.write(STUBBORN_CHILDREN)
    process = project.start(grace=60)
    project.wait_for("started.0", "started.1")
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
@pytest.mark.parametrize("body", [CHILDREN, STUBBORN_CHILDREN], ids=["children", "stubborn"])
def test_nothing_is_left_when_the_launcher_is_killed(project: Project, body: str) -> None:
    project.write(body)
    process = project.start(grace=1)
    project.wait_for("started.0", "started.1")
    process.kill()
    assert project.all_gone(20)


@pytest.mark.launch
@needs_proc
def test_nothing_is_left_when_launcher_and_guards_are_killed(project: Project) -> None:
    project.write("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nstarted()\ntime.sleep(99)")
    process = project.start(grace=1)
    project.wait_for("started.0", "started.1")
    process.kill()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            command = (entry / "cmdline").read_text().split("\0")
            if (
                str(project.script) in command
                and launch_module.__file__ in command
                and "torch.distributed.run" not in command
            ):
                os.kill(int(entry.name), signal.SIGKILL)
    assert project.all_gone(20)


@pytest.mark.launch
@needs_proc
def test_nothing_is_left_when_torchrun_is_killed(project: Project) -> None:
    project.write("started()\ntime.sleep(99)")
    process = project.start(grace=2)
    project.wait_for("started.0", "started.1")
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
    project.write("time.sleep(60)")  # on a fast machine the ranks are there already
    process = project.start()
    project.wait_for("logs/torchrun.log")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == 130


@pytest.mark.launch
@needs_proc
def test_torchrun_itself_fails(project: Project) -> None:
    project.write("")
    ended = project.run(torchrun_options=["--no-such-option"])
    assert ended.code == 2
    assert "nb2ddp: torchrun itself failed (exit code 2)" in ended.err
    assert "--no-such-option" in ended.err
    assert "--no-such-option" in (project.logs / "torchrun.log").read_text()


@pytest.mark.launch
@needs_proc
def test_the_script_is_never_started(project: Project) -> None:
    project.write("")
    ended = project.run(torchrun_options=["--help"])
    assert ended.code == 1
    assert "torchrun itself ended without starting the script" in ended.err


@pytest.mark.launch
@needs_proc
def test_restarts(project: Project) -> None:
    project.write(
        """
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"attempt {attempt}")
if attempt == "0":
    sys.exit(5)
"""
    )
    ended = project.run(torchrun_options=["--max-restarts=1"], grace=0)
    assert ended.code == 0
    assert ended.out.count("attempt 1") == 1
    assert (project.logs / "rank1.log").read_text().endswith("\n--- restart 1 ---\nattempt 1\n")


@pytest.mark.launch
@needs_proc
def test_install_step_runs_once_and_first(project: Project) -> None:
    setup = project.folder / "setup_env.py"
    setup.write_text("print('installing')\nwith open('steps', 'a') as file:\n    file.write('x')\n")
    project.write("print('installed', Path('steps').read_text())")
    ended = project.run(setup=setup)
    assert ended.code == 0
    assert ended.out == "installing\ninstalled x\n"
    assert (project.logs / "rank1.log").read_text() == "installed x\n"


@pytest.mark.launch
@needs_proc
def test_install_step_fails(project: Project) -> None:
    setup = project.folder / "setup_env.py"
    setup.write_text("import sys\nprint('installing')\nsys.exit(4)\n")
    project.write("started()")
    ended = project.run(setup=setup)
    assert ended.code == 4
    assert ended.out == "installing\n"
    assert f"the install step {setup} failed (exit code 4)" in ended.err
    assert not (project.folder / "started.0").exists()
    assert not project.logs.exists()


@pytest.mark.launch
@needs_proc
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_install_step_is_interrupted(project: Project, number: signal.Signals, code: int) -> None:
    setup = project.folder / "setup_env.py"
    setup.write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(99)'])\n"
        "open('installing', 'w').close()\n"
        "time.sleep(99)\n"
    )
    project.write("started()")
    process = project.start(setup=setup)
    project.wait_for("installing")
    process.send_signal(number)
    ended = project.end(process)
    assert project.left() == []
    assert ended.code == code
    assert not project.logs.exists()


@pytest.mark.launch
@needs_proc
def test_ignored_signals_stay_ignored(project: Project) -> None:
    """As under nohup."""
    setup = project.folder / "setup_env.py"
    setup.write_text("import sys, time\nopen('installing', 'w').close()\ntime.sleep(1)\nsys.exit(9)\n")
    project.write("")
    process = project.start(ignored="SIGHUP", setup=setup)
    project.wait_for("installing")
    process.send_signal(signal.SIGHUP)
    assert project.end(process).code == 9


@pytest.mark.launch
@needs_proc
def test_rank_0_sees_the_terminal(project: Project) -> None:
    project.write("print('terminal:', sys.stdout.isatty(), sys.stderr.isatty())")
    master, slave = os.openpty()
    values = f"Path({str(project.script)!r}), nproc=2, cpu=True, log_dir=None"
    code = (
        "import sys; from pathlib import Path; from nb2ddp.launch.run import launch; "
        f"sys.exit(launch({values}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, MARK: project.mark, "PYTHONPATH": str(PACKAGE_PARENT)},
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    assert process.wait(60) == 0
    shown = os.read(master, 4096).decode()
    os.close(master)
    assert "terminal: True True" in shown
    assert (project.logs / "rank1.log").read_text() == "terminal: False False\n"


def test_handlers_are_put_back(project: Project) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    project.write("")
    with pytest.raises(LaunchError):
        launch(
            project.script, nproc=None, cpu=False, log_dir=None, python=fake_python(project.folder, "echo 0")
        )
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_guard_without_its_launcher_starts_nothing(tmp_path: Path) -> None:
    """Its connection is refused, or closed before it gets its files."""
    address = tmp_path / "s"
    command = [
        sys.executable,
        "-I",
        "-S",
        launch_module.__file__,
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
