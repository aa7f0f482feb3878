"""What people wrote for several GPUs, or by hand, trains as one process does: measured.

A notebook half converted after a public guide, a training loop in a function, a loop on Accelerate.
"""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from nb2ddp import convert
from tests.support import ROOT
from tests.support.helpers import notebook
from tests.support.runs import Run, plain_code, run

pytestmark = pytest.mark.launch

# After ../shared/background/unsloth-ddp-kaggle-2xt4.md, which is wrong in several ways.
GUIDE_SETUP = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def setup_ddp():
    rank = int(os.environ.get("RANK", -1))
    local_rank = int(os.environ.get("LOCAL_RANK", -1))
    world_size = int(os.environ.get("WORLD_SIZE", -1))
    if rank == -1:
        return None, None, None
    dist.init_process_group(backend="nccl")
    return rank, local_rank, world_size

rank, local_rank, world_size = setup_ddp()
is_main_process = rank == 0 if rank is not None else True
"""
GUIDE_WRAP = """\
if local_rank is not None:
    model = DDP(model, device_ids=[local_rank], find_unused_parameters=False)
    print("wrapped")
"""
GUIDE_CLEANUP = """\
if rank is not None:
    dist.destroy_process_group()
"""

DATA = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(64, 8)
rows = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(rows, batch_size=8, shuffle={shuffle})
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    def forward(self, x):
        return self.inner(x)
    def generate(self, x):
        print("generating")
        return self.inner(x).detach() + torch.rand(1)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loss_function = nn.MSELoss()
losses = []
"""
IN_FUNCTION = """\
def compute_loss(x, y, net):
    return loss_function(net(x), y)
def train(net, batches, epochs):
    for epoch in range(epochs):
        for step, (x, y) in enumerate(batches):
            loss = compute_loss(x, y, net) / 2
            loss.backward()
            losses.append(loss.item())
            if (step + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
train(model, loader, epochs=3)
torch.save(model.state_dict(), "net.pt")
"""
IN_STEPS = """\
def training_step(batch):
    x, y = batch
    loss = loss_function(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
for epoch in range(3):
    for batch in loader:
        losses.append(training_step(batch))
torch.save(model.state_dict(), "net.pt")
"""
IN_MAIN = """\
class Pooled(Net):
    def __init__(self):
        super().__init__()
        self.pooler = nn.Linear(16, 16)  # which nothing reads
def loaders():
    train = DataLoader(rows, batch_size=8, shuffle=True)
    test = DataLoader(rows, batch_size=16)
    return train, test
def main():
    model = Pooled()
    train_loader, test_loader = loaders()
    print(next(iter(train_loader))[0].shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    best = 1e9
    for epoch in range(3):
        for step, (x, y) in enumerate(train_loader):
            loss = loss_function(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if (step + 1) % 4 == 0: scheduler.step()
        if losses[-1] < best: best = losses[-1]; torch.save(model.state_dict(), "net.pt")
        if losses[-1] > best: break
if __name__ == "__main__":
    main()
"""
ON_ACCELERATE = """\
from accelerate import Accelerator, notebook_launcher
def train():
    global model, optimizer
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for x, y in batches:
            loss = loss_function(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    accelerator.wait_for_everyone()
    model = accelerator.unwrap_model(model)
    if accelerator.is_main_process:
        torch.save(model.state_dict(), "net.pt")
notebook_launcher(train, (), num_processes=1)
"""
GENERATED = """\
answers = []
for row in x[:32]:
    answers.append(model.generate(row))
loader = DataLoader(TensorDataset(x[:32], torch.stack(answers)), batch_size=4)
for x, y in loader:
    loss = loss_function(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
torch.save(model.state_dict(), "net.pt")
"""


def compared(folder: Path, path: Path, *, single: str, stack: str = "newest", torchrun: bool = False) -> Run:
    """The converted script on two processes; its losses and parameters are those of ``single``."""
    import torch

    expected = run(folder / "one", single, stack=stack, nproc=0)
    assert expected.exit_code == 0, expected.output
    conversion = convert(path)
    assert conversion.status == "converted", conversion.declined
    script = conversion.files["train_ddp.py"]
    done = run(folder / "two", script, stack=stack, nproc=2, torchrun=torchrun)
    assert done.exit_code == 0, done.output
    assert done.losses(0) == pytest.approx(expected.losses("single"), rel=1e-5)
    assert len(done.losses(0)) > 4
    for name, value in expected.parameters("single").items():
        assert torch.equal(done.parameters(0)[name], done.parameters(1)[name]), name
        assert torch.allclose(done.parameters(0)[name], value, rtol=1e-4, atol=1e-6), name
    return done


