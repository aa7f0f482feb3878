"""Rank 0 prepares the data first, so that the others read its cache."""

from __future__ import annotations

import pytest

from nb2ddp.rules.main_first import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

HEAD = "from datasets import Dataset, load_dataset\nfrom trl import SFTTrainer\n"
TRAIN = "t = SFTTrainer(llm)\nt.train()\n"
WITH = "with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache\n"

LEFT_ALONE = {
    "no dataset": "x = 1\n",
    "the map of something else": "df.map(f)\nlist(map(f, x))\n",
    "a dataset in memory": 'data = Dataset.from_dict({"a": [1]})\n',
    "reading a sample": 'data = rows()\nx = data[0]["text"]\nprint(x)\n',
    "dead code": 'if False:\n    data = load_dataset("d")\n',
    "a function that is only defined": 'def prepare():\n    return load_dataset("d").map(f)\n',
    "preparation inside the trainer": 'd = SFTTrainer(llm, train_dataset=load_dataset("d"))\n',
}

PREPARED = {
    "loaded": 'data = load_dataset("d", split = "train")  # all\n',
    "loaded and mapped in one": 'data = load_dataset("d").shuffle(seed=1).map(f)["train"]\n',
    "in a function": "data = prepare()\n",
    "in a loop": 'for name in ["a", "b"]:\n    data = load_dataset(name)\n',
    "in a with block": 'with timer:\n    data = load_dataset("d")\n',
    "several on a line": 'a = load_dataset("a"); b = load_dataset("b")\n',
    "in a dict": 'data = {name: load_dataset(name) for name in "ab"}\n',
}

IMPORTS = {
    "the module": ("import datasets", 'd = datasets.load_dataset("d")\n'),
    "the module under another name": ("import datasets as hf", 'd = hf.load_dataset("d")\n'),
    "the function under another name": (
        "from datasets import load_dataset as ld",
        'd = ld("d")\n',
    ),
    "a star import": ("from datasets import *", 'd = load_dataset("d")\n'),
    "a download": ("from huggingface_hub import snapshot_download", 'd = snapshot_download("d")\n'),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_fills_no_cache_is_left_alone(source: str) -> None:
    check_untouched(rule, HEAD + source + TRAIN)


def test_after_training_rank_0_is_alone() -> None:
    check_untouched(rule, HEAD + TRAIN + 'data = load_dataset("test").map(f)\n')


def test_a_notebook_that_does_not_train_is_left_alone() -> None:
    check_untouched(rule, HEAD + 'data = load_dataset("d")\n')


@pytest.mark.parametrize("source", PREPARED.values(), ids=PREPARED.keys())
def test_rank_0_prepares_the_data_first(source: str) -> None:
    head = HEAD + ('def prepare():\n    return load_dataset("d")\n' if "prepare" in source else "")
    inside = "".join(f"    {line}\n" for line in source.splitlines())
    check_rewritten(rule, head + source + TRAIN, head + WITH + inside + TRAIN)


@pytest.mark.parametrize(("header", "source"), IMPORTS.values(), ids=IMPORTS.keys())
def test_datasets_are_known_by_their_import(header: str, source: str) -> None:
    head = f"{header}\nfrom trl import SFTTrainer\n"
    check_rewritten(rule, head + source + TRAIN, f"{head}{WITH}    {source}{TRAIN}")


def test_neighbours_share_a_block_and_comments_stay() -> None:
    check_rewritten(
        rule,
        HEAD
        + '# the data\ndata = load_dataset("d")\n# short ones\ndata = data.filter(short)  # < 10\n\n'
        + "def f(row):\n    return row\n\ndata = data.map(f, batched = True,)\n"
        + TRAIN,
        HEAD
        + "# the data\n"
        + WITH
        + '    data = load_dataset("d")\n    # short ones\n    data = data.filter(short)  # < 10\n\n'
        + "def f(row):\n    return row\n\n"
        + WITH
        + "    data = data.map(f, batched = True,)\n"
        + TRAIN,
    )


def test_texts_and_indents_inside_the_block_stay_as_they_are() -> None:
    check_rewritten(
        rule,
        HEAD + 'if big:\n  data = load_dataset("""\none\n  two""")\nelse:\n  data = small()\n' + TRAIN,
        HEAD
        + WITH
        + '    if big:\n      data = load_dataset("""\none\n  two""")\n    else:\n      data = small()\n'
        + TRAIN,
    )


def test_a_dataset_keeps_its_kind_through_unsloths_functions() -> None:
    result = apply(
        rule,
        HEAD + "from unsloth.chat_templates import standardize_sharegpt as std\n" + TRAIN,
        'data = load_dataset("d")',
        "data = std(data)",
        "data = data.map(f)",
        "t = SFTTrainer(llm, train_dataset=data)\nt.train()",
    )
    assert [result.code[number].startswith(WITH) for number in (2, 3, 4, 5)] == [True, True, True, False]
