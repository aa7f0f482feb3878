"""A notebook that does not train is told what is missing in it, and not what is missing in others."""

from __future__ import annotations

import pytest

from nb2ddp.analysis.untrained import missing
from tests.support.helpers import converted, facts_of
from tests.support.programs import Program, programs

KINDS = programs(__file__, "untrained")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_missing_is_said_with_its_place(kind: Program) -> None:
    facts = facts_of(*kind.cells)
    why, node = missing(facts)
    sentence, place = kind.answers
    assert sentence in why
    assert place == ("no cell" if node is None else f"cell {facts.place(node).cell}")
    declined = converted(*kind.cells).declined
    assert [change.why for change in declined if change.rule == "finish"] == [why]


def test_no_two_kinds_get_the_same_text() -> None:
    texts = [missing(facts_of(*kind.cells))[0] for kind in KINDS]
    # two: empty, no loop, TensorFlow, fit(), train(); three: Keras; four load a model, six make one, eight do nothing
    assert len(texts) - len(set(texts)) == 22
