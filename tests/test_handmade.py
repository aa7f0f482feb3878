"""What people wrote for several GPUs, or by hand, trains as one process does: measured.

A notebook half converted after a public guide, a training loop in a function, a loop on Accelerate.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from nb2ddp import convert
from tests.helpers import notebook
from tests.runs import ROOT, Run, plain_code, run

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
def train(net, batches, epochs):
    for epoch in range(epochs):
        for step, (x, y) in enumerate(batches):
            loss = loss_function(net(x), y) / 2
            loss.backward()
            losses.append(loss.item())
            if (step + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
train(model, loader, epochs=3)
torch.save(model.state_dict(), "net.pt")
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
notebook_launcher(train, (), num_processes=2)
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


def compared(folder: Path, path: Path, *, single: str, stack: str = "newest") -> Run:
    """The converted script on two processes; its losses and parameters are those of ``single``."""
    import torch

    expected = run(folder / "one", single, stack=stack, nproc=0)
    assert expected.exit_code == 0, expected.output
    conversion = convert(path)
    assert conversion.status == "converted", conversion.declined
    done = run(folder / "two", conversion.files["train_ddp.py"], stack=stack, nproc=2)
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


@pytest.mark.parametrize("stack", ["newest", pytest.param("kaggle", marks=pytest.mark.thorough)])
def test_a_notebook_half_converted_after_a_guide_trains_as_the_notebook(tmp_path: Path, stack: str) -> None:
    sample = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"
    nb = nbformat.read(sample, as_version=4)
    for cell in nb.cells:
        cell.source = cell.source.replace(
            "    model = model,\n    processing",
            "    model = model.module if hasattr(model, 'module') else model,\n    processing",
        ).replace(
            "        seed = 3407,\n        output_dir",
            '        save_strategy = "steps" if is_main_process else "no",\n'
            '        ddp_backend = "nccl" if False else None,\n        seed = 3407,\n        output_dir',
        )
    at = next(i for i, cell in enumerate(nb.cells) if "get_peft_model" in cell.source)
    nb.cells.insert(at + 1, nbformat.v4.new_code_cell(GUIDE_WRAP))
    nb.cells.append(nbformat.v4.new_code_cell(GUIDE_CLEANUP))
    at = next(i for i, cell in enumerate(nb.cells) if "import FastLanguageModel" in cell.source)
    nb.cells.insert(at, nbformat.v4.new_code_cell(GUIDE_SETUP))
    path = tmp_path / "guided.ipynb"
    nbformat.write(nb, path)
    assert "save_strategy" in path.read_text()
    assert "model.module if" in path.read_text()
    done = compared(tmp_path, path, single=plain_code(sample), stack=stack)
    assert "batch 2 x 2 accumulation steps x 2 processes = 8 per step" in done.output


def test_a_loop_in_a_function_trains_as_in_one_process(tmp_path: Path) -> None:
    path = written(tmp_path, DATA.format(shuffle=True), IN_FUNCTION)
    done = compared(tmp_path, path, single=plain_code(path))
    assert "net.pt" in done.files()


def test_a_loop_on_accelerate_trains_as_in_one_process(tmp_path: Path) -> None:
    path = written(tmp_path, DATA.format(shuffle=False), ON_ACCELERATE)
    single = plain_code(path).replace("notebook_launcher(train, (), num_processes=2)", "train()")
    done = compared(tmp_path, path, single=single)
    assert "net.pt" in done.files()


def test_data_that_is_generated_first_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    path = written(tmp_path, DATA.format(shuffle=False), GENERATED)
    done = compared(tmp_path, path, single=plain_code(path))
    assert done.output.count("generating") == 32
