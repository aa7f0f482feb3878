"""What a hand-written loop trains, how its loss is made, and where its batches come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Statement

_OPTIMIZER = re.compile(
    r"Adam|SGD|Optim|Lion|Adafactor|RMSprop|Adagrad|Adadelta|LAMB|Lamb|LARS|Sophia|Prodigy|Muon|AdaBelief|Rprop|Shampoo|LBFGS"
)

_ITERATING = frozenset("enumerate tqdm iter zip track progress_bar trange".split())


def is_trained_call(facts: Facts, call: cst.Call, loop: cst.CSTNode) -> bool:
    """Not under ``with torch.no_grad()``."""
    for parent in facts.parents(call):
        if parent is loop:
            return True
        if isinstance(parent, cst.With) and any(
            "no_grad" in cst_nodes.code_of(item.item) or "inference_mode" in cst_nodes.code_of(item.item)
            for item in parent.items
        ):
            return False
    return False


def optimized_models(facts: Facts) -> Iterator[tuple[cst.BaseExpression, Statement]]:
    """Yield the models whose parameters an optimizer is given, each with the statement that makes the optimizer.

    ``Adam(model.parameters())`` gives ``model``, also through lists of parameters that have a name;
    ``self.model.head.parameters()`` gives ``self.model``.
    """
    for call in facts.live_calls:
        if not _OPTIMIZER.search(facts.qualified(call.func).rpartition(".")[2]) or facts.is_after_training(
            call
        ):
            continue
        seen: set[str] = set()
        for owner in _owners(facts, [argument.value for argument in call.args], depth=4):
            model = _root(facts, owner)
            code = cst_nodes.code_of(model)
            if code not in seen:
                seen.add(code)
                yield model, facts.statement(call)


def _owners(facts: Facts, nodes: Sequence[cst.CSTNode], depth: int) -> Iterator[cst.BaseExpression]:
    """Yield ``m`` of each ``m.parameters()`` in nodes, or in what the names in them were bound to."""
    for node in nodes:
        for call in facts.calls_in(node):
            if facts.method(call) in ("parameters", "named_parameters"):
                yield cst.ensure_type(call.func, cst.Attribute).value
        if depth == 0:
            continue
        for name in facts.loads_in(node):
            for use in facts.uses(name, node):
                binding = facts.binding(use)
                value = binding.value if binding is not None else None
                if value is not None and facts.kind(use) != "model":
                    yield from _owners(facts, [value], depth - 1)


def _root(facts: Facts, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the whole model of a part: ``model`` for ``model.head``, ``self.net`` for ``self.net.head``."""
    chain = [node]
    while isinstance(chain[-1], cst.Attribute | cst.Subscript):
        chain.append(chain[-1].value)
    if not isinstance(chain[-1], cst.Name):
        return node
    is_self = isinstance(facts.scope(chain[-1]), cst.FunctionDef) and chain[-1].value == "self"
    return chain[-2] if is_self and len(chain) > 1 else chain[-1]


def loader_of(facts: Facts, loop: cst.For | cst.While) -> cst.BaseExpression | None:
    """Where a loop's batches can be shared out: the ``DataLoader(...)`` call that they come from.

    It is followed through enumerate, tqdm and the like. A loader that came into a function, or that
    Accelerate gets as well, is shared out where the loop takes it.
    """
    if isinstance(loop, cst.While):
        return None
    with_accelerate = any(facts.kind(call) == "accelerator" for call in facts.live_calls)
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


def _returned(facts: Facts, binding: Binding) -> cst.BaseExpression | None:
    """What ``a, b = make()`` gives ``a``, where the notebook's own function ends with ``return x, y``."""
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
