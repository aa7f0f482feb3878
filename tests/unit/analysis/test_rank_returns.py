"""What a function returns on one rank, by the tests that this rank passes."""

from __future__ import annotations

from textwrap import indent

import libcst as cst
import pytest

from nb2ddp.analysis.rank_returns import collect
from nb2ddp.analysis.rank_values import OPEN, Value
from nb2ddp.source.cst_nodes import code_of

ONE, TWO, NOTHING = Value((1,)), Value((2,)), Value((None,))
BY_RANK = Value((), by_rank=True)
VALUES = {
    "one": ONE,
    "two": TWO,
    "yes": Value((True,)),
    "no": Value((False,)),
    "may_be": OPEN,
    "of_rank": BY_RANK,
}


@pytest.mark.parametrize(
    ("body", "found", "ends"),
    [
        ("return one\nreturn two", [ONE], True),
        ("if yes:\n    return one\nreturn two", [ONE], True),
        ("if no:\n    return one\nelif yes:\n    return two", [TWO], True),
        ("if may_be:\n    return one\nreturn two", [ONE, TWO], True),
        ("if of_rank:\n    return one\nreturn two", [BY_RANK, TWO], True),
        ("if of_rank:\n    x = one\nreturn two", [TWO], True),
        ("if may_be:\n    raise one\nelse:\n    return", [NOTHING], True),
        ("with one:\n    return one\nreturn two", [ONE], True),
        ("for x in one:\n    return one\nx = two", [ONE], False),
        ("def inner():\n    return one", [], False),
        ("x = one", [], False),
    ],
)
def test_what_a_function_returns(body: str, found: list[Value], ends: bool) -> None:
    function = cst.ensure_type(cst.parse_statement(f"def f():\n{indent(body, '    ')}"), cst.FunctionDef)
    collected: list[Value] = []
    assert collect(function.body, lambda node: VALUES[code_of(node)], collected) == ends
    assert collected == found
