"""Find code that the notebook's own test of the rank keeps from some ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

_RANK = re.compile(
    r"get_rank\(|process_zero|PartialState|\bprocess_index\b|\.local_rank\b|['\"](?:LOCAL_)?RANK['\"]"
)
_PARAMETERS = frozenset({"rank", "local_rank", "global_rank"})  # of a function that is started on each rank
# What differs between ranks: not `rank == -1` or `"RANK" in os.environ`, which ask whether there are several.
_DIFFERS = re.compile(
    r"[=!]=\s*['\"]?\d|\b\d+['\"]?\s*[=!]=|>\s*0|<=\s*0|<\s*1\b|\bnot\s+int\(|\bin\s*[\[({]|process_zero|is_(?:local_)?main"
)
# What starts a function on ranks.
_STARTS = re.compile(r"(?:^|\.)(?:spawn|start_processes|notebook_launcher|Process)$")
_BARE = re.compile(r"(?:not\s+)?\w+")


def rank_test_above(facts: Facts, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return a test of the rank that a node, or a call that leads to it, stands below; None without one."""
    return _above(facts, node, {node})


def _above(facts: Facts, node: cst.CSTNode, seen: set[cst.CSTNode]) -> cst.BaseExpression | None:
    for parent in facts.parents(node):
        if isinstance(parent, cst.If | cst.IfExp) and parent.test is not node:
            if _parts_ranks(facts, parent.test):
                return parent.test
        elif isinstance(parent, cst.BooleanOperation) and _parts_ranks(facts, parent.left):
            return parent.left
        elif isinstance(parent, cst.FunctionDef):
            callers = [caller for caller in facts.callers(parent) if caller not in seen]
            seen.update(callers)
            return next((test for caller in callers if (test := _above(facts, caller, seen))), None)
    return None


@dataclass(frozen=True)
class Leaving:
    """Some ranks leave a place at which all have to go on: by ``how``, below ``test``."""

    test: cst.BaseExpression
    how: str


def leaving_ranks(facts: Facts) -> Iterator[Leaving]:
    """Yield the tests of the rank below which some ranks leave what all of them have to come to later."""
    for cell in facts.cells:
        tests = _Tests()
        cell.module.visit(tests)
        for found in tests.found:
            if facts.is_dead(found) or facts.is_after_training(found) or not _parts_ranks(facts, found.test):
                continue
            for statement in _ways_out(facts, found):
                if how := _leaves_training(facts, found, statement):
                    yield Leaving(found.test, how)
                    break


def _ways_out(facts: Facts, found: cst.If) -> list[cst.CSTNode]:
    """List the statements and calls of an ``if`` that may leave what is around it."""
    look = _WaysOut()
    found.visit(look)
    return [node for node in look.found if not _ends_inside(facts, node, found)]


def _ends_inside(facts: Facts, node: cst.CSTNode, found: cst.If) -> bool:
    """Return whether a ``break`` or ``continue`` is that of a loop inside the ``if``."""
    loop = _loop_around(facts, node) if isinstance(node, cst.Break | cst.Continue) else None
    return loop is not None and facts.contains(found, loop)


def _loop_around(facts: Facts, node: cst.CSTNode) -> cst.CSTNode | None:
    return next((parent for parent in facts.parents(node) if isinstance(parent, cst.For | cst.While)), None)


def _leaves_training(facts: Facts, found: cst.If, node: cst.CSTNode) -> str:
    """Return how a statement or call leaves before something that all ranks do together; "" if it does not."""
    match node:
        case cst.Call(func=function):
            ends = facts.qualified(function) in libraries.ENDING_FUNCTIONS
            return f"{cst_nodes.code_of(function)}()" if ends else ""
        case cst.Raise(exc=cst.Name("SystemExit") | cst.Call(func=cst.Name("SystemExit"))):
            return "SystemExit"
        case cst.Return():
            home = next((p for p in facts.parents(found) if isinstance(p, cst.FunctionDef)), None)
            return "return" if home is not None and _all_meet(facts, home.body, after=found) else ""
        case cst.Break() | cst.Continue():
            loop = _loop_around(facts, found)
            if not isinstance(loop, cst.For | cst.While):
                return ""
            is_break = isinstance(node, cst.Break)
            meet = _all_meet(facts, loop.body, after=None if is_break else found)
            return ("break" if is_break else "continue") if meet else ""
    return ""


def _all_meet(facts: Facts, body: cst.CSTNode, *, after: cst.CSTNode | None) -> bool:
    """Return whether a block runs what all ranks do together, below ``after`` where that is given."""
    statements: list[Statement] = [
        statement
        for statement in (body.body if isinstance(body, cst.IndentedBlock) else ())
        if isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    ]
    loop = _loop_around(facts, after) if after is not None else None
    if after is not None and (loop is None or not facts.contains(body, loop)):  # else it may come round again
        statements = [
            s for s in statements if facts.order(s) > facts.order(after) or facts.contains(s, after)
        ]
    return any(facts.runs(s, facts.is_collective) or facts.runs(s, facts.joins_group) for s in statements)


class _Tests(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: list[cst.If] = []

    def visit_If(self, node: cst.If) -> None:
        self.found.append(node)


class _WaysOut(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: list[cst.CSTNode] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Break | cst.Continue | cst.Return | cst.Raise | cst.Call):
            self.found.append(node)
        return super().on_visit(node)


def _parts_ranks(facts: Facts, test: cst.BaseExpression) -> bool:
    """Return whether a test is true on some ranks and false on others."""
    code = _without_accelerator(facts, test)
    behind = [value for name in _names(test) if (value := _value(facts, name))]
    if not any(_RANK.search(text) for text in (code, *behind)):
        return False
    if _DIFFERS.search(code):
        return True
    return _BARE.fullmatch(code) is not None and all(
        _DIFFERS.search(text) or not re.search(r"[=<>]|\bin\b", text) for text in behind
    )


def _without_accelerator(facts: Facts, test: cst.BaseExpression) -> str:
    """Return the code of a test less what it asks an Accelerator, which sees one process in the script."""
    code = cst_nodes.code_of(test)
    for name in _names(test):
        if facts.kind(name) == "accelerator":
            code = re.sub(rf"\b{re.escape(name.value)}(?:\.\w+)+", "accelerator", code)
    return code


def _value(facts: Facts, name: cst.Name) -> str:
    """Return the code of what a name is given; for a function's parameter that is called as ranks are, a rank's."""
    binding = facts.binding(name)
    if binding is None:
        return ""
    if binding.value is not None:
        return cst_nodes.code_of(binding.value)
    function = binding.scope
    if not isinstance(function, cst.FunctionDef) or name.value not in _PARAMETERS:
        return ""
    return "get_rank()" if _is_started_on_ranks(facts, function) else ""


def _is_started_on_ranks(facts: Facts, function: cst.FunctionDef) -> bool:
    """Return whether a function is given to what starts it on each rank; others may be given the rank of an adapter."""
    return any(
        cst_nodes.code_of(argument.value) == function.name.value
        for call in facts.live_calls
        if _STARTS.search(cst_nodes.code_of(call.func))
        for argument in call.args
    )


def _names(test: cst.BaseExpression) -> list[cst.Name]:
    look = _Names()
    test.visit(look)
    return look.found


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: list[cst.Name] = []

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.found.append(node)
