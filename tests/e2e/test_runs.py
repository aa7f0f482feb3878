"""The promise, measured: each sample notebook in one process, against its converted script in two.

On both stacks, with the real Unsloth on the CPU; some of it in `make test-all` alone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from nb2ddp import convert
from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.runtime import support_module
from tests.support import ROOT
from tests.support.limits import LONG
from tests.support.runs import STACKS, Run, alone, plain_code, processes_of, run

pytestmark = pytest.mark.launch

SAMPLES = {"alpaca_sft": "llama_lora", "chat_sft": "chat_lora", "peft_loop": "peft_lora"}
# The others of the newest stack are measured in test_ledger.py, on three ranks and on two.
FIRST = {("alpaca_sft", "kaggle"), ("chat_sft", "newest")}
CASES = [(sample, stack) for sample in SAMPLES for stack in STACKS]
RUNS = [pytest.param(*case, marks=() if case in FIRST else pytest.mark.thorough) for case in CASES]
RELATIVE = 1e-5
# Launched as users launch them, the notebook and its script; the others are forked, see `run`.
LAUNCHED = {("alpaca_sft", "kaggle"), ("peft_loop", "kaggle")}
# Unsloth's own switches for several GPUs: each rank's Unsloth is one process, which none of them concerns.
SWITCHES = {
    "UNSLOTH_TOKEN_BALANCE": "1",
    "UNSLOTH_DDP_COMM_HOOK": "bf16",
    "UNSLOTH_FSDP2": "1",
    "UNSLOTH_TP_SIZE": "2",
}

Runner = Callable[..., Run]


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Each run is made once, whichever test asks first."""
    folder = tmp_path_factory.mktemp("runs")
    made: dict[tuple[Any, ...], Run] = {}

    def get(sample: str, stack: str, nproc: int | None = None) -> Run:
        """Run the notebook's own code, or its script: in plain Python (0) or on some ranks."""
        if not STACKS[stack].exists():
            pytest.skip(f"the {stack} stack is not installed; `make test` installs it")
        if nproc is None and (sample, stack) not in LAUNCHED:
            return alone(sample, stack)
        key = (sample, stack, nproc)
        if key not in made:
            notebook = ROOT / "sample_notebooks" / f"{sample}.ipynb"
            script = plain_code(notebook) if nproc is None else convert(notebook).files["train_ddp.py"]
            torchrun = (sample, stack) in LAUNCHED
            name = "-".join(map(str, key))
            switches = SWITCHES if nproc and torchrun and sample == "alpaca_sft" else {}
            made[key] = run(
                folder / name, script, stack=stack, nproc=nproc or 0, torchrun=torchrun, environment=switches
            )
        return made[key]

    return get


def single(runner: Runner, sample: str, stack: str) -> Run:
    done = runner(sample, stack)
    assert done.exit_code == 0, done.output
    return done


def double(runner: Runner, sample: str, stack: str) -> Run:
    done = runner(sample, stack, 2)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize(("sample", "stack"), RUNS)
def test_losses_are_the_single_runs(runner: Runner, sample: str, stack: str) -> None:
    expected = single(runner, sample, stack).losses("single")
    losses = double(runner, sample, stack).losses(0)
    assert len(losses) == len(expected) > 4
    assert losses == pytest.approx(expected, rel=RELATIVE)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3), "a run that learns nothing shows nothing"


@pytest.mark.parametrize(("sample", "stack"), RUNS)
def test_replicas_are_equal_bit_for_bit(runner: Runner, sample: str, stack: str) -> None:
    import torch

    done = double(runner, sample, stack)
    first, second = done.parameters(0), done.parameters(1)
    assert first.keys() == second.keys()
    assert first
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize(("sample", "stack"), RUNS)
def test_parameters_are_the_single_runs(runner: Runner, sample: str, stack: str) -> None:
    import torch

    expected = single(runner, sample, stack).parameters("single")
    trained = double(runner, sample, stack).parameters(0)
    assert trained.keys() == expected.keys()
    one, other = (
        torch.cat([tensors[n].double().flatten() for n in expected]) for tensors in (expected, trained)
    )
    assert float((other - one).norm() / one.norm()) <= RELATIVE


