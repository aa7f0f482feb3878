"""Represent what an expression may be on one rank, and apply operators to it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import libcst as cst

_CANDIDATES = 6  # values that are kept for one expression
_LARGE = 10**6
_LONG = 200

_OPERATORS: dict[type[cst.CSTNode], Callable[[Any, Any], Any]] = {
    cst.Equal: lambda a, b: a == b,
    cst.NotEqual: lambda a, b: a != b,
    cst.LessThan: lambda a, b: a < b,
    cst.LessThanEqual: lambda a, b: a <= b,
    cst.GreaterThan: lambda a, b: a > b,
    cst.GreaterThanEqual: lambda a, b: a >= b,
    cst.In: lambda a, b: a in b,
    cst.NotIn: lambda a, b: a not in b,
    cst.Is: lambda a, b: a is b or (type(a) is type(b) and a == b),
    cst.IsNot: lambda a, b: a is not b and not (type(a) is type(b) and a == b),
    cst.Add: lambda a, b: a + b,
    cst.Subtract: lambda a, b: a - b,
    cst.Multiply: lambda a, b: a * b,
    cst.Divide: lambda a, b: a / b,
    cst.FloorDivide: lambda a, b: a // b,
    cst.Modulo: lambda a, b: a % b,
    cst.BitAnd: lambda a, b: a & b,
    cst.BitOr: lambda a, b: a | b,
    cst.BitXor: lambda a, b: a ^ b,
    cst.Not: lambda a, _: not a,
    cst.Minus: lambda a, _: -a,
    cst.Plus: lambda a, _: +a,
}
_ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.FloorDivide, cst.Modulo)


# What is evaluated of Python itself.
BUILTINS: dict[str, Callable[..., Any]] = {
    "int": int,
    "str": str,
    "bool": bool,
    "float": float,
    "abs": abs,
    "min": min,
    "max": max,
    "len": len,
    "sum": sum,
    "round": round,
    "divmod": divmod,
}

_TEXT_METHODS = frozenset("startswith endswith lower upper strip lstrip rstrip isdigit isnumeric".split())
_WIDE = re.compile(r"\d{3}|\*")  # in a format: a width that would make a text of any length


@dataclass(frozen=True)
class Value:
    """What an expression may be on one rank: one of ``known``, or anything where that is empty.

    ``by_rank``: what launches the ranks decides it, so that it may differ between them. ``share``: it holds rows that
    the rank has chosen for itself.
    """

    known: tuple[Any, ...] = ()
    by_rank: bool = False
    share: bool = False

    @property
    def truths(self) -> frozenset[bool]:
        """The truth values that it may have."""
        return frozenset(map(bool, self.known)) or frozenset((True, False))


OPEN = Value()
SHARE = Value((), by_rank=True, share=True)


def opened_from(value: Value) -> Value:
    """Return an unknown value, marked as differing between ranks if ``value`` is."""
    return Value((), value.by_rank, value.share)


def differ(values: Iterable[Value]) -> bool:
    """Return whether ranks may differ in the truth of a value, given each rank's."""
    values = list(values)
    return any(not value.known and value.by_rank for value in values) or len({v.truths for v in values}) > 1


def either(values: Iterable[Value]) -> Value:
    """Return what may be one of several values."""
    values = list(values)
    by_rank = any(value.by_rank for value in values)
    if not values or not all(value.known for value in values):
        return Value((), by_rank, any(value.share for value in values))
    return kept([item for value in values for item in value.known], by_rank=by_rank)


def decided_by(found: Value, tests: Iterable[Value]) -> Value:
    """Return what one of several branches gives, after the values of the tests that decide between them."""
    tests = list(tests)
    opened = any(test.by_rank and not test.known for test in tests)
    if len(found.known) == 1:
        return Value(found.known, found.by_rank or any(test.by_rank for test in tests))
    return Value(() if opened else found.known, found.by_rank or opened, found.share)


