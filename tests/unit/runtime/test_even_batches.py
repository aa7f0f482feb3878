"""The shares of an optimizer step: the same samples, evened out."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.runtime_module import load_module

pytest.importorskip("torch")
support = load_module()
share_evenly = support._share_evenly
count_micro_batches = support._count_micro_batches
lengths_of = support._lengths_of
Share = list[list[int]]

LONGEST = 1024


def draw(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [min(LONGEST, max(1, round(rng.lognormvariate(5, 0.8)))) for _ in range(count)]


def work(lengths: list[int], plan: list[Share], padded: bool) -> int:
    """The tokens of the busiest rank."""

    def tokens(batch: list[int]) -> int:
        rows = [lengths[place] for place in batch]
        return len(rows) * max(rows) if padded else sum(rows)

    return max(sum(map(tokens, share)) for share in plan)


def in_turns(count: int, ranks: int, batch_size: int) -> list[Share]:
    batches = [list(range(start, start + batch_size)) for start in range(0, count, batch_size)]
    return [batches[rank::ranks] for rank in range(ranks)]


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("equal_counts", [True, False])
@pytest.mark.parametrize(("ranks", "batch"), list(itertools.product((1, 2, 3, 4, 8), (1, 2, 3, 8))))
def test_each_sample_once_in_equally_many_batches(
    ranks: int, batch: int, equal_counts: bool, padded: bool
) -> None:
    for count in range(ranks, 40):
        lengths = draw(count, seed=count)
        plan = share_evenly(lengths, ranks, batch, padded=padded, equal_counts=equal_counts, longest=LONGEST)
        assert sorted(place for share in plan for places in share for place in places) == list(range(count))
        assert {len(share) for share in plan} == {count_micro_batches(count, ranks, batch)}
        rows = [len(places) for share in plan for places in share]
        assert min(rows) >= 1
        if equal_counts and count % (ranks * batch) == 0:
            assert set(rows) == {batch}
        if equal_counts:
            totals = [sum(map(len, share)) for share in plan]
            assert max(totals) - min(totals) <= len(plan[0])


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("equal_counts", [True, False])
def test_no_batch_takes_more_tokens_than_the_notebook_might(equal_counts: bool, padded: bool) -> None:
    for seed, (ranks, batch) in itertools.product(range(20), ((2, 2), (2, 8), (4, 2), (3, 4))):
        lengths = draw(4 * ranks * batch, seed)
        plan = share_evenly(lengths, ranks, batch, padded=padded, equal_counts=equal_counts, longest=LONGEST)
        for places in itertools.chain.from_iterable(plan):
            rows = [lengths[place] for place in places]
            assert (len(rows) * max(rows) if padded else sum(rows)) <= batch * LONGEST


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("equal_counts", [True, False])
def test_the_slowest_rank_never_has_more_to_do(equal_counts: bool, padded: bool) -> None:
    before = after = 0
    for seed, (ranks, batch) in itertools.product(range(40), ((2, 2), (2, 8), (4, 1))):
        lengths = draw(2 * ranks * batch, seed)
        plan = share_evenly(lengths, ranks, batch, padded=padded, equal_counts=equal_counts, longest=LONGEST)
        was = work(lengths, in_turns(len(lengths), ranks, batch), padded)
        assert work(lengths, plan, padded) <= was
        before, after = before + was, after + work(lengths, plan, padded)
    assert after < 0.9 * before


def test_equal_rows_stay_where_they_were() -> None:
    assert share_evenly([512] * 8, 2, 2) == in_turns(8, 2, 2)


def test_padding_free_tokens_are_spread_over_the_micro_batches() -> None:
    """Sorting saves nothing there, and short micro-batches cost the GPU's launches all the same."""
    plan = share_evenly([800, 790, 60, 50, 780, 770, 40, 30], 2, 2, padded=False)
    lengths = [800, 790, 60, 50, 780, 770, 40, 30]
    tokens = [sum(lengths[place] for place in places) for share in plan for places in share]
    assert max(tokens) < 1.1 * min(tokens)


