"""A training that ends before its end, in time or by force, and the kernel that goes on from its output.

On two CPU processes, in folders like Kaggle's; the thorough one with the real Unsloth.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import convert
from nb2ddp.runtime import support_module
from nb2ddp.targets.kaggle import kaggle_bundle
from tests.support import ROOT
from tests.support.kaggle_kernel import Kaggle
from tests.support.limits import LONG
from tests.support.ranks import WITHOUT
from tests.support.runs import STACKS, run

pytestmark = pytest.mark.launch

STEPS = 8


@pytest.fixture(scope="module")
def script() -> str:
    """The sample's training with a checkpoint every other step, and dropout: it draws random numbers."""
    text = convert(ROOT / "sample_notebooks" / "alpaca_sft.ipynb").files["train_ddp.py"]
    for old, new in (
        ("max_steps = 10,", f"max_steps = {STEPS}, save_steps = 3,"),
        ("lora_dropout = 0,", "lora_dropout = 0.1,"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def classifier() -> str:
    """The same with Transformers alone, which takes half of the time; each rank computes a whole micro-batch."""
    text = convert(ROOT / "tests" / "notebooks" / "classification.ipynb").files["train_ddp.py"]
    for old, new in (
        ("per_device_train_batch_size=8,", "per_device_train_batch_size=4, gradient_accumulation_steps=2,"),
        ("max_steps=10,", f"max_steps={STEPS},"),
        ("eval_steps=5,", "eval_steps=3,"),
        ("save_steps=5,", "save_steps=3,"),
        ("initializer_range=0.1,", "initializer_range=0.1, attention_dropout=0.1,"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def with_callback(script: str, body: str) -> str:
    """The script, with these lines at the beginning of each step."""
    (start,) = re.findall(r"^(?:\w+ = )?trainer\.train\(\)$", script, re.MULTILINE)
    return script.replace(
        f"\n{start}\n",
        "\nimport time\n"
        "from transformers import TrainerCallback\n"
        "class AtStep(TrainerCallback):\n"
        "    def on_step_begin(self, args, state, control, **kwargs):\n"
        f"        {body}\n"
        "trainer.add_callback(AtStep())\n"
        f"{start}\n",
    )


class Kernel(Kaggle):
    """One kernel of a script, watched by tests/support/harness."""

    def __init__(self, root: Path, script: str, *, stack: str = "newest", **options: Any) -> None:
        if not STACKS[stack].exists():
            pytest.skip(f"the {stack} stack is not installed; `make test` installs it")
        root.mkdir()
        super().__init__(root)
        self.python = STACKS[stack]
        (root / "watch").mkdir()
        self.watch = root / "watch"
        bundle = kaggle_bundle(
            script,
            title="Tiny run",
            owner="ada",
            setup=None,
            support=support_module(),
            notebook_name="tiny.ipynb",
            **options,
        )
        self.code = bundle["tiny-run.py"]
        self.environment |= {
            "NB2DDP_CPU": "1",
            "NB2DDP_WATCH": str(self.watch),
            "PYTHONPATH": str(ROOT / "tests" / "support" / "harness"),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(root / "hf"),
            "OMP_NUM_THREADS": "1",
            **WITHOUT,
        }

    def losses(self) -> list[float]:
        found: list[float] = json.loads((self.watch / "losses-0.json").read_text())
        return found

    def finish(self) -> str:
        code, output = self.run(self.code)
        self.source.chmod(0o755)
        assert code == 0, output
        return output

    def takes(self, output: Path) -> None:
        """Mount another kernel's output as Kaggle does."""
        mounted = self.input / "notebooks" / "ada" / "tiny-run"
        mounted.parent.mkdir(parents=True)
        shutil.copytree(output, mounted)


def whole(script: str, folder: Path, stack: str) -> list[float]:
    """The losses of a training that nothing disturbs."""
    ended = run(folder, script, stack=stack, nproc=2)
    assert ended.exit_code == 0, ended.output
    assert len(ended.losses()) == STEPS
    return ended.losses()


def without_times(log: list[dict[str, float]]) -> list[dict[str, float]]:
    return [
        {key: value for key, value in record.items() if not key.endswith(("_runtime", "_per_second"))}
        for record in log
    ]


def is_whole(checkpoint: Path) -> bool:
    """The Trainer writes its state last; once the file is there, it is empty for a moment."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return (checkpoint / "rng_state.pth").exists()


def killed_in_the_middle(classifier: str, tmp_path: Path) -> Path:
    """Return the output of a kernel that was ended from outside."""
    # Without the wait, a busy machine would let the training reach its last checkpoint before the signal.
    waiting = with_callback(classifier, "if state.global_step == 6:\n            time.sleep(600)")
    first = Kernel(tmp_path / "first", waiting)
    with first.start(first.code) as process:
        deadline = time.monotonic() + 300
        while not is_whole(first.work / "my_model" / "checkpoint-6"):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONG)
    assert process.returncode == 130
    return first.work


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_killed_in_the_middle_and_resumed_it_has_the_losses_of_a_whole_run(
    classifier: str, tmp_path: Path, killed: bool
) -> None:
    """What is left then is what a whole run had at that step, and test_kaggle_bundle.py ends a kernel from outside."""
    expected = whole(classifier, tmp_path / "whole", "newest")
    if killed:
        output_of_first = killed_in_the_middle(classifier, tmp_path)
    else:
        output_of_first = tmp_path / "until-then"
        later = shutil.ignore_patterns(f"checkpoint-{STEPS}", "my_classifier", "hf")
        shutil.copytree(tmp_path / "whole", output_of_first, ignore=later)
    second = Kernel(
        tmp_path / "second", classifier, resume_from="ada/tiny-run", kernel_sources=["ada/tiny-run"]
    )
    second.takes(output_of_first)
    output = second.finish()
    assert "my_model/checkpoint-6 is here from ada/tiny-run" in output
    assert f"going on from my_model{os.sep}checkpoint-6" in output
    report = second.report()
    assert (report["exit_code"], report["world_size"], report["error"]) == (0, 2, None)
    assert {"torch", "transformers", "trl", "peft", "unsloth"} <= report["versions"].keys()
    assert second.losses() == expected[6:]
    model = Path("my_classifier", "model.safetensors")
    assert (second.work / model).read_bytes() == (tmp_path / "whole" / model).read_bytes(), "bit for bit"
    logs = [
        json.loads((folder / "my_model" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())[
            "log_history"
        ]
        for folder in (second.work, tmp_path / "whole")
    ]
    assert without_times(logs[0]) == without_times(logs[1]), "the whole log, though two kernels have made it"


@pytest.mark.thorough
def test_stopped_in_time_and_resumed_it_has_the_losses_of_a_whole_run(script: str, tmp_path: Path) -> None:
    expected = whole(script, tmp_path / "whole", "kaggle")
    # The time is up as soon as the fourth step has been made, on the clock of rank 0 alone
    slow = with_callback(
        script, "if state.global_step == 3 and rank == 0:\n            time.time = lambda: 4e9"
    )
    first = Kernel(tmp_path / "first", slow, stack="kaggle", timeout=11 * 3600)
    output = first.finish()
    assert "the time is up: stopping at step 4 of 8" in output
    assert "stopped in time at step 4 of 8" in output
    assert first.losses() == expected[:4]
    report = first.report()
    assert report["stopped"] == {"step": 4, "of": 8}
    assert report["exit_code"] == 0
    assert not (first.work / "llama_lora").exists()
    saved = first.work / "llama_lora-stopped-at-step-4" / "adapter_model.safetensors"
    assert saved.is_file(), "what there is, is saved, and its name says so"
    resumed = {"timeout": 39600, "resume_from": "ada/tiny-run", "kernel_sources": ["ada/tiny-run"]}
    second = Kernel(tmp_path / "second", script, stack="kaggle", **resumed)
    second.takes(first.work)
    assert f"going on from outputs{os.sep}checkpoint-4" in second.finish()
    assert second.losses() == expected[4:]
    assert "stopped" not in second.report()


def test_no_checkpoint_to_go_on_from_stops_before_the_training(tmp_path: Path) -> None:
    kernel = Kernel(
        tmp_path / "k", "print('trained')\n", resume_from="ada/tiny-run", kernel_sources=["ada/tiny-run"]
    )
    code, output = kernel.run(kernel.code)
    kernel.source.chmod(0o755)
    assert code == 1
    assert "there is no checkpoint in the output of ada/tiny-run" in output
    assert "trained\n" not in output
