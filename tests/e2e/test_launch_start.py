"""What a launch refuses before it starts a process, and its install step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nb2ddp.launch.run as launch_module
from nb2ddp.errors import LaunchError
from nb2ddp.launch.run import Launch
from tests.support.launches import Project, fake_python, needs_proc, project_in


def launch(script: Path, **options: Any) -> int:
    return launch_module.launch(Launch(script, **options))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with project_in(tmp_path) as project:
        yield project


# ---- before anything is started ---------------------------------------------------------------------


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
    setup = install_step(project, "open('ran', 'w')")
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


def test_handlers_are_put_back(project: Project) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    project.write("")
    with pytest.raises(LaunchError):
        launch(
            project.script, nproc=None, cpu=False, log_dir=None, python=fake_python(project.folder, "echo 0")
        )
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_while_the_gpus_are_counted(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C in a terminal reaches the Python that counts, too."""
    project.write("")
    python = fake_python(project.folder, "kill -TERM $PPID; sleep 0.3; echo KeyboardInterrupt >&2; exit 1")
    assert launch(project.script, nproc=None, cpu=False, log_dir=None, python=python) == 143
    assert capfd.readouterr().err == "nb2ddp: interrupted; nothing was started\n"


# ---- the install step -------------------------------------------------------------------------------


def install_step(project: Project, text: str) -> Path:
    path = project.folder / "setup_env.py"
    path.write_text(text)
    return path


@pytest.mark.launch
@needs_proc
def test_install_step_runs_once_and_first(project: Project) -> None:
    """In another folder, with logs in a third; what a script leaves behind is ended though it has succeeded."""
    setup = install_step(
        project, "print('installing')\nwith open('steps', 'a') as file:\n    file.write('x')\n"
    )
    project.write(
        """
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(999)"], start_new_session=True)
print('installed', Path('steps').read_text())
"""
    )
    work = project.folder / "w $ork"
    work.mkdir()
    logs = project.folder / "else where" / "l"
    ended = project.run(setup=setup, cwd=work, log_dir=logs)
    assert ended.code == 0
    assert ended.out == "installing\ninstalled x\n"
    assert (logs / "rank1.log").read_text() == "installed x\n"
    assert [path.name for path in logs.iterdir()] == ["rank1.log"]
    assert (work / "steps").exists()
    assert not project.logs.exists()


@pytest.mark.launch
@needs_proc
def test_install_step_fails(project: Project) -> None:
    setup = install_step(project, "import sys\nprint('installing')\nsys.exit(4)\n")
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
    setup = install_step(
        project,
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(999)'])\n"
        "open('installing', 'w').close()\n"
        "time.sleep(999)\n",
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
    setup = install_step(
        project, "import sys, time\nopen('installing', 'w').close()\ntime.sleep(1)\nsys.exit(9)\n"
    )
    project.write("")
    process = project.start(ignored="SIGHUP", setup=setup)
    project.wait_for("installing")
    process.send_signal(signal.SIGHUP)
    assert project.end(process).code == 9
