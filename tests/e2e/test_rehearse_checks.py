"""What the checks make of notes, for scripts that divide a batch only when the model is called."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.rehearse.checks.data import batch, samples
from nb2ddp.rehearse.checks.model import gradients, replicas, trained_apart
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
    _, size, _ = judged(["v", "w"], [None, None, None])
    assert keys(size) == ["other-batch"]


def test_whole_batches_on_every_rank_are_right_but_said() -> None:
    drawn, size, undivided = judged(["a", "b", "c", "d"], ["a", "b", "c", "d"])
    assert (drawn.state, size.state, undivided) == ("passed", "passed", 1)
    assert "in 1 steps each rank computes all samples" in drawn.measured
    assert "all of them on each rank" in size.measured


# ---------------------------------------------------------------------------------------------------------
# A model that is sharded: two parameters of 6 and 2 numbers

NOTEBOOKS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
Pieces = list[tuple[int, int, int]]


def holding(
    folder: Path, number: int, pieces: Pieces | None, numbers: list[float], *, reduces: bool = True
) -> Rank:
    """A rank that ends with these numbers, in one step of two micro-batches."""
    file = folder / f"parameters-{number}-{pieces is None}.f32"
    file.write_bytes(array("f", numbers).tobytes())
    step = {"number": 1, "losses": [1.0, 1.0], "batches": [], "digest": "y", "computed": []}
    notes = [
        {"kind": "batch", "iterator": 1, "number": 0, "indices": [0], "rows": None, "width": 1},
        *[{"kind": "enter", "name": "reduce_scatter_tensor", "line": None}] * reduces,
        {"kind": "begin", "digest": "x", "pieces": pieces},
        {"kind": "step", **step},
    ]
    return Rank(number, notes, 0, 0.0, 0, "", "", file, folder)


def of_shards(
    folder: Path, first: tuple[Pieces, list[float]], second: tuple[Pieces, list[float]], reduces: bool = True
) -> Evidence:
    ranks = [holding(folder, n, *held, reduces=reduces) for n, held in enumerate((first, second))]
    one = holding(folder, 0, None, NOTEBOOKS)
    run = Run("several", "script", Path("none"), Path("none"), 2)
    return Evidence(run, one, one, run, ranks)


def test_shards_are_put_together_and_compared_with_the_notebooks_model(tmp_path: Path) -> None:
    first: tuple[Pieces, list[float]] = [(0, 4, 6), (0, 2, 2)], [1, 2, 3, 4, 7, 8]
    evidence = of_shards(tmp_path, first, ([(4, 2, 6), (0, 0, 2)], [5, 6]))
    point = replicas(evidence)
    assert (point.title, point.state, trained_apart(evidence)) == ("shards", "passed", 0)
    assert point.measured.startswith("of 8 trained numbers 6 on rank 0, 2 on rank 1; put together 0.0e+00")
    assert gradients(evidence).measured == "reduced in shards"
    changed = of_shards(tmp_path, first, ([(4, 2, 6), (0, 0, 2)], [5, 7]))
    assert keys(replicas(changed)) == ["other-parameters"]
    assert trained_apart(changed) == pytest.approx(1 / 204**0.5)


def test_a_number_that_no_rank_holds_is_missed(tmp_path: Path) -> None:
    evidence = of_shards(
        tmp_path, ([(0, 3, 6), (0, 2, 2)], [1, 2, 3, 7, 8]), ([(4, 2, 6), (0, 0, 2)], [5, 6])
    )
    point = replicas(evidence)
    assert "1 of 8 trained numbers are held by no rank" in [fault.sentence for fault in point.faults]


def test_what_every_rank_holds_is_the_same_on_all(tmp_path: Path) -> None:
    first: tuple[Pieces, list[float]] = [(0, 4, 6), (0, 2, 2)], [1, 2, 3, 4, 7, 8]
    same = of_shards(tmp_path, first, ([(4, 2, 6), (0, 2, 2)], [5, 6, 7, 8]))
    assert replicas(same).state == "passed"
    other = of_shards(tmp_path, first, ([(4, 2, 6), (0, 2, 2)], [5, 6, 7, 9]))
    assert keys(replicas(other)) == ["replicas-differ"]


def test_shards_of_other_sizes_than_they_were_cut_are_not_judged(tmp_path: Path) -> None:
    evidence = of_shards(tmp_path, ([(0, 4, 6), (0, 2, 2)], [1, 2, 3]), ([(4, 2, 6), (0, 0, 2)], [5, 6]))
    assert (replicas(evidence).state, trained_apart(evidence)) == ("unseen", None)


def test_gradients_of_shards_that_are_not_reduced_are_found(tmp_path: Path) -> None:
    pieces: Pieces = [(0, 4, 6), (0, 2, 2)]
    first, second = (pieces, [1.0, 2, 3, 4, 7, 8]), ([(4, 2, 6), (0, 0, 2)], [5.0, 6])
    assert keys(gradients(of_shards(tmp_path, first, second, reduces=False))) == ["not-synchronised"]
    assert not keys(gradients(of_shards(tmp_path, first, second)))
