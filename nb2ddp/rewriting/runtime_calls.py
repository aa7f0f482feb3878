"""Name the functions of the runtime module `ddp_support` in generated code."""

from __future__ import annotations

import functools

from nb2ddp.analysis.facts import Facts
from nb2ddp.runtime import PUBLIC, support_module


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
