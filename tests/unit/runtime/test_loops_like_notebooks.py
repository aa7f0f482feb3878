"""Loops as notebooks have them: on several ranks they are the run of one process, or the run says that they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_parallelize import TOLERANCE, distance

PROGRAMS = sorted((Path(__file__).parent / "loops").glob("*.py"))
TOOLS = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(11)
figures = []
def log(*values):
    figures.append([float(value.detach()) for value in values])
def end(*models):
    ddp.check_replicas(models[0])
    note(figures=figures, parameters=[p.detach() for model in models for p in model.parameters()])
"""
SCRIPT = START + TOOLS
ON_THREE = ("encode_and_decode", "experts", "counts_as_tensors", "accumulation_and_clipping")


def difference(one: Ended, several: Ended) -> float:
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    expected, first, *others = one.notes[0], *several.notes
    assert all(other == first for other in others), "the ranks are not bit-equal"
    printed: list[Any] = [
        [line for line in run.ranks[0].out.splitlines() if not line.startswith("nb2ddp")]
        for run in (one, several)
    ]
    apart = max(distance(expected[name], first[name]) for name in expected)
    return apart if printed[0] == printed[1] else float("inf")


RUNS = [
    pytest.param(path, ranks, id=f"{path.stem}-{ranks}")
    for path in PROGRAMS
    for ranks in ((2, 3) if path.stem in ON_THREE else (2,))
]


@pytest.mark.parametrize(("program", "ranks"), RUNS)
def test_the_run_of_one_process(server: RankServer, tmp_path: Path, program: Path, ranks: int) -> None:
    text = program.read_text(encoding="utf-8")
    one, several = server.compare(tmp_path, SCRIPT + text, ranks)
    expected = text.removeprefix("# ").partition(":")[0]
    apart, said = difference(one, several), several.ranks[0].err
    if expected != "same or said":
        assert apart < TOLERANCE, several.text
    assert apart < TOLERANCE or "a check failed" in said or "printed in forward()" in said, several.text
    if expected in ("whole", "said"):
        assert "every rank computes whole batches" in said.replace("\n", " "), several.text
    if expected == "same" and program.stem != "mode_by_name":
        assert "saves no time" not in said, several.text
