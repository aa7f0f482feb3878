"""What may be known of a value on one rank, and what operators make of it."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.analysis.rank_values import (
    OPEN,
    SHARE,
    Value,
    applied,
    combined,
    decided_by,
    differ,
    either,
    first_or_last,
    flat,
    indexed,
    of_text,
)

ZERO, ONE, BIT = Value((0,)), Value((1,)), Value((0, 1))
RANK = Value((1,), by_rank=True)  # the rank of rank 1
BY_RANK = Value((), by_rank=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([Value((True,), by_rank=True), Value((True,), by_rank=True)], False),
        ([Value((True,)), Value((False,))], True),
        ([Value((1,)), Value((2,))], False),  # another number, and as true
        ([BIT, ONE], True),
        ([BY_RANK, BY_RANK], True),
        ([OPEN, OPEN], False),
    ],
)
def test_whether_ranks_may_differ(values: list[Value], expected: bool) -> None:
    assert differ(values) == expected


@pytest.mark.parametrize(
    ("code", "left", "right", "expected"),
    [
        ("a % b", RANK, Value((2,)), RANK),
        ("a == b", BIT, ONE, Value((False, True))),
        ("a is b", Value((1.0,)), ONE, Value((False,))),
        ("a + b", Value(("cuda:",)), Value(("1",), by_rank=True), Value(("cuda:1",), by_rank=True)),
        ("a % b", Value(("%d",)), RANK, Value(("1",), by_rank=True)),
        ("a % b", Value(("%150d",)), RANK, BY_RANK),
        ("a * b", Value((10**6,)), ONE, OPEN),
        ("a / b", RANK, ZERO, BY_RANK),
        ("a < b", RANK, Value(("x",)), BY_RANK),
        ("a @ b", RANK, ONE, BY_RANK),
        ("a + b", SHARE, ONE, SHARE),
    ],
)
def test_an_operator(code: str, left: Value, right: Value, expected: Value) -> None:
    node = cst.parse_expression(code)
    if isinstance(node, cst.Comparison):
        operator: cst.CSTNode = node.comparisons[0].operator
    else:
        operator = cst.ensure_type(node, cst.BinaryOperation).operator
    assert applied(operator, left, right) == expected


@pytest.mark.parametrize(
    ("left", "right", "either_true", "both_true"),
    [
        (ZERO, RANK, RANK, ZERO),
        (ONE, OPEN, ONE, OPEN),
        (OPEN, ONE, Value((True,)), OPEN),
        (BY_RANK, ZERO, BY_RANK, Value((False,), by_rank=True)),
        (BIT, Value((7,)), Value((True,)), Value((0, 7))),
    ],
)
def test_or_and_and(left: Value, right: Value, either_true: Value, both_true: Value) -> None:
    assert first_or_last(left, right, True) == either_true
    assert first_or_last(left, right, False) == both_true


def test_one_of_several_values() -> None:
    assert either([ZERO, RANK]) == Value((0, 1), by_rank=True)
    assert either([ONE, Value((True,))]).known == (1, True)  # equal, of two types
    assert either([ZERO, SHARE]) == SHARE
    assert either([ZERO, OPEN]) == either([]) == OPEN
    assert either(Value((n,)) for n in range(7)) == OPEN  # too many


def test_a_branch_that_the_rank_decides() -> None:
    assert decided_by(BIT, [OPEN]) == BIT
    assert decided_by(BIT, [BY_RANK]) == BY_RANK
    assert decided_by(ONE, [RANK]) == RANK


def test_a_function_of_all_that_its_arguments_may_be() -> None:
    assert combined([BIT, Value((2,))], flat).known == ((0, 2), (1, 2))
    assert combined([Value(((4, 5),)), RANK], indexed) == Value((5,), by_rank=True)
    assert combined([Value(((4,),)), RANK], indexed) == BY_RANK  # there is no such item
    assert combined([], flat) == Value(((),))


def test_a_method_of_a_text() -> None:
    assert of_text("startswith", [Value(("cuda:0",)), Value(("cuda",))]) == Value((True,))
    assert of_text("format", [Value(("cuda:{}",)), RANK]) == Value(("cuda:1",), by_rank=True)
    assert of_text("format", [Value(("{:150}",)), RANK]) == BY_RANK
    assert of_text("encode", [Value(("cuda",))]) == OPEN