def written(folder: Path, *cells: str) -> Path:
    path = folder / "handmade.ipynb"
    nbformat.write(notebook(*cells), path)
    return path


# What the guide has people write for the Trainer, and after which cell it wraps the model.
GUIDED = {
    "notebooks/classification": (
        {
            "    model=model,\n": "    model=model.module if hasattr(model, 'module') else model,\n",
            '    save_strategy="steps",\n': '    save_strategy="steps" if is_main_process else "no",\n'
            '    ddp_backend="nccl" if False else None,\n',
        },
        "from_pretrained(",
    ),
    "../sample_notebooks/alpaca_sft": (
        {
            "    model = model,\n    processing": "    model = model.module if hasattr(model, 'module') else model,\n"
            "    processing",
            "        seed = 3407,\n        output_dir": (
                '        save_strategy = "steps" if is_main_process else "no",\n'
                '        ddp_backend = "nccl" if False else None,\n        seed = 3407,\n        output_dir'
            ),
        },
        "get_peft_model(",
    ),
}


@pytest.mark.parametrize(
    ("sample", "stack"),
    [
        ("notebooks/classification", "newest"),
        *(
            pytest.param("../sample_notebooks/alpaca_sft", stack, marks=pytest.mark.thorough)
            for stack in ("newest", "kaggle")
        ),
    ],
)
def test_a_notebook_half_converted_after_a_guide_trains_as_in_one_process(
    tmp_path: Path, sample: str, stack: str
) -> None:
    nb = nbformat.read(ROOT / "tests" / f"{sample}.ipynb", as_version=4)
    edits, makes_model = GUIDED[sample]
    for old, new in edits.items():
        assert sum(cell.source.count(old) for cell in nb.cells) == 1
        for cell in nb.cells:
            cell.source = cell.source.replace(old, new)
    at = max(i for i, cell in enumerate(nb.cells) if f"{makes_model}\n" in cell.source)
    nb.cells.insert(at + 1, nbformat.v4.new_code_cell(GUIDE_WRAP))
    nb.cells.append(nbformat.v4.new_code_cell(GUIDE_CLEANUP))
    at = next(i for i, cell in enumerate(nb.cells) if "import torch" in cell.source)
    nb.cells.insert(at, nbformat.v4.new_code_cell(GUIDE_SETUP))
    path = tmp_path / "guided.ipynb"
    nbformat.write(nb, path)
    compared(tmp_path, path, single=plain_code(path), stack=stack)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(IN_FUNCTION, id="loop"),
        pytest.param(IN_STEPS, id="step", marks=pytest.mark.thorough),
        pytest.param(IN_MAIN, id="main", marks=pytest.mark.thorough),
    ],
)
def test_a_loop_or_its_step_in_a_function_trains_as_in_one_process(tmp_path: Path, code: str) -> None:
    path = written(tmp_path, DATA.format(shuffle=True), code)
    done = compared(tmp_path, path, single=plain_code(path))
    assert "net.pt" in done.files()


def test_a_loop_on_accelerate_trains_as_in_one_process(tmp_path: Path) -> None:
    path = written(tmp_path, DATA.format(shuffle=False), ON_ACCELERATE)
    single = plain_code(path).replace("notebook_launcher(train, (), num_processes=1)", "train()")
    done = compared(tmp_path, path, single=single)
    assert "net.pt" in done.files()


def test_data_that_is_generated_first_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    path = written(tmp_path, DATA.format(shuffle=False), GENERATED)
    done = compared(tmp_path, path, single=plain_code(path))
    assert done.output.count("generating") == 32


