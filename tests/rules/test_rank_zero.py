"""After training there is rank 0 alone, which writes and generates as the notebook does."""

from __future__ import annotations

import pytest

from nb2ddp.rules import rule_of
from tests.support.cases import Case, cases_of
from tests.support.helpers import apply

rule = rule_of("rank_zero")

TRAIN = "t = SFTTrainer(llm)\nt.train()\n"
GATED = [
    case
    for case in [*cases_of("rank_zero", "written"), *cases_of("rank_zero", "generates")]
    if not any(trains in cell for cell in case.before for trains in ("train()", "backward()"))
]


@pytest.mark.parametrize("case", GATED, ids=str)
def test_what_is_gated_before_training_is_left_alone_after_it(case: Case) -> None:
    assert not apply(rule, case.first, TRAIN, *case.before).changes
