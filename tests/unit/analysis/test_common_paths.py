"""Code that all ranks run alike, and what leads out of it or is changed by it."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from nb2ddp.analysis.common_paths import (
    binds_for_later,
    called_by_all,
    changes_state,
    is_used_later,
    leaves,
)
from nb2ddp.analysis.facts import Facts
from tests.support.helpers import facts_of
from tests.support.programs import Program, programs
from tests.unit.analysis.questions import call_to


def file_block(facts: Facts) -> cst.With:
    """Return the one `with` of a notebook that stands in a cell or in its first function."""
    blocks = [p for call in facts.calls for p in facts.parents(call) if isinstance(p, cst.With)]
    return blocks[0]


@pytest.mark.parametrize("program", programs(__file__, "called_by_all"), ids=str)
def test_whether_all_ranks_come_to_a_call(program: Program) -> None:
    facts = facts_of(*program.cells)
    assert program.answers == (str(called_by_all(facts, call_to(facts, program.asked))),)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if x:\n    continue", True),
        ("for x in y:\n    pass\nelse:\n    break", True),
        ("with f():\n    yield 1", True),
        ("for x in y:\n    break", False),
        ("def f():\n    return 1", False),
    ],
)
def test_what_leads_out_of_a_statement(code: str, expected: bool) -> None:
    facts = facts_of("def around():\n    for i in j:\n" + textwrap.indent(code, "        "))
    assert leaves(facts, facts.nodes(cst.For, cst.While)[0].body.body[0]) == expected


@pytest.mark.parametrize("program", programs(__file__, "changes_state"), ids=str)
def test_what_a_block_changes(program: Program) -> None:
    facts = facts_of(*program.cells)
    assert program.answers == (str(changes_state(facts, file_block(facts))),)


@pytest.mark.parametrize(
    ("code", "in_function", "in_cell"),
    [
        ("def f():\n    with open(p) as f:\n        x = f.read()\n    return x", True, False),
        (
            "def f():\n    with open(p) as f:\n        x = f.read()\n        print(x)\n    f.closed",
            False,
            False,
        ),
        ("with open(p) as f:\n    x = f.read()\nprint(x)", False, True),
        ("with open(p) as f:\n    f.read()\nprint(f.closed)", False, False),
    ],
)
def test_names_that_are_read_after_a_block(code: str, in_function: bool, in_cell: bool) -> None:
    facts = facts_of(code, "end()")
    block = file_block(facts)
    assert binds_for_later(facts, block) == in_function
    assert is_used_later(facts, block, facts.top_statements[-1]) == in_cell