def test_padded_rows_of_like_lengths_go_together() -> None:
    plan = share_evenly([800, 60, 790, 50, 780, 40, 770, 30], 2, 2)
    assert all(len({place % 2 for place in places}) == 1 for share in plan for places in share)


def test_a_long_row_stands_alone_where_counts_are_free() -> None:
    lengths = [900, 100, 110, 120, 130, 140, 150, 160]
    plan = share_evenly(lengths, 4, 2, equal_counts=False, longest=1024)
    assert [0] in [places for share in plan for places in share]
    assert work(lengths, plan, True) == 900


def test_many_rows_are_shared_in_little_time() -> None:
    import time

    lengths = draw(1024)
    begin = time.process_time()
    plan = share_evenly(lengths, 8, 16, equal_counts=False, longest=LONGEST)
    assert time.process_time() - begin < 2
    assert sorted(place for share in plan for places in share for place in places) == list(range(1024))
    assert work(lengths, plan, True) < 0.6 * work(lengths, in_turns(1024, 8, 16), True)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="3 samples cannot be shared among 4 ranks"):
        share_evenly([1, 2, 3], 4, 2)


def test_lengths_are_read_off_a_tokenised_data_set() -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"input_ids": [[1, 2], [3], [4, 5, 6]], "labels": [[1, 2], [3], [4, 5, 6]]}
    dataset = datasets.Dataset.from_dict(rows)
    assert lengths_of(dataset) == [2, 1, 3]
    assert lengths_of(dataset.select([2, 0])) == [3, 2]
    pairs = {"prompt_ids": [[1], [1, 1]], "chosen_ids": [[2, 2], [2]], "rejected_ids": [[3], [3]]}
    assert lengths_of(datasets.Dataset.from_dict(pairs)) == [4, 4]
    assert lengths_of([{"input_ids": [1, 2, 3]}]) == [3]
    assert lengths_of(datasets.Dataset.from_dict({"text": ["a", "b"]})) is None
    assert lengths_of(datasets.Dataset.from_dict({"doc_ids": [1, 2]})) is None
    assert lengths_of([{"messages": []}]) is None


@pytest.mark.parametrize("kind", ["_DividedBatches", "_WholeBatches"])
def test_batches_are_copied_and_asked_for_what_they_have_not(kind: str) -> None:
    made = getattr(support, kind).__new__(getattr(support, kind))
    assert not hasattr(made, "sampler")
    made.batches, made.sizes = [[0, 1], [2]], [[2], [1]]
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other.__dict__ == made.__dict__
        assert other.append is not None
        assert not hasattr(other, "sampler")


def test_a_row_that_fills_a_round_is_no_sample_of_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from nb2ddp.rehearse.harness import notes, watch

    noted: list[dict[str, Any]] = []
    monkeypatch.setattr(watch, "note", lambda kind, **values: noted.append(values))
    monkeypatch.setattr(notes, "is_rank", lambda: True)
    batches = support._WholeBatches([[5, 6], [7]], all_of_them=False)
    monkeypatch.setattr(support._run, "world_size", 3)
    monkeypatch.setattr(support._run, "rank", 2)
    iterator = SimpleNamespace(nb2ddp_drawn=deque(batches), nb2ddp_number=1, nb2ddp_given=0)
    watch._next_batch(lambda _: {"input_ids": torch.ones(1, 2)}, iterator)
    assert [noted[0][name] for name in ("indices", "rows", "width")] == [[], [], 0]


@pytest.mark.parametrize(
    ("max_steps", "epochs", "long"), [(60, 1.0, False), (-1, 1.0, False), (-1, 3.0, True), (300, 1.0, True)]
)
def test_a_long_run_may_compile_for_any_number_of_rows(max_steps: int, epochs: float, long: bool) -> None:
    arguments = SimpleNamespace(max_steps=max_steps, num_train_epochs=epochs)
    assert support._is_long(arguments, 100.0) is long
