"""Find what makes a Trainer's micro-batch more than its gradients: what it writes, remembers and reads of others.

Each rank computes some micro-batches of a step alone. What they leave in variables, print and log is put together;
what they write to files, trackers and logging handlers cannot be, so every rank has to compute all of them. So it is
where one reads the gradients or the variables that earlier ones have left: a rank does not have those of the others,
and no check of the first step can show a loss that begins to read them later.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst import matchers as m

from nb2ddp import libraries
from nb2ddp.analysis import rank_zero_work
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.source import cst_nodes

_TRACKERS = libraries.TRACKERS | {"wandb", "mlflow", "tensorboardX"}
_WRITERS = ("torch.utils.tensorboard", "csv.writer", "csv.DictWriter")
# Of logging: without one, nothing is written.
_HANDLERS = ("basicConfig", "addHandler", "dictConfig", "fileConfig")


@asked_once
def effects(facts: Facts) -> tuple[cst.Call, ...]:
    """Return the calls of a micro-batch that write to files, trackers or handlers of logging."""
    own = functions(facts, ("compute_loss", "training_step", "prediction_step", "forward"))
    calls = [call for function in own for call in facts.calls_in(function.body)]
    return tuple(dict.fromkeys(call for call in calls if _reaches_outside(facts, call)))


def functions(facts: Facts, steps: Sequence[str]) -> list[cst.FunctionDef]:
    """Return the methods of these names, and the functions of the notebook that they may call."""
    named = (b.node for name in steps for b in facts.definitions(name) if isinstance(b.scope, cst.ClassDef))
    waiting = [node for node in named if isinstance(node, cst.FunctionDef)]
    for call in facts.live_calls:
        given = facts.keyword(call, "compute_loss_func")
        waiting += facts.run_by(given) if given is not None else ()
    found = [*dict.fromkeys(waiting)]
    for function in found:  # which grow meanwhile
        called = (f for call in facts.calls_in(function.body) for f in facts.called_functions(call))
        found += dict.fromkeys(f for f in called if f not in found)
    return found


def _reaches_outside(facts: Facts, call: cst.Call) -> bool:
    if rank_zero_work.why_alone(facts, call) or rank_zero_work.tracks(facts, call, _TRACKERS):
        return True
    name = facts.qualified(call.func)
    if name == "print":
        return facts.keyword(call, "file") is not None
    if not isinstance(call.func, cst.Attribute):
        return False
    made_by = facts.origins(call.func.value)
    if any(of.startswith(_WRITERS) for of in made_by):
        return True
    if any(of.partition(".")[0] == "logging" for of in (name, *made_by)):
        return any(facts.method(other) in _HANDLERS for other in facts.live_calls)
    return facts.method(call) in ("write", "writelines", "execute", "executemany")


def rewards(facts: Facts, trainer: cst.Call) -> list[cst.FunctionDef]:
    """Return the reward functions of a Trainer."""
    given = facts.keyword(trainer, "reward_funcs")
    several = given.elements if isinstance(given, cst.List | cst.Tuple) else ()
    values = [element.value for element in several] or ([given] if given is not None else [])
    return [*dict.fromkeys(function for value in values for function in facts.run_by(value))]


# ---- what earlier micro-batches have left --------------------------------------------------------

_IN_PLACE = re.compile(rf"\w+(?<!_)_|put|{'|'.join(libraries.CHANGING_METHODS)}")  # methods
_OF_GRADIENTS = ("clip_grad_norm_", "clip_grad_value_", "get_total_norm")


@asked_once
def earlier_reads(facts: Facts) -> tuple[tuple[cst.CSTNode, str], ...]:
    """Return where a micro-batch reads what earlier ones left, each with what that is; once for each."""
    own = functions(facts, ("compute_loss", "training_step", "forward"))
    between = functions(facts, ("on_substep_end",))
    found = [(node, "the gradients") for function in (*own, *between) for node in _gradients(facts, function)]
    found += [(node, f"`{name}`") for node, name in _values(facts, own)]
    return tuple({what: (node, what) for node, what in reversed(found)}.values())


def _gradients(facts: Facts, function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yield where a function reads or clips gradients, which are sums over micro-batches."""
    reads = (of for of in m.findall(function.body, m.Attribute(attr=m.Name("grad"))) if not facts.called(of))
    yield from (read for read in reads if not isinstance(facts.parent(read), cst.AssignTarget))
    yield from (call for call in facts.calls_in(function.body) if facts.method(call) in _OF_GRADIENTS)


