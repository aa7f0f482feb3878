"""Where a name or an attribute may have no value: the test that the script makes there, or none."""

from __future__ import annotations

from textwrap import indent

import libcst as cst
import pytest

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.missing_names import existence_test, last_in_branch, name_test
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement
from tests.support.helpers import facts_of

# Each is followed by a statement that uses `head` in one branch alone.
SURE = [
    "match kind:\n    case 'head':\n        head = make()\n    case _:\n        head = other()",
    "head = make()",
    "head: object = make()",
    "def head(x): pass",
    "with make() as head:\n    pass",
    "if a:\n    head = make()\nelse:\n    head = other()",
    "if a:\n    head = make()\nelif b:\n    head = other()\nelse:\n    raise ValueError",
    "if a: head = make()\nelse: sys.exit(1)",
    "if (head := make()):\n    pass",
    "try:\n    head = make()\nexcept OSError:\n    head = other()",
    "try:\n    head = make()\nexcept OSError:\n    raise",
    "try:\n    pass\nfinally:\n    head = make()",
    "try:\n    head = make()\nfinally:\n    pass",
    "for head in heads:\n    pass",
    "for _ in range(2):\n    head = make()",
    "while True:\n    head = make()\n    break",
    "if a:\n    head = make()\nprint(head)",
    "if a:\n    head = make()\nprint([p for p in head.parameters()])",
    "if a:\n    head = make()\nhead.to(dtype) if half else None\nprint(head if True else 1, head)",
    "if a:\n    head = 1\n    params = head.parts()\nelif b:\n    head = 2\n    params = head.parts()\nf(params)",
]
MISSING = [
    "match kind:\n    case 'head':\n        head = make()",
    "match kind:\n    case 'head':\n        head = make()\n    case _:\n        pass",
    "with contextlib.suppress(OSError):\n    head = make()",
    "for part in parts:\n    if part != a:\n        continue\n    head = make()",
    "if a:\n    head = make()",
    "if a: head = make()",
    "if a:\n    pass\nelif b:\n    head = make()",
    "if a:\n    head = make()\nelif b:\n    head = other()",
    "if a:\n    head = make()\nif a and b:\n    head = other(head)",
    "if a and (head := make()):\n    pass",
    "try:\n    head = make()\nexcept OSError:\n    print('none')",
    "try:\n    print()\nexcept OSError:\n    head = make()",
    "if a:\n    head = make()\nprint(head if a else None)",
    "if a:\n    head = make()\nprint(a and head)",
    "if a:\n    head = make()\nprint([head for _ in others])",
    "if a:\n    head = make()\nlater = lambda: head",
    "if a:\n    head = make()\ndef later():\n    return head",
    "params = []\nif a:\n    head = make()\n    params += head.parameters()\nf(params)",
]


def use_in(facts: Facts, code: str) -> tuple[cst.BaseExpression, Statement]:
    """Return the last place that reads ``code``, and the statement around it."""
    nodes = [*facts.name_loads, *facts.attributes]
    node = max((node for node in nodes if cst_nodes.code_of(node) == code), key=facts.order)
    return node, facts.statement(node)


@pytest.mark.parametrize("code", SURE)
def test_what_must_have_a_value_is_not_tested(code: str) -> None:
    in_cells = facts_of(code, "train(head if a else None)\n")
    assert existence_test(in_cells, *use_in(in_cells, "head")) == ""
    in_function = facts_of(f"def run():\n{indent(code, '    ')}\n    train(head if a else None)\n")
    assert existence_test(in_function, *use_in(in_function, "head")) == ""


@pytest.mark.parametrize("code", MISSING)
def test_what_may_have_none_is_tested(code: str) -> None:
    in_cells = facts_of(code, "train(head if a else None)\n")
    assert existence_test(in_cells, *use_in(in_cells, "head")) == '"head" in globals()'
    in_function = facts_of(f"def run():\n{indent(code, '    ')}\n    return train(head if a else None)\n")
    assert existence_test(in_function, *use_in(in_function, "head")) == '"head" in locals()'


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("head = make()\ndef run():\n    train(head if a else None)\n", ""),
        ("if a:\n    head = make()\ndef run():\n    train(head if a else None)\n", '"head" in globals()'),
        ("if a:\n    head = make()\ndef run():\n    train(head)\n", ""),
        ("def run(head):\n    train(head if a else None)\n", ""),
        ("from heads import head\ntrain(head if a else None)\n", ""),
    ],
)
def test_in_a_function_the_cells_are_through(code: str, test: str) -> None:
    facts = facts_of(code)
    assert existence_test(facts, *use_in(facts, "head")) == test


@pytest.mark.parametrize(
    ("made", "test"),
    [
        ("self.head = make()", ""),
        ("if a:\n    self.head = make()", 'hasattr(self, "head")'),
        ("if a:\n    self.head = make()\nelse:\n    self.head = None", ""),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_an_attribute_is_looked_for_in_its_class(made: str, test: str, apart: bool) -> None:
    method = "    def run(self):\n" if apart else ""
    code = f"class Task:\n    def __init__(self):\n{indent(made, ' ' * 8)}\n{method}"
    facts = facts_of(f"{code}        return train(self.head if a else None)\n")
    assert existence_test(facts, *use_in(facts, "self.head")) == test


def test_a_loop_s_own_names_are_known_after_it_starts() -> None:
    facts = facts_of("for head in heads:\n    train(head if a else None)\n")
    assert existence_test(facts, *use_in(facts, "head")) == ""


def test_after_a_branch_its_names_may_be_missing() -> None:
    facts = facts_of("if a:\n    head = make()\n    train(head)\n")
    branch = facts.top_statements[0]
    assert name_test(facts, facts.bindings("head")[0], branch) == '"head" in globals()'


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("if a:\n    head = make()\n    more(head)\n    head = other()\n    print(a)\n", "head = other()"),
        ("if a:\n    print(a)\nelse:\n    head = make()\n", "head = make()"),
        ("if a:\n    if b:\n        head = make()\n", "head = make()"),
        ("if a:\n    try:\n        head = 1\n    except OSError:\n        head = 2\n", "try:"),
        ("if a: head = make()\n", None),
        ("if a:\n    head = make()\nif b:\n    head = other()\n", None),
        ("head = None\nif a:\n    head = make()\n", None),
        ("def run():\n    if a:\n        global head\n        head = make()\n", "head = make()"),
    ],
)
def test_the_last_statement_in_the_only_branch(code: str, last: str | None) -> None:
    facts = facts_of(code, "train(head if a else None)\n")
    found = last_in_branch(facts, *use_in(facts, "head"))
    assert (None if found is None else cst_nodes.code_of(found).strip().partition("\n")[0]) == last
