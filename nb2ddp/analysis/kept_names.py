"""Follow a text from where it is made, and tell whether it may name a file or is only shown, recorded or compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.source.cells import Scope

_INTO_TEXT = (
    cst.BinaryOperation
    | cst.BooleanOperation
    | cst.UnaryOperation
    | cst.IfExp
    | cst.ConcatenatedString
    | cst.FormattedString
    | cst.FormattedStringExpression
    | cst.Subscript
)
_INTO_CONTAINER = cst.Element | cst.DictElement | cst.Dict | cst.List | cst.Tuple
_ENDS = cst.Expr | cst.Comparison | cst.ComparisonTarget | cst.Assert | cst.If | cst.While | cst.AssignTarget


def is_kept(facts: Facts, value: cst.BaseExpression) -> bool:
    """Return whether a text is used otherwise than to be printed, logged, added to a list or compared.

    It is followed through names, attributes, the notebook's own functions, and texts that are made with it.
    """
    queue: list[cst.CSTNode] = [value]
    seen: set[cst.CSTNode] = {value}
    while queue:
        found = _goes_into(facts, queue.pop())
        if found is None:
            return True
        queue += (more := [node for node in found if node not in seen])
        seen.update(more)
    return False


def _goes_into(facts: Facts, node: cst.CSTNode) -> Sequence[cst.CSTNode] | None:
    """Return where a value is found next; None where it is used in a way that may name a file."""
    around = facts.parent(node)
    match around:
        case cst.Assign(targets=targets):
            return _read(facts, [target.target for target in targets])
        case cst.AnnAssign(target=target):
            return _read(facts, [target])
        case cst.Return():
            function = facts.scope(around)
            return facts.callers(function) if isinstance(function, cst.FunctionDef) else None
        case cst.Call():  # what is called
            return (around,) if facts.method(around) in libraries.TEXT_METHODS else None
        case cst.Arg():
            call = facts.parent(around)
            return _given(facts, call, around) if isinstance(call, cst.Call) else None
        case cst.Attribute():
            return (around,)
        case _ if isinstance(around, _ENDS):
            return ()
        case _ if isinstance(around, _INTO_TEXT | _INTO_CONTAINER):
            return (around,)
        case _:
            return None


def _given(facts: Facts, call: cst.Call, argument: cst.Arg) -> Sequence[cst.CSTNode] | None:
    """Return where an argument of a call is found next."""
    name, method = facts.qualified(call.func), facts.method(call)
    if name in libraries.TEXT_FUNCTIONS | libraries.SETTINGS_MAKERS or method in libraries.TEXT_METHODS:
        return (call,)
    if name in libraries.SHOWING_FUNCTIONS or method in libraries.SHOWING_METHODS:
        return ()
    if method in libraries.RECORDING_METHODS:
        return ()
    if name in libraries.RECORDING_FUNCTIONS and call.args[0] is argument:
        return ()
    functions = facts.called_functions(call)
    if argument.star or not functions:
        return None
    uses: list[cst.CSTNode] = []
    for function in functions:
        parameter = _parameter(facts, function, call, argument)
        if parameter is None:
            return None
        uses += facts.uses(parameter, function.body)
    return uses


def _parameter(facts: Facts, function: cst.FunctionDef, call: cst.Call, argument: cst.Arg) -> str | None:
    """Return the name of the parameter that gets an argument; None where that cannot be told."""
    names = [param.name.value for param in (*function.params.params, *function.params.kwonly_params)]
    if argument.keyword is not None:
        return argument.keyword.value if argument.keyword.value in names else None
    place = call.args.index(argument) + isinstance(facts.scope(function), cst.ClassDef)
    starred = any(other.star for other in call.args[: call.args.index(argument)])
    return names[place] if place < len(function.params.params) and not starred else None


def _read(facts: Facts, targets: Sequence[cst.BaseExpression]) -> Sequence[cst.CSTNode] | None:
    """Return the places that read what targets of an assignment get."""
    found: list[cst.CSTNode] = []
    for target in targets:
        match target:
            case cst.Name(value=name):
                found += _uses(facts, name, facts.scope(target))
            case cst.Attribute(attr=cst.Name(value=name)):
                found += _attributes(facts, name)
            case _:
                return None
    return found


def _uses(facts: Facts, name: str, scope: Scope | None) -> Iterator[cst.CSTNode]:
    if scope is None:
        yield from facts.loads_of(name)
        return
    yield from facts.uses(name, scope)
    if isinstance(scope, cst.ClassDef):
        yield from _attributes(facts, name)


def _attributes(facts: Facts, name: str) -> Iterator[cst.CSTNode]:
    return (attribute for attribute in facts.attributes if attribute.attr.value == name)