@pytest.mark.parametrize(("sample", "stack"), RUNS)
def test_the_same_files_are_saved_by_rank_0_alone(runner: Runner, sample: str, stack: str) -> None:
    expected = single(runner, sample, stack)
    done = double(runner, sample, stack)
    folder = SAMPLES[sample]
    assert any(name.startswith(folder) for name in expected.files())
    # a Trainer's checkpoint keeps one state of the random numbers for each rank, by design
    states = {name for name in done.files() | expected.files() if "rng_state" in name}
    assert done.files() - states == expected.files() - states
    by_others = {name for name in done.written(1) if not name.startswith(("hf/", "unsloth_compiled_cache/"))}
    assert by_others <= states
    assert done.written(0)


@pytest.mark.parametrize(("sample", "stack"), RUNS)
def test_nothing_is_left_running(runner: Runner, sample: str, stack: str) -> None:
    assert processes_of(double(runner, sample, stack).watch) == []


@pytest.mark.parametrize(
    "sample", [pytest.param(s, marks=() if (s, "newest") in FIRST else pytest.mark.thorough) for s in SAMPLES]
)
def test_everything_is_printed_once(runner: Runner, sample: str) -> None:
    expected = single(runner, sample, "newest").output
    output = double(runner, sample, "newest").output
    for line in {line for line in expected.splitlines() if line.startswith(("epoch", "nb2ddp"))}:
        assert output.count(line) <= expected.count(line), line


@pytest.mark.parametrize(
    ("sample", "stack"),
    [
        ("alpaca_sft", "newest"),
        pytest.param("peft_loop", "kaggle", marks=pytest.mark.thorough),
    ],
)
def test_plain_python_is_the_notebook(runner: Runner, sample: str, stack: str) -> None:
    import torch

    expected = single(runner, sample, stack)
    done = runner(sample, stack, 0)
    assert done.exit_code == 0, done.output
    assert done.losses("single") == expected.losses("single")
    assert done.files() == expected.files()
    for name, value in expected.parameters("single").items():
        assert torch.equal(done.parameters("single")[name], value), name


@pytest.mark.thorough  # as in test_faults.py
@pytest.mark.parametrize("rank", [0, 1])
def test_a_failing_rank_shows_its_own_traceback_and_ends_the_run(rank: int, tmp_path: Path) -> None:
    script = convert(ROOT / "sample_notebooks" / "peft_loop.ipynb").files["train_ddp.py"]
    wrap = "ddp.parallelize(model)"
    assert script.count(wrap) == 1
    broken = script.replace(
        wrap, f'if rank == {rank}:\n    raise ValueError("the data of rank {rank} is broken")\n{wrap}'
    )
    done = run(tmp_path / "failing", broken, stack="newest", nproc=2, torchrun=True)
    assert done.exit_code != 0
    said, _, _ = done.output.partition("Root Cause")  # torchrun's own report comes after it
    assert f'raise ValueError("the data of rank {rank} is broken")' in said
    assert "NoneType: None" not in done.output
    assert processes_of(done.watch) == []


def _with_cells(sample: str, folder: Path, *, before: str = "", after: str = "") -> Path:
    """The sample, in float32, with a cell before the one that trains and one after it."""
    nb = nbformat.read(ROOT / "sample_notebooks" / f"{sample}.ipynb", as_version=4)
    at = next(i for i, cell in enumerate(nb.cells) if ".train()" in cell.source and cell.cell_type == "code")
    for cell in nb.cells:  # in bf16 a batch of two and one of four, which pad differently, round differently
        cell.source = cell.source.replace("dtype = None", "dtype = torch.float32")
        cell.source = cell.source.replace('optim = "adamw_torch",', 'optim = "adamw_torch", bf16 = False,')
    if after:
        nb.cells.insert(at + 1, new_code_cell(after))
    if before:
        nb.cells.insert(at, new_code_cell(before))
    path = folder / f"{sample}.ipynb"
    nbformat.write(nb, path)
    return path


