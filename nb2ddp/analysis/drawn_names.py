"""Tell which values with the time or an id in them are rank 0's: all texts that the notebook makes, and all ids.

What a text is used for is not asked. A time, or a process's number, that stays a number is each rank's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from typing import Any

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import modules
from nb2ddp.analysis.common_paths import called_by_all, changes_state
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.analysis.training_loops import backward_calls
from nb2ddp.source.cst_nodes import code_of

_OF_PROCESS = frozenset("os.getpid threading.get_ident threading.get_native_id".split())
_NUMBERS = libraries.CLOCKS | _OF_PROCESS
_DRAWN = _NUMBERS | libraries.SYSTEM_NUMBERS | {"tempfile.mkdtemp"}
# What gives the time, or the one that it is given as an argument after these.
_FORMATS = {"time.strftime": 1, "time.ctime": 0, "time.localtime": 0, "time.gmtime": 0}
# Other calls that return the same on every rank, without the other ranks.
_OTHERS = "int float round range uuid.UUID os.environ.get os.getenv pytz.timezone zoneinfo.ZoneInfo datetime.timedelta"
_OTHERS += " datetime.timezone datetime.datetime.fromtimestamp random.SystemRandom"
_TEXTS, _TO_TEXT = libraries.TEXT_FUNCTIONS, libraries.TEXT_METHODS
_PLAIN = _TEXTS | _FORMATS.keys() | {*_OTHERS.split()}
_RECORDS = libraries.RECORDING_METHODS - libraries.CHANGING_METHODS
_OF_A_BATCH = re.compile(r"on_.*(?:step|batch)|\w+_step$")  # methods that a Trainer calls for each batch
# What a value is not a part of, but an item of: an argument is rated by its call.
_APART = cst.Lambda | cst.BaseComp | cst.Dict | cst.List | cst.Set | cst.Tuple | cst.SubscriptElement
_CALLS = cst.Call, cst.NamedExpr, cst.Await, cst.Yield  # what has to be plain, or cannot be sent


@asked_once
def shared_names(facts: Facts) -> Collection[cst.BaseExpression]:
    """Return the texts and ids that every rank makes, before training ends, and that are to be rank 0's, in order."""
    found: dict[cst.BaseExpression, None] = {}
    for source in facts.nodes(cst.Call, cst.Attribute):
        drawn = _is_drawn(facts, source) and not (facts.is_dead(source) or facts.is_after_training(source))
        value = _text(facts, source) if drawn else None
        if value is not None and _is_for_all(facts, value):
            found[value] = None
    made = (c for c in facts.live_calls if not facts.is_after_training(c) and _is_named_by_module(facts, c))
    return found | {call: None for call in made if called_by_all(facts, call)}


def names_run(facts: Facts, node: cst.Attribute) -> bool:
    """Match ``wandb.run.name``, and ``run.id`` of what W&B gives: the run is rank 0's alone."""
    named = node.attr.value in ("name", "id") and not isinstance(facts.parent(node), cst.AssignTarget)
    return named and (facts.qualified(node.value) == "wandb.run" or facts.comes_from(node, "wandb"))


def _is_drawn(facts: Facts, node: cst.Call | cst.Attribute) -> bool:
    """Return whether an expression reads the clock, or makes, draws or names an id."""
    if isinstance(node, cst.Attribute):
        return names_run(facts, node)
    name, owner = facts.qualified(node.func), facts.owner(node)
    by_system = owner is not None and "random.SystemRandom" in facts.origins(owner)
    return by_system or (name in _DRAWN and len(node.args) <= _FORMATS.get(name, len(node.args)))


def _is_plain(facts: Facts, node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.Call):
        return False  # it binds a name, or waits
    return facts.qualified(node.func) in _PLAIN or facts.method(node) in _TO_TEXT or _is_drawn(facts, node)


def _is_measure(node: cst.CSTNode) -> bool:
    """Match ``time.time() - start`` and ``time.time() > end``, not ``now() - timedelta(hours=5)``."""
    takes = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract)
    return isinstance(node, cst.Comparison) or (takes and "timedelta" not in code_of(node))


def _is_shown(facts: Facts, node: cst.CSTNode) -> bool:
    calls = [above for above in facts.parents(node) if isinstance(above, cst.Call)]
    records = (c for c in calls if facts.method(c) in _RECORDS and not facts.is_of_import(c.func))
    return not all(map(facts.called_functions, (*records, *filter(facts.shows, calls))))


