"""Running a script on several processes: what is started, what is shown, and that nothing is left behind.

The scripts here do without torch where they can, so that a launch takes as long as torchrun needs to start.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import nb2ddp.launch.run as launch_module
from nb2ddp.errors import LaunchError
from nb2ddp.launch import guard
from nb2ddp.launch.processes import RUN_ID_VARIABLE
from nb2ddp.launch.run import launch
from tests.support.launches import (
    HEAD,
    MARK,
    PACKAGE_PARENT,
    RECORD,
    RECORD_QUICKLY,
    Project,
    fake_python,
    needs_proc,
)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    folder = tmp_path / "my $$project"  # torchrun gives a meaning to dollars
    folder.mkdir()
    project = Project(folder)
    yield project
    project.close()


# ---------------------------------------------------------------------------------------------------------
# Before anything is started


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
@pytest.mark.parametrize("bad", [pytest.param(0, marks=pytest.mark.thorough), 1])
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
    assert "step 1\nTraceback (most recent call last)" in ended.err
    assert "KeyError: 'key'\nnb2ddp: rank 1 failed first (exit code 1)\n" in ended.err
    assert f"        all it printed is in {project.logs / 'rank1.log'}\n" in ended.err


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
    assert "nb2ddp: rank 1 failed first (ended by SIGKILL, often because the machine" in ended.err
    assert "rank 0 failed first" not in ended.err


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
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.thorough)])
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
@pytest.mark.parametrize(
    "body",
    [pytest.param(CHILDREN, marks=pytest.mark.thorough), STUBBORN_CHILDREN],
    ids=["children", "stubborn"],
)
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
                and guard.__file__ in command
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
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.thorough)]
)
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
