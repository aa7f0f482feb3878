"""Find what a Trainer's micro-batch reads of the micro-batches before it in the same step.

Each rank computes some micro-batches of a step alone. It does not have the gradients that other ranks' micro-batches
have left, nor what these wrote into the notebook's own variables: a loss that begins to read them in a later step is
another one, and no check of the first step can show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst
from libcst import matchers as m

from nb2ddp.analysis import micro_batches
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.source import cst_nodes

_STEPS = ("compute_loss", "training_step", "forward")
_CHANGES = frozenset(
    "add append appendleft clear discard extend insert pop popitem popleft put remove setdefault update".split()
)
_GIVES = frozenset({"pop", "popitem", "popleft", "setdefault"})
_OF_GRADIENTS = ("clip_grad_norm_", "clip_grad_value_", "get_total_norm")


@asked_once
def earlier_reads(facts: Facts) -> tuple[tuple[cst.CSTNode, str], ...]:
    """Return where a micro-batch reads what earlier ones left, each with what that is; once for each."""
    functions = micro_batches.functions(facts, _STEPS)
    between = micro_batches.functions(facts, ("on_substep_end",))
    found = [
        (node, "the gradients") for function in (*functions, *between) for node in _gradients(facts, function)
    ]
    found += [(node, f"`{name}`") for node, name in _values(facts, functions)]
    once = {what: (node, what) for node, what in reversed(found)}
    return tuple(once.values())


def _gradients(facts: Facts, function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yield where a function reads or clips gradients, which are sums over micro-batches."""
    for node in m.findall(function.body, m.Attribute(attr=m.Name("grad"))):
        parent = facts.parent(node)
        is_call = isinstance(parent, cst.Call) and parent.func is node  # torch.autograd.grad
        if not is_call and not isinstance(parent, cst.AssignTarget):
            yield node
    yield from (call for call in facts.calls_in(function.body) if facts.method(call) in _OF_GRADIENTS)


@dataclass
class _Uses:
    """The places where functions change and read one variable."""

    changes: list[cst.CSTNode] = field(default_factory=list)
    reads: list[cst.CSTNode] = field(default_factory=list)


def _values(facts: Facts, functions: list[cst.FunctionDef]) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield reads of the notebook's own variables that these functions change, with their names."""
    uses: dict[str, _Uses] = defaultdict(_Uses)
    for function in functions:
        if _is_of_new_object(facts, function, functions):
            continue
        for node in m.findall(function.body, m.Name() | m.Attribute(value=m.Name("self"))):
            if name := _variable(facts, function, node):
                _sort(facts, node, name, uses[name])
    for name, use in uses.items():
        if all(_fills_once(facts, change, name) for change in use.changes):
            continue
        yield from ((read, name) for read in use.reads if not _follows_own(facts, read, name, use.changes))


def _is_of_new_object(facts: Facts, method: cst.FunctionDef, functions: list[cst.FunctionDef]) -> bool:
    """Return whether a method is of a class whose objects end with the micro-batches that make them: a loss, say."""
    home = facts.scope(method)
    made = facts.calls_of(home.name.value) if isinstance(home, cst.ClassDef) else ()
    return bool(made) and all(
        facts.scope(call) in functions and _is_used_at_once(facts, call) for call, _ in made
    )


def _is_used_at_once(facts: Facts, made: cst.Call) -> bool:
    """Match ``Loss(2)(x)``, and ``loss = Loss(2)`` where that name is only called."""
    around, function = facts.parent(made), facts.scope(made)
    if isinstance(around, cst.Assign) and isinstance(function, cst.FunctionDef):
        names = [target.target for target in around.targets]
        uses = [use for name in names for use in facts.uses(cst_nodes.code_of(name), function.body)]
        used = [facts.parent(use) for use in uses if use not in names]
        local = all(isinstance(name, cst.Name) and _variable(facts, function, name) == "" for name in names)
        return local and all(isinstance(use, cst.Call | cst.Attribute) for use in used)
    return isinstance(around, cst.Call | cst.Attribute)


def _variable(facts: Facts, function: cst.FunctionDef, node: cst.CSTNode) -> str:
    """Return the name of a variable that outlasts a call of the function; "" for all else."""
    parent = facts.parent(node)
    if isinstance(node, cst.Attribute):
        return cst_nodes.code_of(node)
    if not isinstance(node, cst.Name) or (isinstance(parent, cst.Attribute) and parent.attr is node):
        return ""
    if isinstance(parent, cst.Arg) and parent.keyword is node:
        return ""
    scopes = [binding.scope for binding in facts.bindings(node.value)]
    return node.value if None in scopes and function not in scopes else ""


def _sort(facts: Facts, node: cst.CSTNode, name: str, use: _Uses) -> None:
    """Note whether a variable is changed or read where it stands."""
    top, parent = node, facts.parent(node)
    while (
        isinstance(parent, cst.Subscript | cst.Attribute)
        and parent.value is top
        and not _is_called(facts, parent)
    ):
        top, parent = parent, facts.parent(parent)
    if isinstance(parent, cst.AugAssign) and parent.target is top:
        # a counter stands where it does in one process
        if not (top is node and isinstance(parent.value, cst.Integer)):
            use.changes.append(parent)
    elif (target := _target(facts, top)) is not None:
        use.changes.append(target)
    elif isinstance(parent, cst.Attribute) and _changes_in_place(parent.attr.value):
        use.changes.append(parent)
        call = facts.parent(parent)
        if parent.attr.value in _GIVES and call is not None and not isinstance(facts.parent(call), cst.Expr):
            use.reads.append(node)
    else:
        use.reads.append(node)


def _is_called(facts: Facts, node: cst.CSTNode) -> bool:
    call = facts.parent(node)
    return isinstance(call, cst.Call) and call.func is node


def _target(facts: Facts, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the target of an assignment, or the deletion, that a node is a part of as a whole."""
    parent = facts.parent(node)
    while isinstance(parent, cst.Element | cst.Tuple | cst.List):
        node, parent = parent, facts.parent(parent)
    if isinstance(parent, cst.AnnAssign) and parent.target is not node:
        return None
    return parent if isinstance(parent, cst.AssignTarget | cst.AnnAssign | cst.Del) else None


def _changes_in_place(method: str) -> bool:
    return method in _CHANGES or (method.endswith("_") and not method.endswith("__"))


def _fills_once(facts: Facts, change: cst.CSTNode, name: str) -> bool:
    """Return whether a change only makes what is not there yet: a table of weights, say."""
    for above in facts.parents(change):
        if isinstance(above, cst.If):
            test = cst_nodes.code_of(above.test)
            asks = "None" in test or "hasattr" in test or test.startswith("not ")
            if asks and name.rpartition(".")[2] in test:
                return True
    return False


def _follows_own(facts: Facts, read: cst.CSTNode, name: str, changes: list[cst.CSTNode]) -> bool:
    """Return whether a read is of what the same micro-batch has set, or goes into the variable itself."""
    for change in changes:
        whole = facts.parent(change) if isinstance(change, cst.AssignTarget) else change
        if isinstance(whole, cst.Assign | cst.AnnAssign | cst.AugAssign) and facts.contains(whole, read):
            return True
        block = facts.parent(facts.statement(change))
        if (
            isinstance(change, cst.AssignTarget)
            and cst_nodes.code_of(change.target) == name
            and facts.scope(change) is facts.scope(read)
            and block is getattr(facts.scope(change), "body", None)
            and facts.order(change) < facts.order(read)
        ):
            return True
    return False
