"""The emitted launchers on two hosts: the losses of the single process.

The hosts are network namespaces; see tests/support/hosts.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import convert
from nb2ddp.runtime import support_module
from nb2ddp.targets import TARGETS
from nb2ddp.targets.job import Job
from tests.support import ROOT
from tests.support.hosts import Host, two_hosts
from tests.support.limits import LONG
from tests.support.runs import plain_code, run

pytestmark = pytest.mark.launch

NOTEBOOK = ROOT / "tests" / "notebooks" / "classification.ipynb"
STEPS = 10


# A loop that makes a file where it is missing. It imports PyTorch alone, which a Trainer takes four times as long for.
LOOP = """\
import os, torch

if not os.path.exists("start.pt"):
    torch.manual_seed(0)
    torch.save(torch.nn.Linear(6, 3).state_dict(), "start.pt")
model = torch.nn.Linear(6, 3)
model.load_state_dict(torch.load("start.pt"))
torch.manual_seed(1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
rows, labels = torch.randn(80, 6), torch.randint(3, (80,))
for x, y in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=8, shuffle=True):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.6f}")
torch.save(model.state_dict(), "end.pt")
"""


def emitted(
    folder: Path,
    target: str,
    options: dict[str, Any] | None = None,
    *,
    notebook: Path = NOTEBOOK,
    **numbers: Any,
) -> Path:
    """The files of a target, for the sample on two machines, on the CPU."""
    script = convert(notebook).files["train_ddp.py"]
    job = Job(notebook.name, script, None, support_module(), nodes="2", cpu=True, **numbers)
    folder.mkdir(parents=True)
    for name, text in TARGETS[target](**(options or {})).files(job).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the notebook's own code in one process."""
    ended = run(tmp_path_factory.mktemp("single") / "work", plain_code(NOTEBOOK), stack="newest", nproc=0)
    assert ended.exit_code == 0, ended.output
    return ended.losses("single")


def losses(*hosts: Host) -> list[float]:
    """What rank 0 logged, on whichever host it was."""
    files = [host.watch / "losses-0.json" for host in hosts]
    (found,) = [json.loads(file.read_text()) for file in files if file.exists()]
    return list(found)


def written(host: Host, rank: int, folder: Path) -> set[str]:
    """The files of the run, without caches, that a rank opened for writing."""
    notes = host.watch / f"writes-{rank}.txt"
    names = {Path(line) for line in notes.read_text().splitlines()} if notes.exists() else set()
    inside = {path.relative_to(folder) for path in names if path.is_relative_to(folder)}
    return {str(path) for path in inside if path.parts[0] not in ("hf", "unsloth_compiled_cache")}


def wait_for(processes: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    deadline = time.monotonic() + LONG
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(max(1, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(-1)
    assert codes == [0] * len(codes), "\n".join(log.read_text(errors="replace")[-6000:] for log in logs)


@pytest.mark.thorough
def test_two_hosts_of_one_process_have_the_losses_of_one(tmp_path: Path, single: list[float]) -> None:
    folder = emitted(tmp_path / "work", "torchrun", gpus=1)
    with two_hosts(tmp_path) as hosts:
        started = [host.start(["./train_torchrun.sh"], folder, {"HEAD": "node1"}) for host in hosts]
        wait_for(started, [host.log(folder) for host in hosts])
        assert losses(*hosts) == pytest.approx(single, rel=1e-5)
        assert not set.intersection(*(written(host, 1, folder) for host in hosts))
    assert (folder / "my_classifier" / "model.safetensors").is_file()


# Of two processes that share a disk, one alone makes the files: tests/unit/runtime/test_object_collectives.py too.
@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_two_hosts_without_a_shared_disk(tmp_path: Path, gpus: int) -> None:
    notebook = tmp_path / "loop.py"
    notebook.write_text(f"# %%\n{LOOP}")
    first = emitted(tmp_path / "one" / "work", "torchrun", notebook=notebook, gpus=gpus, shared_fs=False)
    second = tmp_path / "two" / "work"
    shutil.copytree(first, second)
    with two_hosts(tmp_path) as hosts:
        started = [
            host.start(["./train_torchrun.sh"], folder, {"HEAD": "node1", "TMPDIR": str(folder.parent)})
            for host, folder in zip(hosts, (first, second), strict=True)
        ]
        logs = [host.log(folder) for host, folder in zip(hosts, (first, second), strict=True)]
        wait_for(started, logs)
    alone = subprocess.run(
        [sys.executable, notebook], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    printed = [re.findall(r"^(?:\[\w*\d*\]:)?loss (\S+)$", log.read_text(), re.MULTILINE) for log in logs]
    assert sorted(map(len, printed)) == [0, STEPS]  # rank 0 alone
    assert [float(loss) for loss in printed[0] + printed[1]] == pytest.approx(
        [float(line.split()[1]) for line in alone.stdout.splitlines()], rel=1e-5
    )
    assert all((folder / "start.pt").is_file() for folder in (first, second))  # each has made it for itself
    assert sorted((folder / "end.pt").exists() for folder in (first, second)) == [False, True]


@pytest.mark.thorough
def test_a_host_that_fails_and_comes_back(tmp_path: Path, single: list[float]) -> None:
    folder = emitted(tmp_path / "work", "torchrun", gpus=1, save_steps=4)
    script = folder / "train_ddp.py"
    text = script.read_text()
    start = {"HEAD": "node1"}
    # a step on the second host that waits, once, for the plug to be pulled
    script.write_text(
        text.replace(
            "\ntrainer.train()\n",
            "\nfrom transformers import TrainerCallback\n"
            "class Pause(TrainerCallback):\n"
            "    def on_step_end(self, args, state, control, **kwargs):\n"
            "        second = os.uname().nodename == 'node2'\n"
            "        if second and state.global_step == 6 and not os.path.exists('paused'):\n"
            "            open('paused', 'w').close()\n"
            "            import time; time.sleep(600)\n"
            "trainer.add_callback(Pause())\n"
            "trainer.train()\n",
        )
    )
    with two_hosts(tmp_path) as hosts:
        first, second = hosts
        survivor = first.start(["./train_torchrun.sh"], folder, start)
        lost = second.start(["./train_torchrun.sh"], folder, start)
        deadline = time.monotonic() + LONG
        while not (folder / "paused").exists():
            assert time.monotonic() < deadline, first.log(folder).read_text(errors="replace")[-6000:]
            assert survivor.poll() is None, first.log(folder).read_text(errors="replace")[-6000:]
            time.sleep(0.1)
        second.pull_the_plug()
        lost.wait(30)
        again = second.start(["./train_torchrun.sh"], folder, start)
        wait_for([survivor, again], [host.log(folder) for host in hosts])
        said = "".join(host.log(folder).read_text(errors="replace") for host in hosts)
        assert f"run run-1 goes on from my_model{os.sep}checkpoint-4" in said
        assert losses(*hosts) == pytest.approx(single[4:], rel=1e-5)


@pytest.mark.thorough
def test_accelerate_launch_on_two_hosts(tmp_path: Path, single: list[float]) -> None:
    folder = emitted(tmp_path / "work", "accelerate", {"main_process_ip": "node1"}, gpus=1)
    launch = "accelerate launch --config_file accelerate.yaml --machine_rank {} train_ddp.py"
    with two_hosts(tmp_path) as hosts:
        started = [
            host.start(launch.format(number).split(), folder, {"CUDA_VISIBLE_DEVICES": ""})
            for number, host in enumerate(hosts)
        ]
        wait_for(started, [host.log(folder) for host in hosts])
        assert losses(*hosts) == pytest.approx(single, rel=1e-5)
