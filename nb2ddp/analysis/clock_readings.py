"""Follow what each process reads from its own clock: durations, and what it answers by them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import libcst as cst
from libcst import matchers

from nb2ddp import libraries
from nb2ddp.analysis import reaching
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.solver import Solver
from nb2ddp.source import cst_nodes

_ORDERING = cst.LessThan | cst.LessThanEqual | cst.GreaterThan | cst.GreaterThanEqual
# What a value computed from the time tells it too.
_COMPUTING = frozenset("int float round abs min max bool".split())
_TRUTH = matchers.Name("True") | matchers.Name("False")
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
            for binding in reaching.bindings(facts, node):
                if isinstance(binding.node, cst.AugAssign):
                    found.append(binding.node.value)
                elif isinstance(binding.node, cst.Param):
                    found += facts.given(binding)
                elif binding.value is not None and binding.index is None:
                    found.append(binding.value)
                else:
                    return [node]  # a part of something else
        case cst.Attribute(attr=attr):
            found += _of_attribute(facts, attr.value)
        case cst.Subscript():
            found += reaching.item_values(facts, node)
    return [value for value in found if not isinstance(value, cst.BaseNumber) and not _is_nothing(value)]


def _is_nothing(value: cst.CSTNode) -> bool:
    return isinstance(value, cst.Name) and value.value in ("None", "True", "False")


def _of_attribute(facts: Facts, name: str) -> Iterator[cst.CSTNode]:
    """Yield what ``self.spent`` may be, also as the value in its class or as a property."""
    yield from reaching.attribute_values(facts, name)
    for binding in facts.bindings(name):
        if isinstance(binding.scope, cst.ClassDef):
            if binding.value is not None and binding.index is None:
                yield binding.value
            elif isinstance(binding.node, cst.FunctionDef) and _is_property(binding.node):
                yield binding.node


def _is_property(function: cst.FunctionDef) -> bool:
    return any(
        matchers.matches(d.decorator, matchers.Name("property") | matchers.Name("cached_property"))
        for d in function.decorators
    )


def _of_call(facts: Facts, call: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield what a call returns: of a function of the notebook, of ``min(a, b)``, of a method of a time."""
    function_name = facts.qualified(call.func)
    if function_name in _COMPUTING or function_name.startswith(("math.", "numpy.")):
        yield from (argument.value for argument in call.args)
        return
    passed = [argument.value for argument in call.args]
    for function in facts.called_functions(call):
        if not any(
            isinstance(p, cst.Name | cst.Attribute) and _names(p) == function.name.value for p in passed
        ):
            yield function
    if isinstance(call.func, cst.Attribute):
        yield call.func.value  # (now - start).total_seconds()
    elif isinstance(call.func, cst.Name):
        binding = facts.binding(call.func)
        if binding is not None and isinstance(binding.value, cst.Lambda):
            yield binding.value.body


def _names(node: cst.Name | cst.Attribute) -> str:
    return node.value if isinstance(node, cst.Name) else node.attr.value


def _returned(facts: Facts, function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yield what a function returns, and the tests below which it returns True or False, or sets a flag to them."""
    look = _Returns()
    function.body.visit(look)
    yield from look.found
    for flag in sorted(look.returned):
        if flag not in look.shared or all(facts.contains(function, use) for use in facts.loads_of(flag)):
            yield from look.flags.get(flag, ())


class _Returns(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: list[cst.CSTNode] = []
        self.flags: dict[str, list[cst.CSTNode]] = {}  # ``over = True`` and ``self.over = True``
        self.returned: set[str] = set()
        self.shared: set[str] = set()  # global names: a test elsewhere may ask for one
        self._tests: list[cst.BaseExpression] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_If(self, node: cst.If) -> None:
        self._tests.append(node.test)

    def leave_If(self, original_node: cst.If) -> None:
        self._tests.pop()

    def visit_While(self, node: cst.While) -> None:
        self._tests.append(node.test)

    def leave_While(self, original_node: cst.While) -> None:
        self._tests.pop()

    def visit_NameItem(self, node: cst.NameItem) -> None:
        self.shared.add(node.name.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        if matchers.matches(node.value, _TRUTH):
            for target in node.targets:
                self.flags.setdefault(cst_nodes.code_of(target.target), []).extend(self._tests)

    def visit_Return(self, node: cst.Return) -> None:
        if node.value is None:
            return
        if matchers.matches(node.value, _TRUTH):
            self.found += self._tests
        else:
            self.found.append(node.value)
            self.returned.update(_asked(node.value))


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
