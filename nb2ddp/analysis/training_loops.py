"""Find what says by its name what a hand-written loop trains, and the statements that train.

The run finds the models of all other optimizers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement, last_name, root_of

_OPTIMIZER = re.compile(
    r"Adam|SGD|Lion|Adafactor|RMSprop|Adagrad|Adadelta|LAMB|Lamb(?!da)|LARS|Sophia|Prodigy|Muon|AdaBelief|Rprop|Shampoo|LBFGS"
    r"|(?i:optimi[sz]er|optim\b|optim_)"
)
_ADAPTER = re.compile("lora|peft|adapter", re.IGNORECASE)
_ALL_NAMES = re.compile(r"(?:globals|locals|vars)\(\)|(?:exec|eval)\(")
_CONDITIONAL = (cst.IfExp, cst.BooleanOperation, cst.Lambda)


# ---- optimizers ----------------------------------------------------------------------------------


@asked_once
def optimizers(facts: Facts) -> list[cst.Call]:
    """List the calls that make an optimizer, by the name of what is called or by the steps that its result takes.

    Those that a module makes for Lightning's Trainer are not of a loop: the run finds what they train.
    """
    made = [c for c in facts.live_calls if _makes_optimizer(facts, c) and not facts.is_after_training(c)]
    homes = {call: facts.around(call, cst.ClassDef) for call in made if facts.lightning_fits}
    return [c for c in made if not ((home := homes.get(c)) and "LightningModule" in str(facts.bases(home)))]


def _makes_optimizer(facts: Facts, call: cst.Call) -> bool:
    """Match ``torch.optim.Adam(...)``, ``make_optimizer(...)``, and ``opt = kind(...)`` beside ``opt.step()``."""
    name, made = facts.qualified(call.func).rpartition(".")[2], facts.parent(call)
    if _OPTIMIZER.search(name or last_name(call.func) or cst_nodes.code_of(call.func)) is not None:
        return not (isinstance(made, cst.Expr) and facts.called_functions(call))  # `optimizer_step(loss)`
    names = {last_name(target.target) for target in made.targets} if isinstance(made, cst.Assign) else set()
    return not names.isdisjoint(facts.once(_stepped)) and bool(given_models(facts, call))


def _stepped(facts: Facts) -> frozenset[str]:
    """Return the last names of what takes steps: ``opt`` of ``self.opt.step()`` and ``scaler.step(self.opt)``.

    ``ema.step(model.parameters())`` is no optimizer's step.
    """
    steps = [c for c in facts.live_calls if facts.method(c) == "step" and not given_models(facts, c)]
    owners = [cst.ensure_type(call.func, cst.Attribute).value for call in steps]
    given = (argument.value for call in steps for argument in call.args)
    return frozenset(map(last_name, (*owners, *given))) - {""}


def given_models(facts: Facts, call: cst.Call) -> list[cst.BaseExpression]:
    """List ``m`` of each ``m.parameters()`` in the arguments of a call."""
    given = [inner for argument in call.args for inner in facts.calls_in(argument)]
    return [o for c in given if facts.method(c) in libraries.PARAMETER_METHODS and (o := facts.owner(c))]


@dataclass(frozen=True)
class Named:
    """A model that an optimizer is given by its name, and a place where the model exists before it trains."""

    model: cst.BaseExpression
    statement: Statement
    where: Literal["before", "after"]


def named_models(facts: Facts, optimizer: cst.Call) -> list[Named]:
    """List the models whose names say that an optimizer trains them: ``model`` and ``self.model``.

    A part of a model is left to the run, and so is what may have no value: the variable of a comprehension, say.
    """
    statement = facts.statement(optimizer)
    if not isinstance(statement, cst.SimpleStatementLine):
        return []
    made = facts.parent(optimizer)
    goes_on = isinstance(made, cst.Assign) and not isinstance(statement.body[-1], cst.Return)
    found = []
    for model in given_models(facts, optimizer):
        binding = facts.binding(root_of(model))
        is_bound = goes_on or binding is None or binding.order < facts.order(statement)
        if is_bound and _has_value(facts, model, optimizer):
            found.append(Named(model, statement, "after" if goes_on else "before"))
    return found


def _has_value(facts: Facts, model: cst.BaseExpression, optimizer: cst.Call) -> bool:
    """Return whether a model is named, and its name is read wherever the optimizer is made."""
    root = root_of(model)
    named = isinstance(model, cst.Name) or (isinstance(model, cst.Attribute) and model.value is root)
    if not (named and isinstance(root, cst.Name) and (facts.binding(root) or facts.is_imported(root.value))):
        return False
    loops = facts.nodes(cst.CompFor, within=optimizer)
    of_loop = root.value in {name.value for o in loops for name in facts.nodes(cst.Name, within=o.target)}
    is_other = of_loop or (isinstance(model, cst.Attribute) and root.value != "self")
    between = (parent for parent in facts.parents(model) if facts.contains(optimizer, parent))
    in_lambda = isinstance(facts.scope(optimizer), cst.Lambda)
    return not (is_other or in_lambda or any(isinstance(parent, _CONDITIONAL) for parent in between))


def trains_whole(facts: Facts, loads: Collection[cst.Call]) -> bool:
    """Return whether weights that these calls load are trained themselves, and no call makes adapters, by its name.

    What a library's function makes of a model may be frozen.
    """
    if not loads or any(_makes_adapter(facts, call) for call in facts.live_calls):
        return False
    models = [model for call in optimizers(facts) for model in given_models(facts, call)]
    made = (call for call in facts.live_calls if facts.is_trainer_class(call.func))
    models += filter(None, (cst_nodes.given(call, 0, "model") for call in made))
    own = [m for m in models if not isinstance(m, cst.Name) or facts.kind(m) == "model"]
    return any(facts.is_made_of(model, call) for model in own for call in loads)


def _makes_adapter(facts: Facts, call: cst.Call) -> bool:
    """Match ``get_peft_model(...)`` and ``peft_config=x`` that run, and ``LoraConfig()`` where something uses it."""
    given = (a.keyword.value for a in call.args if a.keyword and facts.word(a.value) != "False")
    code, name = cst_nodes.code_of(call.func), facts.qualified(call.func)
    if not any(map(_ADAPTER.search, (code, name, *given))) or facts.is_switched_off(call):
        return False
    made = facts.parent(call) if (name or code).endswith("Config") else None
    names = {last_name(target.target) for target in made.targets} if isinstance(made, cst.Assign) else set()
    return not names or not all(facts.is_switched_off(use) for name in names for use in facts.loads_of(name))


# ---- training ------------------------------------------------------------------------------------


def backward_calls(facts: Facts) -> list[cst.Call]:
    """List the calls that give the gradients that loops train with, in order."""
    return [c for c in facts.live_calls if facts.is_backward(c) and not facts.is_after_training(c)]


def in_workers(facts: Facts) -> Iterator[tuple[cst.Call, str, str]]:
    """Yield calls that hand what trains, or a program, to a thread, process or widget: ``pool.map(train, x)``."""

    def starts(call: cst.Call) -> bool:
        return facts.qualified(call.func) in libraries.RUNNING_FUNCTIONS

    packages = {name.partition(".")[0] for name in libraries.WORKERS}
    for call in facts.live_calls if any(map(facts.imports_of, packages)) else ():
        made_by = {facts.qualified(call.func), *facts.origins(call.func)}
        known = {*made_by, *(name.partition(".")[0] for name in made_by)}
        where = next((libraries.WORKERS[name] for name in sorted(known) if name in libraries.WORKERS), "")
        trains = where and facts.runs(call, facts.is_collective if where == "widget" else facts.is_training)
        programs = where == "thread" and not facts.is_after_training(call) and facts.runs(call, starts)
        if call.args and (trains or programs):
            named = [f.name.value for inner in facts.calls_in(call) for f in facts.called_functions(inner)]
            texts = set(map(cst_nodes.string_value, facts.strings)) if "joblib.Parallel" in made_by else set()
            where = "thread" if {"threading", "threads", "sharedmem"} & texts else where  # of joblib
            yield call, next(iter(named), cst_nodes.one_line(call.func)), where if trains else "program"


def trains(facts: Facts, statement: cst.CSTNode) -> bool:
    """Return whether a statement runs a training loop: its own, or one of functions that it calls."""
    own = [call for call in facts.calls_in(statement) if facts.gives_gradients(call)]
    if own and facts.scope(own[0]) is facts.scope(statement):
        return (loop := facts.loop(own[0])) is not None and facts.contains(statement, loop)
    return facts.runs(statement, facts.is_backward)


def ends(facts: Facts, made: Iterable[cst.Call]) -> list[Statement]:
    """List the statements that train, of all optimizers; one in a loop that takes steps itself is a part of these."""
    named = (top for optimizer in made for top in trainings(facts, optimizer))
    places = [*dict.fromkeys(named)] or [s for s in facts.top_statements if trains(facts, s)]
    of = {c: [p for p in places if facts.contains(p, c)] for c in backward_calls(facts)}
    loops = [o for c in of for o in facts.loops(c) if of[c] and all(facts.contains(p, o) for p in of[c])]
    return [p for p in places if not any(loop is not p and facts.contains(loop, p) for loop in loops)]


def trainings(facts: Facts, optimizer: cst.Call) -> Iterator[Statement]:
    """Yield the statements that train in the innermost block around an optimizer, or around what calls its function."""
    for site in facts.sites(optimizer, stop=lambda site: bool(_trainings_beside(facts, site))):
        yield from _trainings_beside(facts, site)


def _trainings_beside(facts: Facts, site: cst.CSTNode) -> list[Statement]:
    """Return the statements that train in the innermost block around a call: those after it, or around it."""
    for parent in facts.parents(site):
        if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            break
        if isinstance(parent, cst.IndentedBlock | cst.Module):
            block = facts.top_statements if isinstance(parent, cst.Module) else parent.body
            if beside := [s for s in block if facts.end(s) >= facts.end(site) and trains(facts, s)]:
                return [facts.statement(s) for s in beside]
    return []


def read_outputs(facts: Facts, call: cst.Call) -> list[str]:
    """Return the keys and places, as code, of what is read of a call's outputs in a loop; none where it may be all."""
    read, codes = dict.fromkeys(_read(facts, call)), map(cst_nodes.code_of, facts.live_calls)
    is_loops = facts.training_loop(call) is not None and not facts.is_after_training(call)
    is_loops &= not facts.nodes(cst.Nonlocal, within=facts.scope(call) or call)
    return [*read] if is_loops and "" not in read and not any(map(_ALL_NAMES.match, codes)) else []


