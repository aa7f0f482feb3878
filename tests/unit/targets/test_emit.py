"""What `nb2ddp emit` writes: read by the engines' own parsers, refused where a value cannot be."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from click.testing import CliRunner, Result
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

from nb2ddp.cli import main
from nb2ddp.errors import EmitError
from nb2ddp.targets import TARGETS
from nb2ddp.targets.job import Job, arguments, yaml_block, yaml_string
from tests.support import ROOT

SCRIPT = '"""Train it with torchrun."""\nprint("Trainer", 1)\n'
NOTEBOOK = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"


def job(script: str = SCRIPT, setup: str | None = None, **numbers: Any) -> Job:
    return Job("tiny run.ipynb", script, setup, **numbers)


def files(target: str, what: Job | None = None, **options: Any) -> dict[str, str]:
    return TARGETS[target](**options).files(what or job())


def directives(sbatch: str) -> dict[str, str]:
    """The #SBATCH lines, as SLURM reads them: up to the first command."""
    lines = sbatch[: sbatch.index("\nset -euo pipefail")].splitlines()
    return dict(
        line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if line.startswith("#SBATCH")
    )


# ---- the command line -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conversion, in the current folder."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["convert", str(NOTEBOOK), "-o", "tiny_ddp"]).exit_code == 0
    return tmp_path / "tiny_ddp"


def emit(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["emit", *arguments])


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
    assert "train.sbatch changed since nb2ddp wrote; use --force" in result.output
    assert launcher.read_text().endswith("# mine\n")
    assert emit("--target", "slurm", "--force", "tiny_ddp").exit_code == 0


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
    assert result.exit_code == 1
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


def test_a_loop_of_its_own_has_no_checkpoints(folder: Path) -> None:
    assert "a restart begins anew" not in emit("--target", "torchrun", "tiny_ddp").output
    loop = ROOT / "sample_notebooks" / "peft_loop.ipynb"  # it trains a tokenizer, with a BpeTrainer
    assert "a restart begins anew" in emit("--target", "torchrun", str(loop)).output


# ---- what the engines read --------------------------------------------------------------------------


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
        modules=("cuda/13.0", "python"),
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
    assert trainer["env"] == [{"name": "NB2DDP_SHARED_FS", "value": "0"}]
    assert document["metadata"] == {"name": "train", "namespace": "team"}


def expanded(text: str) -> str:
    """What Kubernetes makes of an argument: ``$$`` is ``$``, unknown ``$(NAME)`` stays."""
    return re.sub(r"\$(\$|\([^)]*\)?)?", lambda found: "$" if found[1] == "$" else found[0], text)


@pytest.mark.parametrize("beside", [True, False], ids=["runtime module", "single file"])
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


# ---- quoting ----------------------------------------------------------------------------------------

ODD = [
    "",
    " ",
    "\n",
    "a: b",
    "- x",
    "# no",
    "'",
    '"',
    "\\",
    "\\n",
    "\t",
    "\x07",
    "\x7f",
    "\x85",
    "\u2028",
    "\ufeff",
]
ODD += ["é", "🦥", "\r\n", "  lead", "trail  ", "%", "{{ x }}", "$(HOME)", "$$", "`x`", "yes", "null", "1e3"]


def odd_texts() -> list[str]:
    rng = random.Random(0)
    mixed = ["".join(rng.choices([*ODD, "a", "\n", " "], k=rng.randint(1, 8))) for _ in range(400)]
    return ODD + mixed


def test_yaml_reads_back_what_was_quoted() -> None:
    for text in odd_texts():
        assert yaml.safe_load(f"a: {yaml_string(text)}\nb: 1\n") == {"a": text, "b": 1}, repr(text)
        document = f"a:\n  - {yaml_block(text, 6)}\n  - b\n"
        assert yaml.safe_load(document) == {"a": [text, "b"]}, repr(text)


def test_code_is_a_block_of_its_own_lines() -> None:
    assert yaml_block("if x:\n    y()\n\nz()\n", 4) == "|\n    if x:\n        y()\n\n    z()"


def test_kubernetes_gives_back_what_was_quoted() -> None:
    for text in odd_texts():
        assert "".join(map(expanded, arguments(text))) == text, repr(text)


def test_a_module_name_is_one_word_for_the_shell() -> None:
    text = files("slurm", modules=("gcc/12.2.0+x",))["train.sbatch"]
    (line,) = [line for line in text.splitlines() if line.startswith("module load")]
    assert shlex.split(line) == ["module", "load", "gcc/12.2.0+x"]


def test_the_notebooks_name_cannot_leave_its_comment() -> None:
    what = Job("a\nreboot #.ipynb", SCRIPT, None)
    for target in TARGETS:
        assert not any("\nreboot" in text for text in TARGETS[target]().files(what).values())


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
