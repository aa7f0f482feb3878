"""Data that rank 0 prepares first: the others read its cache, and are as if they had computed what is in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended
from tests.unit.runtime.conftest import RANK_COUNTS

Run = Callable[..., Ended]

DATA = """
import collections, json, os, random
import datasets
if rank == 0:
    with open("rows.jsonl", "w") as file:
        for number in range(20):
            print(json.dumps({"x": number, "text": "a" * (number % 7)}), file=file)
def rows():
    return datasets.load_dataset("json", data_files="rows.jsonl", split="train", cache_dir="cache")
"""
PREPARES = """
def draws_in_map_and_after_it():
    made = rows().map(lambda row: {"x": row["x"] * random.random()})
    made = made.filter(lambda row: random.random() < 0.8)
    return made.select(random.sample(range(len(made)), 5))["x"][:]

counter, lengths = collections.Counter(), []
def count(row):
    counter.update(row["text"]), lengths.append(len(row["text"]))
    return {"length": len(row["text"])}
def counts_in_map():
    made = rows().map(count)
    return dict(counter), max(lengths), made["length"][:]

generator = random.Random(0)
def draws_from_a_generator_outside():
    made = rows().map(lambda row: {"x": row["x"] + generator.random()})
    return made["x"][:], generator.random()

def generate(most):
    for number in range(most):
        counter["rows"] += 1
        yield {"x": random.random()}
def generates_rows():
    made = datasets.Dataset.from_generator(generate, gen_kwargs={"most": 9}, cache_dir="cache")
    return made["x"][:], dict(counter), random.random()

@joblib.Memory("joblib", verbose=0).cache
def features(size):
    return [random.random() for _ in range(size)]
def remembers():
    return features(3), random.random()

ways = (
    draws_in_map_and_after_it, counts_in_map, draws_from_a_generator_outside, generates_rows, remembers
)
ddp.from_all_ranks(None)
for prepare in ways:
    with ddp.main_process_first():
        prepared = str(prepare())
    note(way=prepare.__name__, prepared=prepared)
"""


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_a_rank_that_reads_a_cache_is_as_if_it_had_computed(run: Run, ranks: int) -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("joblib")
    several, one = (
        run(DATA + "import joblib\n" + PREPARES, ranks),
        run(DATA + "import joblib\n" + PREPARES, 1),
    )
    assert not any((*one.codes, *several.codes)), several.text
    for rank in several.ranks:
        assert rank.history == one.ranks[0].history


COMPUTES_ONCE = """
import tokenizers, torch
from transformers import PreTrainedTokenizerFast
class Model(torch.nn.Module):
    pass
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
tokenizer, model = PreTrainedTokenizerFast(tokenizer_object=words), Model()
tokenizer.calls = model.calls = 0
def encode(row):
    for part in (tokenizer, model):
        part.calls += 1
    open(f"called-{ddp.is_main_process}", "a").write(".")
    return {"length": len(row["text"])}
with ddp.main_process_first():
    rows().map(encode)
ddp.from_all_ranks(None)
note(called=os.path.exists(f"called-{ddp.is_main_process}"))
"""


def test_a_tokenizer_or_a_model_that_notes_its_calls_is_no_reason_to_compute_again(run: Run) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("datasets")
    ended = run(DATA + COMPUTES_ONCE)
    assert not any(ended.codes), ended.text
    assert [rank.notes["called"] for rank in ended.ranks] == [True, False]