def first_or_last(left: Value, right: Value, ends: bool) -> Value:
    """Return the first of two values if it is true (false), else the last: that of ``a or b`` (``a and b``)."""
    if left.truths == {ends}:
        return left
    if left.truths == {not ends}:
        return right
    if right.known and right.truths == {ends}:
        return Value((ends,), left.by_rank or right.by_rank)  # either way
    if right.known and right.truths == {not ends} and not left.known:
        return left
    if left.known and right.known:
        items = [item for item in left.known if bool(item) is ends]
        return kept([*items, *right.known], by_rank=left.by_rank or right.by_rank)
    opened = [value for value in (left, right) if not value.known or len(value.truths) > 1]
    return Value((), any(value.by_rank for value in opened))


def kept(items: list[Any], *, by_rank: bool) -> Value:
    """Return what may be one of several items; anything where there are too many."""
    distinct = {(type(item), repr(item)): item for item in items}
    return Value(tuple(distinct.values()) if len(distinct) <= _CANDIDATES else (), by_rank)


def _small(item: Any) -> Any:
    """Return a number, or a text, that arithmetic cannot blow up.

    Raises:
        ValueError: another value.
    """
    if isinstance(item, int | float) and abs(item) < _LARGE:
        return item
    raise ValueError("no small number")


def joined(*texts: str) -> str:
    """Return texts as one.

    Raises:
        ValueError: a long one, which a loop of assignments would let grow without end.
    """
    text = "".join(texts)
    if len(text) > _LONG:
        raise ValueError("a long text")
    return text


def formatted(text: str, fill: Callable[[], str]) -> str:
    """Return what a format gives that a function fills in.

    Raises:
        ValueError: the text may be a long one.
    """
    if _WIDE.search(text):
        raise ValueError("a wide field")
    return joined(fill())


def flat(*items: Any) -> tuple[Any, ...]:
    """Return items as a tuple.

    Raises:
        ValueError: there are many of them, or tuples in them.
    """
    if len(items) > _LONG or any(isinstance(item, tuple) for item in items):
        raise ValueError("a large tuple")
    return items


def indexed(items: Any, index: Any) -> Any:
    """Return an item of a tuple or a text.

    Raises:
        ValueError: there is none.
    """
    if isinstance(items, tuple | str) and isinstance(index, int) and -len(items) <= index < len(items):
        return items[index]
    raise ValueError("no such item")


def applied(operator: cst.CSTNode, left: Value, right: Value) -> Value:
    """Return what an operator gives for two values; one with one operand ignores the second."""
    function = _OPERATORS.get(type(operator))
    if function is None:
        return Value((), left.by_rank or right.by_rank)
    texts = [item for value in (left, right) for item in value.known if isinstance(item, str)]
    if texts and isinstance(operator, cst.Modulo):
        return combined([left, right], lambda text, given: formatted(text, lambda: text % given))
    if texts and isinstance(operator, cst.Add):
        return combined([left, right], joined)
    if isinstance(operator, _ARITHMETIC):
        return combined([left, right], lambda a, b: function(_small(a), _small(b)))
    return combined([left, right], function)


def combined(values: list[Value], function: Callable[..., Any]) -> Value:
    """Return what a function gives for all that its arguments may be."""
    by_rank = any(value.by_rank for value in values)
    opened = Value((), by_rank, any(value.share for value in values))
    if not 0 < math.prod(len(value.known) for value in values) <= _CANDIDATES**2:
        return opened
    items = []
    for chosen in product(*(value.known for value in values)):
        try:
            items.append(function(*chosen))
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            return opened  # an expression that raises has no value
    return kept(items, by_rank=by_rank)


def of_text(method: str, values: list[Value]) -> Value:
    """Return what a method of a text gives: of ``device.startswith("cuda")``."""
    if method == "format":
        return combined(values, lambda text, *given: formatted(text, lambda: text.format(*given)))
    if method not in _TEXT_METHODS:
        return Value((), any(value.by_rank for value in values))
    return combined(values, lambda text, *given: getattr(text, method)(*given))
