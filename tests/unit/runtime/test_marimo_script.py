"""The script of a notebook of marimo's on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.conversion.pipeline import convert_notebook
from tests.support.ranks import RankServer
from tests.unit.source.test_marimo import TRAINING, read


def test_it_trains_on_two_ranks_as_in_one_process(server: RankServer, tmp_path: Path) -> None:
    made = convert_notebook(read(*TRAINING))
    assert made.status == "converted", made.declined
    script = made.files["train_ddp.py"]
    two, one = (server.run(tmp_path / str(ranks), script, ranks) for ranks in (2, 0))
    assert (two.codes, one.codes) == ([0, 0], [0]), two.text
    assert two.notes[0]["losses"] == pytest.approx(one.notes[0]["losses"], rel=1e-5)