def _values(facts: Facts, functions: list[cst.FunctionDef]) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield reads of the notebook's own variables that these functions change, with their names."""
    changes, reads = defaultdict[str, list[cst.CSTNode]](list), defaultdict[str, list[cst.CSTNode]](list)
    for function in functions:
        for node in m.findall(function.body, m.Name() | m.Attribute(value=m.Name("self"))):
            if name := _variable(facts, function, node):
                change, is_read = _use(facts, node)
                changes[name] += [] if change is None else [change]
                reads[name] += [node] if is_read else []
    for name, nodes in reads.items():
        if not all(_fills_once(facts, change, name) for change in changes[name]):
            yield from ((node, name) for node in nodes if not _follows_own(facts, node, name, changes[name]))


def _variable(facts: Facts, function: cst.FunctionDef, node: cst.CSTNode) -> str:
    """Return the name of a variable that outlasts a call of the function; "" for all else."""
    parent = facts.parent(node)
    if isinstance(node, cst.Attribute):
        return cst_nodes.code_of(node)
    others = (getattr(parent, "attr", None), getattr(parent, "keyword", None))
    if not isinstance(node, cst.Name) or node in others:
        return ""
    scopes = [binding.scope for binding in facts.bindings(node.value)]
    return node.value if None in scopes and function not in scopes else ""


def _use(facts: Facts, node: cst.CSTNode) -> tuple[cst.CSTNode | None, bool]:
    """Return what changes a variable where it stands, and whether it is read there."""
    top = facts.whole(node, cst.Subscript, cst.Attribute)
    parent = facts.parent(top)
    if isinstance(parent, cst.AugAssign) and parent.target is top:  # what counts stands as in one process
        return None if top is node and isinstance(parent.value, cst.Integer) else parent, False
    if (target := _target(facts, top)) is not None:
        return target, False
    if isinstance(parent, cst.Attribute) and _IN_PLACE.fullmatch(parent.attr.value):
        call = facts.called(parent)
        is_used = call is not None and not isinstance(facts.parent(call), cst.Expr)
        return parent, is_used and not parent.attr.value.endswith("_")
    return None, True


def _target(facts: Facts, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the target of an assignment, or the deletion, that a node is a part of as a whole."""
    parent = facts.parent(node)
    while isinstance(parent, cst.Element | cst.Tuple | cst.List):
        node, parent = parent, facts.parent(parent)
    if isinstance(parent, cst.AnnAssign) and parent.target is not node:
        return None
    return parent if isinstance(parent, cst.AssignTarget | cst.AnnAssign | cst.Del) else None


def _fills_once(facts: Facts, change: cst.CSTNode, name: str) -> bool:
    """Return whether a change only makes what is not there yet: a table of weights, say."""
    tests = (cst_nodes.code_of(above.test) for above in facts.parents(change) if isinstance(above, cst.If))
    asks = (test for test in tests if "None" in test or "hasattr" in test or test.startswith("not "))
    return any(name.rpartition(".")[2] in test for test in asks)


def _follows_own(facts: Facts, read: cst.CSTNode, name: str, changes: list[cst.CSTNode]) -> bool:
    """Return whether a read is of what the same micro-batch has set, or goes into the variable itself."""
    for change in changes:
        whole = facts.parent(change) if isinstance(change, cst.AssignTarget) else change
        if isinstance(whole, cst.Assign | cst.AnnAssign | cst.AugAssign) and facts.contains(whole, read):
            return True
        scope, block = facts.scope(change), facts.parent(facts.statement(change))
        is_set = isinstance(change, cst.AssignTarget) and cst_nodes.code_of(change.target) == name
        first = facts.order(change) < facts.order(read) and block is getattr(scope, "body", None)
        if is_set and first and scope is facts.scope(read):
            return True
    return False
