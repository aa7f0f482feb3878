"""A folder that an older nb2ddp converted, with its machinery in the script, still runs, travels and is replaced.

`tests/older_folder` is as revision 2302b61 (21 November 2026) wrote it, from this notebook.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from nb2ddp.ddp_folder import SCRIPT, SUPPORT
from tests.support.helpers import notebook
from tests.support.launches import PACKAGE_PARENT, needs_proc
from tests.support.limits import LONG
from tests.support.runs import run

OLDER = Path(__file__).parent.parent / "older_folder"
CELLS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
from torch.utils.data import DataLoader, TensorDataset
x = torch.randn(48, 6)
loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for rows, labels in loader:
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.6f}")
torch.save(model.state_dict(), 'model.pt')
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLDER, tmp_path / "small_loop_ddp"))


def nb2ddp(folder: Path, *arguments: str) -> str:
    """Return what a command that succeeds prints, in the folder above."""
    done = subprocess.run(
        [sys.executable, "-m", "nb2ddp", *arguments],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG,
    )
    assert not done.returncode, done.stdout
    return done.stdout


@pytest.mark.launch
def test_it_trains_as_the_notebook_does(tmp_path: Path) -> None:
    lines = re.compile(r"^epoch \d loss .*$", re.MULTILINE)
    one = run(tmp_path / "one", CELLS, stack="newest", nproc=0)
    two = run(tmp_path / "two", (OLDER / SCRIPT).read_text(), stack="newest", nproc=2)
    assert (one.exit_code, two.exit_code) == (0, 0), one.output + two.output
    assert len(lines.findall(one.output)) == 2
    assert lines.findall(two.output) == lines.findall(one.output)
    assert "model.pt" in two.files()


@pytest.mark.launch
@pytest.mark.thorough
@needs_proc
def test_it_is_run(folder: Path) -> None:
    lines = re.compile(r"^epoch \d loss .*$", re.MULTILINE)
    plain = subprocess.run(
        [sys.executable, "-c", CELLS], cwd=folder, capture_output=True, text=True, check=True, timeout=LONG
    )
    assert len(lines.findall(plain.stdout)) == 2
    (folder / "model.pt").unlink()
    printed = nb2ddp(folder, "run", folder.name, "--cpu", "--nproc", "2")
    assert lines.findall(printed) == lines.findall(plain.stdout)
    assert "the run succeeded" in printed
    assert (folder.parent / "model.pt").exists()


def test_it_goes_to_a_cluster(folder: Path) -> None:
    nb2ddp(folder, "emit", "--target", "torchrun", folder.name, "-o", "there")
    assert (folder.parent / "there" / SCRIPT).read_text() == (OLDER / SCRIPT).read_text()


def test_it_is_replaced_by_a_new_conversion(folder: Path) -> None:
    nbformat.write(notebook(CELLS), folder.parent / "small_loop.ipynb")
    nb2ddp(folder, "convert", "small_loop.ipynb")
    assert (folder / SUPPORT).exists()
    assert "import ddp_support as ddp" in (folder / SCRIPT).read_text()
