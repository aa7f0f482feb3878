"""Find code that the notebook's own test of the rank keeps from some ranks."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes

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


def rank_test_above(facts: Facts, call: cst.Call) -> cst.BaseExpression | None:
    """Return a test of the rank that a call, or a call that leads to it, stands below; None without one."""
    return _above(facts, call, {call})


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


def _parts_ranks(facts: Facts, test: cst.BaseExpression) -> bool:
    """Return whether a test is true on some ranks and false on others."""
    code = cst_nodes.code_of(test)
    behind = [value for name in _names(test) if (value := _value(facts, name))]
    if not any(_RANK.search(text) for text in (code, *behind)):
        return False
    if _DIFFERS.search(code):
        return True
    return _BARE.fullmatch(code) is not None and all(
        _DIFFERS.search(text) or not re.search(r"[=<>]|\bin\b", text) for text in behind
    )


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
