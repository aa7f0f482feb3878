"""The command line of `nb2ddp emit`: the files that it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.targets.job import Job
from tests.support import ROOT
from tests.unit.targets.conftest import NOTEBOOK, SCRIPT, emit, files


def test_a_folder_that_is_all_the_cluster_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = emit("--target", "torchrun", "--nodes", "2", "tiny_ddp")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[-4::2] == ["  python setup_env.py", "  HEAD=node1 ./train_torchrun.sh"], "to be copied"
    assert lines[-3].startswith("      (once for each Python")
    assert lines[-1].startswith("      (on each machine;")
    made = folder / "torchrun"
    names = {path.name for path in made.iterdir()}
    assert names == {
        *("ddp_support.py", "report.json", "resume.py", "setup_env.py", "train_ddp.py", "train_torchrun.sh")
    }
    for name in ("train_ddp.py", "ddp_support.py", "setup_env.py"):
        assert (made / name).read_bytes() == (folder / name).read_bytes()
    assert (made / "train_torchrun.sh").stat().st_mode & stat.S_IXUSR
    compile((made / "resume.py").read_text(), "resume.py", "exec")


def test_of_a_notebook(folder: Path) -> None:
    result = emit("--target", "slurm", str(NOTEBOOK), "-o", "there")
    assert result.exit_code == 0, result.output
    assert Path("there/train.sbatch").exists()
    assert Path("alpaca_sft_ddp/train_ddp.py").exists()


def test_edits_of_the_script_are_taken_along(folder: Path) -> None:
    (folder / "train_ddp.py").write_text(SCRIPT + "# mine\n")
    assert emit("--target", "slurm", "tiny_ddp").exit_code == 0
    assert (folder / "slurm" / "train_ddp.py").read_text().endswith("# mine\n")


def test_an_edited_launcher_is_not_overwritten(folder: Path) -> None:
    assert emit("--target", "slurm", "tiny_ddp").exit_code == 0
    assert emit("--target", "slurm", "--nodes", "4", "tiny_ddp").exit_code == 0
    launcher = folder / "slurm" / "train.sbatch"
    launcher.write_text(launcher.read_text() + "# mine\n")
    result = emit("--target", "slurm", "tiny_ddp")
    assert result.exit_code == 1
    assert "train.sbatch was changed since nb2ddp wrote it; --force overwrites" in result.output
    assert launcher.read_text().endswith("# mine\n")
    assert emit("--target", "slurm", "--force", "tiny_ddp").exit_code == 0
    assert launcher.with_name("train.sbatch.bak").read_text().endswith("# mine\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["slurm", "--image", "x"], "--image is an option of --target kubeflow, not of slurm"),
        (["torchrun", "--module", "cuda"], "--module is an option of --target slurm, not of torchrun"),
        (["slurm", "--nodes", "1:2"], "SLURM starts a fixed number of machines"),
        (["kubeflow", "--nodes", "1:2"], "a TrainJob starts a fixed number of machines"),
        (["torchrun", "--nodes", "3:2"], "--nodes 3:2 is no number of machines"),
        (["torchrun", "--nodes", "two"], "--nodes two is no number of machines"),
        (["torchrun", "--save-steps", "0"], "--save-steps 0 has to be at least 1"),
        (["torchrun", "--max-restarts", "-1"], "--max-restarts -1 has to be 0 or more"),
        (["torchrun", "--rdzv-port", "80"], "--rdzv-port 80 is no port"),
        (["accelerate", "--nodes", "2"], "--main-process-ip is missing"),
        (["accelerate", "--save-steps", "5"], "--save-steps works with torchrun and slurm"),
        (["slurm", "--time", "tomorrow"], "--time 'tomorrow' cannot be used"),
        (["slurm", "--signal-seconds", "0"], "have to be at least 1"),
        (["slurm", "--job-name", "a\n#SBATCH --uid=0"], "--job-name 'a\\n#SBATCH --uid=0' cannot be used"),
        (["slurm", "--partition", "gpu --wrap=x"], "--partition 'gpu --wrap=x' cannot be used"),
        (["slurm", "--module", "cuda; reboot"], "--module 'cuda; reboot' cannot be used"),
        (["slurm", "--container-image", "a'b"], '--container-image "a\'b" cannot be used'),
        (["kubeflow", "--name", "Train_1"], "--name 'Train_1' cannot be used"),
        (["kubeflow", "--image", "x\n  evil: 1"], "--image 'x\\n  evil: 1' cannot be used"),
        (["accelerate", "--main-process-ip", "a: b"], "--main-process-ip 'a: b' cannot be used"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(folder: Path, arguments: list[str], sentence: str) -> None:
    result = emit("tiny_ddp", "--target", *arguments)
    assert result.exit_code == 2, "the command line is wrong"
    assert sentence in result.output
    assert not (folder / arguments[0]).exists()


def test_a_script_for_one_process_is_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["convert", str(NOTEBOOK), "-o", "one", "--strategy", "balanced"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    result = emit("--target", "slurm", "one")
    assert result.exit_code == 1
    assert "for one process that spreads the model" in result.output


def test_a_sharded_models_checkpoints_need_one_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        CliRunner().invoke(main, ["convert", str(NOTEBOOK), "-o", "out", "--strategy", "fsdp"]).exit_code == 0
    )
    result = emit("--target", "slurm", "--nodes", "2", "--no-shared-fs", "out")
    assert result.exit_code == 1
    assert "are written by the first machine alone" in result.output
    for more in (["--nodes", "2"], ["--no-shared-fs"]):
        assert emit("--target", "slurm", *more, "out").exit_code == 0


def test_a_script_that_is_no_python_any_more(folder: Path) -> None:
    (folder / "train_ddp.py").write_text("def f(:\n")
    result = emit("--target", "slurm", "tiny_ddp")
    assert result.exit_code == 1
    assert "cannot be read as Python" in result.output


@pytest.mark.parametrize("target", ["torchrun", "slurm"])
def test_a_loop_of_its_own_has_no_checkpoints_to_go_on_from(folder: Path, target: str) -> None:
    """And nothing in its files speaks of them, nor starts the training a second time."""
    assert "without a Trainer" not in emit("--target", target, "tiny_ddp").output
    loop = ROOT / "sample_notebooks" / "peft_loop.ipynb"  # it trains a tokenizer, with a BpeTrainer
    assert "the script trains without a Trainer" in emit("--target", target, str(loop), "-o", "made").output
    assert not Path("made/resume.py").exists()
    text = Path("made", "train.sbatch" if target == "slurm" else "train_torchrun.sh").read_text()
    assert not re.search(r"checkpoint|requeue|USR1|STOP_FILE|restarts=[1-9]|resume", text)
    assert "train_ddp.py" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    refused = emit("--target", target, str(loop), "--save-steps", "5")
    assert (refused.exit_code, "trains without a Trainer" in refused.output) == (2, True)


def test_restarts_that_are_asked_for(folder: Path) -> None:
    assert "--max_restarts=3 " in files("torchrun")["train_torchrun.sh"]
    loop = Job("loop.ipynb", "print(1)\n", None)
    assert "--max_restarts=2 " in files("torchrun", loop, max_restarts=2)["train_torchrun.sh"]


def test_a_launcher_that_installs_asks_for_no_install_step(folder: Path) -> None:
    result = emit("--target", "skypilot", "--gpus", "4", "--accelerator", "H100", "tiny_ddp")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == "  sky launch -c train task.yaml"
    assert "python setup_env.py" not in result.output
    assert yaml.safe_load((folder / "skypilot" / "task.yaml").read_text())["setup"] == "python setup_env.py\n"


def test_the_report_tells_the_target(folder: Path) -> None:
    assert emit("--target", "kubeflow", "tiny_ddp").exit_code == 0
    report = json.loads((folder / "kubeflow" / "report.json").read_text())
    assert (report["target"], report["notebook"]) == ("kubeflow", "alpaca_sft.ipynb")
    assert set(report["files"]) == {"trainjob.yaml"}


def test_a_checkpoint_belongs_to_one_training_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "resume.py").write_text(files("torchrun")["resume.py"])
    marks = {4: (1, "mine"), 8: (1, "mine"), 12: (2, "mine"), 16: (1, "another"), 20: None}
    for step, mark in marks.items():
        folder = tmp_path / "outputs" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        if mark is not None:  # the mark is written last: without it the checkpoint is not whole
            (folder / "nb2ddp.json").write_text(json.dumps({"training": mark[0], "run": mark[1]}))
    expected: dict[str, list[int | None]] = {
        "mine": [8, 12, None],
        "another": [16, None, None],
        "new": [None, None, None],
    }
    asks = (
        "import importlib, os, resume\n"
        f"for run in {list(expected)!r}:\n"
        "    os.environ['TORCHELASTIC_RUN_ID'] = run\n"
        "    importlib.reload(resume)\n"
        "    print([resume.last_checkpoint('outputs', n) for n in (1, 2, 3)])"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", asks]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, steps in zip(done.stdout.splitlines(), expected.values(), strict=True):
        assert line == repr(
            [None if step is None else os.path.join("outputs", f"checkpoint-{step}") for step in steps]
        )
