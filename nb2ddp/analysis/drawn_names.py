"""Tell which names of runs and folders contain the time, or an id that is rank 0's: all ranks have to take its own.

A text is followed from where it is made: it may name a file, or is only shown, recorded or compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import modules
from nb2ddp.analysis.common_paths import called_by_all, changes_state
from nb2ddp.analysis.facts import Facts, asked_once

# What names this process, or what it makes for itself: a folder that a function makes may be meant to be its own.
_OF_PROCESS = frozenset("tempfile.mkdtemp os.getpid threading.get_ident threading.get_native_id".split())
_IDS = _OF_PROCESS | libraries.SYSTEM_NUMBERS
# What asks for a process by its number.
_LOOKS_UP = re.compile(r"psutil\.|resource\.|signal\.|os\.(?:kill|sched_|[gs]et)")
# Other calls in such a name: they return the same on every rank, without the other ranks.
_SETTINGS = "int round range os.environ.get os.getenv pytz.timezone zoneinfo.ZoneInfo"
_PLAIN = libraries.TEXT_FUNCTIONS | {*_SETTINGS.split()}
_TO_TEXT = libraries.TEXT_METHODS | {"hex"}

# What a name is not a part of, but an item of: an argument is rated by its call.
_APART = cst.Lambda | cst.BaseComp | cst.Dict | cst.List | cst.Set | cst.Tuple | cst.BaseSmallStatement


def is_drawn_name(facts: Facts, value: cst.BaseExpression) -> bool:
    """Return whether ``value`` is text with a time or an id in it; a time alone is used to measure something."""
    drawn = any(names_run(facts, attribute) for attribute in facts.nodes(cst.Attribute, within=value))
    is_text = drawn or bool(facts.nodes(cst.SimpleString, cst.FormattedString, within=value))
    for call in facts.calls_in(value):
        name, method = facts.qualified(call.func), facts.method(call)
        is_id, around = name in _IDS, facts.parent(call)
        measures = isinstance(around, cst.BinaryOperation) and isinstance(around.operator, cst.Subtract)
        if is_id or name in libraries.CLOCKS:
            drawn |= not measures
        elif name not in _PLAIN and method not in _TO_TEXT:
            return False
        is_text |= is_id or name == "str" or method in _TO_TEXT
    return drawn and is_text and not facts.nodes(cst.NamedExpr, cst.Await, cst.Yield, within=value)


def names_run(facts: Facts, node: cst.Attribute) -> bool:
    """Match ``wandb.run.name``, and ``run.id`` of what W&B gives: the run is rank 0's alone."""
    named = node.attr.value in ("name", "id") and not isinstance(facts.parent(node), cst.AssignTarget)
    return named and (facts.qualified(node.value) == "wandb.run" or facts.comes_from(node, "wandb"))


@asked_once
def shared_names(facts: Facts) -> Collection[cst.BaseExpression]:
    """Return the names that every rank makes, before training ends, and that have to be rank 0's, in order."""
    found: dict[cst.BaseExpression, None] = {}
    calls = (call for call in facts.live_calls if facts.qualified(call.func) in libraries.CLOCKS | _IDS)
    runs = (node for node in facts.attributes if names_run(facts, node) and not facts.is_dead(node))
    looking = (call for call in facts.live_calls if _LOOKS_UP.match(facts.qualified(call.func)))
    looked_up = [argument.value for call in looking for argument in call.args]
    for source in sorted((*calls, *runs), key=facts.order):
        value = None if facts.is_after_training(source) else _name_around(facts, source)
        names = [bound.name for bound in facts.bindings_in(facts.statement(source))]
        uses = {use for name in names for use in facts.loads_of(name)}  # a name may be a text, too
        is_number = value in looked_up or (uses and uses <= set(looked_up))
        if value is not None and not is_number and _is_for_all(facts, value):
            found[value] = None
    made = (c for c in facts.live_calls if not facts.is_after_training(c) and _is_named_by_module(facts, c))
    return found | {call: None for call in made if called_by_all(facts, call)}


def _is_named_by_module(facts: Facts, call: cst.Call) -> bool:
    """Return whether a function of a module returns a name that it draws, and does no more than make its folder."""
    results = ((own, value) for own, f in modules.functions_of(facts, call) for value in own.returned(f))
    if not any(own.carries(value, _is_drawn_text) for own, value in results) or changes_state(facts, call):
        return False
    return modules.runs(facts, call, _draws_name) and not modules.runs(facts, call, modules.trains)


def _draws_name(facts: Facts, call: cst.Call) -> bool:
    return facts.qualified(call.func) in libraries.CLOCKS | _IDS and _name_around(facts, call) is not None


def _is_drawn_text(facts: Facts, node: cst.CSTNode) -> bool | None:
    if not isinstance(node, cst.Call):
        return False if isinstance(node, cst.BaseList | cst.Tuple | cst.Dict) else None
    is_drawn = facts.qualified(node.func) in libraries.CLOCKS | _IDS
    return is_drawn or (None if _makes_text(facts, node) or facts.called_functions(node) else False)


