"""Find what a hand-written loop trains, how its loss is computed, and where its batches come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Statement

_OPTIMIZER = re.compile(
    r"Adam|SGD|Optim|Lion|Adafactor|RMSprop|Adagrad|Adadelta|LAMB|Lamb|LARS|Sophia|Prodigy|Muon|AdaBelief|Rprop|Shampoo|LBFGS"
    r"|(?i:optim)"
)
WITHOUT_GRADIENTS = ("no_grad", "inference_mode")
_PARAMETERS = ("parameters", "named_parameters")

_ITERATING = frozenset("enumerate tqdm iter zip track progress_bar trange".split())


def without_gradients(facts: Facts, node: cst.CSTNode, until: cst.CSTNode | None = None) -> bool:
    """Return whether a node is in a ``with torch.no_grad():``, or a function that is marked so, inside ``until``."""
    for parent in facts.parents(node):
        if parent is until:
            return False
        if isinstance(parent, cst.With) and any(names_switch(item.item) for item in parent.items):
            return True
        if isinstance(parent, cst.FunctionDef) and any(map(names_switch, parent.decorators)):
            return True
    return False


def names_switch(node: cst.CSTNode) -> bool:
    """Return whether an expression switches gradients off."""
    return any(name in cst_nodes.code_of(node) for name in WITHOUT_GRADIENTS)


@dataclass(frozen=True)
class Optimized:
    """A model whose parameters an optimizer is given, and the statement that makes the optimizer.

    Of several models, ``each`` goes through them: ``for model in models``; and ``models`` holds them. ``once`` says
    that nothing can go through them again: they come from an iterator.
    """

    model: cst.BaseExpression
    statement: Statement
    each: str = ""
    models: cst.BaseExpression | None = None
    once: bool = False


def optimized_models(facts: Facts) -> Iterator[Optimized]:
    """Yield the models whose parameters an optimizer is given.

    ``Adam(model.parameters())`` gives ``model``, also through lists of parameters that have a name and through
    the notebook's functions; ``self.model.head.parameters()`` gives ``self.model``, and so does
    ``[p for layer in self.model.layers for p in layer.parameters()]``.
    """
    for call in facts.live_calls:
        if not _makes_optimizer(facts, call) or facts.is_after_training(call):
            continue
        seen: set[str] = set()
        for owner in _owners(facts, [argument.value for argument in call.args], depth=4):
            found = _optimized(facts, _root(facts, owner), facts.statement(call))
            code = f"{cst_nodes.code_of(found.model)} {found.each}"
            if code not in seen:
                seen.add(code)
                yield found


def _optimized(facts: Facts, model: cst.BaseExpression, statement: Statement) -> Optimized:
    """Return what is trained where a model's name is the variable of a loop or a comprehension."""
    clauses = _clauses(facts, model, statement) if isinstance(model, cst.Name) else []
    if not clauses:
        return Optimized(model, statement)
    last = clauses[-1]
    source = _source(last.iterated, last.target, cst_nodes.code_of(model))
    root = _root(facts, source)
    holder = facts.binding(root)
    made = holder.value if holder is not None else None
    holds = isinstance(made, cst.Call) and facts.qualified(made.func).endswith(("ModuleList", "ModuleDict"))
    whole = cst_nodes.code_of(root) == cst_nodes.code_of(source)
    if not whole or (facts.kind(root) == "model" and not holds):
        return Optimized(root, statement)
    each = " ".join(clause.code for clause in clauses)
    names = (name for clause in clauses for name in facts.name_loads_in(clause.iterated))
    return Optimized(model, statement, each, source, any(_is_iterator(facts, name) for name in names))


@dataclass(frozen=True)
class _Clause:
    """A ``for`` of a loop or a comprehension, with the conditions that follow it there."""

    target: cst.BaseExpression
    iterated: cst.BaseExpression
    conditions: Sequence[cst.CompIf] = ()

    @property
    def code(self) -> str:
        conditions = "".join(f" if {cst_nodes.code_of(each.test)}" for each in self.conditions)
        return f"for {cst_nodes.code_of(self.target)} in {cst_nodes.code_of(self.iterated)}{conditions}"


