"""The task for SkyPilot: its own loader takes it, and its command starts the ranks on one machine and on two.

SkyPilot is no dependency of the tests, it brings a hundred packages; where it is installed, its loader is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nb2ddp.errors import OptionError
from nb2ddp.targets.job import Job
from nb2ddp.targets.skypilot import Skypilot

SCRIPT = '"""Train it with torchrun."""\nprint("Trainer", 1)\n'
SETUP = "open('installed', 'w').close()\n"


def task(setup: str | None = SETUP, script: str = SCRIPT, **numbers: Any) -> str:
    options = {name: numbers.pop(name) for name in ("accelerator", "infra", "image_id") if name in numbers}
    made = Skypilot(**options).files(Job("tiny run.ipynb", script, setup, shared_fs=False, **numbers))
    assert set(made) == {"task.yaml", "train_ddp.py"} | ({"setup_env.py"} if setup else set())
    return made["task.yaml"]


def test_what_is_rented() -> None:
    read = yaml.safe_load(task(nodes="2", gpus=8, accelerator="A100-80GB", infra="aws/us-east-1"))
    assert read["resources"] == {"accelerators": "A100-80GB:8", "infra": "aws/us-east-1"}
    assert (read["name"], read["num_nodes"], read["workdir"]) == ("train", 2, ".")
    assert read["setup"] == "python setup_env.py\n"
    read = yaml.safe_load(task(None, cpu=True, gpus=4, image_id="docker:me/unsloth:1"))
    assert read["resources"] == {"cpus": "4+", "image_id": "docker:me/unsloth:1"}
    assert "setup" not in read


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"accelerator": "H100:2"}, "--accelerator 'H100:2' cannot be used: it has to look like L4, H100 or"),
        ({"infra": "aws\nrun: reboot"}, "--infra 'aws\\nrun: reboot' cannot be used"),
        ({"image_id": "a b"}, "--image-id 'a b' cannot be used"),
        ({"save_steps": 5}, "--save-steps works with torchrun and slurm"),
        ({"nodes": "1:2"}, "SkyPilot starts a fixed number of machines"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as error:
        task(**options)
    assert sentence in str(error.value)


@pytest.mark.parametrize("machines", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_its_command_starts_the_ranks(tmp_path: Path, machines: int) -> None:
    """With the variables that SkyPilot sets; two machines are two folders of this one."""
    script = (
        '"""torchrun"""\nimport os, sys\n'
        "sys.stdout.write(' '.join(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'NB2DDP_SHARED_FS')) + '\\n')\n"
    )
    read = yaml.safe_load(task(script=script, nodes=str(machines), cpu=True, gpus=2))
    running = []
    for number in range(machines):
        folder = tmp_path / f"machine {number}"
        folder.mkdir()
        (folder / "train_ddp.py").write_text(script)
        (folder / "setup_env.py").write_text(SETUP)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2",
            "SKYPILOT_NODE_RANK": str(number),
            "SKYPILOT_NUM_NODES": str(machines),
            "OMP_NUM_THREADS": "1",
        }
        command = ["bash", "-c", f"{read['setup']}\n{read['run']}"]
        running.append(
            subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        )
    said = sorted(line for process in running for line in process.communicate()[0].splitlines())
    assert said == [f"{rank} {2 * machines} 0" for rank in range(2 * machines)]
    assert [process.returncode for process in running] == [0] * machines
    assert all((tmp_path / f"machine {number}" / "installed").exists() for number in range(machines))


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"nodes": "2", "gpus": 8, "accelerator": "H100", "infra": "aws/us-east-1"},
        {"gpus": 1, "infra": "k8s/my-context", "image_id": "docker:me/unsloth:2026.10"},
        {"cpu": True, "setup": None},
    ],
    ids=["by default", "two machines", "an image", "on the CPU"],
)
def test_skypilots_own_loader_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: dict[str, Any]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    sky = pytest.importorskip("sky", exc_type=ImportError)
    (tmp_path / "task.yaml").write_text(task(**numbers))
    monkeypatch.chdir(tmp_path)
    loaded = sky.Task.from_yaml("task.yaml")
    assert loaded.name == "train"
    assert loaded.num_nodes == int(numbers.get("nodes", 1))
    (rented,) = loaded.resources
    kind, count = numbers.get("accelerator", "L4"), numbers.get("gpus", 2)
    assert rented.accelerators == (None if numbers.get("cpu") else {kind: count})
    assert "torchrun" in loaded.run
    with pytest.raises(ValueError, match="num_node"):
        sky.Task.from_yaml_config({"num_node": 2})  # the loader refuses what it does not know
