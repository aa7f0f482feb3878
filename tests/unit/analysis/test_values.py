"""What an expression is, as far as the notebook's text decides it."""

from __future__ import annotations

import pytest

from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = 1\nuse(x)", "1"),
        ("x = 1\ny = x\nuse(y)", "1"),
        ("if flag:\n    x = 1\nelse:\n    x = 2\nuse(x)", None),
        ("for x in rows:\n    use(x)", None),
        ("x = {'a': {'b': 1}}\nuse(x['a']['b'])", "1"),
        ("x = dict(a=1)\nuse(x['a'])", "1"),
        ("x = {'a': 1}\nx['a'] = 2\nuse(x['a'])", None),
        ("x = {'a': 1}\nuse(x['b'])", None),
        ("class C:\n    a = 1\nuse(C.a)", "1"),
        ("class C:\n    a: int = 1\nc = C()\nuse(c.a)", "1"),
        ("class C:\n    a = 1\nc = C()\nc.a = 2\nuse(c.a)", None),
        ("class C:\n    a = 1\nc = C(a=2)\nuse(c.a)", None),
        ("use(1 if True else 2)", "1"),
        ("use(1 if x() else 2)", "1 if x() else 2"),
        ("import torch\nuse(torch.float16)", "torch.float16"),
        ("def f(x):\n    use(x)\nf(1)", "1"),
        ("def f(x=1):\n    use(x)\nf()", "1"),
        ("def f(x):\n    use(x)\nf(1)\nf(2)", None),
        ("def f(x):\n    use(x)\nf(1)\nf(1)", "1"),
        ("use(missing)", None),
        ("x = x\nuse(x)", None),
    ],
)
def test_an_expression_is_followed_to_its_value(code: str, value: str | None) -> None:
    facts = facts_of(code)
    found = facts.value(call_to(facts, "use(").args[0].value)
    assert (None if found is None else cst_nodes.code_of(found)) == value


@pytest.mark.parametrize(
    ("code", "argument"),
    [
        ("use(a=1)", (True, "1")),
        ("use(b=1)", (False, None)),
        ("x = {'a': 1}\nuse(**x)", (True, "1")),
        ("x = {'b': 1}\nuse(**x)", (False, None)),
        ("use(**load())", (True, None)),
        ("def f(**x):\n    use(**x)\nf(a=1)", (True, "1")),
    ],
)
def test_an_argument_is_found_through_unpacked_dicts(code: str, argument: tuple[bool, str | None]) -> None:
    facts = facts_of(code)
    given, node = facts.argument(call_to(facts, "use("), "a")
    assert (given, None if node is None else cst_nodes.code_of(node)) == argument
