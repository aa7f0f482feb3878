"""Find what a Trainer's micro-batch does outside the run, and what its rewards remember.

Each rank computes some micro-batches of a step alone. What they leave in variables, print and log is put together;
what they write to files, trackers and logging handlers cannot be, so every rank has to compute all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst import matchers as m

from nb2ddp import libraries
from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.facts import Facts, asked_once

# Methods of a Trainer that compute a micro-batch.
_STEPS = ("compute_loss", "training_step", "prediction_step")
_TRACKERS = libraries.TRACKERS | {"wandb", "mlflow", "tensorboardX"}
_WRITERS = ("torch.utils.tensorboard", "csv.writer", "csv.DictWriter")
# Of logging: without one, nothing is written.
_HANDLERS = ("basicConfig", "addHandler", "dictConfig", "fileConfig")


@asked_once
def effects(facts: Facts) -> tuple[cst.Call, ...]:
    """Return the calls of a micro-batch that write to files, trackers or handlers of logging."""
    calls = [call for function in functions(facts, _STEPS) for call in facts.calls_in(function.body)]
    return tuple(dict.fromkeys(call for call in calls if _reaches_outside(facts, call)))


def functions(facts: Facts, steps: Sequence[str]) -> list[cst.FunctionDef]:
    """Return the methods of these names, and the functions of the notebook that they may call."""
    waiting = [
        binding.node
        for name in steps
        for binding in facts.definitions(name)
        if isinstance(binding.node, cst.FunctionDef) and isinstance(facts.scope(binding.node), cst.ClassDef)
    ]
    for call in facts.live_calls:
        given = facts.keyword(call, "compute_loss_func")
        if isinstance(given, cst.Name):
            waiting += [b.node for b in facts.definitions(given.value) if isinstance(b.node, cst.FunctionDef)]
    found: dict[cst.FunctionDef, None] = {}
    while waiting:
        function = waiting.pop()
        if function not in found:
            found[function] = None
            calls = facts.calls_in(function.body)
            waiting += [called for call in calls for called in facts.called_functions(call)]
    return list(found)


def _reaches_outside(facts: Facts, call: cst.Call) -> bool:
    if rank_zero_work.why_alone(facts, call) is not None:
        return True
    name = facts.qualified(call.func)
    if name == "print":
        return facts.keyword(call, "file") is not None
    if name.partition(".")[0] in _TRACKERS:
        return True
    if not isinstance(call.func, cst.Attribute):
        return False
    made_by = facts.origins(call.func.value)
    if any(of.partition(".")[0] in _TRACKERS or of.startswith(_WRITERS) for of in made_by):
        return True
    if any(of.partition(".")[0] == "logging" for of in (name, *made_by)):
        return any(facts.method(other) in _HANDLERS for other in facts.live_calls)
    return facts.method(call) in ("write", "writelines")


def remembering_rewards(facts: Facts, trainer: cst.Call) -> tuple[cst.FunctionDef, ...]:
    """Return the reward functions of a Trainer that change something which outlasts the call."""
    given = facts.keyword(trainer, "reward_funcs")
    values = (
        [element.value for element in given.elements] if isinstance(given, cst.List | cst.Tuple) else [given]
    )
    found: list[cst.FunctionDef] = []
    for value in values:
        if not isinstance(value, cst.Name):
            continue
        binding = facts.binding(value)
        made = binding.value if binding is not None else None
        if isinstance(made, cst.Call):  # an object with __call__
            kinds = facts.definitions(facts.qualified(made.func))
            methods = facts.definitions("__call__")
            of = [b.node for b in methods if any(facts.scope(b.node) is kind.node for kind in kinds)]
        else:
            of = [b.node for b in facts.definitions(value.value)]
        found += [node for node in of if isinstance(node, cst.FunctionDef) and _remembers(facts, node)]
    return tuple(found)


def _remembers(facts: Facts, function: cst.FunctionDef) -> bool:
    if m.findall(function, m.Global() | m.Nonlocal()):
        return True
    if any(facts.contains(function, target) for target in facts.attribute_targets):
        return True
    changed = facts.changes_in(function.body)
    return any(all(b.scope is not function for b in facts.bindings(name)) for name in changed)
