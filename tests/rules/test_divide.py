"""A loop is divided where its iterations need nothing of one another, and only there."""

from __future__ import annotations

from textwrap import indent

import pytest

from nb2ddp.rules.divide import rule
from tests.support.helpers import check_settles, converted

HEAD = (
    "import json, random\nfrom pathlib import Path\nimport torch\nfrom tqdm import tqdm\n"
    "from datasets import load_dataset\n"
    "from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline\n"
    "from trl import SFTConfig, SFTTrainer\n"
    "llm = AutoModelForCausalLM.from_pretrained('m')\n"
    "tok = AutoTokenizer.from_pretrained('m')\n"
    "questions = ['a', 'b', 'c']\n"
    "data = load_dataset('d', split='train')\n"
)
TRAIN = "t = SFTTrainer(llm, args=SFTConfig('o'), train_dataset=answers)\nt.train()\n"
DIVIDED = "  # nb2ddp: divided over the ranks"
BODY = "out = llm.generate(q, do_sample=False)\nanswers.append(out)\n"


def loop(body: str = BODY, over: str = "q in questions", before: str = "answers = []\n") -> str:
    return f"{before}for {over}:\n{indent(body, '    ')}"


def divided(body: str = BODY, over: str = "q in questions", before: str = "answers = []\n") -> str:
    target, _, items = over.partition(" in ")
    return loop(body, f"{target} in ddp.share_loop({items}, answers)", before).replace(
        ":\n", f":{DIVIDED}\n", 1
    )


# What a loop goes through.
ITEMS = {
    "a list": "q in questions",
    "a part of it": "q in questions[:2]",
    "a literal": "q in ['a', 'b']",
    "numbers": "q in range(4)",
    "batch after batch": "n in range(0, len(questions), 2)",
    "numbered": "i, q in enumerate(questions)",
    "with a bar": "i, q in enumerate(tqdm(questions, desc='x'))",
    "a bar of numbers": "q in tqdm(range(3))",
    "two lists": "q, r in zip(questions, sorted(set(questions)))",
    "a dataset": "q in data",
    "a column": "q in data.select(range(9))['question']",
    "a comprehension": "q in [x.upper() for x in questions]",
    "a file of lists": "q in json.loads(Path('q.json').read_text())",
}


@pytest.mark.parametrize("over", ITEMS.values(), ids=ITEMS.keys())
def test_each_rank_takes_its_share_of_the_items(over: str) -> None:
    result = check_settles(rule, HEAD + loop(over=over) + TRAIN, HEAD + divided(over=over) + TRAIN)
    assert not result.notes


def test_a_divided_loop_is_for_all_ranks_in_the_whole_script() -> None:
    script = converted(HEAD, loop(), TRAIN).files["train_ddp.py"]
    assert "only rank 0 generates" not in script
    assert "from_main_process" not in script
    assert "ddp.share_loop(" in script


def test_what_rank_0_generated_reaches_a_divided_loop() -> None:
    source = "questions = llm.generate(5).split()\n"
    script = converted(HEAD, source, loop(), TRAIN).files["train_ddp.py"]
    at = script.index("questions = ddp.from_main_process(lambda: questions)")
    assert at < script.index("ddp.share_loop(questions, answers)")