def _is_iterator(facts: Facts, name: cst.Name) -> bool:
    """Return whether a name is bound to what is empty once it has been gone through."""
    value = facts.bound(name)
    if not isinstance(value, cst.Call):
        return isinstance(value, cst.GeneratorExp)
    functions = facts.called_functions(value)
    generators = (f.name.value for f in functions if facts.nodes(cst.Yield, within=f.body))
    called = facts.qualified(value.func).rpartition(".")[2] or facts.method(value)
    return called in _ITERATORS or cst_nodes.code_of(value.func) in generators


_ITERATORS = frozenset("chain enumerate filter islice iter map reversed zip".split())


def _clauses(facts: Facts, name: cst.Name, statement: Statement) -> list[_Clause]:
    """Return the ``for``s of a comprehension, or the loop before a statement, up to the one that binds a name."""
    if (part := facts.comprehension(name)) is not None:
        outer = [parent for parent in facts.parents(part) if isinstance(parent, cst.CompFor)]
        return [_Clause(each.target, each.iter, each.ifs) for each in (*reversed(outer), part)]
    binding = facts.binding(name)
    loop = binding.node if binding is not None else None
    if isinstance(loop, cst.For) and not facts.contains(loop, statement):
        return [_Clause(loop.target, loop.iter)]
    return []


def _source(iterated: cst.BaseExpression, target: cst.BaseExpression, name: str) -> cst.BaseExpression:
    """Return what the values of a name come from: ``models`` of ``enumerate(models)`` and of ``models.items()``."""
    if isinstance(iterated, cst.Subscript) and isinstance(iterated.value, cst.Call):
        iterated = iterated.value  # list(model.children())[-2:]
    if not isinstance(iterated, cst.Call):
        return iterated
    if isinstance(iterated.func, cst.Attribute):
        holder = iterated.func.attr.value in ("items", "values")
        return iterated.func.value if holder else iterated.func
    unnamed = cst_nodes.unnamed(iterated.args)
    names = [cst_nodes.code_of(e.value) for e in target.elements] if isinstance(target, cst.Tuple) else []
    function = cst_nodes.code_of(iterated.func)
    zipped = function == "zip" and name in names[: len(unnamed)]
    place = names.index(name) if zipped else -1 if function == "filter" else 0
    inner = unnamed[place] if unnamed else iterated
    return inner if inner is iterated else _source(inner, target, name)


def _makes_optimizer(facts: Facts, call: cst.Call) -> bool:
    """Match ``torch.optim.Adam(...)``, ``optimizer_class(...)`` and ``getattr(torch.optim, name)(...)``.

    A class that comes from a table or an argument is known by what is done with the object: ``solver.step()``.
    """
    name = facts.qualified(call.func).rpartition(".")[2] or cst_nodes.code_of(call.func)
    if _OPTIMIZER.search(name) is not None:
        return True
    if name in _PASSING or not _is_given_parameters(facts, call):
        return False
    return not facts.once(_stepped).isdisjoint(_names_of_result(facts, call))


_PASSING = frozenset(
    "all any chain dict enumerate filter iter len list map max min next set sum tuple zip".split()
)


def _is_given_parameters(facts: Facts, call: cst.Call) -> bool:
    given = [inner for argument in call.args for inner in facts.calls_in(argument)]
    return any(facts.method(inner) in _PARAMETERS for inner in given)


def _stepped(facts: Facts) -> frozenset[str]:
    """Return the last names of what takes steps: ``opt`` of ``self.opt.step()`` and ``scaler.step(self.opt)``.

    ``ema.step(model.parameters())`` is told the parameters by hand: no optimizer's step.
    """
    steps = [call for call in facts.live_calls if facts.method(call) == "step"]
    steps = [call for call in steps if not _is_given_parameters(facts, call)]
    owners = [cst.ensure_type(call.func, cst.Attribute).value for call in steps]
    return frozenset(
        filter(None, map(_last_name, [*owners, *(a.value for call in steps for a in call.args)]))
    )


def _names_of_result(facts: Facts, call: cst.Call, depth: int = 2) -> Iterator[str]:
    """Yield the last names that a call's result is bound to, also where a function of the notebook returns it."""
    statement = facts.parent(call)
    if isinstance(statement, cst.Assign):
        yield from filter(None, (_last_name(target.target) for target in statement.targets))
    elif isinstance(statement, cst.Return) and depth:
        function = facts.around(call, cst.FunctionDef)
        for caller in facts.callers(function) if function is not None else ():
            yield from _names_of_result(facts, caller, depth - 1)


