"""Tell whether all ranks run the same code: statements that leave their block, functions that all ranks call."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import cache, partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import modules
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.outside import from_outside
from nb2ddp.analysis.solver import Solver
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement, root_of

# What a function has not made itself: a parameter, what a loop takes from it, another name or a part of a value.
_GIVEN = (cst.Param, cst.For, cst.Name, cst.Attribute, cst.Subscript)
# Of torch, what ends in "_" works in place.
_CHANGING = re.compile(r"(?:^|\.)(?:fit|fit_transform|next|setattr|__setattr__)$|[a-z]_$")
# Functions of packages that change the process; plots are rank 0's.
_OF_PROCESS = re.compile(
    r"(?!matplotlib|seaborn)[\w.]+\.(?:(?:set|use|enable|disable|filter)\w*|simplefilter|chdir|putenv|umask|signal)"
)
_RUNS_IT = re.compile(r"no_grad|inference_mode|contextmanager$|^staticmethod$|^classmethod$")


def leaves(facts: Facts, statement: cst.CSTNode) -> bool:
    """Return whether ``break``, ``continue``, ``return`` or ``yield`` leads out of a statement."""
    if facts.nodes(cst.Return, cst.Yield, within=statement, own=True):
        return True
    loops = map(facts.loop, facts.nodes(cst.Break, cst.Continue, within=statement, own=True))
    return any(loop is None or not facts.contains(statement, loop) for loop in loops)


def parts_ranks(facts: Facts, statement: cst.CSTNode) -> bool:
    """Return whether a rank that skips a statement goes another way, or has other values, than those that run it."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) > 1:
        return True  # what else stands on its line
    return leaves(facts, statement) or binds_for_later(facts, statement) or changes_state(facts, statement)


def binds_for_later(facts: Facts, statement: cst.CSTNode) -> bool:
    """Return whether a statement of a function gives names values that the function reads elsewhere."""
    scope = facts.scope(statement)
    own = (b for b in facts.bindings_in(statement) if b.scope is scope)
    names = (b.name for b in own if not isinstance(b.node, cst.WithItem))
    uses = (use for name in names for use in facts.uses(name, scope)) if scope is not None else ()
    return any(not facts.contains(statement, use) for use in uses)


def changes_state(facts: Facts, statement: cst.CSTNode, *, names: bool = True) -> bool:
    """Return whether a statement changes values that code outside it sees: a list, a count, a random generator.

    A ``with`` that writes a file may do so: ``f.write(row); rows.append(row)``. So may the functions that it calls.
    Without ``names`` only attributes count, and what such functions change.
    """
    return facts.once(_changing_all if names else _changing_objects).solve((facts, statement))


def _changing(_: Facts, *, names: bool) -> Solver[tuple[Facts, cst.CSTNode], bool]:
    """Return what tells of a statement, an expression and the body of a function whether it changes such values."""

    def steps(key: tuple[Facts, cst.CSTNode]) -> Generator[tuple[Facts, cst.CSTNode], bool, bool]:
        facts, node = key
        called = isinstance(node, cst.BaseSuite)  # the body of a function, which has made what is its own
        if called and facts.nodes(cst.Global, cst.Nonlocal, within=node):
            return True
        acts = (c for c in facts.calls_in(node) if called and names and isinstance(facts.parent(c), cst.Expr))
        owners = (root_of(c.func) for c in acts if facts.method(c) not in libraries.KEEPING_METHODS)
        seen = {root_of(c.func) for c in facts.calls_in(node) if any(modules.functions_of(facts, c))}  # below
        changed = facts.changes_in(node) - set(map(cst_nodes.code_of, seen))
        for name in changed.union(map(cst_nodes.code_of, owners)) if called or names else ():
            own = [b for b in facts.bindings(name) if called and b.scope is facts.scope(node)]
            given = any(isinstance(of, _GIVEN) for b in own for of in (b.node, b.value))
            if given or not (own or all(facts.contains(node, b.node) for b in facts.bindings(name))):
                return True
        for call in facts.calls_in(node):
            name = facts.qualified(call.func)
            fits = _CHANGING.search(name or facts.method(call)) is not None or changes_process(facts, call)
            fits |= name == "vars" and facts.changes(call)
            sets = not called and facts.changes_model(call)  # a function that evaluates sets it back
            if sets or (names and (fits or _draws_from_own(facts, call))):
                return True
            for of, function in modules.called(facts, call):
                is_new = function.name.value in ("__init__", "__post_init__")  # what these set
                if not is_new and (yield (of, function.body)):
                    return True
        attributes = facts.nodes(cst.Attribute, within=node)
        return any(facts.changes(a) or isinstance(facts.parent(a), cst.AssignTarget) for a in attributes)

    return Solver(steps, False)


_changing_all, _changing_objects = partial(_changing, names=True), partial(_changing, names=False)


