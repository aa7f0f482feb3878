"""Find what a hand-written loop trains, how its loss is computed, and where its batches come from."""

from __future__ import annotations

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding

_ITERATING = frozenset("enumerate tqdm iter zip track progress_bar trange".split())


def is_trained_call(facts: Facts, call: cst.Call, loop: cst.CSTNode) -> bool:
    """Return whether a call in a loop records gradients: no ``with torch.no_grad()`` is around it."""
    for parent in facts.parents(call):
        if parent is loop:
            return True
        if isinstance(parent, cst.With) and any(
            "no_grad" in cst_nodes.code_of(item.item) or "inference_mode" in cst_nodes.code_of(item.item)
            for item in parent.items
        ):
            return False
    return False


def given_to_function(facts: Facts, backward: cst.Call, step: cst.CSTNode) -> list[cst.Name]:
    """Return the model in ``loss = function(batch, model)`` whose function only calls it."""
    assert isinstance(backward.func, cst.Attribute)
    loss = loss_of(backward.func.value)
    binding = facts.binding(loss) if isinstance(loss, cst.Name) else None
    value = binding.value if binding is not None and facts.contains(step, binding.node) else None
    while isinstance(value, cst.BinaryOperation):
        value = value.left
    if not isinstance(value, cst.Call):
        return []
    found = [
        argument.value
        for argument in value.args
        if isinstance(argument.value, cst.Name)
        and facts.kind(argument.value) == "model"
        and _only_calls(facts, value, argument)
    ]
    return found if len(found) == 1 else []


def _only_calls(facts: Facts, call: cst.Call, argument: cst.Arg, depth: int = 3) -> bool:
    """Return whether the function that gets ``argument`` only calls it, itself or through another."""
    functions = list(facts.called_functions(call.with_changes(args=())))
    if depth == 0 or len(functions) != 1 or any(other.star for other in call.args):
        return False
    names = [parameter.name.value for parameter in functions[0].params.params]
    position = call.args.index(argument)
    name = argument.keyword.value if argument.keyword else names[position] if position < len(names) else ""
    uses = facts.uses(name, functions[0].body)
    bindings = [binding for binding in facts.bindings(name) if binding.scope is functions[0]]
    if name not in names or not uses or len(bindings) != 1:
        return False
    for use in uses:
        around = facts.parent(use)
        if isinstance(around, cst.Call) and around.func is use:
            continue
        outer = facts.parent(around) if isinstance(around, cst.Arg) else None
        if not isinstance(outer, cst.Call) or not _only_calls(facts, outer, around, depth - 1):  # type: ignore[arg-type]
            return False
    return True


def is_global(facts: Facts, name: cst.Name) -> bool:
    """Return whether a name is bound at module level."""
    binding = facts.binding(name)
    return binding is not None and binding.scope is None


def loader_of(facts: Facts, loop: cst.For | cst.While) -> cst.BaseExpression | None:
    """Return where a loop's batches can be split over the ranks: its ``DataLoader(...)`` call.

    The call is followed through enumerate, tqdm and the like. Of a loader that is a parameter, or that
    Accelerate gets as well, the batches are split where the loop iterates over it.
    """
    if isinstance(loop, cst.While):
        return None
    with_accelerate = facts.once(_uses_accelerate)
    source: cst.BaseExpression = loop.iter
    for _ in range(8):
        if isinstance(source, cst.Name):
            binding = facts.binding(source)
            if binding is None:
                return None
            if isinstance(binding.node, cst.Param) or with_accelerate:
                return source if facts.kind(source) == "loader" else None
            if binding.value is None:
                return None
            source = _returned(facts, binding) or binding.value
        elif isinstance(source, cst.Call):
            if facts.kind(source) == "loader":
                return source
            if facts.qualified(source.func).rpartition(".")[2] not in _ITERATING or not source.args:
                return None
            source = source.args[0].value
        else:
            return None
    return None


def _uses_accelerate(facts: Facts) -> bool:
    return any(facts.kind(call) == "accelerator" for call in facts.live_calls)


def _returned(facts: Facts, binding: Binding) -> cst.BaseExpression | None:
    """Return what ``a, b = make()`` binds to ``a`` if the notebook's ``make`` ends with ``return x, y``."""
    if binding.index is None or not isinstance(binding.value, cst.Call):
        return None
    for function in facts.called_functions(binding.value):
        last = function.body.body[-1] if isinstance(function.body, cst.IndentedBlock) else None
        end = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
        if isinstance(end, cst.Return) and isinstance(end.value, cst.Tuple):
            return (
                end.value.elements[binding.index].value if binding.index < len(end.value.elements) else None
            )
    return None


def loss_of(node: cst.BaseExpression) -> cst.Name | cst.Attribute | None:
    """Return ``loss`` of ``loss.backward()``, ``(loss / 4).backward()``, ``scaler.scale(loss).backward()``.

    ``outputs.loss`` is returned as well.
    """
    match node:
        case cst.Name() | cst.Attribute(value=cst.Name(), attr=cst.Name("loss")):
            return node
        case cst.BinaryOperation(left=left):
            return loss_of(left)
        case cst.Call(args=[cst.Arg(value=value), *_]):
            return loss_of(value)
        case _:
            return None
