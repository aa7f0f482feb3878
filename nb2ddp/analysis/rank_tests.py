"""Find code that a rank test of the notebook lets only some ranks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import rank_evaluation, rank_values
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_evaluation import OneRank
from nb2ddp.analysis.rank_values import Value
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_FUNCTIONS = cst.FunctionDef | cst.Lambda | cst.ClassDef


@dataclass(frozen=True)
class _Condition:
    """What decides whether a rank comes to a node: an expression, its value on a rank, and the truth that it needs."""

    test: cst.BaseExpression
    holds: Callable[[OneRank], Value]
    where: bool = True


def _asking(test: cst.BaseExpression, where: bool = True) -> _Condition:
    return _Condition(test, lambda rank: rank.value(test), where)


def parts_ranks(facts: Facts, test: cst.BaseExpression) -> bool:
    """Return whether a test is true on some ranks and false on others."""
    return _parts(facts, _asking(test))


def _parts(facts: Facts, condition: _Condition) -> bool:
    return facts.once(rank_evaluation.mentions_ranks) and any(
        rank_values.differ(condition.holds(rank) for rank in rank_evaluation.as_ranks(facts, size))
        for size in rank_evaluation.WORLD_SIZES
    )


def rank_test_above(facts: Facts, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return a test of the rank that decides whether a node, or a call that leads to it, runs; None without one.

    The node stands below it, or behind a ``return``, ``break`` or ``continue`` that does. Calls that come after
    training do not count: rank 0 works alone there.
    """
    return _above(facts, node, {node})


def _above(facts: Facts, node: cst.CSTNode, seen: set[cst.CSTNode]) -> cst.BaseExpression | None:
    if not facts.once(rank_evaluation.mentions_ranks):
        return None
    inner = node
    for parent in facts.parents(node):
        for condition in _conditions(inner, parent):
            if _parts(facts, condition):
                return condition.test
        for passed, way_out in facts.once(_early_ways_out).get(parent, ()):
            if _is_skipped(facts, node, passed, way_out):
                return passed
        if isinstance(parent, cst.FunctionDef):
            callers = [c for c in facts.callers(parent) if c not in seen and not facts.is_after_training(c)]
            seen.update(callers)
            return next((test for caller in callers if (test := _above(facts, caller, seen))), None)
        inner = parent
    return None


def _early_ways_out(facts: Facts) -> dict[cst.CSTNode, list[tuple[cst.BaseExpression, cst.CSTNode]]]:
    """Return by function and loop what leaves it below a test of the rank."""
    found: dict[cst.CSTNode, list[tuple[cst.BaseExpression, cst.CSTNode]]] = {}
    for node in _ways_out(facts):
        if isinstance(node, cst.Return | cst.Break | cst.Continue) and not facts.is_dead(node):
            left = facts.scope(node) if isinstance(node, cst.Return) else _loop_around(facts, node)
            if left is not None and (test := _test_of(facts, node)) is not None:
                found.setdefault(left, []).append((test, node))
    return found


def _is_skipped(facts: Facts, node: cst.CSTNode, test: cst.BaseExpression, way_out: cst.CSTNode) -> bool:
    """Return whether a rank that takes a way out skips a node of the loop, or the function, that it leaves."""
    if facts.contains(test, node):
        return False
    around = None if isinstance(way_out, cst.Continue) else _loop_around(facts, way_out)
    return facts.order(node) > facts.order(test) or (around is not None and facts.contains(around, node))


def _conditions(inner: cst.CSTNode, parent: cst.CSTNode) -> Iterator[_Condition]:
    """Yield what decides whether a part of a node runs, or how often."""
    match parent:
        case cst.If(test=test) | cst.IfExp(test=test) | cst.While(test=test) if inner is not test:
            yield _asking(test, inner is parent.body)
        case cst.BooleanOperation(left=left, operator=operator) if inner is not left:
            yield _asking(left, isinstance(operator, cst.And))
        case cst.For(body=body, iter=rounds) if inner is body:
            yield _Condition(rounds, lambda rank: _rounds(rank.value(rounds)))
        case cst.ListComp(for_in=part) | cst.GeneratorExp(for_in=part) | cst.SetComp(for_in=part):
            for condition in part.ifs:
                yield _asking(condition.test)
        case cst.Match(subject=subject, cases=cases) if isinstance(inner, cst.MatchCase):
            yield _Condition(subject, lambda rank: _enters(rank, subject, cases, inner))


def _rounds(rows: Value) -> Value:
    """Return how often a loop runs: as ranks have it where it takes a share, or numbers of the rank."""
    return Value((), rows.share or bool(rows.known and rows.by_rank))


