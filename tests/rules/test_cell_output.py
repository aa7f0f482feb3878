"""A cell without code shows nothing; no case file holds one."""

from __future__ import annotations

import pytest

from nb2ddp.rules import rule_of
from tests.support.helpers import check_untouched

rule = rule_of("cell_output")


@pytest.mark.parametrize("source", ["", "# later"])
def test_a_cell_without_code_is_left_alone(source: str) -> None:
    check_untouched(rule, source)