def _name_around(facts: Facts, source: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the largest name that a call or an attribute is a part of."""
    around: list[cst.BaseExpression] = []
    for node in (source, *facts.parents(source)):
        taker = facts.around(node, cst.Call) if isinstance(node, cst.BaseSimpleComp) else None
        if taker is not None and facts.method(taker) == "join":
            around.clear()  # "".join(secrets.choice(letters) for _ in range(8)): only all of it is a name
        elif isinstance(node, _APART):
            break
        elif isinstance(node, cst.BaseExpression):
            around.append(node)
    return next((node for node in reversed(around) if is_drawn_name(facts, node)), None)


def _is_for_all(facts: Facts, value: cst.BaseExpression) -> bool:
    """Return whether every rank comes to a name, and the notebook keeps it for more than to show it."""
    holder = _holder(facts, value)
    if holder is None:
        return False
    made = facts.parent(holder) if isinstance(holder, cst.Arg) else None
    if isinstance(made, cst.Call) and facts.is_arguments_class(made.func):
        return True  # every rank makes training arguments
    inner: cst.CSTNode = value
    if isinstance(holder, cst.Param):
        inner = facts.around(holder, cst.FunctionDef, cst.Lambda) or value
    while isinstance(home := facts.scope(inner), cst.ClassDef | cst.Lambda):
        inner = home
    if isinstance(home, cst.FunctionDef) and facts.is_generator(home):
        return False  # it goes on when it is asked
    places = [inner]
    if isinstance(holder, cst.Lambda) and isinstance(inner, cst.ClassDef):
        places = [call for call, _ in facts.calls_of(inner.name.value)]
    if not all(called_by_all(facts, place) for place in places):
        return False
    own_folder = "tempfile.mkdtemp" in (facts.qualified(call.func) for call in facts.calls_in(value))
    if own_folder or (home is None and _is_of_process(facts, value)):
        return home is None and not (isinstance(made, cst.Call) and _keeps(facts, made))
    is_once = home is None and next(facts.loops(inner), None) is None
    if is_once and not isinstance(holder, cst.Arg | cst.Lambda):
        return True
    loops = [loop for place in places for loop in facts.loops_to(place)]
    over_rows = (o for o in loops if isinstance(o, cst.BaseComp) or not facts.runs(o, facts.is_training))
    return next(over_rows, None) is None and is_kept(facts, value)


def _is_of_process(facts: Facts, value: cst.BaseExpression) -> bool:
    return any(facts.qualified(call.func) in _OF_PROCESS for call in facts.calls_in(value))


def _holder(facts: Facts, value: cst.BaseExpression) -> cst.CSTNode | None:
    """Return the assignment, ``return``, default or argument that a name goes into; None where it is used at once."""
    inner: cst.CSTNode = value
    for parent in facts.parents(value):
        match parent:
            case cst.Assign() | cst.AnnAssign() | cst.Return() | cst.Param():
                return parent
            case cst.Lambda():
                argument = facts.parent(parent)
                named = argument.keyword if isinstance(argument, cst.Arg) else None
                return parent if named is not None and named.value == "default_factory" else None
            case cst.Call() if inner is not parent.func and not _makes_text(facts, parent):
                shows = facts.shows(parent) or facts.method(parent) in libraries.RECORDING_METHODS
                is_named = _is_of_process(facts, value) and not shows
                return inner if _keeps(facts, parent) or is_named else None
            case cst.BaseComp() | cst.BaseSmallStatement() | cst.BaseCompoundStatement() | cst.Comparison():
                return None
        inner = parent
    return None


def _makes_text(facts: Facts, call: cst.Call) -> bool:
    return facts.qualified(call.func) in _PLAIN or facts.method(call) in _TO_TEXT


def _keeps(facts: Facts, call: cst.Call) -> bool:
    """Match a call of the notebook's own functions and classes, and one that makes settings."""
    name = facts.qualified(call.func)
    own = bool(facts.definitions(name) or facts.called_functions(call))
    return own or name in libraries.SETTINGS_MAKERS or facts.is_arguments_class(call.func)


def is_kept(facts: Facts, value: cst.BaseExpression) -> bool:
    """Return whether a text, or one that is made with it, is used otherwise than to be shown, listed or compared."""
    uses = (call for call in facts.live_calls if not _passes_on(facts, call))
    return any(facts.is_made_of(call, value) for call in uses if not facts.contains(value, call))


def _passes_on(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call shows or records what it gets, makes text of it, or hands it to a function of a cell."""
    functions = libraries.SHOWING_FUNCTIONS | libraries.RECORDING_FUNCTIONS | libraries.SETTINGS_MAKERS
    methods = libraries.SHOWING_METHODS | libraries.RECORDING_METHODS
    shows = facts.qualified(call.func) in functions or facts.method(call) in methods
    own = [facts.scope(f) is None for f in facts.called_functions(call) if not any(a.star for a in call.args)]
    return shows or _makes_text(facts, call) or (bool(own) and all(own))
