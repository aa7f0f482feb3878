"""Collect what a function of the notebook returns on one rank, given what expressions are there."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from nb2ddp.analysis.rank_values import Value

ValueOf = Callable[[cst.CSTNode], Value]


def collect(block: cst.BaseSuite, value_of: ValueOf, found: list[Value]) -> bool:
    """Collect what the statements of a block may return; return whether it certainly ends the function."""
    for statement in block.body:
        match statement:
            case cst.SimpleStatementLine(body=[*_, cst.Return(value=value)]):
                found.append(Value((None,)) if value is None else value_of(value))
                return True
            case cst.SimpleStatementLine(body=[*_, cst.Raise()]):
                return True
            case cst.If() if _collect_if(statement, value_of, found):
                return True
            case cst.With(body=body) | cst.Try(body=body) if collect(body, value_of, found):
                return True
            case cst.For(body=body) | cst.While(body=body):
                collect(body, value_of, found)
    return False


def _collect_if(statement: cst.If, value_of: ValueOf, found: list[Value]) -> bool:
    test = value_of(statement.test)
    inner: list[Value] = []
    ends = []
    if True in test.truths:
        ends.append(collect(statement.body, value_of, inner))
    if False in test.truths:
        other = statement.orelse
        if isinstance(other, cst.If):
            ends.append(_collect_if(other, value_of, inner))
        else:
            ends.append(other is not None and collect(other.body, value_of, inner))
    opened = not test.known and test.by_rank
    found += [Value((), by_rank=True)] if opened and inner else inner
    return all(ends)
