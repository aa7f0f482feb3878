"""Steps whose rows are divided: what a part of a micro-batch holds, who computes what, and how even that is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nb2ddp.runtime import step_plans  # noqa: E402
from nb2ddp.runtime.figure_rules import _Change, _Note  # noqa: E402
from nb2ddp.runtime.figures import _Figures  # noqa: E402
from nb2ddp.runtime.micro_batch_rows import _Rows  # noqa: E402
from nb2ddp.runtime.run_state import _run  # noqa: E402
from tests.support.ranks import RankServer  # noqa: E402
from tests.unit.runtime.conftest import START  # noqa: E402
from tests.unit.runtime.trainer_tools import TOOLS  # noqa: E402


def padded(lengths: list[int], seed: int = 0) -> dict[str, Any]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, 50, mask.shape, generator=torch.Generator().manual_seed(seed)) * mask
    return {
        "input_ids": ids,
        "attention_mask": mask.long(),
        "labels": torch.where(mask, ids, -100),
    }


def flat(lengths: list[int]) -> dict[str, Any]:
    ids = torch.arange(1, sum(lengths) + 1)[None]
    places = torch.cat([torch.arange(length) for length in lengths])[None]
    ends = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    return {
        "input_ids": ids,
        "position_ids": places,
        "labels": torch.where(places == 0, -100, ids),
        "packed_seq_lengths": torch.tensor(lengths, dtype=torch.int32),
        "cu_seq_lens_q": torch.tensor(ends, dtype=torch.int32),
        "max_length_q": max(lengths),
    }


def test_a_part_of_a_padded_batch_leaves_out_common_padding() -> None:
    rows = _Rows(padded([40, 3, 20, 9]))
    assert rows.lengths == [40, 3, 20, 9]
    part = rows.of((1, 3), trims=True)
    assert part["input_ids"].shape == (2, 16)  # a multiple of 8
    assert torch.equal(part["labels"], rows.inputs["labels"][[1, 3], :16])
    assert all(value.is_contiguous() for value in part.values())  # models view labels flat
    assert rows.of((1, 3), trims=False)["attention_mask"].shape == (2, 40)
    assert rows.cost_of((1, 3), trims=True) == 32


def test_labels_beyond_the_mask_are_not_left_out() -> None:
    batch = padded([40, 3])
    batch["labels"][1, 30] = 5
    assert _Rows(batch).lengths == [40, 31]


def test_a_part_of_a_batch_without_padding_holds_whole_sequences() -> None:
    rows = _Rows(flat([4, 2, 5]))
    assert rows.lengths == [4, 2, 5]
    part = rows.of((0, 2), trims=True)
    assert part["input_ids"].tolist() == [[1, 2, 3, 4, 7, 8, 9, 10, 11]]
    assert part["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 4]]
    assert part["packed_seq_lengths"].tolist() == [4, 5]
    assert part["cu_seq_lens_q"].tolist() == [0, 4, 9]
    assert part["max_length_q"] == 5
    assert rows.counts["a mean over predicted labels"] == [3, 1, 4]


def test_rows_of_another_number_cannot_be_told_apart() -> None:
    batch = {**padded([4, 5]), "patches": torch.zeros(7, 3)}
    assert _Rows(batch).lengths == []
    assert _Rows({**flat([4, 2]), "packed_seq_lengths": torch.tensor([4, 1, 1])}).lengths == []


def test_chosen_and_rejected_answers_stay_together() -> None:
    rows = _Rows(padded([10, 20, 30, 5]), blocks=2)
    assert rows.lengths == [30, 20]
    assert torch.equal(rows.of((1,), trims=True)["input_ids"], rows.inputs["input_ids"][[1, 3], :24])


def drawn(mean: float, sigma: float, longest: int, seed: int) -> Iterator[int]:
    rng = random.Random(seed)
    while True:
        yield min(longest, max(40, round(mean * rng.lognormvariate(-sigma * sigma / 2, sigma))))


@pytest.mark.parametrize(
    ("mean", "sigma", "longest", "size", "make", "least"),
    [
        (230, 0.6, 1024, 2, flat, 1.9),  # rows like Alpaca's
        (1372, 0.9, 4096, 2, flat, 1.93),  # and ShareGPT's
        (230, 0.6, 1024, 8, padded, 3.0),
        (1372, 0.9, 4096, 8, padded, 3.5),
    ],
)
def test_ranks_have_as_much_to_do(
    monkeypatch: pytest.MonkeyPatch,
    mean: float,
    sigma: float,
    longest: int,
    size: int,
    make: Any,
    least: float,
) -> None:
    """Count tokens, with what a call costs on a CPU: one process's over those of the rank with the most."""
    monkeypatch.setattr(_run, "world_size", 2)
    one, ranks = 0.0, 0.0
    lengths = drawn(mean, sigma, longest, 7)
    for _ in range(12):
        batches = [_Rows(make([next(lengths) for _ in range(size)])) for _ in range(4)]
        plan = step_plans._planned(batches, dict(enumerate(batches)), trims=True)
        for turn in range(len(batches)):
            of_turn = [unit.part for unit in plan if unit.micro_batch == turn]
            assert of_turn == [None] or sorted(row for part in of_turn for row in part or ()) == list(
                range(size)
            )
        loads = [0.0, 0.0]
        for turn, part, rank in plan:
            cost = batches[turn].cost if part is None else batches[turn].cost_of(part, trims=True)
            loads[rank] += cost + step_plans._cost_of_a_call()
        one += sum(rows.cost + step_plans._cost_of_a_call() for rows in batches)
        ranks += max(loads)
    assert one / ranks >= least


