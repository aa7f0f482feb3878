"""Tell whether a value may be another one on each rank: it comes from the machine, another process or a thread.

All that the notebook computes is the same on all ranks: from its constants, data, models and losses. What a library
function that is not known to compute gives, counts as from outside: the ranks do not ask it at the same moment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.solver import Solver
from nb2ddp.source.cells import Binding


def from_outside(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether an expression's value may differ between ranks, through names, attributes and functions."""
    return facts.once(_solver).solve(node)


def _solver(facts: Facts) -> Solver[cst.CSTNode, bool]:
    def steps(node: cst.CSTNode) -> Generator[cst.CSTNode, bool, bool]:
        if isinstance(node, cst.Call):
            if facts.qualified(node.func).endswith("from_main_process"):
                return False
            if _asks_outside(facts, node):
                return True
        if isinstance(node, cst.Name) and _is_set_beside(facts, node.value):
            return True
        for source in _sources(facts, node):
            if (yield source):
                return True
        return False

    return Solver(steps, False)


def _asks_outside(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call is of a library's function that is not known to compute."""
    name, owner = facts.qualified(call.func), call.func
    while isinstance(owner, cst.Attribute):
        owner = owner.value
    is_library = isinstance(owner, cst.Name) and facts.is_imported(owner.value)
    if not is_library or facts.called_functions(call) or name in libraries.CLOCKS:
        return name in ("input", "open")
    if name.startswith(libraries.OF_THIS_MACHINE):
        return True
    computes = name.partition(".")[0] in libraries.COMPUTING_PACKAGES
    return not computes and not name.startswith(libraries.SAME_EVERYWHERE)


def _is_set_beside(facts: Facts, name: str) -> bool:
    """Return whether a function that is handed to something else, such as a signal's handler, sets a global name."""
    for shared in facts.nodes(cst.Global):
        if name in {item.name.value for item in shared.names}:
            function = facts.around(shared, cst.FunctionDef)
            uses = facts.loads_of(function.name.value) if isinstance(function, cst.FunctionDef) else ()
            for use in uses:
                call = facts.parent(use)
                if not isinstance(call, cst.Call) or call.func is not use:
                    return True
    return False


def _sources(facts: Facts, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes that make a value what it is."""
    match node:
        case cst.Name():
            yield from _values(facts, facts.reaching(node))
            return
        case cst.Attribute(value=owner, attr=attr):
            yield from facts.assigned(attr.value)
            yield from _values(facts, facts.fields(attr.value))
            yield owner
            return
        case cst.Subscript():
            if values := list(facts.item_values(node)):
                yield from values
                return
        case cst.Call():
            yield from facts.called_functions(node)
        case cst.FunctionDef():
            yield from facts.returned(node)
            yield from (asked.test for asked in facts.nodes(cst.If, cst.While, within=node.body))
            return
    inside = [*node.children]
    for child in inside:
        if isinstance(child, cst.BaseExpression):
            yield child
        elif not isinstance(child, cst.BaseStatement):
            inside += child.children


def _values(
    facts: Facts, bindings: Iterator[Binding] | tuple[Binding, ...] | list[Binding]
) -> Iterator[cst.CSTNode]:
    for binding in bindings:
        if isinstance(binding.node, cst.AugAssign):
            yield binding.node.value
        elif isinstance(binding.node, cst.Param):
            yield from facts.given(binding)
        elif binding.value is not None:
            yield binding.value
