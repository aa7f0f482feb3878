"""`nb2ddp run --resume`: a Trainer that was stopped goes on from its last checkpoint, and ends as if it was not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.helpers import notebook
from tests.support.launches import PACKAGE_PARENT, needs_proc

TRAINING = """\
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=2, attention_dropout=0.2)
model = LlamaForCausalLM(config)
rows = [{"input_ids": [n % 60 + 1] * 8, "labels": [n % 60 + 1] * 8} for n in range(32)]
trainer = Trainer(model, TrainingArguments(
    "outputs", per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=6, save_steps=2,
    logging_steps=1, learning_rate=1e-2, seed=1, report_to="none", disable_tqdm=True), train_dataset=rows)
trainer.train()
model.save_pretrained("trained")
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nb2ddp", "run", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.launch
@pytest.mark.thorough
@needs_proc
def test_a_stopped_run_goes_on_and_ends_as_a_whole_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    nbformat.write(notebook(TRAINING), tmp_path / "tune.ipynb")
    done = run(tmp_path, "tune.ipynb", "--cpu", "--nproc", "2")
    assert done.returncode == 0, done.stderr
    whole = (tmp_path / "trained" / "model.safetensors").read_bytes()
    log = json.loads((tmp_path / "outputs" / "checkpoint-6" / "trainer_state.json").read_text())[
        "log_history"
    ]
    shutil.rmtree(tmp_path / "trained")
    for lost in ("checkpoint-4", "checkpoint-6"):
        shutil.rmtree(tmp_path / "outputs" / lost)
    broken = tmp_path / "outputs" / "checkpoint-5"  # killed while it saved: its state is missing
    broken.mkdir()
    done = run(tmp_path, "tune_ddp", "--cpu", "--nproc", "2", "--resume")
    assert done.returncode == 0, done.stderr
    assert "nb2ddp: going on from outputs/checkpoint-2" in done.stdout
    assert (tmp_path / "trained" / "model.safetensors").read_bytes() == whole
    again = json.loads((tmp_path / "outputs" / "checkpoint-6" / "trainer_state.json").read_text())[
        "log_history"
    ]
    losses = [
        [(entry["step"], entry["loss"]) for entry in entries if "loss" in entry] for entries in (log, again)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 6


@pytest.mark.launch
@needs_proc
def test_each_rank_runs_the_script_from_its_own_folder(tmp_path: Path) -> None:
    """Without transformers nothing is changed: arguments, imports beside the script and its name are as ever."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "beside.py").write_text("name = 'beside'\n")
    (tmp_path / "there" / "train.py").write_text(
        "import os, sys, time, beside\n# Trainer(\nprint(__name__, sys.argv[1:], beside.name, __file__, flush=True)\n"
        "time.sleep(999) if os.environ['RANK'] == '1' else None; raise ValueError('broken')\n"
    )
    done = run(tmp_path, "there/train.py", "--cpu", "--nproc", "2", "--resume")
    assert done.stdout.splitlines()[-1] == f"__main__ [] beside {tmp_path / 'there' / 'train.py'}"
    assert done.returncode == 1
    assert "ValueError: broken" in done.stderr
    assert "train.py, line 4" in done.stderr or 'train.py", line 4' in done.stderr


def test_a_loop_of_ones_own_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("for batch in data: step(batch)\n")
    done = run(tmp_path, "train.py", "--cpu", "--resume")
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("nb2ddp: --resume goes on from the checkpoints of a Trainer, and train.py")
