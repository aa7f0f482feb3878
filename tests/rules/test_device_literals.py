"""What case files cannot show of the rule: code of which Python warns, and a second pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nb2ddp.rules import rule_of
from tests.support.cases import Case, cases_of
from tests.support.helpers import check_untouched

rule = rule_of("device_literals")

CHANGED = [
    case for file in ("texts_and_numbers", "of_torch", "names") for case in cases_of("device_literals", file)
]


def test_an_escape_that_python_does_not_know_is_left_alone() -> None:
    check_untouched(rule, r'pattern = "\d" "\w"')


@pytest.mark.parametrize("case", CHANGED, ids=str)
def test_a_second_pass_changes_nothing(case: Case) -> None:
    if "ddp_local_rank" not in case.after[0]:
        assert not replace(case, before=case.after).difference()
