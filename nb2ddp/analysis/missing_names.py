"""Tell where a name or an attribute may have no value yet: only a branch, a ``try`` or a loop gives it one.

Whatever reads it for certain shows as well that it has one: else the notebook would have ended there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import libcst as cst
from libcst import matchers

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Scope, Statement, root_of

_LEAVES = matchers.Continue() | matchers.Break()


def existence_test(facts: Facts, value: cst.BaseExpression, statement: Statement) -> str:
    """Return code that tests whether ``head`` or ``self.head`` exists after a statement; "" where it must."""
    root = root_of(value)
    named = facts.binding(root)
    if named is None:
        return ""
    test = name_test(facts, named, statement)
    if test or not isinstance(value, cst.Attribute) or _has_attribute(facts, value, statement):
        return test
    return f'hasattr({cst_nodes.code_of(value.value)}, "{value.attr.value}")'


def name_test(facts: Facts, named: Binding, statement: Statement) -> str:
    """Return code that tests whether a bound name has a value after a statement; "" where it must have one."""
    nearest = [named.node, *facts.uses(named.name, statement)]  # they tell almost always
    if isinstance(named.node, cst.Param) or _exists(facts, nearest, nearest[:1], named.scope, statement):
        return ""
    made = _nodes_of(facts, named)
    uses = _uses_of(facts, named)
    uses += [use for other in _made_of(facts, named, uses) for use in _uses_of(facts, other)]
    if any(isinstance(node, cst.Param) for node in made):
        return ""
    if _exists(facts, [*made, *uses], made, named.scope, statement):
        return ""
    return f'"{named.name}" in {"globals" if named.scope is None else "locals"}()'


def _nodes_of(facts: Facts, named: Binding) -> list[cst.CSTNode]:
    return [other.node for other in facts.bindings(named.name) if other.scope is named.scope]


def _uses_of(facts: Facts, named: Binding) -> list[cst.Name]:
    uses = ((use, facts.binding(use)) for use in facts.loads_of(named.name))
    return [use for use, seen in uses if seen is not None and seen.scope is named.scope]


def _made_of(facts: Facts, named: Binding, uses: Sequence[cst.Name]) -> list[Binding]:
    """Return what has a value only where the name has: ``params`` where each ``params = head.parameters()``."""
    beside = {other.name: other for use in uses for other in facts.bindings_in(facts.statement(use))}
    return [
        other
        for other in beside.values()
        if other.scope is named.scope
        and all(
            isinstance(node, cst.Assign) and _has_run(facts, node, uses) for node in _nodes_of(facts, other)
        )
    ]


def _has_attribute(facts: Facts, value: cst.Attribute, statement: Statement) -> bool:
    function = facts.scope(statement)
    if _exists(facts, [value], (), function, statement):
        return True
    uses = facts.once(_attributes)[cst_nodes.code_of(value)]
    owner = facts.scope(function) if function is not None else None
    methods = owner.body.body if isinstance(owner, cst.ClassDef) else ()
    home = next(
        (m for m in methods if isinstance(m, cst.FunctionDef) and m.name.value == "__init__"), function
    )
    return _exists(facts, uses, [node for node in facts.attribute_targets if node in uses], home, statement)


def _attributes(facts: Facts) -> dict[str, list[cst.CSTNode]]:
    """Return by their code the attributes that are read or set."""
    found: dict[str, list[cst.CSTNode]] = {}
    for node in facts.attributes:
        found.setdefault(cst_nodes.code_of(node), []).append(node)
    return found


def _exists(
    facts: Facts,
    shown: Sequence[cst.CSTNode],
    made: Iterable[cst.CSTNode],
    home: Scope | None,
    statement: Statement,
) -> bool:
    """Return whether one of the nodes that show or make a value has run for certain after a statement."""
    here = facts.scope(statement)
    shown = [
        node for node in shown if facts.scope(node) is here and facts.order(node) <= facts.end(statement)
    ]
    for node in shown:
        around = _beside(facts, node, statement)
        if around is statement and isinstance(statement, cst.SimpleStatementLine):  # it may be a return
            if _is_evaluated(facts, statement, shown):
                return True
        elif around is None or _has_run(facts, around, shown):
            return True
    if home is here or isinstance(home, cst.Lambda | cst.ClassDef):
        return False
    made = [node for node in made if facts.scope(node) is home]
    return any(_has_run(facts, facts.statement_in(home, node), made) for node in made)


def _beside(facts: Facts, node: cst.CSTNode, statement: Statement) -> cst.CSTNode | None:
    """Return the statement around a node in a block that holds ``statement`` too; None for a loop around it."""
    if node is not statement and facts.contains(node, statement):
        return None
    inner = node
    for parent in facts.parents(node):
        if isinstance(parent, cst.Module):
            break
        if isinstance(parent, cst.IndentedBlock) and facts.contains(parent, statement):
            break
        inner = parent
    return inner


def _has_run(facts: Facts, node: cst.CSTNode, found: Sequence[cst.CSTNode]) -> bool:
    """Return whether one of the nodes found has run when what is after ``node`` does."""
    match node:
        case cst.IndentedBlock() | cst.SimpleStatementSuite() | cst.SimpleStatementLine():
            return any(_has_run(facts, part, found) for part in node.body)
        case cst.If(test=test, body=body, orelse=orelse):
            both = orelse is not None and _has_run(facts, body, found) and _has_run(facts, orelse, found)
            return both or _is_evaluated(facts, test, found)
        case cst.Else(body=body) | cst.Finally(body=body) | cst.ExceptHandler(body=body):
            return _has_run(facts, body, found)
        case cst.With(items=items, body=body):
            swallows = any("suppress" in cst_nodes.code_of(item.item) for item in items)
            given = any(_is_evaluated(facts, item, found) for item in items)
            return given or (not swallows and _has_run(facts, body, found))
        case cst.Match(subject=subject, cases=cases):
            last = cases[-1]
            all_of_them = (
                isinstance(last.pattern, cst.MatchAs) and last.pattern.pattern is None and not last.guard
            )
            every = all_of_them and all(_has_run(facts, each.body, found) for each in cases)
            return every or _is_evaluated(facts, subject, found)
        case cst.Try(body=body, handlers=handlers, orelse=orelse, finalbody=last):
            tried = _has_run(facts, body, found) or (orelse is not None and _has_run(facts, orelse, found))
            every = tried and all(_has_run(facts, handler, found) for handler in handlers)
            return every or (last is not None and _has_run(facts, last, found))
        case cst.For(iter=first, body=body) | cst.While(test=first, body=body):
            # a loop that never runs is rare
            sure = itertools.takewhile(lambda part: not matchers.findall(part, _LEAVES), body.body)
            at_once = any(_has_run(facts, part, found) for part in sure)
            return node in found or _is_evaluated(facts, first, found) or at_once
        case cst.FunctionDef() | cst.ClassDef():
            return node in found
        case cst.Raise() | cst.Return() | cst.Break() | cst.Continue():
            return True
        case cst.Expr(value=cst.Call(func=function)) if (
            facts.qualified(function) in libraries.ENDING_FUNCTIONS
        ):
            return True
        case _:
            return _is_evaluated(facts, node, found)


def _is_evaluated(facts: Facts, node: cst.CSTNode, found: Sequence[cst.CSTNode]) -> bool:
    return any(facts.contains(node, each) and _certainly(facts, each, node) for each in found)


def _certainly(facts: Facts, part: cst.CSTNode, whole: cst.CSTNode) -> bool:
    """Return whether a part of an expression is evaluated wherever the whole is."""
    inner = part
    for parent in () if part is whole else facts.parents(part):
        match parent:
            case cst.Lambda():
                return False
            case cst.IfExp(test=first) | cst.BooleanOperation(left=first) | cst.CompFor(iter=first):
                if inner is not first:
                    return False
            case cst.BaseComp(for_in=first) if inner is not first:
                return False
        if parent is whole:
            return True
        inner = parent
    return part is whole


def last_in_branch(facts: Facts, value: cst.BaseExpression, statement: Statement) -> Statement | None:
    """Return the last statement with a value in the one branch that gives it its name, if ``statement`` is outside."""
    root = root_of(value)
    named = facts.binding(root)
    if named is None:
        return None
    made = _nodes_of(facts, named)
    inner: cst.CSTNode = named.node
    for parent in facts.parents(named.node):
        if isinstance(parent, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            return None
        in_branch = isinstance(parent, cst.If | cst.Else) and inner is parent.body
        if in_branch and isinstance(inner, cst.IndentedBlock) and not facts.contains(parent, statement):
            if not all(facts.contains(inner, node) for node in made):
                return None
            last = max((node for node in (*made, value) if facts.contains(inner, node)), key=facts.order)
            return facts.statement(next(part for part in inner.body if facts.contains(part, last)))
        inner = parent
    return None
