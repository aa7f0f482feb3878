"""Objects that an iteration of a loop has to itself, and names in it for objects from outside."""

from __future__ import annotations

from textwrap import indent

import libcst as cst
import pytest

from nb2ddp.analysis.side_effects import Objects, called_on
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import last_use

START = """from lib import Ids, load
ids = Ids()
its = [ids]
rows = load()
def same(x):
    return x
def pick():
    found = ids
    return found
def clean(x):
    text = x.strip()
    return text
for row in rows:
"""


def is_own(body: str) -> bool:
    """Return whether `it`, where the body of a loop reads it last, is the iteration's; all but `ids` is steady."""
    facts = facts_of(START + indent(body, "    "))

    def is_steady(node: cst.BaseExpression) -> bool:
        return not isinstance(node, cst.Name) or node.value != "ids"

    return Objects(facts, facts.loops[0].body, is_steady).is_own(last_use(facts, "it"))


OWN = {
    "what a call returns": "it = make(ids)\nit.f()",
    "a name for an item": "it = row\nit.f()",
    "a part of an item": "it = row['x'].y\nit.f()",
    "a part of what is not known": "it = rows[0]\nit.f()",
    "what a function returns": "it = clean(row)\nit.f()",
    "what a function is given": "it = same(row)\nit.f()",
    "one of several values": "it = row\nif x:\n    it = it.g()\nit.f()",
    "an item of its own list": "for it in [row, make()]:\n    it.f()",
    "an item of a comprehension": "y = [it.f() for it in rows]",
    "what is open": "with open(row) as it:\n    it.f()",
    "a name that stands for itself": "it = it\nit.f()",
}
OUTSIDE = {
    "another name": "it = ids\nit.f()",
    "another name of another name": "x = ids\nit = x\nit.f()",
    "a name with two values": "it = ids\nif x:\n    it = make()\nit.f()",
    "one of two": "it = ids if x else row\nit.f()",
    "in an expression": "y = (it := ids)\nit.f()",
    "a part of it": "it = ids.parts\nit.f()",
    "of several names": "it, n = ids, 1\nit.f()",
    "an item of a list": "it = its[0]\nit.f()",
    "an item of a dict": "x = {'ids': ids}\nit = x['ids']\nit.f()",
    "a loop over a list": "for n, it in enumerate([ids]):\n    it.f()",
    "a loop over items": "for n, it in {'a': ids}.items():\n    it.f()",
    "a comprehension over a list": "y = [it.f() for it in its]",
    "a comprehension over rows": "y = [it.f() for n, it in [(1, ids)]]",
    "a function that returns it": "it = pick()\nit.f()",
    "a function that is given it": "it = same(ids)\nit.f()",
    "a block": "with ids as it:\n    it.f()",
    "a default": "y = map(lambda x, it=ids: it.f(), rows)",
}


@pytest.mark.parametrize("body", OWN.values(), ids=OWN)
def test_what_belongs_to_an_iteration(body: str) -> None:
    assert is_own(body)


@pytest.mark.parametrize("body", OUTSIDE.values(), ids=OUTSIDE)
def test_what_comes_from_outside(body: str) -> None:
    assert not is_own(body)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("it.f()", ("f", False)),
        ("it.a.f()", ("f", False)),
        ("it[0].f()", ("f", True)),
        ("it()", ("()", False)),
        ("f(it.a[0])", ("", True)),
        ("x[it].f()", ("", False)),
    ],
)
def test_what_is_called_on_a_name(code: str, expected: tuple[str, bool]) -> None:
    facts = facts_of(code)
    assert called_on(facts, last_use(facts, "it")) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("[x for x in rows]", True),
        ("{y: z for y, (x, z) in rows if x}", True),
        ("[y for y in rows if x]", False),
        ("[x for x in x.rows]", False),
        ("[lambda: x for y in rows]", False),
    ],
)
def test_whether_a_name_is_a_comprehensions(code: str, expected: bool) -> None:
    facts = facts_of(code)
    assert (facts.comprehension(facts.uses("x", facts.cells[0].module)[-1]) is not None) == expected
