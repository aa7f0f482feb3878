"""Tell which folders are made after a look at the files that are there: all ranks look before rank 0 makes them.

``os.makedirs(folder, exist_ok=True)`` may run on every rank. Where a test before it decides what it is called, or
whether it is new, a rank that looks when rank 0 has made it goes another way.
"""

from __future__ import annotations

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.calls import Label
from nb2ddp.analysis.common_paths import binds_for_later, called_by_all, changes_state, leaves, makes_folder
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_FUNCTIONS = libraries.FILE_TESTS | {"os.scandir", "os.walk", "os.path.lexists", "glob.iglob"}
_METHODS = libraries.FILE_TEST_METHODS | {"rglob"}


def may_exist(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.makedirs(folder, exist_ok=True)``, and ``mkdir`` with it."""
    given = facts.keyword(call, "exist_ok")
    return given is not None and cst_nodes.code_of(given) == "True"


def is_looked_for(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call makes a folder that rank 0 alone can make, below a look at files.

    Where it may not be called by all ranks, and where its statement does more than make folders, each rank makes it.
    """
    looks = facts.once(_first_look) < facts.end(call)
    return looks and makes_folder(facts, call) and _can_be_made_by_one(facts, call)


def _first_look(facts: Facts) -> float:
    looks = (facts.order(call) for call in facts.live_calls if is_file_test(facts, call))
    return min(looks, default=float("inf"))


def _can_be_made_by_one(facts: Facts, call: cst.Call) -> bool:
    statement, scope = facts.statement(call), facts.scope(call)
    if leaves(facts, statement) or changes_state(facts, statement):
        return False
    if isinstance(scope, cst.FunctionDef):
        return called_by_all(facts, call) and not binds_for_later(facts, statement)
    names = facts.binds_in(statement)
    return scope is None and not any(facts.is_read_outside(name, statement) for name in names)


def is_numbered(facts: Facts, statement: Statement) -> bool:
    """Return whether a statement counts to a name that is free yet, and makes a folder then.

    A rank that counts when another one has made its folder would take the next name.
    """
    made = (call for call in facts.calls_in(statement) if makes_folder(facts, call))
    return any(facts.carries(call, facts.once(_counts)) for call in made)


def _counts(facts: Facts) -> Label:
    """Label ``n`` of ``while os.path.exists(f"run{n}"): n += 1``, and ``len(os.listdir("runs"))``."""

    def label(node: cst.CSTNode) -> bool | None:
        match node:
            case cst.Call(func=cst.Name("len")):
                return looks_at_files(facts, node) or None
            case cst.Name(value=name):
                loops = (facts.around(binding.node, cst.While) for binding in facts.bindings(name))
                return any(loop is not None and looks_at_files(facts, loop.test) for loop in loops) or None
        return None

    return label


def is_file_test(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call looks at what files there are."""
    return facts.qualified(call.func) in _FUNCTIONS or facts.method(call) in _METHODS


def looks_at_files(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether a call in an expression looks at what files there are."""
    return any(is_file_test(facts, call) for call in facts.calls_in(node))
