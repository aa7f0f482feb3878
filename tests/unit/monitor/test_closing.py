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


def test_steps_are_counted_by_the_runtime_unless_a_trainer_shows_them() -> None:
    bar = "\rTraining: 100%|#####| 4/4 [00:00<00:00, 9.00it/s, loss=1]\n"  # a loop's may count epochs
    counted = "nb2ddp: 2 replicas equal, bit for bit, after 8 steps\n"
    for said, steps in ((bar, "4"), (bar + counted, "8"), (bar + counted + counted, "16")):
        progress = Progress()
        progress.feed(said)
        assert dict(closing_facts(progress, 5, Outputs([])))["steps"] == steps
    progress = Progress()
    progress.feed(f"nb2ddp: batch 2 x 1, by length over 2 processes = 2 per step\n{bar}{counted}")
    assert dict(closing_facts(progress, 5, Outputs([])))["steps"].startswith("4, 2 samples each")


def test_steps_that_begin_anew_in_each_epoch_count_none() -> None:
    progress = Progress()
    for epoch in range(2):
        for step in (0, 5, 10):
            progress.feed(f"epoch {epoch} step {step} loss {9 - step / 5 - epoch:.3f}\n")
        progress.feed(f"epoch {epoch}: loss 3.5\n")
    assert "steps" not in dict(closing_facts(progress, 5, Outputs([])))
    assert [number for number, _ in progress.curve()] == [1, 2, 3, 4, 5, 6, 7, 8]
    progress.feed("nb2ddp: 2 replicas equal, bit for bit, after 30 steps\n")
    assert dict(closing_facts(progress, 5, Outputs([])))["steps"] == "30"


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
