"""Name the functions of the runtime module `ddp_support` in generated code."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.rewriting.findings import Edit, Insert
from nb2ddp.runtime import PUBLIC, support_module
from nb2ddp.source.cells import Statement


@functools.cache
def helpers() -> frozenset[str]:
    """Return the names that the runtime module defines for scripts: those that begin with no underscore."""
    return frozenset(PUBLIC.findall(support_module()))


def module_name(facts: Facts) -> str:
    """Return the name that the script imports the runtime module as: ``ddp``, unless the notebook binds it."""
    return facts.our("ddp")


def helper(facts: Facts, name: str) -> str:
    """Return the dotted name of a runtime function in this script: ``ddp.share_batch``.

    Raises ValueError for a name that the runtime module does not define.
    """
    if name not in helpers():
        raise ValueError(f"ddp_support defines no {name}")
    return f"{module_name(facts)}.{name}"


def comparing(facts: Facts, statement: Statement, model: str = "") -> Iterator[Edit | Insert]:
    """Yield what compares the ranks' parameters after a statement, or around what it returns."""
    check, why = helper(facts, "check_replicas"), "compare the trained parameters of all ranks"
    last = statement.body[-1] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(last, cst.Return):
        yield Insert(statement, "after", f"{check}({model})", why)
    elif last.value is not None:
        yield Edit.inside(last.value, why, f"{check}({model}, _)" if model else f"{check}(result=_)")