def _last_name(node: cst.BaseExpression) -> str:
    node = node.attr if isinstance(node, cst.Attribute) else node
    return node.value if isinstance(node, cst.Name) else ""


def _owners(facts: Facts, nodes: Sequence[cst.CSTNode], depth: int) -> Iterator[cst.BaseExpression]:
    """Yield ``m`` of each ``m.parameters()`` in nodes, or in what the names in them were bound to."""
    for node in nodes:
        for call in facts.calls_in(node):
            if facts.method(call) in _PARAMETERS:
                yield cst.ensure_type(call.func, cst.Attribute).value
            else:
                yield from _handed_over(facts, call)
        if depth:
            for name in facts.name_loads_in(node):
                if facts.kind(name) != "model" and facts.comprehension(name) is None:
                    yield from _owners(facts, [*_values(facts, name)], depth - 1)


def _values(facts: Facts, name: cst.Name) -> Iterator[cst.CSTNode]:
    """Yield what a name was bound to, what it iterates over, and what was added to its list."""
    binding = facts.binding(name)
    if binding is None:
        return
    beside = [b for b in facts.bindings(name.value) if b.scope is binding.scope and b.order <= binding.order]
    for earlier in reversed(beside):  # `params = [...]; params += [...]`
        if not isinstance(earlier.node, cst.AugAssign):
            break
        yield earlier.node.value
    else:
        return
    if isinstance(earlier.node, cst.For):
        yield earlier.node.iter
    elif earlier.value is not None:
        yield earlier.value
    for use in facts.loads_of(name.value):
        if earlier.order < facts.order(use) < facts.order(name) and facts.binding(use) is binding:
            adding = facts.parent(use)
            call = facts.parent(adding) if isinstance(adding, cst.Attribute) else None
            if isinstance(call, cst.Call) and facts.method(call) in ("append", "extend", "update"):
                yield from (argument.value for argument in call.args)


def _handed_over(facts: Facts, call: cst.Call) -> Iterator[cst.BaseExpression]:
    """Yield the arguments whose ``parameters()`` a function of the notebook takes: of ``groups_of(model)``."""
    if not isinstance(call.func, cst.Name):
        return
    for function in facts.called_functions(call):
        if function.name.value != call.func.value:
            continue
        for inner in facts.calls_in(function.body):
            if facts.method(inner) not in _PARAMETERS:
                continue
            owner = _root(facts, cst.ensure_type(inner.func, cst.Attribute).value)
            if isinstance(owner, cst.Name):
                given = facts.passes(function, owner.value, call)
                if given is not None:
                    yield given


def _root(facts: Facts, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the whole model of a part: ``model`` for ``model.head``, ``self.net`` for ``self.net.head``.

    Of a dict of models, ``models["a"]``.
    """
    chain = [node]
    while isinstance(chain[-1], cst.Attribute | cst.Subscript):
        chain.append(chain[-1].value)
    root = chain[-1]
    if not isinstance(root, cst.Name):
        return node
    return chain[-2] if len(chain) > 1 and _only_holds(facts, root, chain[-2]) else root


def _only_holds(facts: Facts, root: cst.Name, part: cst.BaseExpression) -> bool:
    """Return whether a name holds a model and is none itself: ``self``, a list, an instance of a plain class."""
    kind = facts.kind(root)
    if kind == "model":
        return False
    if kind or isinstance(part, cst.Subscript) or root.value == "self":
        return True
    value = facts.bound(root)
    made = value.func if isinstance(value, cst.Call) else None
    own = facts.bindings(made.value) if isinstance(made, cst.Name) else ()
    return any(isinstance(definition.node, cst.ClassDef) for definition in own)


def loader_of(facts: Facts, loop: cst.For | cst.While) -> cst.BaseExpression | None:
    """Return the expression at which a loop's batches can be split over the ranks: its ``DataLoader(...)`` call.

    The loader is followed through enumerate, tqdm and the like. If it is a function's parameter, or is also
    given to Accelerate, the expression is the one that the loop iterates over.
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
    """Return ``x`` for ``a`` of ``a, b = make()``, if the notebook's function ends with ``return x, y``."""
    if binding.index is None or not isinstance(binding.value, cst.Call):
        return None
    for function in facts.called_functions(binding.value):
        for value in facts.returned(function)[-1:]:
            if isinstance(value, cst.Tuple) and binding.index < len(value.elements):
                return value.elements[binding.index].value
    return None