def changes_process(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.chdir(path)``, ``warnings.simplefilter("error")`` and the like, which every rank has to do."""
    return facts.is_of_import(call.func) and _OF_PROCESS.fullmatch(facts.qualified(call.func)) is not None


def _draws_from_own(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call may draw from a generator that the notebook has made: ``rng.normal()``, ``f(rng)``.

    The process's own generators are alike on all ranks after a block that rank 0 runs.
    """
    names = (of for of in (facts.owner(call), *(a.value for a in call.args)) if isinstance(of, cst.Name))
    made = any(not facts.origins(name).isdisjoint(libraries.GENERATORS) for name in names)
    return made or facts.keyword(call, "generator") is not None


def is_used_later(facts: Facts, statement: cst.CSTNode, last: Statement) -> bool:
    """Return whether names that a statement of a cell binds, but for files of a ``with``, are read outside it."""
    items = statement.items if isinstance(statement, cst.With) else ()
    files = {cst_nodes.code_of(item.asname.name) for item in items if item.asname is not None}
    names = facts.binds_in(statement) - files
    return any(facts.is_read_outside(name, statement, until=last) for name in names)


def called_by_all(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether what runs the function around ``node`` runs it on every rank.

    It does where functions call one another by name, up to the cells, and methods of the notebook's plain classes.
    So do a Trainer's callbacks and Lightning's modules. A function that is passed on (a metric, say), another method
    that a library calls, an ``except`` without training, and a loop that waits may run on one rank alone. What is only
    called after training, rank 0 runs.
    """
    callers = cache(partial(_callers, facts))
    return all(_leads(facts, site, callers) for site in facts.sites(node, callers=callers))


def _leads(facts: Facts, site: cst.CSTNode, callers: Callable[[cst.FunctionDef], Sequence[cst.Call]]) -> bool:
    """Return whether all ranks come to a site that come to its function, and they all do, as far as can be seen."""
    for parent in facts.parents(site):
        waits = isinstance(parent, cst.While) and _waits(facts, parent)
        waits |= isinstance(parent, cst.ExceptHandler) and not facts.runs(parent, facts.is_training)
        if waits or isinstance(parent, cst.Lambda | cst.ClassDef):
            return False
        if isinstance(parent, cst.FunctionDef):
            home, name = facts.scope(parent), parent.name.value  # an event: `on_epoch_end`, `training_step`
            of_trainer = isinstance(home, cst.ClassDef) and any(map(_HAS_EVENTS.search, facts.bases(home)))
            is_event = of_trainer and _EVENTS.match(name) is not None and name not in _OF_A_MICRO_BATCH
            return is_event or bool(callers(parent))
    return True


def makes_folder(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call makes a folder."""
    return facts.qualified(call.func) in ("os.makedirs", "os.mkdir") or facts.method(call) == "mkdir"


def _waits(facts: Facts, loop: cst.While) -> bool:
    """Return whether a loop in which nothing trains waits for the clock, a file or another process.

    A rank may go round more often than another. One that makes a folder looks for a free name, and waits for nothing.
    """
    goes_on = facts.runs(loop, lambda call: facts.is_training(call) or makes_folder(facts, call))
    ways_out = facts.nodes(cst.Break, cst.Return, cst.Raise, within=loop.body)
    ends = [asked.test for node in ways_out if (asked := facts.around(node, cst.If)) is not None]
    return not goes_on and any(facts.carries(test, from_outside) for test in (loop.test, *ends))


def _callers(facts: Facts, function: cst.FunctionDef) -> Sequence[cst.Call]:
    """Return the calls of a function while training goes on; none where something else may call it, too."""
    home, name = facts.scope(function), function.name.value
    if facts.is_put_into_class(function):
        return [call for call in facts.callers(function) if not facts.is_after_training(call)]
    marks = [m.decorator for m in function.decorators if not _RUNS_IT.search(cst_nodes.code_of(m.decorator))]
    if not all(isinstance(of, cst.Attribute) and facts.kind(of.value) == "accelerator" for of in marks):
        return ()  # a loop's Accelerator takes each rank for the main process
    if not isinstance(home, cst.ClassDef):
        loads = facts.loads_of(name)
        uses = [use for use in loads if not facts.is_dead(use) and not facts.is_after_training(use)]
        calls = [call for call, _ in facts.calls_of(name) if not facts.is_after_training(call)]
        return calls if len(calls) >= len(uses) else ()  # else it is passed on
    is_maker = name in ("__init__", "__post_init__")
    special = name.startswith("__") and not (is_maker or name == "__call__")
    of_library = special or name in _OF_A_MICRO_BATCH | {"forward"}
    bases = facts.bases(home)
    if of_library or not (is_maker or bases <= _PLAIN or any(map(_HAS_EVENTS.search, bases))):
        return ()
    for attribute in facts.attributes:
        if attribute.attr.value == name and not facts.is_dead(attribute) and facts.called(attribute) is None:
            return ()  # it is passed on
    found, others = facts.callers(function), facts.live_calls if name[:2] != "__" else ()
    found = found or [call for call in others if facts.method(call) == name]  # of each of several classes
    if not found:  # getattr(callback, event)(), which may be of any method
        made = ((call, call.func) for call in others if isinstance(call.func, cst.Call))
        got = ((c, cst_nodes.given(of, 1)) for c, of in made if facts.qualified(of.func) == "getattr")
        found = [c for c, event in got if event is not None and cst_nodes.string_value(event) is None]
    return [call for call in found if not facts.is_after_training(call)]


# Classes whose methods run where the notebook calls them: no library knows what derives from these alone.
_PLAIN = frozenset({"object", "abc.ABC", "torch.nn.Module"})
# Classes whose methods a Trainer calls on every rank.
_HAS_EVENTS = re.compile(r"Callback$|lightning\.(?:pytorch\.)?callbacks\.|\bLightning(?:Data)?Module$")
_EVENTS = re.compile(r"on_|(?:training|validation|test|predict|optimizer)_step|\w+_dataloader$")
# Events of which ranks may have different numbers.
_OF_A_MICRO_BATCH = frozenset({"on_substep_end", "on_prediction_step"})
