"""The emitted batch file on a real SLURM: stopped before its limit, requeued, and trained to the end."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from nb2ddp import convert
from nb2ddp.runtime import support_module
from nb2ddp.targets.job import Job
from nb2ddp.targets.slurm import Slurm
from tests.support import ROOT
from tests.support.ranks import WITHOUT
from tests.support.runs import plain_code, run
from tests.support.slurm import slurm_cluster

NOTEBOOK = ROOT / "tests" / "notebooks" / "classification.ipynb"
# In its first run the script waits at step 6 until SLURM says that the time is nearly up.
PAUSE = """\
from transformers import TrainerCallback
class Pause(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        import time
        end = time.monotonic() + 600
        first = "SLURM_RESTART_COUNT" not in os.environ
        if first and state.global_step == 6:
            open("paused", "w").close()
        while first and state.global_step == 6 and time.monotonic() < end:
            if os.path.exists(os.environ["NB2DDP_STOP_FILE"]):
                break
            time.sleep(0.2)
trainer.add_callback(Pause())
trainer.train()"""


@pytest.mark.launch
@pytest.mark.thorough  # test_kaggle_resume.py goes on from a checkpoint, too
def test_stopped_before_the_limit_and_requeued_to_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    script = convert(NOTEBOOK).files["train_ddp.py"]
    assert script.count("\ntrainer.train()\n") == 1
    script = script.replace("\ntrainer.train()\n", f"\n{PAUSE}\n")
    job = Job(NOTEBOOK.name, script, None, support_module(), gpus=2, cpu=True)
    options = Slurm(time="30", job_name="tiny", partition="main", mem="6G", signal_seconds=300)
    for name, text in options.files(job).items():
        (folder / name).write_text(text)
    watch = tmp_path / "watch"
    watch.mkdir()
    with slurm_cluster(tmp_path / "slurm") as slurm:
        slurm.environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "tests" / "support" / "harness"),
            "NB2DDP_WATCH": str(watch),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "hf"),
            "OMP_NUM_THREADS": "1",
            **WITHOUT,
        }
        number = slurm.command("sbatch", "--parsable", "train.sbatch", cwd=folder).strip()
        log = folder / f"tiny-{number}.out"
        start = time.monotonic()
        update = ["scontrol", "update", f"JobId={number}"]
        limits = ["RUNNING", "PENDING"]  # the limit is lowered at step 6, and raised again for the second run
        while (state := slurm.state(number)) != "COMPLETED":
            if limits and state == limits[0] and (folder / "paused").exists():
                minutes = int((time.monotonic() - start) / 60) + 5 if limits.pop(0) == "RUNNING" else 30
                slurm.command(*update, f"TimeLimit={minutes}")
            said = log.read_text(errors="replace")[-6000:] if log.exists() else ""
            assert state not in ("FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL"), said
            assert time.monotonic() < start + 800, f"{state}\n{said}"
            time.sleep(0.5)
    said = log.read_text(errors="replace")
    stopped = re.search(r"asked to stop: there is a checkpoint of step (\d+) of 10", said)
    assert stopped, said
    step = int(stopped[1])
    assert step < 10
    assert f"run {number} goes on from my_model{os.sep}checkpoint-{step}" in said
    assert (folder / "my_classifier" / "model.safetensors").is_file()
    assert not list(folder.glob("stop-*"))
    whole = run(tmp_path / "whole" / "work", plain_code(NOTEBOOK), stack="newest", nproc=0)
    assert whole.exit_code == 0, whole.output
    losses = json.loads((watch / "losses-0.json").read_text())
    assert losses == pytest.approx(whole.losses("single")[step:], rel=1e-5)
