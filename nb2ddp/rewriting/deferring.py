"""Put expressions into a ``lambda`` that a runtime function is given, where they mean there what they mean here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst
from libcst import matchers

from nb2ddp.analysis.facts import Facts
from nb2ddp.rewriting.findings import Edit
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes

# In a lambda a walrus gives its own name a value, and the others belong to the function that they stand in.
_OF_FUNCTION = (
    matchers.NamedExpr()
    | matchers.Yield()
    | matchers.Await()
    | matchers.Asynchronous()
    | matchers.Call(func=matchers.Name("super"), args=[])
    | matchers.Call(func=matchers.Name("locals"))
)
# What may be an open file or a model, say, which no rank can send.
_NAMED = matchers.Name() | matchers.Attribute() | matchers.Subscript()
_TAKES_NAMED = matchers.BooleanOperation(left=_NAMED) | matchers.BooleanOperation(right=_NAMED)


def _can_defer(node: cst.CSTNode) -> bool:
    """Return whether an expression binds no name and does nothing else that it could not do in a lambda."""
    return not matchers.findall(node, _OF_FUNCTION)


def deferring(
    facts: Facts,
    node: cst.BaseExpression,
    why: str,
    wanted: Callable[[cst.CSTNode], bool] = lambda _: False,
    function: str = "from_main_process",
) -> Iterator[Edit]:
    """Yield the edit that defers an expression, or those of the largest ``wanted`` parts that can be deferred.

    Of ``(spent := time.time() - start) < 60``, it is ``time.time() - start``. ``function``: the helper that calls it.
    """
    for part in _parts(node, wanted):
        given = names_of_class(facts, part)
        yield Edit(part, why, partial(cst_nodes.deferred, function=helper(facts, function), given=given))


def deferring_test(
    facts: Facts, test: cst.BaseExpression, why: str, wanted: Callable[[cst.CSTNode], bool]
) -> Iterator[Edit]:
    """Yield the edits that defer a test, or its ``wanted`` parts: of what it names the truth is sent, not the value."""
    if _can_defer(test) and (matchers.matches(test, _NAMED) or matchers.findall(test, _TAKES_NAMED)):
        yield Edit.inside(test, why, "bool")
    yield from deferring(facts, test, why, wanted)


def _parts(node: cst.BaseExpression, wanted: Callable[[cst.CSTNode], bool]) -> Iterator[cst.BaseExpression]:
    if _can_defer(node):
        yield node
        return
    inside: list[cst.CSTNode] = [node.value] if isinstance(node, cst.NamedExpr) else [*node.children]
    for child in inside:
        if isinstance(child, cst.BaseExpression):
            if wanted(child) and not isinstance(child, cst.Lambda | cst.BaseComp):
                yield from _parts(child, wanted)
        else:
            inside += child.children


def names_of_class(facts: Facts, node: cst.CSTNode) -> tuple[str, ...]:
    """Return the names that an expression of a class body reads from the class: a lambda does not see them."""
    scope = facts.scope(node)
    if not isinstance(scope, cst.ClassDef):
        return ()
    return tuple(sorted(n for n in facts.loads_in(node) if any(b.scope is scope for b in facts.bindings(n))))
