"""What runs: functions that are called, training, and what comes after it."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.support.programs import Program, programs
from tests.unit.analysis.questions import LOAD, MAKE, call_to

TRAINER = f"{MAKE}trainer = SFTTrainer(model=m)\n"


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        ([TRAINER, "trainer.train()\nx = 1", "y = 2"], "trainer.train()"),
        ([TRAINER, "trainer.train()", "m = trainer.evaluate()"], "m = trainer.evaluate()"),
        ([TRAINER, "trainer.train()", "if False:\n    trainer.train()"], "trainer.train()"),
        ([TRAINER, "def go():\n    trainer.train()", "go()", "x = 1"], "go()"),
        ([TRAINER, "def go():\n    trainer.train()", "x = 1"], None),
        ([TRAINER, "for i in range(2):\n    trainer.train()"], "for i in range(2):\n    trainer.train()"),
        ([LOAD, "model.train()", "model.eval()"], None),
        (
            [f"from unsloth import unsloth_train\n{TRAINER}", "stats = unsloth_train(trainer)", "x = 1"],
            "stats = unsloth_train(trainer)",
        ),
    ],
)
def test_the_last_statement_that_needs_every_rank(cells: list[str], last: str | None) -> None:
    statement = facts_of(*cells).last_collective
    assert (None if statement is None else cst_nodes.code_of(statement).strip()) == last


def test_what_comes_after_training() -> None:
    facts = facts_of(TRAINER, "before()\ntrainer.train()\nafter()", "later()")
    answers = {code: facts.is_after_training(call_to(facts, code)) for code in ("before", "after", "later")}
    assert answers == {"before": False, "after": True, "later": True}


def test_a_function_runs_what_it_calls() -> None:
    facts = facts_of(
        "def a():\n    b()\ndef b():\n    it()\n", "a()", "x.map(a)", "y = 1", "def c():\n    it()\n"
    )

    def wanted(call: cst.Call) -> bool:
        return cst_nodes.code_of(call) == "it()"

    assert [facts.runs(s, wanted) for s in facts.top_statements] == [False, False, True, True, False, False]


NET = "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    pass\nmodel = Net()\n"
OWN_STEPS = """
class Steps:
    def train(self):
        for batch in loader:
            self.step(batch)
    def test(self):
        self.model.train()
class Own(Steps):
    def step(self, batch):
        self.loss(batch).backward()
"""


@pytest.mark.parametrize("program", programs(__file__, "training"), ids=str)
def test_training_in_functions_and_methods_is_seen(program: Program) -> None:
    statement = facts_of(*program.cells).last_collective
    assert statement is not None
    assert cst_nodes.code_of(statement).strip() == "\n".join(program.answers)


@pytest.mark.parametrize("program", programs(__file__, "not_training"), ids=str)
def test_what_only_could_train_does_not(program: Program) -> None:
    assert program.answers == ("none",)
    assert facts_of(*program.cells).last_collective is None


def test_a_notebooks_method_after_training_is_followed_no_further_than_its_class() -> None:
    last = facts_of(NET, OWN_STEPS, "own = Own()", "own.train()", "own.test()").last_collective
    assert last is not None
    assert cst_nodes.code_of(last).strip() == "own.train()"