DIVIDED_MODEL = """\
import json, os, sys
import torch
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, bos_token_id=1, eos_token_id=None, pad_token_id=0))
def count(module, args, output):
    sys.stderr.write("forward on a rank\\n")  # in one piece, unlike print()
questions = [[1, 5 + n, 7, 9 + n, 3] for n in range(7)]
"""
DIVIDED_LOOP = """\
handle = model.register_forward_hook(count)
answers, kept = [], []
for number, question in enumerate(tqdm(questions, disable=True)):
    tokens = model.generate(torch.tensor([question]), max_new_tokens=3, min_new_tokens=3, do_sample=False)
    if number == 2:
        continue
    answers.append(tokens[0].tolist())
    kept.extend([torch.full((500_000,), number), number])
handle.remove()
"""
SAMPLED_LOOP = """\
sampled = []
for _ in range(8):
    sampled.append(model.generate(torch.tensor([[1, 2]]), max_new_tokens=16, do_sample=True)[0].tolist())
"""
DIVIDED_TRAINING = """\
rows = [{"input_ids": answer, "labels": answer} for answer in answers for _ in range(4)]
trainer = Trainer(model=model, train_dataset=rows, args=TrainingArguments("o", per_device_train_batch_size=2,
    gradient_accumulation_steps=2, max_steps=6, logging_steps=1, report_to=[], save_strategy="no"))
trainer.train()
with open("made.json", "w") as file:
    json.dump([answers, [int(k.sum()) if torch.is_tensor(k) else k for k in kept], sampled], file)
"""


def test_what_is_generated_before_the_ranks_have_joined_is_the_same_on_all(tmp_path: Path) -> None:
    first = (
        "first = model.generate(torch.tensor([[1, 5, 7]]), max_new_tokens=8, do_sample=True)[0].tolist()\n"
    )
    training = DIVIDED_TRAINING.partition("with open")[0].replace("in answers", "in [first, first[::-1]]")
    path = written(tmp_path, DIVIDED_MODEL, first, training)
    done = compared(tmp_path, path, single=plain_code(path))
    assert "from_main_process(lambda: first)" in (done.folder / "script.py").read_text()


def test_a_loop_that_generates_is_divided_and_gathered_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, DIVIDED_MODEL, DIVIDED_LOOP, SAMPLED_LOOP, DIVIDED_TRAINING)
    done = compared(tmp_path, path, single=plain_code(path))
    one, two = (json.loads((tmp_path / name / "made.json").read_text()) for name in ("one", "two"))
    assert len(one[0]) == 6
    assert two[:2] == one[:2], "what is greedy is the same, in the same order"
    assert done.output.count("forward on a rank") == 7 * 3, "each question is answered on one rank"
    assert len(two[2]) == 8
    assert two[2][::2] != two[2][1::2], "what is sampled for one prompt is not sampled twice"


FOLDS = [
    """\
import gc
import numpy as np
from datetime import datetime
run_name = f"run-{datetime.now():%H%M%S-%f}"
""",
    """\
import torch
from datasets import Dataset
from sklearn.model_selection import KFold
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
ids = np.random.default_rng(0).integers(5, 60, (96, 10)).tolist()
data = Dataset.from_dict({"input_ids": ids, "labels": [int(row[0] > 30) for row in ids]})
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
""",
    """\
def make_args(cfg, fold):
    return TrainingArguments(f"{run_name}/fold{fold}", **cfg)
cfg = dict(per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=6, logging_steps=1,
    eval_strategy="steps", eval_steps=3, save_steps=3, load_best_model_at_end=True, report_to="none")
np.random.seed(42)
for fold, (rows, others) in enumerate(KFold(2, shuffle=True).split(np.zeros(96))):
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    trainer = Trainer(model, make_args(cfg, fold), train_dataset=data.select(rows),
        eval_dataset=data.select(others))
    trainer.train()
    if fold == 0:
        del model, trainer
        gc.collect()
""",
]


def test_folds_in_a_folder_named_by_the_clock(tmp_path: Path) -> None:
    """One name and one split for all ranks; the best model is found where rank 0 saved it."""
    path = written(tmp_path, *FOLDS)
    done = compared(tmp_path, path, single=plain_code(path))
    assert len(done.losses(0)) == 12
    assert len({Path(file).parts[0] for file in done.files()}) == 1
    assert {Path(name).parts[0] for name in done.written(1)} <= {Path(file).parts[0] for file in done.files()}
