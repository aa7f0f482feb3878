"""Data sets that save what they have computed: rank 0 is as one process is, and the others read what it has saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.runtime import support_module, used_names
from tests.support.ranks import RankServer
from tests.support.runtime_module import module_folder
from tests.unit.runtime.conftest import RANK_COUNTS, START
from tests.unit.runtime.trainer_tools import TOOLS

ROWS = """
import os, torch
computed = []
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, number):
        path = f"{number}.pt"
        if os.path.exists(path):
            return torch.load(path)
        computed.append(number)
        row = {"x": torch.full((20000,), number / 24) + torch.randn(1), "labels": number % 2}
        torch.save(row, path)
        return row
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(20000, 2)
    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}
torch.manual_seed(1)
net, losses = Net(), []
"""
LOOP = """
optimizer = torch.optim.SGD(net.parameters(), 1e-4)
ddp.init_process_group()
ddp.parallelize(net)
for epoch in range(2):
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=6, shuffle=True):
        optimizer.zero_grad()
        loss = net(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
TRAINER = """
trainer = Trainer(net, args(num_train_epochs=2, max_steps=-1, learning_rate=1e-5), train_dataset=Rows())
ddp.init_process_group()
ddp.wrap_trainer(trainer)
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
"""
NOTES = (
    'note(losses=losses, computed=computed, drawn=torch.rand(3).tolist(), files=sorted(os.listdir(".")))\n'
)
WAYS = {"a loop": LOOP, "a Trainer": TRAINER}


@pytest.mark.parametrize("ranks", RANK_COUNTS)
@pytest.mark.parametrize("way", WAYS)
def test_rank_0_computes_what_one_process_does(
    trainers: RankServer, tmp_path: Path, way: str, ranks: int
) -> None:
    folder = str(module_folder("reading_in_turn"))
    program = START + TOOLS + ROWS + WAYS[way] + NOTES
    one, several = trainers.compare(tmp_path, program, ranks, runtime=folder, limit=120)
    assert not any((*one.codes, *several.codes)), several.text
    expected = one.notes[0]
    assert several.notes[0]["computed"] == expected["computed"]
    for notes in several.notes:
        assert notes["losses"] == pytest.approx(expected["losses"], rel=1e-4)
        assert notes["drawn"] == expected["drawn"]
    assert "different batches" not in several.ranks[0].err


def test_an_error_while_rank_0_reads_is_every_ranks(trainers: RankServer, tmp_path: Path) -> None:
    program = """
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, number):
            if rank == 0:
                raise KeyError("no such row")
            return number
    ddp.init_process_group()
    try:
        next(iter(torch.utils.data.DataLoader(Rows())))
    except KeyError as error:
        note(error=str(error))
    """
    import textwrap

    folder = str(module_folder("reading_in_turn"))
    ended = trainers.run(tmp_path, START + "import torch\n" + textwrap.dedent(program), 2, runtime=folder)
    assert [notes["error"] for notes in ended.notes] == ["'no such row'"] * 2, ended.text


def test_what_pytorch_writes_in_a_turn_is_undone_for_the_next_rank(
    server: RankServer, tmp_path: Path
) -> None:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "ddp_support.py").write_text(support_module(frozenset({"init", "in_turn"})), encoding="utf-8")
    program = """
import glob, torch
with ddp.in_turn():
    count = len(glob.glob("*.pt"))
    torch.save(count, f"{count}.pt")
note(count=count, files=glob.glob("*.pt"))
"""
    ended = server.run(tmp_path / "run", START + program, 3, runtime=str(folder))
    assert ended.notes == [{"count": 0, "files": ["0.pt"]}] * 3, ended.text


FILLS = """
class Rows:
    def _row(self, number):
        if not os.path.exists(self.path(number)):
            np.save(self.path(number), self.compute(number))
        return np.load(self.path(number))
    def __getitem__(self, number):
        return self._row(number)
"""
FILLS_AT_FIRST = """
class Rows:
    def __init__(self):
        if not os.path.exists("rows.pt"):
            torch.save(compute(), "rows.pt")
    def __getitem__(self, number):
        return self.rows[number]
torch.save(model, "model.pt")
"""


def test_it_travels_with_data_sets_that_save_rows() -> None:
    for call in ("ddp.wrap_trainer(trainer)\n", "ddp.parallelize(model)\nDataLoader(rows)\n"):
        assert "reading_in_turn" in used_names(FILLS + call, "ddp")
        assert "reading_in_turn" not in used_names(FILLS_AT_FIRST + call, "ddp")
    assert "reading_in_turn" not in used_names(FILLS, "ddp")
    newer = "f'{rows['a']}'\nclass {\n"  # what this Python cannot read
    assert "reading_in_turn" not in used_names("ddp.wrap_trainer(trainer)\n" + newer, "ddp")
