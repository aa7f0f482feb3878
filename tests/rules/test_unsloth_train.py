"""unsloth_train(trainer) raises under torchrun, so the Trainer trains itself."""

from __future__ import annotations

import pytest

from nb2ddp.rules.unsloth_train import rule
from tests.support.helpers import check_settles, check_untouched

HEAD = "from unsloth import unsloth_train\nfrom trl import SFTTrainer\nt = SFTTrainer(model)\n"

NOT_UNSLOTHS = {
    "the import alone": "from unsloth import unsloth_train",
    "a function of that name": "def unsloth_train(trainer):\n    pass\nunsloth_train(trainer)",
    "another package's": "from helpers import unsloth_train\nunsloth_train(trainer)",
    "a trainer that cannot be seen": HEAD + "unsloth_train(*trainers)",
}

CALLS = {
    "plain": ("unsloth_train(t)", "t.train()"),
    "its result kept": ("stats = unsloth_train( t )  # go", "stats = t.train()  # go"),
    "over several lines": ("stats = unsloth_train(\n    t,\n)", "stats = t.train()"),
    "the trainer by name": ("unsloth_train(trainer = t)", "t.train()"),
    "an argument more": (
        "unsloth_train(t, resume_from_checkpoint = True)",
        "t.train(resume_from_checkpoint = True)",
    ),
    "the trainer last": (
        "unsloth_train(resume_from_checkpoint=True, trainer=t)",
        "t.train(resume_from_checkpoint=True)",
    ),
    "one of two trainers": ("unsloth_train(a if big else b)", "(a if big else b).train()"),
    "in a function": ("def go():\n  return unsloth_train(t)", "def go():\n  return t.train()"),
}

IMPORTS = {
    "module under another name": ("import unsloth as us", "us.unsloth_train(t)"),
    "function under another name": ("from unsloth import unsloth_train as ut", "ut(t)"),
    "from where it is defined": ("from unsloth.trainer import unsloth_train", "unsloth_train(t)"),
    "star import": ("from unsloth import *", "unsloth_train(t)"),
}


@pytest.mark.parametrize("source", NOT_UNSLOTHS.values(), ids=NOT_UNSLOTHS.keys())
def test_what_is_not_unsloths_call_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


@pytest.mark.parametrize(("before", "after"), CALLS.values(), ids=CALLS.keys())
def test_the_trainer_trains_itself(before: str, after: str) -> None:
    check_settles(rule, HEAD + before, HEAD + after)


@pytest.mark.parametrize(("header", "call"), IMPORTS.values(), ids=IMPORTS.keys())
def test_the_function_is_known_by_its_import(header: str, call: str) -> None:
    check_settles(rule, f"{header}\n{call}", f"{header}\nt.train()")
