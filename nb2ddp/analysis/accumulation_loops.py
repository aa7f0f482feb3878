"""Find gradient accumulation loops without a DataLoader: their micro-batches are assigned to ranks in turn.

Such a loop is inside another one, which takes the optimizer step. Every rank runs what comes before the
model's call, so that all ranks draw the same random numbers and read the same rows; from that call on, a
micro-batch belongs to one rank. Nothing else may need what is computed there, except sums, which are
all-reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_TORCH_RANDOM = tuple(
    f"torch.{name}" for name in "rand randn randint randperm bernoulli multinomial normal poisson".split()
)
# What leaves a micro-batch early, defines or deletes something, or changes an outer scope.
_LEAVING = (cst.Break, cst.Continue, cst.Return, cst.Yield, cst.Await)
_DEFINING = (cst.FunctionDef, cst.ClassDef, cst.Import, cst.ImportFrom, cst.Del)
_OUTER = (cst.Global, cst.Nonlocal)
_RANDOM_METHODS = frozenset("normal_ uniform_ random_ bernoulli_ exponential_".split())


@dataclass(frozen=True, eq=False)
class Turns:
    """An accumulation loop whose micro-batches can be assigned to ranks in turn.

    ``statement`` calls the model. ``turn`` and ``count`` are the code of a micro-batch's number and of their
    count, ``sums`` the names that they add to. ``draws``: the model's arguments draw random numbers.
    """

    statement: Statement
    turn: str
    count: str
    sums: tuple[str, ...]
    draws: bool


def turns_of(facts: Facts, loop: cst.For | cst.While, calls: Sequence[cst.Call]) -> Turns | None:
    """Return how to assign the micro-batches of ``loop`` to ranks; None where that is not safe.

    ``calls`` are the calls of the model in it.
    """
    if facts.scope(loop) is not None or len(calls) != 1:
        return None
    match loop:
        case cst.For(
            target=cst.Name(value=turn),
            iter=cst.Call(func=cst.Name("range"), args=[cst.Arg(value=count, keyword=None, star="")]),
            body=cst.IndentedBlock(body=body),
            orelse=None,
            asynchronous=None,
        ) if isinstance(count, cst.Name | cst.Integer | cst.Attribute):
            pass
        case _:
            return None
    step = facts.loop(loop)
    if step is None or loop not in step.body.body or not _steps_after(facts, step, loop):
        return None
    at = next(index for index, part in enumerate(body) if facts.contains(part, calls[0]))
    shared, own = body[:at], body[at:]
    if (
        facts.nodes(*_LEAVING, *_DEFINING, *_OUTER, within=loop)
        or not isinstance(own[0], cst.SimpleStatementLine)
        or len(own[0].body) != 1
    ):
        return None
    sums = _sums(facts, step, loop, own)
    kept = all(name in sums or _stays(facts, name, step, own) for name in _bound(facts, own))
    changed = {name for part in own for name in facts.changes_in(part)} - set(sums)
    if not kept or changed - _bound(facts, own) or any(_reaches_out(facts, part) for part in own):
        return None
    others = [*shared, *(part for part in step.body.body if part is not loop)]
    drawn = any(facts.runs(part, lambda call: _draws(facts, call)) for part in own[1:])
    beside = [call for call in facts.calls_in(own[0]) if not facts.contains(calls[0], call)]
    if (
        drawn
        or any(_draws_itself(facts, call) for call in beside)
        or any(facts.runs(part, lambda call: _torch_draws(facts, call)) for part in others)
    ):
        return None  # these numbers may choose rows, and dropout draws from the same source
    draws = facts.runs(own[0], lambda call: _draws(facts, call))
    if draws and any(argument.keyword is None for argument in calls[0].args):
        return None
    return Turns(own[0], turn, cst_nodes.code_of(count), sums, draws)


def _steps_after(facts: Facts, step: cst.For | cst.While, loop: cst.For) -> bool:
    """Return whether the outer loop takes optimizer steps, and the inner one does not."""
    steps = [call for call in facts.calls_in(step) if facts.method(call) in ("step", "zero_grad")]
    return any(facts.method(call) == "step" for call in steps) and not any(
        facts.contains(loop, call) for call in steps
    )


def _bound(facts: Facts, parts: Sequence[cst.CSTNode]) -> set[str]:
    return {name for part in parts for name in facts.binds_in(part)}


def _sums(
    facts: Facts, step: cst.For | cst.While, loop: cst.For, own: Sequence[cst.CSTNode]
) -> tuple[str, ...]:
    """Return the names that are reset for each step and only added to by the micro-batches."""
    found = []
    for name in sorted(_bound(facts, own)):
        inside = [b for b in facts.bindings(name) if facts.contains(loop, b.node)]
        starts = [b for b in facts.bindings(name) if facts.contains(step, b.node) and b not in inside]
        adds = all(
            isinstance(b.node, cst.AugAssign) and isinstance(b.node.operator, cst.AddAssign) for b in inside
        )
        targets = {b.node.target for b in inside if isinstance(b.node, cst.AugAssign)}
        if adds and starts and all(use in targets for use in facts.uses(name, loop)):
            found.append(name)
    return tuple(found)


def _stays(facts: Facts, name: str, step: cst.CSTNode, own: Sequence[cst.CSTNode]) -> bool:
    """Return whether a name is bound in each micro-batch before it is read, and read nowhere else."""
    first = min(
        (b for part in own for b in facts.bindings(name) if facts.contains(part, b.node)),
        key=lambda binding: binding.order,
    )
    uses = facts.uses(name, step)
    return (
        isinstance(first.node, cst.Assign | cst.For)
        and all(any(facts.contains(part, use) for part in own) for use in uses)
        and all(facts.order(use) > facts.order(first.node) for use in uses)
        and not any(facts.contains(first.node, use) for use in uses if isinstance(first.node, cst.Assign))
        and not facts.is_read_outside(name, *own)
    )


def _reaches_out(facts: Facts, part: cst.CSTNode) -> bool:
    """Return whether a part sets attributes, or calls functions of the notebook that change outer state."""
    if any(facts.contains(part, target) for target in facts.attribute_targets):
        return True
    for call in facts.calls_in(part):
        for function in facts.called_functions(call):
            made = {name for name in facts.changes_in(function) if _is_made_in(facts, name, function)}
            if facts.nodes(*_OUTER, within=function.body) or facts.changes_in(function) - made:
                return True
    return False


def _is_made_in(facts: Facts, name: str, function: cst.FunctionDef) -> bool:
    bindings = [binding for binding in facts.bindings(name) if binding.scope is function]
    return bool(bindings) and not any(isinstance(binding.node, cst.Param) for binding in bindings)


def _draws(facts: Facts, call: cst.Call) -> bool:
    return facts.qualified(call.func).startswith(libraries.RANDOM_MODULES) or _torch_draws(facts, call)


def _draws_itself(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call itself draws random numbers, not only its arguments."""
    functions = facts.called_functions(call)
    return _draws(facts, call) or any(
        facts.runs(function.body, lambda inner: _draws(facts, inner)) for function in functions
    )


def _torch_draws(facts: Facts, call: cst.Call) -> bool:
    name = facts.qualified(call.func)
    return name.removesuffix("_like") in _TORCH_RANDOM or facts.method(call) in _RANDOM_METHODS
