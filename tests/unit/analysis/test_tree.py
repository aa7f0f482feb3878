"""Where a node stands: dead code, statements, the line that the user typed."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Place
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to


@pytest.mark.parametrize(
    ("code", "dead"),
    [
        ("if False:\n    it()", True),
        ("if 0:\n    it()", True),
        ("if None:\n    it()", True),
        ("if False: it()", True),
        ("if False:\n    pass\nelse:\n    it()", False),
        ("if True:\n    it()", False),
        ("if x:\n    it()", False),
        ("if False:\n    if x:\n        it()", True),
        ("def f():\n    if False:\n        it()", True),
        ("it()", False),
    ],
)
def test_dead_code(code: str, dead: bool) -> None:
    facts = facts_of(code)
    assert facts.is_dead(call_to(facts, "it")) == dead
    assert (call_to(facts, "it") in facts.live_calls) != dead


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("it()", 1),
        ("\n\nit()", 3),
        ("# above\n\nit()  # behind", 3),
        ("!pip install a \\\n  b\nit()", 3),
        ("%%capture\nit()", 2),
        ("#@title\n%%capture\n!ls\n\nit()", 5),
        ("x = 1; it()", 1),
        ("x = 1; model.save_pretrained('a')\nit()", 2),
        ("f(\n  a,\n  it(),\n)", 3),
        ('x = """\n\n"""\nit()', 4),
        ("if x:\n    y = 1\n\n    it()", 4),
        ("    x = 1\n    it()", 2),
    ],
)
def test_a_place_is_the_line_that_the_user_typed(cell: str, line: int) -> None:
    facts = facts_of("x = 1", cell)
    assert facts.place(call_to(facts, "it(")) == Place(2, line)


def test_statements_around_a_call() -> None:
    facts = facts_of("for x in y:\n    if x:\n        a = it()  # c\n    b = 1\n")
    call = call_to(facts, "it")
    assert cst_nodes.code_of(facts.statement(call)).strip() == "a = it()  # c"
    assert facts.top_statement(call) is facts.top_statements[0]
    assert facts.cell(call) is facts.cells[0]


def test_a_line_of_several_statements_is_one() -> None:
    facts = facts_of("if x: a(); b()\n")
    assert isinstance(facts.statement(call_to(facts, "b")), cst.If)


def test_nodes_are_found_by_their_kind_in_order() -> None:
    facts = facts_of("def f():\n    return 1\nfor x in y:\n    break", "def g():\n    return 2")
    found = facts.nodes(cst.Return, cst.Break)
    assert [cst_nodes.code_of(node) for node in found] == ["return 1", "break", "return 2"]
    assert len(facts.nodes(cst.Return, within=facts.cells[1].module)) == 1
    assert not facts.nodes(cst.Return, within=facts.cells[1].module, own=True)


def test_the_loop_around_a_node_is_not_the_one_whose_else_it_stands_in() -> None:
    facts = facts_of("while a:\n    for x in y:\n        one()\n    else:\n        other()\nlast()")
    loops = [facts.loop(call_to(facts, name)) for name in ("one(", "other(", "last(")]
    written = facts.nodes(cst.For, cst.While)
    assert loops == [written[1], written[0], None]
    assert facts.around(call_to(facts, "one("), cst.While) is written[0]
