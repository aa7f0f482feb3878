"""What `nb2ddp emit` writes, read by the engines' own parsers and by bash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

from nb2ddp.errors import EmitError
from nb2ddp.targets.job import arguments
from tests.unit.targets.conftest import emit, files, job


def directives(sbatch: str) -> dict[str, str]:
    """The #SBATCH lines, as SLURM reads them: up to the first command."""
    lines = sbatch[: sbatch.index("\nset -euo pipefail")].splitlines()
    return dict(
        line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if line.startswith("#SBATCH")
    )


@pytest.mark.parametrize("target", ["torchrun", "slurm"])
@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_bash_reads_it(target: str, cpu: bool, nodes: str) -> None:
    made = files(target, job(nodes=nodes, cpu=cpu, save_steps=5, setup="import os\n"))
    (text,) = [text for name, text in made.items() if name.startswith("train") and not name.endswith(".py")]
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("GPU" in text.splitlines()[1]) is not cpu


def test_the_options_of_sbatch() -> None:
    text = files(
        "slurm",
        job(nodes="3", gpus=4),
        time="2-12:00",
        partition="gpu",
        account="me",
        mem="64G",
        cpus_per_task=16,
        signal_seconds=120,
        module=("cuda/13.0", "python"),
        container_image="docker://me/unsloth:1",
    )["train.sbatch"]
    assert directives(text) == {
        "job-name": "train",
        "nodes": "3",
        "ntasks-per-node": "1",
        "gpus-per-node": "4",
        "cpus-per-task": "16",
        "mem": "64G",
        "time": "2-12:00",
        "partition": "gpu",
        "account": "me",
        "output": "%x-%j.out",
        "open-mode": "append",
        "requeue": "",
        "signal": "B:USR1@120",
    }
    assert "\nmodule load cuda/13.0\nmodule load python\n" in text
    assert "--container-image=docker://me/unsloth:1" in text