def _enters(rank: OneRank, subject: cst.BaseExpression, cases: object, wanted: cst.MatchCase) -> Value:
    """Return whether a rank comes to the block of a ``case``."""
    value = rank.value(subject)
    undecided: list[Value] = []
    for case in cases if isinstance(cases, tuple | list) else ():
        entered = _matches(rank, case.pattern, value)
        if case.guard is not None and True in entered.truths:
            guard = rank.value(case.guard)
            entered = guard if entered.truths == {True} else rank_values.either([entered, guard])
        if case is wanted:
            if not undecided or entered.truths == {False}:
                return entered
            return Value((), any(v.by_rank for v in (*undecided, entered)))
        if entered.truths == {True} and entered.known:
            return Value((False,))
        if True in entered.truths:
            undecided.append(entered)
    return rank_values.OPEN


def _matches(rank: OneRank, pattern: cst.MatchPattern, value: Value) -> Value:
    match pattern:
        case cst.MatchAs(pattern=None):
            return Value((True,))
        case cst.MatchAs(pattern=inner) if inner is not None:
            return _matches(rank, inner, value)
        case cst.MatchValue(value=wanted) | cst.MatchSingleton(value=wanted):
            return rank_values.applied(cst.Equal(), value, rank.value(wanted))
        case cst.MatchOr(patterns=patterns):
            ways = [_matches(rank, element.pattern, value) for element in patterns]
            sure = [way for way in ways if way.truths == {True}]
            return sure[0] if sure else rank_values.either(ways)
    return Value((), value.by_rank)


def ranks_of(facts: Facts, test: cst.BaseExpression) -> frozenset[int]:
    """Return the ranks of two for which a test may be true."""
    ranks = rank_evaluation.as_ranks(facts, 2)
    return frozenset(number for number, rank in enumerate(ranks) if True in rank.value(test).truths)


def truths_on_main(facts: Facts, test: cst.BaseExpression) -> frozenset[bool]:
    """Return the truth values that a test may have on rank 0."""
    return rank_evaluation.as_ranks(facts, 2)[0].value(test).truths


def differing(facts: Facts, value: cst.BaseExpression) -> str | None:
    """Return the code of a literal that rank 0 has where each rank has another one; None for other values."""
    if not facts.once(rank_evaluation.mentions_ranks):
        return None
    values = [rank.value(value) for rank in rank_evaluation.as_ranks(facts, 8)]
    codes = [repr(value.known[0]) for value in values if len(value.known) == 1]
    return codes[0] if len(codes) == len(values) and len(set(codes)) > 1 else None


def by_world_size(facts: Facts, value: cst.BaseExpression) -> dict[int, str]:
    """Return what a value is in one process, on two ranks and on three, where these differ; else nothing."""
    if not facts.once(rank_evaluation.mentions_ranks):
        return {}
    found = {size: rank_evaluation.as_ranks(facts, size)[0].value(value) for size in (1, 2, 3)}
    codes = {size: repr(value.known[0]) for size, value in found.items() if len(value.known) == 1}
    return codes if {2, 3} <= codes.keys() and len(set(codes.values())) > 1 else {}


def is_share(facts: Facts, rows: cst.BaseExpression) -> bool:
    """Return whether the notebook gives each rank rows of its own."""
    if not facts.once(rank_evaluation.mentions_ranks):
        return False
    values = [rank.value(rows) for rank in rank_evaluation.as_ranks(facts, 2)]
    return any(value.share and not value.known for value in values)


@dataclass(frozen=True)
class Leaving:
    """Some ranks leave a place at which all have to go on: by ``how``, below ``test``."""

    test: cst.BaseExpression
    how: str


def leaving_ranks(facts: Facts) -> Iterator[Leaving]:
    """Yield the tests of the rank below which some ranks leave what all of them have to come to later."""
    if not facts.once(rank_evaluation.mentions_ranks) or facts.last_collective is None:
        return
    told: set[cst.CSTNode] = set()
    for node in _ways_out(facts):
        test = _test_of(facts, node)
        if test is None or test in told or facts.is_dead(node) or facts.is_after_training(test):
            continue
        if how := _leaves_training(facts, test, node):
            told.add(test)
            yield Leaving(test, how)


