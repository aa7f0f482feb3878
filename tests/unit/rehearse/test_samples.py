"""The check of the samples: which rows of which data set each rank has computed."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from nb2ddp.rehearse.checks.data import samples
from nb2ddp.rehearse.evidence import Evidence
from nb2ddp.rehearse.observed import Rank
from nb2ddp.rehearse.runs import Run

Drawn = Sequence[dict[int, str]]  # of each step: the rows by their index in the data set


def rank(number: int, steps: Drawn) -> Rank:
    notes = []
    for step, rows in enumerate(steps):
        batch = {
            "iterator": 1,
            "number": step,
            "indices": list(rows),
            "rows": list(rows.values()),
            "width": len(rows),
        }
        made = {"losses": [1.0], "batches": [(1, step)], "computed": [], "digest": ""}
        notes += [{"kind": "batch", **batch}, {"kind": "step", **made}]
    return Rank(number, notes, 0, 0.0, 0, "", "", Path("none"), Path("none"))


def faults(one: Drawn, *ranks: Drawn) -> list[str]:
    run, single = Run("several", "script", Path("none"), Path("none"), len(ranks)), rank(0, one)
    found = samples(Evidence(run, single, single, run, [rank(n, steps) for n, steps in enumerate(ranks)]))
    return [fault.sentence for fault in found.faults]


@pytest.mark.parametrize(
    ("rank_1", "sentence"),
    [
        ([{1: "b"}, {1: "d"}], ""),
        ([{1: "x"}, {1: "d"}], "row 1 of the data set is not the same on all ranks"),
        ([{0: "a"}, {1: "d"}], "all ranks train on the same samples in step 1"),
        ([{2: "b"}, {1: "d"}], "1 of the notebook's 2 samples of step 1 are trained by no rank"),
    ],
)
def test_folds_number_their_rows_anew(rank_1: Drawn, sentence: str) -> None:
    """In the second step, of another fold, the same indices mean other rows."""
    one = [{0: "a", 1: "b"}, {0: "c", 1: "d"}]
    found = faults(one, [{0: "a"}, {0: "c"}], rank_1)
    assert [text.startswith(sentence) for text in found[:1]] == [True] * bool(sentence)


def test_a_shuffle_without_a_seed_gives_the_ranks_other_rows() -> None:
    one = [{0: "a", 1: "b"}, {2: "c", 3: "d"}]
    (found,) = faults(one, [{0: "a"}, {2: "c"}], [{1: "d"}, {2: "b"}])[:1]
    assert found.startswith("row 2 of the data set is not the same on all ranks")


@pytest.mark.parametrize("name", ["{}", "anchor_{}", "sentence_0_{}", "{}_chosen"])
def test_a_sample_is_known_by_its_words_and_not_by_the_padding_of_its_batch(name: str) -> None:
    torch = pytest.importorskip("torch")
    from nb2ddp.rehearse.harness.samples import row_digests

    whole = {
        name.format("input_ids"): torch.tensor([[5, 6, 0], [7, 8, 9]]),
        name.format("attention_mask"): torch.tensor([[1, 1, 0], [1, 1, 1]]),
    }
    share = {key: value[:1, :2] for key, value in whole.items()}
    first = row_digests(share, 1)
    assert first is not None
    assert row_digests(whole, 2) == [*first, *(row_digests({k: v[1:] for k, v in whole.items()}, 1) or ())]
    assert row_digests({name.format("input_ids"): whole[name.format("input_ids")]}, 2) is None


def test_a_batch_may_be_one_tensor() -> None:
    torch = pytest.importorskip("torch")
    from nb2ddp.rehearse.harness import samples

    batch = torch.arange(6).reshape(3, 2)
    assert samples.width(batch) == 3
    assert samples.row_digests(batch, 3) == samples.row_digests([batch], 3)
    assert samples.rows_of_call((batch[1:],), {}) == (samples.row_digests(batch, 3) or [])[1:]


@pytest.mark.parametrize(
    ("micro_batch", "comparing", "expected"),
    [
        ((1, 2, False), False, ([(4, 1)], [])),
        ((1, 2, True), False, ([(4, 1)], [None])),  # some rows, of which nothing more is known
        ((1, 2, False), True, ([], [])),  # computed once more: no sample is trained by it
        (None, False, ([(4, 0)], [])),
    ],
)
def test_the_runtime_says_which_micro_batch_is_computed(
    monkeypatch: pytest.MonkeyPatch, micro_batch: object, comparing: bool, expected: object
) -> None:
    torch = pytest.importorskip("torch")
    from nb2ddp.rehearse.harness import watch

    run = types.SimpleNamespace(micro_batch=micro_batch, comparing=comparing)
    monkeypatch.setitem(sys.modules, "ddp_support", types.SimpleNamespace(_run=run))
    loader = types.SimpleNamespace(nb2ddp_number=4, nb2ddp_used=0)
    given = [watch._Given(4, number, ["a", "b"]) for number in range(2)]  # the same rows twice
    for name, value in {"_latest": loader, "_given": given, "_called": [], "_step": watch._Step()}.items():
        monkeypatch.setattr(watch, name, value)
    monkeypatch.setattr("nb2ddp.rehearse.harness.notes.is_rank", lambda: True)
    watch._backward(lambda tensor: None, torch.ones(()))
    assert (watch._step.batches, watch._step.computed) == expected
    if micro_batch and not comparing:
        assert watch._batch_of(["a", "b"]) is given[1]
        assert loader.nb2ddp_used == 0
