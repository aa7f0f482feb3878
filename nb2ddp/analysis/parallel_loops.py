"""Find the loops with independent iterations: each rank can run its share of them.

Such a loop goes over a list, lets a model generate or score, and its only lasting effect is what it appends to
lists that were empty before. Every call that this module does not know counts as an effect.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.side_effects import Effects, is_ordered
from nb2ddp.analysis.training_loops import WITHOUT_GRADIENTS, names_switch, without_gradients
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Statement

_OF_RANKS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})


@dataclass(frozen=True, eq=False)
class IndependentLoop:
    """A loop whose iterations can be divided over the ranks.

    ``results`` names the lists that it fills. ``runs_in`` holds the top-level statements that run it before
    training ends: the loop itself, or the calls of the function that contains it.
    """

    loop: cst.For
    results: tuple[str, ...]
    runs_in: tuple[Statement, ...]


def independent_loops(facts: Facts) -> Iterator[IndependentLoop]:
    """Yield the loops that run before training ends and can be divided over the ranks."""
    if any(cst_nodes.string_value(string) in _OF_RANKS for string in facts.strings):
        return  # the notebook divides its own work by rank
    for loop in facts.loops:
        if not isinstance(loop, cst.For) or facts.is_dead(loop) or not _scores(facts, loop):
            continue
        if not _is_straight(facts, loop) or not is_ordered(facts, loop.iter):
            continue
        results = _results(facts, loop)
        runs_in = _runs_in(facts, loop)
        if results and runs_in and _keeps_to_itself(facts, loop, results):
            yield IndependentLoop(loop, results, runs_in)


def generates(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call makes a model generate."""
    return facts.method(call) in libraries.GENERATING_METHODS


def _scores(facts: Facts, loop: cst.For) -> bool:
    """Return whether a loop generates, calls a pipeline, or runs a model without gradients."""

    def wanted(call: cst.Call) -> bool:
        if generates(facts, call):
            return True
        if isinstance(call.func, cst.Name) and (binding := facts.binding(call.func)) is not None:
            made = binding.value
            if isinstance(made, cst.Call) and facts.qualified(made.func).endswith("transformers.pipeline"):
                return True
        return facts.kind(call.func) == "model" and without_gradients(facts, call)

    return facts.runs(loop, wanted)


def _is_switch(node: cst.With) -> bool:
    """Match ``with torch.no_grad():`` and its like, alone or together with autocast."""
    codes = [cst_nodes.code_of(item.item) for item in node.items]
    return any(names_switch(item.item) for item in node.items) and all(
        any(name in code for name in (*WITHOUT_GRADIENTS, "autocast")) for code in codes
    )


def _is_straight(facts: Facts, loop: cst.For) -> bool:
    """Return whether a loop runs whenever its cell runs, or its function, which must not be a method."""
    if loop.orelse is not None or loop.asynchronous is not None:
        return False
    for parent in facts.parents(loop):
        if isinstance(parent, cst.Module):
            return True
        if isinstance(parent, cst.FunctionDef):
            plain = parent.asynchronous is None and all(
                names_switch(decorator.decorator) for decorator in parent.decorators
            )
            return plain and isinstance(facts.parent(parent), cst.Module)
        if not isinstance(parent, cst.IndentedBlock) and not (
            isinstance(parent, cst.With) and _is_switch(parent)
        ):
            return False
    return False


def _runs_in(facts: Facts, loop: cst.For) -> tuple[Statement, ...]:
    """Return the top-level statements that run a loop before training ends; none if that is not clear."""
    last = facts.last_collective
    function = facts.scope(loop)
    if last is None:
        return ()
    if not isinstance(function, cst.FunctionDef):
        top = facts.top_statement(loop)
        return (top,) if facts.order(top) < facts.order(last) else ()
    name = function.name.value
    if len(facts.bindings(name)) != 1:
        return ()
    elsewhere = [part for part in function.body.body if not facts.contains(part, loop)]
    if any(facts.runs(part, lambda call: generates(facts, call)) for part in elsewhere):
        return ()
    found: list[Statement] = []
    for use in facts.loads_of(name):
        if facts.is_dead(use):
            continue
        call = facts.parent(use)
        line = facts.statement(use)
        straight = isinstance(line, cst.SimpleStatementLine) and isinstance(facts.parent(line), cst.Module)
        if not isinstance(call, cst.Call) or call.func is not use or not straight:
            return ()
        if facts.order(line) < facts.order(last):
            if any(generates(facts, other) for other in facts.calls_in(line)):
                return ()
            found.append(line)
    return tuple(found)