def _test_of(facts: Facts, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the test of the rank above a way out; of a ``break``, inside its loop; of a ``return``, its function."""
    if isinstance(node, cst.Call | cst.Raise):
        return rank_test_above(facts, node)
    loop = _loop_around(facts, node) if isinstance(node, cst.Break | cst.Continue) else None
    inner = node
    for parent in facts.parents(node):
        if isinstance(parent, _FUNCTIONS) or parent is loop:
            return None
        for condition in _conditions(inner, parent):
            if _parts(facts, condition):
                return condition.test
        inner = parent
    return None


def _ways_out(facts: Facts) -> list[cst.CSTNode]:
    """List the statements and calls that may leave what is around them, in order."""
    look = _WaysOut(facts)
    for cell in facts.cells:
        cell.module.visit(look)
    return look.found


def _loop_around(facts: Facts, node: cst.CSTNode) -> cst.CSTNode | None:
    return next((parent for parent in facts.parents(node) if isinstance(parent, cst.For | cst.While)), None)


def _leaves_training(facts: Facts, test: cst.BaseExpression, node: cst.CSTNode) -> str:
    """Return how a statement or call leaves before something that all ranks do together; "" if it does not.

    An error that may happen is none: it ends the run, as it ends the notebook. One that some rank certainly raises
    ends every run.
    """
    match node:
        case cst.Call(func=function):
            leaves = not _is_error(facts, node) or _is_certain(facts, node, set())
            return f"{cst_nodes.code_of(function)}()" if leaves else ""
        case cst.Raise():
            leaves = not _is_error(facts, node) or _is_certain(facts, node, set())
            return _raised(node) if leaves else ""
        case cst.Return():
            home = facts.scope(node)
            meets = isinstance(home, cst.FunctionDef) and _all_meet(facts, home.body, after=test)
            return "return" if meets else ""
        case cst.Break() | cst.Continue():
            loop = _loop_around(facts, node)
            if not isinstance(loop, cst.For | cst.While):
                return ""
            is_break = isinstance(node, cst.Break)
            meet = _all_meet(facts, loop.body, after=None if is_break else test)
            return ("break" if is_break else "continue") if meet else ""
    return ""


def _raised(node: cst.Raise) -> str:
    """Return the name of what is raised."""
    raised = node.exc.func if isinstance(node.exc, cst.Call) else node.exc
    return cst_nodes.code_of(raised) if raised is not None else "raise"


def _is_error(facts: Facts, node: cst.Call | cst.Raise) -> bool:
    """Return whether an exception or a call ends the process with another exit code than 0, as far as can be seen."""
    if isinstance(node, cst.Raise):
        if _raised(node) != "SystemExit":
            return True
        given = node.exc.args if isinstance(node.exc, cst.Call) else ()
    elif facts.qualified(node.func) == "os.abort":
        return True
    else:
        given = node.args
    code = given[0].value if given else None
    if isinstance(code, cst.FormattedString | cst.SimpleString | cst.ConcatenatedString):
        return True
    return isinstance(code, cst.Integer) and code.evaluated_value % 256 != 0


def _is_certain(facts: Facts, node: cst.CSTNode, seen: set[cst.CSTNode]) -> bool:
    """Return whether some rank of two certainly comes to a node."""
    if node in seen:
        return False
    seen.add(node)
    ranks = [*rank_evaluation.as_ranks(facts, 2)]
    inner = node
    for parent in facts.parents(node):
        if isinstance(parent, cst.FunctionDef):
            return bool(ranks) and any(_is_certain(facts, caller, seen) for caller in facts.callers(parent))
        if isinstance(parent, cst.For | cst.Try | cst.Lambda | cst.ClassDef | cst.BaseComp):
            return False
        for condition in _conditions(inner, parent):
            ranks = [rank for rank in ranks if condition.holds(rank).truths == {condition.where}]
        inner = parent
    return bool(ranks)


def _all_meet(facts: Facts, body: cst.CSTNode, *, after: cst.CSTNode | None) -> bool:
    """Return whether a block runs what all ranks do together, below ``after`` where that is given."""
    statements: list[Statement] = [
        statement
        for statement in (body.body if isinstance(body, cst.IndentedBlock) else ())
        if isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    ]
    loop = _loop_around(facts, after) if after is not None else None
    if after is not None and (loop is None or not facts.contains(body, loop)):  # else it may come round again
        statements = [
            s for s in statements if facts.order(s) > facts.order(after) or facts.contains(s, after)
        ]
    return any(facts.runs(s, facts.is_collective) or facts.runs(s, facts.joins_group) for s in statements)


class _WaysOut(cst.CSTVisitor):
    def __init__(self, facts: Facts) -> None:
        self.found: list[cst.CSTNode] = []
        self._facts = facts

    def visit_Return(self, node: cst.Return) -> None:
        self.found.append(node)

    def visit_Break(self, node: cst.Break) -> None:
        self.found.append(node)

    def visit_Continue(self, node: cst.Continue) -> None:
        self.found.append(node)

    def visit_Raise(self, node: cst.Raise) -> None:
        self.found.append(node)

    def visit_Call(self, node: cst.Call) -> None:
        if self._facts.qualified(node.func) in libraries.ENDING_FUNCTIONS:
            self.found.append(node)