@pytest.mark.parametrize(
    ("nodes", "meet"),
    [
        (1, ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"]),  # two jobs on one node take two ports
        (2, ["--master_addr=node1", "--master_port=20007"]),
    ],
)
def test_where_the_ranks_of_a_slurm_job_meet(tmp_path: Path, nodes: int, meet: list[str]) -> None:
    """The commands of SLURM are stood in for: there is no cluster of two nodes here."""
    (tmp_path / "train.sbatch").write_text(files("slurm")["train.sbatch"])
    for name, line in {
        "scontrol": "seq -f node%g 20000",  # more than a pipe holds: who reads one line of it breaks the pipe
        "srun": 'shift; SLURM_NODEID=0 exec "$@"',
        "torchrun": r"""printf '%s\n' "$@" """,
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path)}
    environment |= {"SLURM_JOB_ID": "10007", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": str(nodes)}
    command = ["bash", "train.sbatch"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    head = [f"--nnodes={nodes}", "--node_rank=0", "--nproc_per_node=2"]
    assert done.stdout.splitlines() == [*head, *meet, "--rdzv_id=10007", "resume.py"]


def test_each_machine_gets_a_number_of_its_own(folder: Path) -> None:
    told = emit("--target", "accelerate", "--nodes", "3", "--main-process-ip", "node1", "tiny_ddp").output
    command = r"--machine_rank 0 train_ddp.py\s+\(on each machine, with its own number from 0 to 2\)\n"
    assert re.search(command, told)
    assert "machine_rank" not in emit("--target", "accelerate", "--force", "tiny_ddp").output


def test_accelerate_reads_its_file(tmp_path: Path) -> None:
    made = files("accelerate", job(nodes="2", gpus=4), main_process_ip="node1", main_process_port=23456)
    path = tmp_path / "accelerate.yaml"
    path.write_text(made["accelerate.yaml"])
    config = load_config_from_file(str(path))
    assert (config.num_machines, config.num_processes, config.machine_rank) == (2, 8, 0)
    assert (config.main_process_ip, config.main_process_port) == ("node1", 23456)
    assert config.distributed_type == "MULTI_GPU"
    assert config.mixed_precision == "no"
    assert not config.use_cpu


def test_kubeflow_finds_the_runtime_that_is_named(folder: Path) -> None:
    assert emit("--target", "kubeflow", "--runtime", "team-torch", "tiny_ddp").exit_code == 0
    document = yaml.safe_load((folder / "kubeflow" / "trainjob.yaml").read_text())
    assert document["spec"]["runtimeRef"]["name"] == "team-torch"


@pytest.mark.parametrize("setup", [None, "print('install')\n"])
def test_kubeflow_reads_its_file(setup: str | None) -> None:
    made = files(
        "kubeflow",
        job(nodes="2", gpus=4, setup=setup, shared_fs=False),
        image="me/unsloth:1",
        namespace="team",
    )
    document = yaml.safe_load(made["trainjob.yaml"])
    # what the API does not know is lost on this way
    read = TrainerV1alpha1TrainJob.from_dict(document)
    assert read is not None
    assert read.to_dict() == document
    trainer = document["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 4}}
    assert {"name": "NB2DDP_SHARED_FS", "value": "0"} in trainer["env"]
    assert {"name": "PYTHONHASHSEED", "value": "0"} in trainer["env"]  # a set of strings has one order
    assert document["metadata"] == {"name": "train", "namespace": "team"}


def expanded(text: str) -> str:
    """What Kubernetes makes of an argument: ``$$`` is ``$``, unknown ``$(NAME)`` stays."""
    return re.sub(r"\$(\$|\([^)]*\)?)?", lambda found: "$" if found[1] == "$" else found[0], text)


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(True, id="runtime module"),
        pytest.param(False, id="single file", marks=pytest.mark.thorough),
    ],
)
def test_a_pod_runs_the_script_as_it_is(tmp_path: Path, beside: bool) -> None:
    """The command of the TrainJob, with the variables of its runtime, on two real processes."""
    # in one piece: unbuffered, print() writes the end of a line for itself, and the other rank comes between
    say = """sys.stdout.write(f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n")"""
    script = f'"""torchrun"""\nimport os, sys\n{say}\n'
    script += "s = '$(HOME) $$ $HOME \\\\n \"q\"'\n"
    setup = "open('installed', 'w').close()\n"
    support = "word = 'beside'\n" * 20_000  # in pieces
    script += "import ddp_support\nassert ddp_support.word == 'beside'\n" if beside else ""
    made = files("kubeflow", job(script, setup, cpu=True, support=support if beside else None))
    document = yaml.safe_load(made["trainjob.yaml"])
    trainer = document["spec"]["trainer"]
    command = [expanded(part) for part in [*trainer["command"], *trainer["args"]]]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_STANDALONE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "0 of 2", "1 of 2"]
    assert (tmp_path / "train_ddp.py").read_text() == script
    assert (tmp_path / "installed").exists()
    assert (tmp_path / "ddp_support.py").exists() is beside


def test_a_conversion_fits_the_arguments_of_a_container(folder: Path) -> None:
    assert emit("--target", "kubeflow", "tiny_ddp").exit_code == 0
    text = (folder / "kubeflow" / "trainjob.yaml").read_text()
    parts = [expanded(part) for part in yaml.safe_load(text)["spec"]["trainer"]["args"]]
    written = [(folder / name).read_text() for name in ("train_ddp.py", "ddp_support.py", "setup_env.py")]
    assert "".join(parts) == "".join(written)
    assert all(len(part.encode()) < 128 * 1024 for part in parts)


def test_a_long_text_comes_in_pieces_that_an_argument_can_hold() -> None:
    lines = "def f():\n    return 1\n" * 20_000
    for text in (lines, "é" * 300_000, f"x = 1\n{'$(' * 90_000}", "    indented\n" * 20_000):
        pieces = arguments(text)
        assert "".join(map(expanded, pieces)) == text
        assert all(len(expanded(piece).encode()) < 128 * 1024 for piece in pieces)
    assert all(piece.startswith("def f():\n") for piece in arguments(lines))


def test_a_script_too_long_for_a_job() -> None:
    with pytest.raises(EmitError, match="1100 kB is too long"):
        files("kubeflow", job(f'"""torchrun"""\nx = "{"a" * 1_100_000}"\n'))
