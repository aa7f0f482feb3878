"""The check of the figures: numbers that are printed, beside the notebook's."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.rehearse.checks.figures import figures
from nb2ddp.rehearse.evidence import Evidence
from nb2ddp.rehearse.observed import Rank
from nb2ddp.rehearse.runs import Run


def printing(text: str) -> Rank:
    notes = [{"kind": "print", "text": text, "line": 3}]
    return Rank(0, notes, 0, 0.0, 1, "", "", Path("none"), Path("none"))


@pytest.mark.parametrize(
    ("own", "found", "keys"),
    [
        ("loss 0.5031", "loss 0.5031", []),
        ("loss 0.5031", "loss 0.6127", ["other-figures"]),
        ("0.01 minutes used, loss 0.5031", "0.04 minutes used, loss 0.5031", []),
        ("took 3.1 s, loss 0.5031", "took 9.4 s, loss 0.6127", ["other-figures"]),
        ("time: 3.1", "time: 9.4", []),
        ("loss 0.5031 (1.9s)", "loss 0.5031 (2.9s)", []),
        ("loss 0.5031 (1.9s)", "loss 0.6127 (1.9s)", ["other-figures"]),
        ("5.1k rows, 3.2x", "6.4k rows, 4.2x", []),
    ],
)
def test_a_time_may_be_any_and_a_figure_beside_it_may_not(own: str, found: str, keys: list[str]) -> None:
    one = printing(own)
    run = Run("several", "script", Path("none"), Path("none"), 2)
    point = figures(Evidence(run, one, one, run, [printing(found), printing(found)]))
    assert [fault.key for fault in point.faults] == keys
