"""What stands against sharding a notebook's model, and what is saved from the shards."""

from __future__ import annotations

import pytest

from nb2ddp.analysis import sharding
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, MAKE

TRAIN = f"import os\n{MAKE}trainer = SFTTrainer(model=model)\ntrainer.train()\n"
IN_FUNCTION = "def save():\n    model.save_pretrained('a')\nsave()"

SHARDED = {
    "what needs no weights": "print(model)\nmodel.config\nmodel.eval()",
    "generating with all ranks": "model.generate(x)",
    "saving": "model.save_pretrained('a')",
    "a function of the notebook": "def f(m):\n    pass\nf(model)",
    "a model that is loaded again": f"{LOAD}model.lm_head",
    "code that never runs": "if False:\n    model.lm_head",
}
REFUSED = {
    "a part": ("model.lm_head", "model"),
    "a function of a library": ("measure(model)", "model"),
    "a method that needs all": ("trainer.model.merge_and_unload()", "trainer.model"),
    "a second Trainer": ("SFTTrainer(model=m)", "SFTTrainer(model=m)"),
    "a push of the Trainer": ("trainer.push_to_hub()", "trainer.push_to_hub()"),
    "saving otherwise": (
        "model.save_pretrained('a', state_dict=x)",
        "model.save_pretrained('a', state_dict=x)",
    ),
    "saving elsewhere": (IN_FUNCTION, "model.save_pretrained('a')"),
}


def places(*cells: str) -> list[str]:
    """Return the code of each place that stands against sharding; "" for one without a place."""
    found = sharding.refusals(facts_of(*cells, sharded=True))
    return ["" if node is None else cst_nodes.code_of(node) for _, node in found]


@pytest.mark.parametrize("code", SHARDED.values(), ids=SHARDED)
def test_what_a_sharded_model_can_do(code: str) -> None:
    assert not places(LOAD, TRAIN, code)


@pytest.mark.parametrize(("code", "place"), REFUSED.values(), ids=REFUSED)
def test_what_needs_the_model_whole(code: str, place: str) -> None:
    assert places(LOAD, TRAIN, code) == [place]


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        (["model.lm_head", LOAD, TRAIN], None),  # before there is a Trainer
        ([TRAIN], ""),  # without Unsloth
        ([LOAD.replace("'m'", "'m', load_in_8bit=True"), TRAIN], "F.from_pretrained('m', load_in_8bit=True)"),
        ([LOAD.replace("'m'", "'m', load_in_8bit=False"), TRAIN], None),
        ([LOAD.replace("'m'", "'mixtral-8x7b'"), TRAIN], "F.from_pretrained('mixtral-8x7b')"),
        ([LOAD, TRAIN.replace("SFTTrainer", "DPOTrainer")], "DPOTrainer(model=model)"),
        ([LOAD, f"{MAKE}SFTConfig(optim='galore_adamw')"], "SFTConfig(optim='galore_adamw')"),
        ([LOAD, "for x in loader:\n    model(x).backward()"], "model(x).backward()"),
    ],
)
def test_which_training_can_be_sharded(cells: list[str], place: str | None) -> None:
    assert places(*cells) == ([] if place is None else [place])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("model.save_pretrained('a')", [("model.save_pretrained('a')", "trainer")]),
        ("trainer.model.save_pretrained('a')", [("trainer.model.save_pretrained('a')", "trainer")]),
        ("model.save_pretrained('a', state_dict=x)", []),
        (IN_FUNCTION, []),
        ("tokenizer.save_pretrained('a')", []),
    ],
)
def test_what_is_saved_from_the_shards(code: str, expected: list[tuple[str, str]]) -> None:
    found = sharding.saves(facts_of(LOAD, TRAIN, code, sharded=True))
    assert [(cst_nodes.code_of(call), trainer.value) for call, trainer in found] == expected
