"""What a name, an attribute, an item or a parameter may be, as far as the notebook's text decides it."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst
import pytest

from nb2ddp.source.cst_nodes import code_of
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import call_to, last_use


def codes(nodes: Iterable[cst.CSTNode | None]) -> list[str]:
    return ["" if node is None else code_of(node) for node in nodes]


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("x = 1\nx = 2\nuse(x)\nx = 3", ["2"]),
        ("x = 1\nif flag:\n    x = 2\nuse(x)", ["2", "1"]),
        ("if flag:\n    x = 1\n    use(x)", ["1"]),
        ("x = 1\nfor row in rows:\n    use(x)\n    x = 2", ["2", "1"]),
        ("x = 1\nfor row in rows:\n    x = f(use(x))", ["f(use(x))", "1"]),
        ("x = 1\nfor row in rows:\n    a = 1\nx = f(use(x))", ["1"]),
        ("x = 1\nfor row in rows:\n    x = 2\n    x = f(use(x))", ["2"]),
        ("x = 1\nfor row in rows:\n    x = 2\n    for y in row:\n        use(x)\n        x = 3", ["3", "2"]),
        ("try:\n    x = load()\nexcept OSError:\n    x = 1\nuse(x)", ["load()"]),
        ("def f():\n    use(x)\nx = 1\nx = 2", ["2", "1"]),
        ("use(x)", []),
        ("".join(f"if a{n}:\n    x = {n}\n" for n in range(20)) + "use(x)", []),  # too many
    ],
)
def test_the_values_that_a_name_may_have(code: str, values: list[str]) -> None:
    facts = facts_of(code)
    found = facts.reaching(last_use(facts, "x"))
    assert codes(binding.value for binding in found) == values


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("settings = {'rank': 1}\nsettings['rank'] = 2\nuse(settings['rank'])", ["2", "1"]),
        ("settings = dict(rank=1)\nuse(settings['rank'])", ["1"]),
        ("settings['other'] = 1\nother['rank'] = 2\nuse(settings['rank'])", []),
        ("settings[0] = 1\nuse(settings[0])", []),
    ],
)
def test_the_values_of_an_item(code: str, expected: list[str]) -> None:
    facts = facts_of(code)
    item = cst.ensure_type(call_to(facts, "use(").args[0].value, cst.Subscript)
    assert codes(facts.item_values(item)) == expected


def test_the_values_of_attributes() -> None:
    facts = facts_of(
        "class A:\n    def f(self):\n        self.rank, self.n = 1, 2\n",
        "a.rank = 3\nif False:\n    a.rank = 4",
    )
    assert codes(facts.assigned("rank")) == ["1", "3"]
    assert codes(facts.assigned("missing")) == []


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
        ("def f(x):\n    use(x)\n    f(x)\nf(1)", None),
        ("def to(x):\n    use(x)\n" + "    self.a = self.a.to(x)\n" * 9 + "part.to(1)", None),
        ("x0 = 1\n" + "".join(f"x{n + 1} = x{n}\n" for n in range(200)) + "use(x200)", "1"),
        ("use(missing)", None),
        ("x = x\nuse(x)", None),
    ],
)
def test_an_expression_is_followed_to_its_value(code: str, value: str | None) -> None:
    facts = facts_of(code)
    found = facts.value(call_to(facts, "use(").args[0].value)
    assert (None if found is None else code_of(found)) == value


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
    assert (given, None if node is None else code_of(node)) == argument


def test_what_a_function_returns_is_not_what_a_function_in_it_does() -> None:
    facts = facts_of("def f():\n    def g():\n        return 1\n    if g:\n        return 2\n    return")
    (function,) = [b.node for b in facts.bindings("f") if isinstance(b.node, cst.FunctionDef)]
    assert codes(facts.returned(function)) == ["2"]
