"""The promise, measured: each sample notebook in one process, against its converted script in two.

On both stacks, for both ways of wrapping, with the real Unsloth on the CPU; some of it in `make test-all` alone.
"""

from __future__ import annotations

import os
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
from tests.support.runs import STACKS, Run, plain_code, processes_of, run

pytestmark = pytest.mark.launch

SAMPLES = {"alpaca_sft": "llama_lora", "chat_sft": "chat_lora", "peft_loop": "peft_lora"}
WRAPS = {
    "alpaca_sft": ("explicit",),
    "chat_sft": ("explicit",),
    "peft_loop": ("explicit",),
}
CASES = [(sample, stack) for sample in SAMPLES for stack in STACKS]
RUNS = [
    pytest.param(
        sample,
        stack,
        wrap,
        marks=pytest.mark.thorough
        if (wrap == "trainer" and (sample, stack) != ("alpaca_sft", "newest"))
        or (stack == "kaggle" and sample != "alpaca_sft")
        else (),
    )
    for sample, stack in CASES
    for wrap in WRAPS[sample]
]
RELATIVE = 1e-5
IN_32_BITS = {
    ".to(torch.bfloat16)": "",
    "dtype = None  ": "dtype = torch.float32  ",
    "logging_steps = 1,": "logging_steps = 1, bf16 = False, fp16 = False,",
}
# Launched as users launch them, the notebook and its script wrapped explicitly; the others are forked, see `run`.
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

    def get(sample: str, stack: str, wrap: Any = None, nproc: int = 0) -> Run:
        key = (sample, stack, wrap, nproc)
        if key not in made:
            if not STACKS[stack].exists():
                pytest.skip(f"the {stack} stack is not installed; `make test` installs it")
            notebook = ROOT / "sample_notebooks" / f"{sample}.ipynb"
            script = convert(notebook).files["train_ddp.py"] if wrap else plain_code(notebook)
            torchrun = nproc < 3 and (sample, stack) in LAUNCHED
            name = "-".join(map(str, key))
            switches = SWITCHES if nproc and torchrun and sample == "alpaca_sft" else {}
            made[key] = run(
                folder / name, script, stack=stack, nproc=nproc, torchrun=torchrun, environment=switches
            )
        return made[key]

    return get


def single(runner: Runner, sample: str, stack: str) -> Run:
    done = runner(sample, stack)
    assert done.exit_code == 0, done.output
    return done


def double(runner: Runner, sample: str, stack: str, wrap: str) -> Run:
    done = runner(sample, stack, wrap, 2)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize(("sample", "stack", "wrap"), RUNS)
def test_losses_are_the_single_runs(runner: Runner, sample: str, stack: str, wrap: str) -> None:
    expected = single(runner, sample, stack).losses("single")
    losses = double(runner, sample, stack, wrap).losses(0)
    assert len(losses) == len(expected) > 4
    assert losses == pytest.approx(expected, rel=RELATIVE)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3), "a run that learns nothing shows nothing"


@pytest.mark.parametrize(("sample", "stack", "wrap"), RUNS)
def test_replicas_are_equal_bit_for_bit(runner: Runner, sample: str, stack: str, wrap: str) -> None:
    import torch

    done = double(runner, sample, stack, wrap)
    first, second = done.parameters(0), done.parameters(1)
    assert first.keys() == second.keys()
    assert first
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize(("sample", "stack", "wrap"), RUNS)
def test_parameters_are_the_single_runs(runner: Runner, sample: str, stack: str, wrap: str) -> None:
    import torch

    expected = single(runner, sample, stack).parameters("single")
    trained = double(runner, sample, stack, wrap).parameters(0)
    assert trained.keys() == expected.keys()
    one, other = (
        torch.cat([tensors[n].double().flatten() for n in expected]) for tensors in (expected, trained)
    )
    assert float((other - one).norm() / one.norm()) <= RELATIVE


@pytest.mark.parametrize(("sample", "stack", "wrap"), RUNS)
def test_the_same_files_are_saved_by_rank_0_alone(runner: Runner, sample: str, stack: str, wrap: str) -> None:
    expected = single(runner, sample, stack)
    done = double(runner, sample, stack, wrap)
    folder = SAMPLES[sample]
    assert any(name.startswith(folder) for name in expected.files())
    # a Trainer's checkpoint keeps one state of the random numbers for each rank, by design
    states = {name for name in done.files() | expected.files() if "rng_state" in name}
    assert done.files() - states == expected.files() - states
    by_others = {name for name in done.written(1) if not name.startswith(("hf/", "unsloth_compiled_cache/"))}
    assert by_others <= states
    assert done.written(0)


@pytest.mark.parametrize(("sample", "stack", "wrap"), RUNS)
def test_nothing_is_left_running(runner: Runner, sample: str, stack: str, wrap: str) -> None:
    assert processes_of(double(runner, sample, stack, wrap).watch) == []


@pytest.mark.parametrize("sample", SAMPLES)
def test_everything_is_printed_once(runner: Runner, sample: str) -> None:
    expected = single(runner, sample, "newest").output
    output = double(runner, sample, "newest", "explicit").output
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
    done = runner(sample, stack, "explicit", 0)
    assert done.exit_code == 0, done.output
    assert done.losses("single") == expected.losses("single")
    assert done.files() == expected.files()
    for name, value in expected.parameters("single").items():
        assert torch.equal(done.parameters("single")[name], value), name


def test_three_processes_train_the_same_run(runner: Runner) -> None:
    expected, done = single(runner, "alpaca_sft", "newest"), runner("alpaca_sft", "newest", "explicit", 3)
    assert done.exit_code == 0, done.output
    assert done.losses(0) == pytest.approx(expected.losses("single"), rel=RELATIVE)


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


def test_replicas_that_diverge_are_found(tmp_path: Path) -> None:
    script = convert(ROOT / "sample_notebooks" / "peft_loop.ipynb").files["train_ddp.py"]
    check = "ddp.check_replicas()\n"
    broken = script.replace(
        f"\n{check}",
        f"\nif rank == 1:\n    next(p for p in model.parameters() if p.requires_grad).data += 1\n{check}",
    )
    assert broken != script
    done = run(tmp_path / "diverged", broken, stack="newest", nproc=2)
    assert done.exit_code != 0
    assert "the ranks have trained different models" in done.output
    assert any(name.startswith("peft_lora") for name in done.files())  # what was trained is saved first


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
    assert "in turns on 2 processes = 4 per step" in done.output
    assert {"start/note.txt"} <= done.files()
    assert not any(name.startswith("start") for name in done.written(1))


def test_buffers_are_sent_to_all_ranks_only_where_they_change(tmp_path: Path) -> None:
    """A batch norm counts as it trains; what else models hold in buffers is the same on every rank."""
    (tmp_path / SUPPORT).write_text(support_module())
    file = tmp_path / "buffers.py"
    file.write_text(
        "import torch, torch.distributed as dist\n"
        "import ddp_support as ddp\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
        "linear = torch.nn.Linear(2, 2)\n"
        "for model in (linear, torch.nn.Sequential(linear, torch.nn.BatchNorm1d(2))):\n"
        "    print(ddp._ddp(model).broadcast_buffers)\n"
        "dist.destroy_process_group()\n"
    )
    done = subprocess.run(
        [sys.executable, file],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


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
