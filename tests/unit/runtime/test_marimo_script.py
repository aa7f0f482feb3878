"""The script of a notebook of marimo's on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.conversion.pipeline import convert_notebook
from tests.support.ranks import RankServer
from tests.unit.source.test_marimo import read

TRAINING = (
    "@app.cell\ndef _(model, optimizer, rows):\n    losses = []\n    for _epoch in range(2):\n"
    "        for _batch in rows.split(4):\n            loss = ((model(_batch) - 1) ** 2).mean()\n"
    "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n"
    "            losses.append(loss.item())\n    note(losses=losses)\n    return (losses,)",
    "@app.cell\ndef _(torch):\n    torch.manual_seed(0)\n    model = torch.nn.Linear(4, 1)\n"
    "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    return model, optimizer",
    "@app.cell\ndef _(torch):\n    rows = torch.arange(48.0).reshape(12, 4) / 48\n    return (rows,)",
    "@app.cell\ndef _():\n    import torch\n\n    return (torch,)",
)


def test_it_trains_on_two_ranks_as_in_one_process(server: RankServer, tmp_path: Path) -> None:
    made = convert_notebook(read(*TRAINING))
    assert made.status == "converted", made.declined
    script = made.files["train_ddp.py"]
    two, one = (server.run(tmp_path / str(ranks), script, ranks) for ranks in (2, 0))
    assert (two.codes, one.codes) == ([0, 0], [0]), two.text
    assert two.notes[0]["losses"] == pytest.approx(one.notes[0]["losses"], rel=1e-5)
