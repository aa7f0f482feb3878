"""The row of a rehearsal: its verdict, its columns, and the file that it is appended to."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path

import pytest

from nb2ddp.errors import OutputError
from nb2ddp.rehearse.evidence import Fault, Point
from nb2ddp.rehearse.ledger import append, row_of, unwritable
from nb2ddp.rehearse.rehearsal import Rehearsal

TITLES = ("replicas", "losses", "samples", "files", "prints")


def rehearsal(*faults: str, other_losses: str = "", distance: float = 0.0) -> Rehearsal:
    found = tuple(Fault(key, f"what is wrong: {key}") for key in faults)
    points = tuple(Point(None, title, "", found * (title == "files"), title != "samples") for title in TITLES)
    return Rehearsal(
        "tune.ipynb",
        2,
        points,
        ((2.0, 2.0), (1.0, 1.1), (1.0, None)),
        (),
        (),
        (),
        1.0,
        datetime(2026, 1, 1),
        {"torch": "2.13.0"},
        other_losses,
        distance,
    )


@pytest.mark.parametrize(
    ("faults", "nature", "verdict"),
    [
        ((), "", "same"),
        ((), "by nature", "said"),
        (("other-files",), "", "different"),
        (("other-files",), "by nature", "different"),
        (("other-losses", "hang"), "", "failed"),
    ],
)
def test_the_verdict_of_a_row(faults: tuple[str, ...], nature: str, verdict: str) -> None:
    row = row_of(rehearsal(*faults, other_losses=nature), "nb2ddp rehearse tune.ipynb")
    assert row.verdict == verdict
    assert row.reason == (f"what is wrong: {faults[-1]}" if faults else nature)


def test_the_columns_of_a_row() -> None:
    row = row_of(rehearsal("all-ranks-save", distance=math.nan), "nb2ddp rehearse tune.ipynb", "newest")
    assert row.name == "tune.ipynb newest 2"
    assert (row.losses, row.losses_ranks, row.first_step) == ([2.0, 1.0], [2.0, 1.1], 2)
    assert row.loss_difference == pytest.approx(0.1)
    assert row.parameter_difference is None, "JSON knows no NaN"
    assert (row.replicas_equal, row.samples_once, row.files_same) == (True, None, False)
    assert (row.date, row.versions["torch"]) == ("2026-01-01", "2.13.0")


def test_rows_are_appended_and_no_other_file_is_touched(tmp_path: Path) -> None:
    rows, other = tmp_path / "rows.jsonl", tmp_path / "tune.ipynb"
    row = row_of(rehearsal())
    assert unwritable(rows) == ""
    assert not rows.exists()
    append(row, rows)
    rows.write_text(rows.read_text().rstrip())  # an editor took the end of the line
    assert unwritable(rows) == ""
    append(row, rows)
    assert [json.loads(line)["notebook"] for line in rows.read_text().splitlines()] == ["tune.ipynb"] * 2
    other.write_text('{"cells": []}\n')
    assert unwritable(other) == "what it holds are no rows; name another file"
    assert unwritable(tmp_path) == "it is not a file"
    assert unwritable(tmp_path / "none" / "rows.jsonl")
    with pytest.raises(OutputError, match=r"cannot be appended to .*none.*: No such file"):
        append(row, tmp_path / "none" / "rows.jsonl")