def _text(facts: Facts, source: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the largest value that a source is a part of and rank 0 can make by itself.

    None for what is shown or recorded at once, for a measure, and for a number that becomes no text.
    """
    around: list[cst.BaseExpression] = []
    for node in (source, *facts.parents(source)):
        taker = facts.around(node, cst.Call) if isinstance(node, cst.BaseSimpleComp) else None
        if taker is not None and facts.method(taker) == "join":
            around.clear()  # "".join(secrets.choice(letters) for _ in range(8)): only all of it is a name
        elif isinstance(node, _APART | cst.BaseStatement):
            break
        elif isinstance(node, cst.BaseExpression):
            around.append(node)
    while around and not all(_is_plain(facts, node) for node in facts.nodes(*_CALLS, within=around[-1])):
        around.pop()
    if not around or any(map(_is_measure, facts.parents(source))) or _is_shown(facts, around[-1]):
        return None
    if isinstance(source, cst.Call) and facts.qualified(source.func) in _NUMBERS:
        texts: list[Any] = [n for n in facts.nodes(cst.BinaryOperation) if isinstance(n.left, cst.BaseString)]
        texts += (c for c in facts.calls if facts.qualified(c.func) in _TEXTS or facts.method(c) in _TO_TEXT)
        texts = [node for node in (*texts, *facts.nodes(cst.FormattedString)) if not _is_shown(facts, node)]
        if not any(facts.carries(text, partial(_is_made_of, source=source)) for text in texts):
            return None
    return around[-1]


def _is_made_of(facts: Facts, node: cst.CSTNode, source: cst.CSTNode) -> bool | None:
    """Label a time in any form that the notebook gives it: no measure, and nothing that a library makes of it."""
    if isinstance(node, cst.Call) and node is not source and not _is_plain(facts, node):
        name = facts.qualified(node.func)
        keeps = facts.called_functions(node) or facts.definitions(name) or name in libraries.SETTINGS_MAKERS
        return None if keeps else False
    return False if _is_measure(node) else node is source or None


def _is_for_all(facts: Facts, value: cst.BaseExpression) -> bool:
    """Return whether all ranks come to a value equally often, and not for each batch or row."""
    given = facts.around(value, cst.Param, cst.Lambda)
    inner: Any = facts.around(given, cst.FunctionDef, cst.Lambda) if isinstance(given, cst.Param) else value
    is_field = False
    while isinstance(home := facts.scope(inner), cst.ClassDef | cst.Lambda):
        is_field, inner = is_field or isinstance(home, cst.Lambda), home
        makes = code_of(facts.parent(home) or home).startswith("default_factory")  # each object has its own
        if isinstance(home, cst.Lambda) and not (makes and isinstance(facts.scope(home), cst.ClassDef)):
            return False
    places = [call for call, _ in facts.calls_of(inner.name.value)] if is_field else [inner]
    is_asked = isinstance(home, cst.FunctionDef) and facts.is_generator(home)
    if is_asked or not all(called_by_all(facts, place) for place in places):
        return False
    names = {facts.qualified(call.func) for call in facts.calls_in(value)}
    if "tempfile.mkdtemp" in names:  # one that a function makes or gets may be meant to be the process's own
        calls = (above for above in facts.parents(value) if isinstance(above, cst.Call))
        return home is None and not any(map(facts.called_functions, calls))
    sites = (site for place in places for site in facts.sites(place))
    return not (names.isdisjoint(_OF_PROCESS) and any(_is_often(facts, site) for site in sites))


def _is_often(facts: Facts, site: cst.CSTNode) -> bool:
    """Return whether code runs for each batch or row, as a task, or on rank 0 alone."""
    function = facts.around(site, cst.FunctionDef)
    ifs = [above for above in facts.parents(site) if isinstance(above, cst.If)]
    asked = {a.attr.value for above in ifs for a in facts.nodes(cst.Attribute, within=above.test)}
    is_step = function is not None and not ifs and _OF_A_BATCH.match(function.name.value)
    is_task = function is not None and function.asynchronous is not None
    steps: list[Any] = [facts.training_loop(call) for call in backward_calls(facts)]
    for loop in facts.loops(site):
        each = loop in steps and not any(facts.contains(loop, above) for above in ifs)
        if each or isinstance(loop, cst.BaseComp) or not facts.runs(loop, facts.is_training):
            return True
    return bool(is_step or is_task or asked & libraries.TESTS_OF_LIBRARIES)


def _is_named_by_module(facts: Facts, call: cst.Call) -> bool:
    """Return whether a function of a module returns a name that it draws, and does no more than make its folder."""
    results = ((own, value) for own, f in modules.functions_of(facts, call) for value in own.returned(f))
    named = any(own.carries(value, _draws_name) for own, value in results) and not changes_state(facts, call)
    return named and not modules.runs(facts, call, modules.trains)


def _draws_name(facts: Facts, node: cst.CSTNode) -> bool | None:
    if not isinstance(node, cst.Call):
        return False if isinstance(node, cst.BaseList | cst.Tuple | cst.Dict) else None
    if _is_drawn(facts, node):
        return _text(facts, node) is not None
    return None if _is_plain(facts, node) or facts.called_functions(node) else False