def _results(facts: Facts, loop: cst.For) -> tuple[str, ...]:
    """Return the lists that are created empty before a loop, and that the loop only appends to."""
    filled: dict[str, list[cst.Name]] = {}
    for call in facts.calls_in(loop):
        if (
            facts.method(call) in ("append", "extend")
            and isinstance(call.func, cst.Attribute)
            and isinstance(call.func.value, cst.Name)
            and isinstance(facts.parent(call), cst.Expr)
        ):
            filled.setdefault(call.func.value.value, []).append(call.func.value)
    return tuple(name for name, uses in filled.items() if _is_result(facts, loop, name, uses))


def _is_result(facts: Facts, loop: cst.For, name: str, filled: Sequence[cst.Name]) -> bool:
    binding = facts.binding(filled[0])
    if binding is None or facts.contains(loop, binding.node) or binding.scope is not facts.scope(loop):
        return False
    made = binding.node
    if not isinstance(made, cst.Assign) or len(made.targets) != 1 or not _gives(binding, made, loop, facts):
        return False
    value = binding.value
    empty = (isinstance(value, cst.List) and not value.elements) or (
        isinstance(value, cst.Call) and facts.qualified(value.func) == "list" and not value.args
    )
    if not empty:
        return False
    uses = list(facts.loads_of(name))
    inside = [use for use in uses if facts.contains(loop, use)]
    between = [use for use in uses if facts.end(made) < facts.order(use) < facts.order(loop)]
    return len(inside) == len(filled) and not between


def _keeps_to_itself(facts: Facts, loop: cst.For, results: Sequence[str]) -> bool:
    """Return whether only ``results`` pass from one iteration to the next, or are read after the loop."""
    scope = facts.scope(loop)
    bound = [b for b in facts.bindings_in(loop) if not isinstance(b.scope, cst.Lambda)]
    if any(b.scope is not scope for b in bound):
        return False
    for name in {b.name for b in bound}:
        for use in facts.loads_of(name):
            if _may_read(facts, loop, use) and facts.comprehension(use) is None:
                return False
    return Effects(facts, results).is_contained(loop.body, scope)


def _may_read(facts: Facts, loop: cst.For, use: cst.Name) -> bool:
    """Return whether a use of a name may read the value that another iteration of ``loop`` assigned."""
    scope, home = facts.scope(use), facts.scope(loop)
    if scope is not home:
        seen = facts.binding(use)
        if seen is not None and seen.scope is not home:
            return False  # a local variable of that scope
        if not facts.contains(loop, use):  # a function, which may run at any time
            return home is None or facts.contains(home, use)
    if facts.contains(loop, use):
        in_body = facts.contains(loop.body, use)  # the loop variable has no value yet in the loop's `iter`
        return _given_since(facts, use) < facts.order(loop) + (not in_body)
    if facts.order(use) < facts.order(loop):
        return False
    return _given_since(facts, use) <= facts.end(loop)


def _given_since(facts: Facts, use: cst.Name) -> int:
    """Return the order of the last binding that has always run again when ``use`` runs; or -1."""
    known = facts.once(_last_givers)
    if use not in known:
        bindings = facts.bindings(use.value)
        earlier = bisect.bisect_left(bindings, facts.order(use), key=lambda binding: binding.order)
        back = (bindings[index] for index in range(earlier - 1, -1, -1))
        known[use] = next((b.order for b in back if _gives(b, b.node, use, facts)), -1)
    return known[use]


def _last_givers(facts: Facts) -> dict[cst.Name, int]:
    return {}


def _gives(binding: Binding, node: cst.CSTNode, use: cst.CSTNode, facts: Facts) -> bool:
    """Return whether ``binding`` has always run again when ``use`` runs."""
    if isinstance(node, cst.For):
        return facts.contains(node.body, use)
    if isinstance(node, cst.WithItem):
        around = facts.parent(node)
        return isinstance(around, cst.With) and facts.contains(around.body, use)
    if isinstance(node, cst.ExceptHandler):
        return facts.contains(node.body, use)
    if isinstance(node, cst.AugAssign | cst.Param):
        return False
    statement = facts.statement(node)
    if not isinstance(statement, cst.SimpleStatementLine | cst.FunctionDef | cst.ClassDef):
        return False
    block = facts.parent(statement)
    while block is not None and not facts.contains(block, use):
        outer = facts.parent(block)
        if not isinstance(outer, cst.With):
            return isinstance(block, cst.Module) and facts.end(statement) < facts.order(use)
        statement, block = outer, facts.parent(outer)  # after a `with`, all of its block has run
    return facts.end(statement) < facts.order(use)
