"""Tell which folders are made after a look at the files that are there: all ranks look before rank 0 makes them.

``os.makedirs(folder, exist_ok=True)`` may run on every rank. Where a test above it decides what it is called, or
whether it is new, a rank that looks when rank 0 has made it goes another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.common_paths import binds_for_later, called_by_all, changes_state, leaves, makes_folder
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Statement

_FUNCTIONS = libraries.FILE_TESTS | {"os.scandir", "os.walk", "os.path.lexists", "glob.iglob"}
_METHODS = libraries.FILE_TEST_METHODS | {"rglob"}


def may_exist(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.makedirs(folder, exist_ok=True)``, and ``mkdir`` with it."""
    given = facts.keyword(call, "exist_ok")
    return given is not None and cst_nodes.code_of(given) == "True"


def is_looked_for(facts: Facts, call: cst.Call) -> bool:
    """Return whether code above a call that makes a folder looks at files, and rank 0 alone can make the folder.

    Where it may not be called by all ranks, and where its statement does more than make folders, each rank makes it.
    """
    known = facts.once(_known)
    if call not in known:
        known[call] = False  # while it is looked at
        by_one = makes_folder(facts, call) and _can_be_made_by_one(facts, call)
        known[call] = by_one and next(_tests(facts, call), None) is not None
    return known[call]


def _known(facts: Facts) -> dict[cst.Call, bool]:
    """Return where answers are kept."""
    return {}


def is_numbered(facts: Facts, statement: Statement) -> bool:
    """Return whether a statement counts to a name that is free yet, and makes a folder then.

    A rank that counts when another one has made its folder would take the next name.
    """
    return any(
        makes_folder(facts, call)
        and any(_counts(facts, binding) for binding in _above(facts, call, statement))
        for call in facts.calls_in(statement)
    )


def _counts(facts: Facts, binding: Binding) -> bool:
    """Match ``while os.path.exists(f"run{n}"): n += 1``, and ``n = len(os.listdir("runs"))``."""
    value, test = binding.value, facts.once(_looking)
    if isinstance(value, cst.Call) and facts.qualified(value.func) == "len" and facts.runs(value, test):
        return True
    return any(
        isinstance(parent, cst.While) and facts.runs(parent.test, test)
        for parent in facts.parents(binding.node)
    )


def _above(facts: Facts, call: cst.Call, region: cst.CSTNode | None = None) -> Iterator[Binding]:
    """Yield where the names of a call, and those that they are made of, get their values above it, in a region."""
    queue = [(name, facts.order(call)) for name in sorted(facts.loads_in(call))]
    done: dict[str, int] = {}  # up to where a name has been looked for
    while queue:
        name, limit = queue.pop()
        for binding in facts.bindings(name):
            if not done.get(name, 0) <= binding.order < limit:
                continue
            inside = region is None or facts.contains(region, binding.node)
            if inside and _function(facts, binding.node) is _function(facts, call):
                made_of = facts.loads_in(binding.value) if binding.value is not None else ()
                queue += [(other, binding.order) for other in sorted(made_of)]
                yield binding
        done[name] = max(limit, done.get(name, 0))


def _can_be_made_by_one(facts: Facts, call: cst.Call) -> bool:
    statement, scope = facts.statement(call), facts.scope(call)
    if leaves(facts, statement) or changes_state(facts, statement):
        return False
    if isinstance(scope, cst.FunctionDef):
        return called_by_all(facts, call) and not binds_for_later(facts, statement)
    names = facts.binds_in(statement)
    return scope is None and not any(facts.is_read_outside(name, statement) for name in names)


def _tests(facts: Facts, call: cst.Call) -> Iterator[cst.Call]:
    """Yield the calls above, in the function or the cell of a call, that look at files the call may change."""
    scope = facts.scope(call)
    region = scope.body if isinstance(scope, cst.FunctionDef) else facts.cell(call).module
    for other in facts.once(_looks):
        if facts.order(other) >= facts.order(call):
            break
        if not facts.contains(region, other) or _function(facts, other) is not _function(facts, call):
            continue
        if not _only_guards(facts, other, call):
            yield other
    if _is_named_by_test(facts, call):
        yield call


def is_file_test(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call looks at what files there are."""
    return facts.qualified(call.func) in _FUNCTIONS or facts.method(call) in _METHODS


def _looks(facts: Facts) -> list[cst.Call]:
    """List the calls that look at files, in order."""
    return [call for call in facts.live_calls if is_file_test(facts, call)]


def _looking(facts: Facts) -> Callable[[cst.Call], bool]:
    """Return a test for calls that look at files."""
    return partial(is_file_test, facts)


def _function(facts: Facts, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the function or class that a node stands in; a lambda counts as the code around it."""
    parents = facts.parents(node)
    return next((p for p in parents if isinstance(p, cst.FunctionDef | cst.ClassDef)), None)


def _only_guards(facts: Facts, test: cst.Call, call: cst.Call) -> bool:
    """Match ``if not os.path.exists(d): os.makedirs(d, exist_ok=True)``: each rank goes on the same way."""
    for parent in facts.parents(test):
        if isinstance(parent, cst.If) and facts.contains(parent.test, test):
            match parent.body.body:
                case [cst.SimpleStatementLine(body=[cst.Expr(value=only)]) | cst.Expr(value=only)]:
                    return only is call and parent.orelse is None
    return False


def _is_named_by_test(facts: Facts, call: cst.Call) -> bool:
    """Return whether the path of a new folder is made of what a look at files gives: in a function, in another cell."""
    scope = facts.scope(call)
    region = scope.body if isinstance(scope, cst.FunctionDef) else None
    return facts.runs(call, facts.once(_looking)) or any(
        _counts(facts, binding)
        or (binding.value is not None and facts.runs(binding.value, facts.once(_looking)))
        for binding in _above(facts, call, region)
    )
