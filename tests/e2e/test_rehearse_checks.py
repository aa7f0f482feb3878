"""What the checks make of notes, for scripts that divide a batch only when the model is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nb2ddp.rehearse.checks.data import batch, samples
from nb2ddp.rehearse.checks.run import files
from nb2ddp.rehearse.evidence import Evidence, Point
from nb2ddp.rehearse.observed import Rank
from nb2ddp.rehearse.runs import Run

ROWS = ["a", "b", "c", "d"]


def rank(number: int, computed: list[str | None], rows: list[str] | None = ROWS) -> Rank:
    """A rank that drew four samples and computed some of them, in one step."""
    drawn: dict[str, Any] = {"indices": [0, 1, 2, 3], "rows": rows, "width": 4}
    notes: list[dict[str, Any]] = [
        {"kind": "batch", "iterator": 1, "number": 0, **drawn},
        {
            "kind": "step",
            "number": 1,
            "losses": [1.0],
            "batches": [[1, 0]],
            "digest": "x",
            "computed": computed,
        },
    ]
    return Rank(number, notes, 0, 0.0, 0, "", "", Path("none"), Path("none"))


def judged(*computed: list[str | None], rows: list[str] | None = ROWS) -> tuple[Point, Point, int]:
    ranks = [rank(number, own, rows) for number, own in enumerate(computed)]
    run = Run("several", "script", Path("none"), Path("none"), len(ranks))
    evidence = Evidence(run, rank(0, [], rows), rank(0, [], rows), run, ranks)
    return samples(evidence), batch(evidence), evidence.undivided


def keys(point: Point) -> list[str]:
    return [fault.key for fault in point.faults]


def test_the_rows_that_a_rank_computes_are_its_samples() -> None:
    drawn, size, undivided = judged(["a", "b"], ["c", "d"])
    assert (drawn.state, size.state, undivided) == ("passed", "passed", 0)
    assert drawn.measured.startswith("2 on rank 0, 2 on rank 1")
    assert size.measured == "4 = 2 + 2 samples per step, the notebook's 4"


def test_rows_that_two_ranks_compute_are_found() -> None:
    drawn, size, _ = judged(["a", "b"], ["b", "c"])
    assert keys(drawn) == ["same-samples", "missing-samples"]
    assert not keys(size)


def test_rows_that_no_rank_computes_are_found() -> None:
    drawn, size, _ = judged(["a", "b"], ["c"])
    assert keys(drawn) == ["missing-samples"]
    assert keys(size) == ["other-batch"]


def test_equal_rows_are_told_apart_by_their_place() -> None:
    drawn, _, _ = judged(["a", "a"], ["b", "b"], rows=["a", "a", "b", "b"])
    assert drawn.state == "passed"


def test_rows_that_are_changed_on_their_way_are_counted() -> None:
    drawn, size, _ = judged(["v", "w"], [None, None])
    assert drawn.state == "unseen"
    assert size.state == "passed"
    assert judged(["v", "w"], [None])[1].state == "unseen"  # some rows, nobody knows how many
    _, size, _ = judged(["v", "w"], [None, None, None])
    assert keys(size) == ["other-batch"]


def test_whole_batches_on_every_rank_are_right_but_said() -> None:
    drawn, size, undivided = judged(["a", "b", "c", "d"], ["a", "b", "c", "d"])
    assert (drawn.state, size.state, undivided) == ("passed", "passed", 1)
    assert "in 1 steps each rank computes all samples" in drawn.measured
    assert "all of them on each rank" in size.measured


def test_plots_that_a_notebook_shows_are_files_of_the_script_alone() -> None:
    def writing(*names: str) -> Rank:
        notes = [{"kind": "write", "path": f"/run/{name}"} for name in names]
        return Rank(0, notes, 0, 0.0, 0, "", "", Path("none"), Path("/run"))

    run, one = Run("several", "script", Path("none"), Path("none"), 1), writing("model.pt")
    for more, found in (("plot_1.png", []), ("other.png", ["other-files"])):
        assert keys(files(Evidence(run, one, one, run, [writing("model.pt", more)]))) == found
