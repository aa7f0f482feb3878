"""The one object that rules ask: each question about a notebook is worked out once."""

from __future__ import annotations

import libcst as cst

from nb2ddp.analysis.facts import Facts
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, MAKE, call_to

TRAINER = f"{MAKE}trainer = SFTTrainer(model=model)\ntrainer.train()\nmodel.generate(x)\n"


def test_a_question_is_worked_out_once_for_each_notebook() -> None:
    asked: list[Facts] = []

    def calls(facts: Facts) -> list[cst.Call]:
        asked.append(facts)
        return list(facts.live_calls)

    first, second = facts_of("f()"), facts_of("g()")
    assert first.once(calls) is first.once(calls)
    assert first.once(calls) != second.once(calls)
    assert asked == [first, second]


def test_a_question_whose_answer_is_none_is_asked_once() -> None:
    asked: list[Facts] = []
    facts = facts_of("f()")
    assert facts.once(asked.append) is None
    assert facts.once(asked.append) is None
    assert asked == [facts]


def test_a_sharded_model_has_facts_of_its_own() -> None:
    facts = facts_of(LOAD, TRAINER)
    sharded = facts.sharded()
    generating = call_to(facts, "model.generate")
    assert (facts.gathers(generating), sharded.gathers(generating)) == (False, True)
    assert sharded.cells is facts.cells
    assert sharded.sharded() is sharded
