"""The torchrun command and its environment, and which Python counts the GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.errors import LaunchError
from nb2ddp.launch.command import torchrun_command, torchrun_environment, visible_gpus
from tests.support.launches import fake_python


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
    shared = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}  # a set of strings has one order on all ranks
    assert environment == {"A": "b", "OMP_NUM_THREADS": threads, **shared}


def test_environment_keeps_what_the_user_set() -> None:
    base = {"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "1,2", "PYTHONHASHSEED": "5"}
    environment = torchrun_environment(base, nproc=2, cpu=False)
    assert environment == {**base, "PYTHONUNBUFFERED": "1"}
    assert base == {"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "1,2", "PYTHONHASHSEED": "5"}


def test_environment_for_the_cpu_hides_the_gpus() -> None:
    environment = torchrun_environment({"CUDA_VISIBLE_DEVICES": "1,2"}, nproc=1, cpu=True)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert int(environment["OMP_NUM_THREADS"]) >= 1


def test_gpus_are_counted_by_the_torch_that_runs_the_script(tmp_path: Path) -> None:
    assert visible_gpus(fake_python(tmp_path, "echo a warning; echo 3")) == 3


@pytest.mark.parametrize("text", ["exit 1", "echo ModuleNotFoundError: torch >&2; exit 1", "echo nonsense"])
def test_python_without_torch(tmp_path: Path, text: str) -> None:
    with pytest.raises(LaunchError, match="cannot import torch"):
        visible_gpus(fake_python(tmp_path, text))


def test_no_such_python(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot be started"):
        visible_gpus(str(tmp_path / "nothing"))
