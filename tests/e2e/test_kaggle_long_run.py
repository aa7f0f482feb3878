"""push --sessions with sessions that really train: stopped in time, killed, and gone on to the end.

The server runs what is pushed on two CPU processes, in folders like Kaggle's, with the real Unsloth and a LoRA adapter.
"""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from nb2ddp.kaggle import datasets
from tests.support import ROOT
from tests.support.kaggle_client import imported_for_loopback, nb2ddp, server, write_notebook
from tests.support.kaggle_kernel import Kaggle
from tests.support.kaggle_server import KaggleServer, takes
from tests.support.limits import LONG
from tests.support.ranks import WITHOUT
from tests.support.runs import HARNESS, STACKS

pytestmark = [
    pytest.mark.launch,
    pytest.mark.thorough,
    pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]"),
]

STEPS = 8

AT_STEP = """
from transformers import TrainerCallback
class AtStep(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if {condition}:
            {action}
trainer.add_callback(AtStep())
"""
TIME_IS_UP = AT_STEP.format(
    condition="state.global_step == 3 and rank == 0", action="time.time = lambda: 4e9"
)
STAYS = AT_STEP.format(condition="state.global_step == 6", action="time.sleep(600)")
FAILS = AT_STEP.format(
    condition="state.global_step == 2 and rank == 1", action="raise ValueError('no such row')"
)


class Machines:
    """Where the server runs the kernels: each push takes the next plan, which names what happens in its training."""

    def __init__(self, server: KaggleServer, root: Path) -> None:
        self.server, self.root = server, root
        self.plans: list[str] = []
        self.kernels: dict[str, Kaggle] = {}
        self.running: tuple[str, subprocess.Popen[str], str] | None = None
        setattr(server, "GetKernelSessionStatus", self.state)  # noqa: B010, an assignment is an error for mypy

    def answer(self, server: KaggleServer, request: dict[str, Any]) -> dict[str, Any] | str:
        plan, ref = self.plans.pop(0), request["slug"]
        root = self.root / ref.partition("/")[2]
        (root / "watch").mkdir(parents=True)
        kernel = Kaggle(root)
        kernel.python = STACKS["kaggle"]
        kernel.environment |= {
            "NB2DDP_CPU": "1",
            "NB2DDP_WATCH": str(root / "watch"),
            "PYTHONPATH": str(HARNESS),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(root / "hf"),
            "OMP_NUM_THREADS": "1",
            **WITHOUT,
        }
        for source in request.get("kernelDataSources", []):
            shutil.copytree(self.kernels[source].work, kernel.input / "notebooks" / source)
        for source in request.get("datasetDataSources", []):
            for name, data in server.unpacked(source).items():
                file = kernel.input / "datasets" / source / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        text, count = re.subn(
            r"(?m)^(?=(?:\w+ = )?trainer\.train\(\)$)", f"import time\n{plan}", request["text"]
        )
        assert count == 1
        self.kernels[ref] = kernel
        self.running = ref, kernel.start(text), plan
        return takes(server, request)

    def state(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.running is not None
        ref, process, plan = self.running
        kernel = self.kernels[ref]
        if plan == STAYS and _is_whole(kernel.work / "outputs" / "checkpoint-6"):
            kernel_process = psutil.Process(
                process.pid
            )  # with all that it has started, as a machine that is gone
            for each in (*kernel_process.children(recursive=True), kernel_process):
                each.kill()
        if process.poll() is None:
            return {"status": "RUNNING"}
        process.communicate(timeout=LONG)
        kernel.source.chmod(0o755)
        files = [path for path in kernel.work.rglob("*") if path.is_file()]
        self.server.files = {path.relative_to(kernel.work).as_posix(): path.read_bytes() for path in files}
        return {"status": "COMPLETE"} if process.returncode == 0 else {"status": "ERROR"}


def _is_whole(checkpoint: Path) -> bool:
    """The Trainer writes its state last; once the file is there, it is empty for a moment."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return (
        all((checkpoint / f"rng_state_{rank}.pth").exists() for rank in (0, 1))
        or (checkpoint / "rng_state.pth").exists()
    )


@pytest.fixture
def machines(server: KaggleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    if not STACKS["kaggle"].exists():
        pytest.skip("the kaggle stack is not installed; `make test` installs it")
    monkeypatch.setattr(datasets, "POLL_SECONDS", 0.01)
    machines = Machines(server, tmp_path / "machines")
    server.answers = [machines.answer] * 9
    return machines


@pytest.fixture
def notebook(server: KaggleServer) -> str:
    """The sample with checkpoints in between, and with dropout: it draws random numbers."""
    cells = nbformat.read(ROOT / "sample_notebooks" / "alpaca_sft.ipynb", as_version=4).cells
    text = [cell.source for cell in cells if cell.cell_type == "code" and "pip install" not in cell.source]
    for old, new in (
        ("max_steps = 10,", f"max_steps = {STEPS}, save_steps = 3,"),
        ("lora_dropout = 0,", "lora_dropout = 0.1,"),
    ):
        assert sum(cell.count(old) for cell in text) == 1, old
        text = [cell.replace(old, new) for cell in text]
    write_notebook(Path("tiny.ipynb"), list(text))
    assert nb2ddp("convert", "tiny.ipynb", "--title", "Tiny run").exit_code == 0
    return "tiny_ddp"


def _log(output: Path) -> list[dict[str, Any]]:
    """What the Trainer has logged, without times; TRL counts tokens anew when it goes on, in one process too."""
    state = json.loads((output / "outputs" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    other = ("_runtime", "_per_second", "num_tokens")
    return [
        {key: value for key, value in log.items() if not key.endswith(other)} for log in state["log_history"]
    ]


def test_three_sessions_train_what_one_does(machines: Machines, notebook: str) -> None:
    machines.plans = ["", TIME_IS_UP, STAYS, ""]
    whole = nb2ddp("push", notebook, "--title", "Whole", "--watch")
    assert whole.exit_code == 0, whole.output
    assert nb2ddp("fetch", "ada/whole").exit_code == 0
    result = nb2ddp("push", notebook, "--sessions", "auto")
    assert result.exit_code == 0, result.output
    assert "session 1 ended as COMPLETE at step 4 of 8" in result.output
    assert "session 2 ended as ERROR at step 6" in result.output
    assert "the run is done after 3 sessions" in result.output
    outputs = Path("tiny-run-part-3_output"), Path("whole_output")
    adapters = [(output / "llama_lora" / "adapter_model.safetensors").read_bytes() for output in outputs]
    assert adapters[0] == adapters[1], "bit for bit"
    logs = [_log(output) for output in outputs]
    assert [record["loss"] for record in logs[0] if "loss" in record]
    assert logs[0] == logs[1], "the whole log of losses, though three kernels have made it"


def test_a_session_that_fails_by_itself_ends_the_run_with_its_own_words(
    machines: Machines, notebook: str
) -> None:
    machines.plans = [FAILS, ""]
    result = nb2ddp("push", notebook, "--sessions", "auto")
    assert result.exit_code == 23, result.output
    assert "ValueError: no such row" in result.output
    assert machines.plans == [""], "no second session"
