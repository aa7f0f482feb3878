"""The closing block of a run: what is known, and nothing of what is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nb2ddp.launch.outputs import Outputs, files_written
from nb2ddp.monitor.closing import closing_facts
from nb2ddp.monitor.progress import Progress

CLASS = "AutoPeftModelForCausalLM"


def test_all_that_can_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    since = time.time() - 10
    for name in ("lora/adapter_config.json", "outputs/checkpoint-2/trainer_state.json", "log.txt", "old/x"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text('{"task_type": "CAUSAL_LM"}')
    os.utime("old/x", (since - 5, since - 5))
    progress = Progress()
    progress.feed("{'loss': '2.5'}\n{'loss': '1.25'}\nnb2ddp: 4 replicas equal, bit for bit\n")
    progress.feed("nb2ddp: batch 2 x 2 accumulation steps x 4 processes = 16 per step\n")
    progress.feed("{'train_runtime': '75', 'train_samples_per_second': '8.04'}\n")
    progress.step = 60
    outputs = Outputs(files_written(tmp_path, since))
    facts = closing_facts(
        progress, 3723, outputs, nproc=4, peak_memory={0: 8 << 30, 1: 15 << 29}, logs=Path("logs")
    )
    assert dict(facts) == {
        "time": "1:02:03 on 4 processes, 1:15 of it training",
        "steps": "60, 16 samples each, 8.04 samples/s",
        "loss": "2.5 -> 1.25",
        "ranks": "4 replicas equal, bit for bit",
        "GPU memory": "at most rank 0 8.0 GiB, rank 1 7.5 GiB",
        "written": "log.txt, lora/ (1 file), outputs/ (1 file)",
        "logs": "logs",
        "load it": f'from peft import {CLASS}; model = {CLASS}.from_pretrained("lora")',
    }
    assert outputs.checkpoint == Path("outputs/checkpoint-2")


def test_nothing_is_made_up() -> None:
    assert closing_facts(Progress(), 5, Outputs([])) == [("time", "0:05")]


def test_steps_are_known_without_a_bar() -> None:
    progress = Progress()
    progress.feed("{'loss': '2.5', 'epoch': '0.5'}\nnb2ddp: 2 replicas equal, bit for bit, after 8 steps\n")
    facts = dict(closing_facts(progress, 5, Outputs([])))
    assert facts["steps"] == "8"
    assert facts["ranks"] == "2 replicas equal, bit for bit"


def test_steps_of_a_bar_are_not_those_of_each_optimizer() -> None:
    progress = Progress()
    progress.feed("\rTraining: 100%|#####| 4/4 [00:00<00:00, 9.00it/s, loss=1]\n")
    progress.feed("nb2ddp: 2 replicas equal, bit for bit, after 8 steps\n")
    assert dict(closing_facts(progress, 5, Outputs([])))["steps"].startswith("4")


def test_what_is_no_output_is_left_out(tmp_path: Path) -> None:
    """Logs, caches, and the notebook that its front end saves meanwhile."""
    for name in (
        "model.pt",
        "run.ipynb",
        "logs/rank1.log",
        "__pycache__/a.pyc",
        ".ipynb_checkpoints/run.ipynb",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = files_written(tmp_path, 0.0, without=[tmp_path / "logs", tmp_path / "run.ipynb"])
    assert [path.name for path in found] == ["model.pt"]
