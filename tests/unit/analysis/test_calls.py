"""Which functions of the notebook a call runs, and which calls run a function."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.support.programs import Program, programs
from tests.unit.analysis.questions import call_to


def name_of(facts: Facts, function: cst.FunctionDef) -> str:
    """Return the name of a function, that of a method with its class."""
    home = facts.scope(function)
    return (
        f"{home.name.value}.{function.name.value}" if isinstance(home, cst.ClassDef) else function.name.value
    )


@pytest.mark.parametrize("program", programs(__file__, "calls"), ids=str)
def test_what_a_call_runs(program: Program) -> None:
    facts = facts_of(*program.cells)
    functions = [name_of(facts, f) for f in facts.called_functions(call_to(facts, program.asked))]
    assert (functions or ["nothing"]) == list(program.answers)


def test_the_callers_of_a_function_are_its_live_calls() -> None:
    facts = facts_of("def f(): pass\nf(1)\nif False:\n    f(2)\nrows.map(f)\n", "def g():\n    f(3)")
    function = facts.bindings("f")[0].node
    assert isinstance(function, cst.FunctionDef)
    assert [cst_nodes.code_of(call) for call in facts.callers(function)] == ["f(1)", "rows.map(f)", "f(3)"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = mark()\nb = a + 1\nuse(b)", True),
        ("def f(x):\n    return x + 1\nuse(f(mark()))", True),
        ("def f(x):\n    return x\nb = f(mark())\nuse(b if ready else 0)", True),
        ("class A:\n    def __init__(self):\n        self.x = mark()\na = A()\nuse(a.x)", True),
        ("class A:\n    @property\n    def x(self):\n        return mark()\nuse(A().x)", True),
        ("d = {'a': mark(), 'b': 1}\nuse(d['a'])", True),
        ("d = {'a': mark(), 'b': 1}\nuse(d['b'])", False),
        ("a, b = mark(), 1\nuse(b)", False),
        ("def f():\n    return mark(), 1\na, b = f()\nuse(a)", True),
        ("def f():\n    return mark(), 1\na, b = f()\nuse(b)", False),
        ("a = clean(mark())\nuse(a)", False),
        ("x = y\ny = x\nuse(x)", False),
    ],
)
def test_labels_flow_from_sources_to_a_value(code: str, expected: bool) -> None:
    facts = facts_of(code)

    def label(_: object, node: cst.CSTNode) -> bool | None:
        name = cst_nodes.code_of(node.func) if isinstance(node, cst.Call) else ""
        return {"mark": True, "clean": False}.get(name)

    assert facts.carries(call_to(facts, "use(").args[0].value, label) == expected
