"""Follow what each process reads from its own clock: durations, and what it answers by them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.solver import Solver
from nb2ddp.source import cst_nodes

_ORDERING = cst.LessThan | cst.LessThanEqual | cst.GreaterThan | cst.GreaterThanEqual
# What a value computed from the time tells it too.
_COMPUTING = frozenset("int float round abs min max bool".split())
_Steps = Generator[cst.CSTNode, str, str]
_TIME, _ANSWER, _NEITHER = "time", "answer", ""


def answers_by_clock(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether an expression is true or false by this process's clock, through names and functions.

    ``time.time() - start > 60``; ``is_over()`` with ``return spent > limit``.
    """
    return facts.once(_solver).solve(node) == _ANSWER


def tells_time(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether an expression is a time by this process's clock, or an answer by one."""
    return facts.once(_solver).solve(node) != _NEITHER


def has_clock(facts: Facts) -> bool:
    """Return whether the notebook reads a clock anywhere."""
    return facts.once(_has_clock)


def _has_clock(facts: Facts) -> bool:
    return any(facts.qualified(call.func) in libraries.CLOCKS for call in facts.live_calls)


def _solver(facts: Facts) -> Solver[cst.CSTNode, str]:
    """Return what tells of an expression whether it is a time, an answer by the time, or neither."""

    def steps(node: cst.CSTNode) -> _Steps:
        best = _NEITHER
        if isinstance(node, cst.Call) and facts.qualified(node.func) in libraries.CLOCKS:
            return _TIME
        if isinstance(node, cst.Call) and facts.qualified(node.func).endswith("from_main_process"):
            return _NEITHER
        alternatives = _alternatives(facts, node)
        for source in (*_sources(facts, node), *alternatives):
            kind = yield source
            if kind == _NEITHER and source in alternatives:
                return _NEITHER
            best = kind if kind == _ANSWER else best or kind
        if isinstance(node, cst.Comparison):
            ordered = any(isinstance(target.operator, _ORDERING) for target in node.comparisons)
            return _ANSWER if best and ordered else _NEITHER
        return best

    return Solver(steps, _NEITHER)


def _sources(facts: Facts, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes that make the value of an expression, of a function, or of a test, what it is."""
    match node:
        case cst.Comparison(left=left, comparisons=targets):
            yield left
            yield from (target.comparator for target in targets)
        case cst.BinaryOperation(left=left, right=right) | cst.BooleanOperation(left=left, right=right):
            yield left
            yield right
        case cst.UnaryOperation(expression=inner) | cst.NamedExpr(value=inner):
            yield inner
        case cst.IfExp(test=test, body=body, orelse=orelse):
            yield from (test, body, orelse)
        case cst.Attribute(value=owner):
            yield owner  # (now - start).seconds
        case cst.Call():
            yield from _of_call(facts, node)
        case cst.FunctionDef():
            yield from _returned(facts, node)


def _alternatives(facts: Facts, node: cst.CSTNode) -> list[cst.CSTNode]:
    """List the values that a name, an attribute or an item may have: it is a time where all are, a first number aside.

    Another object may have an attribute of the same name, and another caller give something else.
    """
    found: list[cst.CSTNode] = []
    match node:
        case cst.Name():
            for binding in facts.reaching(node):
                if isinstance(binding.node, cst.AugAssign):
                    found.append(binding.node.value)
                elif isinstance(binding.node, cst.Param):
                    found += facts.given(binding)
                elif binding.value is not None and binding.index is None:
                    found.append(binding.value)
                else:
                    return [node]  # a part of something else
        case cst.Attribute(attr=attr):
            found += facts.assigned(attr.value)
            for field in facts.fields(attr.value):
                if field.value is not None and field.index is None:
                    found.append(field.value)
                elif isinstance(field.node, cst.FunctionDef) and _is_property(field.node):
                    found.append(field.node)
        case cst.Subscript():
            found += facts.item_values(node)
    return [value for value in found if not isinstance(value, cst.BaseNumber) and not _is_nothing(value)]


def _is_nothing(value: cst.CSTNode) -> bool:
    return isinstance(value, cst.Name) and value.value in ("None", "True", "False")


def _is_property(function: cst.FunctionDef) -> bool:
    return any(cst_nodes.code_of(d.decorator).endswith("property") for d in function.decorators)


def _of_call(facts: Facts, call: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield what a call returns: of a function of the notebook, of ``min(a, b)``, of a method of a time."""
    function_name = facts.qualified(call.func)
    if function_name in _COMPUTING or function_name.startswith(("math.", "numpy.")):
        yield from (argument.value for argument in call.args)
        return
    passed = {cst_nodes.code_of(argument.value).rpartition(".")[2] for argument in call.args}
    yield from (f for f in facts.called_functions(call) if f.name.value not in passed)
    if isinstance(call.func, cst.Attribute):
        yield call.func.value  # (now - start).total_seconds()
    elif isinstance(made := facts.bound(call.func), cst.Lambda):
        yield made.body


def _returned(facts: Facts, function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yield what a function returns, and the tests below which it returns True or False, or sets a flag to them."""
    shared = {
        item.name.value for node in facts.nodes(cst.Global, within=function.body) for item in node.names
    }
    for returned in facts.returned(function):
        if _is_truth(returned):
            yield from _tests_above(facts, returned)
            continue
        yield returned
        for flag in _asked(returned):  # not a global one, if a test elsewhere may ask for it
            if flag not in shared or all(facts.contains(function, use) for use in facts.loads_of(flag)):
                for node in facts.nodes(cst.Assign, within=function.body):
                    if _is_truth(node.value) and any(
                        cst_nodes.code_of(t.target) == flag for t in node.targets
                    ):
                        yield from _tests_above(facts, node)


def _is_truth(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value in ("True", "False")


def _tests_above(facts: Facts, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    for parent in facts.parents(node):
        if isinstance(parent, cst.FunctionDef):
            return
        if isinstance(parent, cst.If | cst.While):
            yield parent.test


def _asked(value: cst.BaseExpression) -> Iterator[str]:
    """Yield the names and attributes whose truth an expression is made of."""
    match value:
        case cst.Name() | cst.Attribute():
            yield cst_nodes.code_of(value)
        case cst.BooleanOperation(left=left, right=right):
            yield from _asked(left)
            yield from _asked(right)
        case cst.UnaryOperation(operator=cst.Not(), expression=inner):
            yield from _asked(inner)
