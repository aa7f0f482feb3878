"""The shares of an optimizer step: the same samples, evened out."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.runtime.even_batches import (
    EvenBatches,
    Share,
    count_micro_batches,
    lengths_of,
    replace_batches,
    share_evenly,
)

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


def test_attention_counts_where_asked() -> None:
    lengths = [8000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]
    tokens, squares = (
        share_evenly(lengths, 2, 2, padded=False, equal_counts=False, quadratic=quadratic)
        for quadratic in (0.0, 1e-3)
    )
    assert len(tokens) == len(squares) == 2
    assert min(sum(map(len, share)) for share in squares) <= min(sum(map(len, share)) for share in tokens)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="3 samples cannot be shared among 4 ranks"):
        share_evenly([1, 2, 3], 4, 2)


class Shuffled:
    """A sampler with an epoch, as Accelerate's."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.count))
        random.Random(self.epoch).shuffle(order)
        return iter(order)


def samplers(count: int, ranks: int, **options: Any) -> list[EvenBatches]:
    lengths = draw(count)
    given = {"batch_size": 2, "step_samples": 8, "longest": LONGEST, **options}
    return [
        EvenBatches(Shuffled(count), lengths, rank=rank, world_size=ranks, **given) for rank in range(ranks)
    ]


@pytest.mark.parametrize("equal_counts", [True, False])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("count", [8, 16, 21, 27, 65])
def test_each_step_keeps_its_samples(count: int, ranks: int, equal_counts: bool) -> None:
    held = samplers(count, ranks, equal_counts=equal_counts)
    for epoch in range(2):
        for sampler in held:
            sampler.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        batches = [list(sampler) for sampler in held]
        assert {len(found) for found in batches} == {len(held[0])}
        order = list(held[0].sampler)
        full = count_micro_batches(8, ranks, 2)
        for step in range(-(-count // 8)):
            here = [
                row
                for found in batches
                for places in found[step * full : (step + 1) * full]
                for row in places
            ]
            wanted = sorted(order[step * 8 : (step + 1) * 8])
            assert sorted(set(here)) == wanted
            if len(wanted) >= ranks:
                assert sorted(here) == wanted


def test_a_last_step_with_fewer_samples_than_ranks_repeats_the_shortest() -> None:
    held = samplers(17, 4)
    last = [list(sampler)[-1] for sampler in held]
    assert {len(places) for places in last} == {1}
    assert {row for places in last for row in places} == {list(held[0].sampler)[-1]}
    assert held[0].repeats == 3


def test_what_the_notebook_drops_is_dropped() -> None:
    held = samplers(23, 2, drop_last=True, notebook_batch=4)
    rows = [row for sampler in held for places in sampler for row in places]
    assert sorted(rows) == sorted(list(held[0].sampler)[:20])


def test_accelerates_loader_yields_them_and_resumes() -> None:
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate.data_loader")
    lengths = draw(27)
    shards = []
    for rank in range(2):
        generator = torch.Generator()
        sampler = accelerate.SeedableRandomSampler(range(27), generator=generator, data_seed=3407)
        inner = torch.utils.data.BatchSampler(sampler, 2, False)
        shard = accelerate.BatchSamplerShard(inner, num_processes=2, process_index=rank)
        loader = accelerate.DataLoaderShard(range(27), batch_sampler=shard, collate_fn=list)
        shards.append(replace_batches(loader, lengths, step_samples=8, equal_counts=False, longest=LONGEST))
    epochs = []
    for epoch in range(2):
        for loader in shards:
            loader.set_epoch(epoch)
        epochs.append([list(loader) for loader in shards])
        assert [len(found) for found in epochs[-1]] == [len(loader) for loader in shards] == [7, 7]
        assert sorted(row for found in epochs[-1] for places in found for row in places) == list(range(27))
    assert epochs[0] != epochs[1]
    for rank, loader in enumerate(shards):
        skipped = accelerate.skip_first_batches(loader, 3)
        skipped.set_epoch(1)
        assert list(skipped) == epochs[1][rank][3:]


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
    assert lengths_of([{"messages": []}]) is None


TRAINING = """\
import json, os, random, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from nb2ddp.runtime.even_batches import lengths_of, replace_batches

torch.set_num_threads(1)
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
rng = random.Random(0)
rows = []
for _ in range(27):
    ids = [rng.randint(3, 99) for _ in range(min(120, max(4, round(rng.lognormvariate(3, 0.8)))))]
    rows.append({"input_ids": ids})

def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [2] * (longest - len(row["input_ids"])) for row in rows])
    mask = torch.tensor([[place < len(row["input_ids"]) for place in range(longest)] for row in rows])
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, -100)}

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64,
    num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=128))
args = TrainingArguments(output_dir="out", use_cpu=True, report_to="none", seed=3407, save_strategy="no",
    per_device_train_batch_size=2, gradient_accumulation_steps=4 // ranks, num_train_epochs=2,
    logging_steps=1, learning_rate=1e-2, optim="sgd", remove_unused_columns=False, disable_tqdm=True,
    ddp_find_unused_parameters=False)
trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collate)
if ranks > 1 and sys.argv[1] == "even":
    prepared, lengths = trainer.get_train_dataloader, lengths_of(rows)
    trainer.get_train_dataloader = lambda: replace_batches(
        prepared(), lengths, step_samples=8, equal_counts=False, longest=max(lengths))
trainer.train()
with open(f"result{rank}.json", "w") as file:
    json.dump({"losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
               "weights": torch.cat([value.flatten() for value in model.parameters()]).tolist()}, file)
"""


@pytest.mark.launch
def test_a_trainer_on_two_ranks_trains_the_run_of_one(tmp_path: Path) -> None:
    """Losses and parameters equal those of one process, an epoch's last, smaller step included."""
    pytest.importorskip("transformers")
    (tmp_path / "train.py").write_text(TRAINING)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    for command in ([sys.executable, "train.py", "one"], [*torchrun, "train.py", "even"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-3000:]
        if command[-1] == "one":
            one = json.loads((tmp_path / "result0.json").read_text())
    ranks = [json.loads((tmp_path / f"result{rank}.json").read_text()) for rank in range(2)]
    assert len(one["losses"]) == 8
    assert ranks[0]["losses"] == pytest.approx(one["losses"], abs=1e-5)
    assert ranks[0]["weights"] == ranks[1]["weights"]
    assert ranks[0]["weights"] == pytest.approx(one["weights"], abs=1e-5)
