"""The ranks join their group after the model is loaded and before anything needs the others."""

from __future__ import annotations

import pytest

from nb2ddp.rules.process_group import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

JOIN = "ddp.init_process_group()  # nb2ddp: join the process group\n"
IMPORTS = (
    "from unsloth import FastLanguageModel\n"
    "from transformers import TrainingArguments\n"
    "from trl import DPOTrainer, SFTTrainer\n"
)
LOAD = 'llm, tok = FastLanguageModel.from_pretrained("m")\n'
ADAPT = "llm = FastLanguageModel.get_peft_model(llm, r = 16)\n"
TRAIN = "t = SFTTrainer(llm)\nt.train()\n"

NOTHING_TO_JOIN = {
    "no training": IMPORTS + LOAD + "llm.generate(**x)",
    "dead training": IMPORTS + LOAD + "if False:\n    SFTTrainer(llm).train()",
    "training in a function that nobody calls": (
        IMPORTS + LOAD + "def go():\n    t = SFTTrainer(llm)\n    t.train()"
    ),
}

# Text before the join, and after it.
JOINS = {
    "after the adapters": (LOAD + ADAPT, TRAIN),
    "before arguments, which start Accelerate": (LOAD, 'args = TrainingArguments("o")\n' + TRAIN),
    "before arguments that stand above the load": ("", 'args = TrainingArguments("o")\n' + LOAD + TRAIN),
    "after a load in a function": (
        'def load():\n    return FastLanguageModel.from_pretrained("m")\nllm, tok = load()\n',
        TRAIN,
    ),
    "after a load under an if": (f"if True:\n  {LOAD}", TRAIN),
    "once for two trainers": (LOAD, TRAIN + "d = DPOTrainer(llm)\nd.train()\n"),
    "before a trainer that loads by itself": ("", 't = SFTTrainer("m")\nt.train()\n'),
    "before a function that only trains": (
        "def go(llm):\n    t = SFTTrainer(llm)\n    t.train()\n",
        "go(llm)\n",
    ),
    "inside a function that loads and trains": (
        f"def main():\n    {LOAD}    ",
        "    t = SFTTrainer(llm)\n    t.train()\nmain()\n",
    ),
    "inside a block that loads and trains": (
        f"with profiler:\n    {LOAD}    ",
        "    t = SFTTrainer(llm)\n    t.train()\n",
    ),
}


@pytest.mark.parametrize("source", NOTHING_TO_JOIN.values(), ids=NOTHING_TO_JOIN.keys())
def test_a_notebook_whose_ranks_need_no_other_joins_nothing(source: str) -> None:
    check_untouched(rule, source)


@pytest.mark.parametrize(("above", "below"), JOINS.values(), ids=JOINS.keys())
def test_the_group_is_joined_in_between(above: str, below: str) -> None:
    before = IMPORTS + above.removesuffix("    ") + below
    check_rewritten(rule, before, IMPORTS + above + JOIN + below)


def test_a_reload_after_training_does_not_count() -> None:
    check_rewritten(rule, IMPORTS + LOAD + TRAIN + LOAD, IMPORTS + LOAD + JOIN + TRAIN + LOAD)


def test_putting_the_model_into_training_mode_is_no_load() -> None:
    check_rewritten(
        rule,
        IMPORTS + LOAD + 'x = 1\nllm = llm.to("cuda")\nllm.train()\n' + TRAIN,
        IMPORTS + LOAD + JOIN + 'x = 1\nllm = llm.to("cuda")\nllm.train()\n' + TRAIN,
    )


def test_a_loop_by_hand_joins_after_the_load() -> None:
    before = (
        "from torch.utils.data import DataLoader\n"
        "from transformers import AutoModelForCausalLM\n"
        'model = AutoModelForCausalLM.from_pretrained("m").to("cuda")\n'
    )
    loop = "for batch in DataLoader(data):\n    loss = model(**batch).loss\n    loss.backward()\n"
    check_rewritten(rule, before + loop, before + JOIN + loop)


def test_the_load_is_found_across_cells() -> None:
    result = apply(rule, IMPORTS + LOAD, "x = 1", ADAPT + "# ready", "y = 2", TRAIN)
    assert result.code[3] == ADAPT + JOIN + "# ready"
    assert result.code[5] == TRAIN


def test_without_unsloth_the_group_is_joined_before_a_function_that_loads_and_trains() -> None:
    before = (
        "from torch.utils.data import DataLoader\nfrom transformers import AutoModel\n"
        "def epoch(model):\n    for batch in DataLoader(data):\n        model(**batch).loss.backward()\n"
        'def main():\n    model = AutoModel.from_pretrained("m")\n    epoch(model)\n'
    )
    check_rewritten(rule, before + "main()\n", before + JOIN + "main()\n")
