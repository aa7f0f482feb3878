"""Loops that accumulate gradients: the ranks exchange them once a step, and whoever looks sees the notebook's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import RankServer
from tests.unit.runtime.conftest import RANK_COUNTS, START

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ddp.init_process_group()
ddp.parallelize(model)
ddp.sums = 0
if world_size > 1:
    exchange = ddp._Bucket.launch
    def launched(self, **options):
        ddp.sums += 1
        return exchange(self, **options)
    ddp._Bucket.launch = launched
x, y = torch.randn(160, 6), torch.randn(160, 1)
losses, sums, seen = [], [], []
for turn in range(LENGTH):
    rows = slice(turn * 4, turn * 4 + 4)
    loss = nn.functional.mse_loss(model(x[rows]), y[rows]) / 4
    loss.backward()
    losses.append(loss.item())
    LOOK
    if (turn + 1) % 4 == 0 or turn == LAST:
        CLIP
        optimizer.step()
        optimizer.zero_grad()
        sums.append(ddp.sums)
        ddp.sums = 0
ddp.check_replicas(model)
note(losses=losses, sums=sums, seen=seen, params=[p.detach().tolist() for p in model.parameters()])
"""


CASES = {
    "plain": ("pass", "pass", 28, [4, 4, 1, 1, 1, 1, 1]),
    "clips": ("pass", "nn.utils.clip_grad_norm_(model.parameters(), 0.05)", 28, [4, 4, 1, 1, 1, 1, 1]),
    # a shorter step, which nobody could expect
    "ends": ("pass", "nn.utils.clip_grad_norm_(model.parameters(), 0.05)", 26, [4, 4, 1, 1, 1, 1, 1]),
    "looks in a library": (
        "seen.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9).item())",
        "pass",
        20,
        [4, 4, 4, 4, 4],
    ),
    "looks by itself": (
        "seen.append(sum(float(p.grad.norm()) for p in model.parameters())) if turn % 8 == 1 else 0",
        "pass",
        20,
        [4, 4, 4, 4, 4],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_gradients_are_exchanged_once_a_step(
    server: RankServer, tmp_path: Path, case: str, ranks: int
) -> None:
    look, clip, length, sums = CASES[case]
    program = PROGRAM.replace("LOOK", look).replace("CLIP", clip)
    program = program.replace("LENGTH", str(length)).replace("LAST", str(length - 1))
    one, several = server.compare(tmp_path, START + program, ranks, limit=60)
    assert not any((*one.codes, *several.codes)), several.text
    for notes in several.notes:
        assert notes["losses"] == pytest.approx(one.notes[0]["losses"], rel=1e-5), several.text
        assert notes["seen"] == pytest.approx(one.notes[0]["seen"], rel=1e-5)
        assert notes["params"] == several.notes[0]["params"]
        assert notes["sums"] == sums
