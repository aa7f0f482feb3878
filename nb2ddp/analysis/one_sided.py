"""Find optimizer steps, model calls and Trainer controls that a rank test lets only some ranks run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.ranks import rank_test_above
from nb2ddp.analysis.training_loops import optimized_models
from nb2ddp.source import cst_nodes

_STEPPING = frozenset({"step", "zero_grad"})
_STEPS = re.compile(
    r"(?i)optim|sched|scaler"
)  # in the name of what steps, or of the class that it was made from
_CONTROL = frozenset(
    {"should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log"}
)
_NO_GRADIENT = re.compile(r"no_grad|inference_mode")


@dataclass(frozen=True)
class OneSided:
    """A call or an assignment that some ranks alone come to, below ``test``."""

    node: cst.CSTNode
    test: cst.BaseExpression
    kind: Literal["step", "forward", "control"]


def one_sided(facts: Facts) -> Iterator[OneSided]:
    """Yield steps of optimizers and schedulers, calls of the model, and a Trainer's control, on some ranks alone."""
    models = {cst_nodes.code_of(found.model) for found in optimized_models(facts)}
    for call in facts.live_calls:
        kind: Literal["step", "forward"]
        if isinstance(call.func, cst.Attribute) and _steps(facts, call.func):
            kind = "step"
        elif cst_nodes.code_of(call.func) in models and not _without_gradient(facts, call):
            kind = "forward"
        else:
            continue
        yield from _below_a_test(facts, call, kind)
    for target in facts.attribute_targets:
        if target.attr.value in _CONTROL and not facts.is_dead(target):
            yield from _below_a_test(facts, target, "control")


def _below_a_test(
    facts: Facts, node: cst.CSTNode, kind: Literal["step", "forward", "control"]
) -> Iterator[OneSided]:
    if not facts.is_after_training(node) and (test := rank_test_above(facts, node)) is not None:
        yield OneSided(node, test, kind)


def _steps(facts: Facts, function: cst.Attribute) -> bool:
    """Match ``optimizer.step()``, by its name or by what it was made from."""
    if function.attr.value not in _STEPPING:
        return False
    owner = function.value
    made = facts.bound(owner)
    code = cst_nodes.code_of(made.func) if isinstance(made, cst.Call) else ""
    return _STEPS.search(cst_nodes.code_of(owner)) is not None or _STEPS.search(code) is not None


def _without_gradient(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call stands in a ``with torch.no_grad()``, or in a function that is marked so."""
    for parent in facts.parents(call):
        marks: list[cst.CSTNode] = []
        if isinstance(parent, cst.With):
            marks += [item.item for item in parent.items]
        if isinstance(parent, cst.FunctionDef):
            marks += [decorator.decorator for decorator in parent.decorators]
        if any(_NO_GRADIENT.search(cst_nodes.code_of(mark)) for mark in marks):
            return True
    return False