def _read(facts: Facts, outputs: cst.CSTNode) -> Iterator[str]:
    """Yield the keys and places, as code, of what is read of a call's outputs; "" where it may be any of them."""
    around = facts.parent(outputs)

    def loads(name: cst.Name) -> list[cst.Name]:
        uses = (use for use in facts.loads_of(name.value) if not facts.around(use, cst.Del))
        return [use for use in uses if around in ([b.node for b in facts.reaching(use)] or (around,))]

    match around:
        case cst.Attribute(attr=cst.Name(name)) if facts.called(around) is None:
            yield f'"{name}"'
        case cst.Subscript(slice=[key]) if re.fullmatch(r"""\d+|(["'])\w+\1""", cst_nodes.code_of(key)):
            yield cst_nodes.code_of(key).replace("'", '"')
        case cst.Assign(targets=[cst.AssignTarget(cst.Name() as name)]) if isinstance(outputs, cst.Call):
            yield from (key for load in loads(name) for key in _read(facts, load))
        case cst.Assign(targets=[cst.AssignTarget(cst.Tuple(elements=parts))]):
            read = [str(n) for n, p in enumerate(parts) if not isinstance(x := p.value, cst.Name) or loads(x)]
            yield from read if len(read) < len(parts) and all(type(p) is cst.Element for p in parts) else [""]
        case _:
            yield ""