EARLY = """\
FastLanguageModel.for_inference(model)
probe = tokenizer(["once upon"], return_tensors = "pt").to(model.device)
early = model.generate(**probe, max_new_tokens = 4, do_sample = True)
print("early", tokenizer.batch_decode(early))
FastLanguageModel.for_training(model)
tokenizer.save_pretrained("start")
with open("start/note.txt", "w") as file:
    file.write("before training")
"""
SECOND = """\
metrics = trainer.evaluate(trainer.train_dataset.select(range(16)))
print("evaluated", round(metrics["eval_loss"], 5))
second_args = SFTConfig(
    dataset_text_field = "text", max_length = max_seq_length, per_device_train_batch_size = 4,
    gradient_accumulation_steps = 1, max_steps = 5, logging_steps = 1, seed = 1, output_dir = "outputs2",
    report_to = "none", save_strategy = "no", optim = "adamw_torch", bf16 = False, learning_rate = 1e-3,
)
trainer = SFTTrainer(model = model, processing_class = tokenizer, train_dataset = dataset, args = second_args)
trainer.train()
"""


@pytest.mark.parametrize("stack", ["newest", pytest.param("kaggle", marks=pytest.mark.thorough)])
def test_generation_before_and_evaluation_and_another_trainer_after(tmp_path: Path, stack: str) -> None:
    import torch

    notebook = _with_cells("alpaca_sft", tmp_path, before=EARLY, after=SECOND)
    expected = run(tmp_path / "one", plain_code(notebook), stack=stack, nproc=0)
    assert expected.exit_code == 0, expected.output
    done = run(tmp_path / "two", convert(notebook).files["train_ddp.py"], stack=stack, nproc=2)
    assert done.exit_code == 0, done.output
    assert done.losses(0) == pytest.approx(expected.losses("single"), rel=RELATIVE)
    for name, value in done.parameters(0).items():
        assert torch.equal(value, done.parameters(1)[name]), name
    for word in ("early", "evaluated"):
        said = [line for line in expected.output.splitlines() if line.startswith(word)]
        assert said == [line for line in done.output.splitlines() if line.startswith(word)] != []
    assert "divided over 2 processes = 4 per step" in done.output
    assert {"start/note.txt"} <= done.files()
    assert not any(name.startswith("start") for name in done.written(1))


@pytest.mark.thorough
def test_a_process_ends_right_after_its_last_collective(tmp_path: Path) -> None:
    """Gloo's threads still hold tensors then: without a pause one process in five or so never ended."""
    (tmp_path / SUPPORT).write_text(support_module())
    file = tmp_path / "leave.py"
    file.write_text(
        "import os, sys, time\n"
        "import torch, torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "from ddp_support import _leave_group as leave_ddp\n"
        "def rank(number, store):\n"
        "    dist.init_process_group('gloo', init_method=f'file://{store}', rank=number, world_size=2)\n"
        "    model = DDP(torch.nn.Linear(8, 1))  # it holds the process group\n"
        "    model(torch.ones(4, 8)).sum().backward()\n"
        "    dist.all_gather_object([None, None], {'digest': 1})\n"
        "    leave_ddp()\n"
        "    if number:\n"
        "        os._exit(0)\n"
        "    sys.exit()\n"
        "for pair in range(10):\n"
        "    children = []\n"
        "    for number in range(2):\n"
        "        children.append(os.fork())\n"
        "        if not children[-1]:\n"
        f"            rank(number, f'{tmp_path}/store{{pair}}')\n"
        "    print([os.waitpid(child, 0)[1] for child in children], flush=True)\n"
    )
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.stdout.splitlines() == ["[0, 0]"] * 10, done.stderr