def test_equal_rows_are_left_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "world_size", 2)
    batches = [_Rows(padded([64, 64])) for _ in range(4)]
    plan = step_plans._planned(batches, dict(enumerate(batches)), trims=True)
    assert [unit.part for unit in plan] == [None] * 4
    assert sorted(unit.rank for unit in plan) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("loss", "says", "least"),
    [
        ("", "rows of a micro-batch are divided where that evens out the ranks", 1.9),
        # what holds NaN has not changed
        ("assert HOLES.isnan().any()", "rows of a micro-batch are divided where that evens out", 1.9),
        (
            "loss = loss * (1 + logits.std() / 9)",
            "is computed whole, by one of the ranks: its loss is no sum",
            0.0,
        ),
        ("loss = model(**inputs).loss", "rows are divided to even these out only where a loss is a sum", 0.0),
        (
            "loss = loss + 0 * torch.rand(())",
            "is computed whole, by one of the ranks: it draws random numbers",
            0.0,
        ),
        ("print('a loss')", "is computed whole, by one of the ranks: what it prints or logs", 0.0),
    ],
)
def test_a_run_says_whether_rows_are_divided(
    trainers: RankServer, tmp_path: Path, loss: str, says: str, least: float
) -> None:
    program = f"""
HOLES = torch.tensor([1.0, float("nan")])
OTHERS = HOLES.numpy().copy()
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        o = model(**inputs, num_items_in_batch=num_items_in_batch)
        loss, logits = o.loss, o.logits
        {loss or "pass"}
        return loss
rows = lm_rows(128, 8, 200)
t = Own(llama(), args(per_device_train_batch_size=4, max_steps=8), train_dataset=rows, data_collator=pad)
ddp.init_process_group()
ddp.wrap_trainer(t)
ddp.spent, ddp.of_one = {{}}, []
record, begin = t._turns._record, t._turns.begin
def counted(turn, inputs, *more, **options):
    ddp.spent[t.state.global_step] = ddp.spent.get(t.state.global_step, 0) + inputs["input_ids"].numel()
    return record(turn, inputs, *more, **options)
def begun(samples):
    ddp.of_one.append(sum(inputs["input_ids"].numel() for inputs in samples))
    begin(samples)
t._turns._record, t._turns.begin = counted, begun
t.train()
ddp.check_replicas(t.model)
note(spent=[ddp.spent[step] for step in range(4, 8)], of_one=sum(ddp.of_one[4:8]))  # after a look at a branch
"""
    ended = trainers.run(tmp_path, START + TOOLS + program, 2, limit=120)
    assert not any(ended.codes), ended.text
    assert says in ended.ranks[0].out, ended.text
    if least:
        spent = [notes["spent"] for notes in ended.notes]
        assert ended.notes[0]["of_one"] / sum(map(max, zip(*spent, strict=True))) >= least


def test_tensors_of_other_ranks_come_to_where_this_rank_has_them() -> None:
    """Of a micro-batch that another rank computed; "meta" stands for a GPU, which is not here."""
    figures = _Figures(lambda: SimpleNamespace(model=None))
    kept: dict[str, Any] = {"last": None, "all": [torch.ones(1, device="meta")]}
    last, grown = ("trainer", "last"), ("trainer", "all")
    figures.holders = {last: (kept, "last"), grown: (kept, "all")}
    figures.devices = {last: torch.device("meta"), grown: torch.device("meta")}
    figures.rules = {last: "is set", grown: "grows"}
    note = _Note()
    note.changes = {last: _Change(None, torch.ones(2)), grown: _Change(None, None, [torch.ones(1)])}
    figures.apply(note)
    assert [of.device.type for of in (kept["last"], *kept["all"])] == ["meta", "meta", "meta"]
