"""Tell whether a value may be another one on each rank: it comes from the clock, the machine or a thread.

All that the notebook computes is the same on all ranks: from its constants, data, models and losses. What a library
function that is not known to compute gives, counts as from outside: the ranks do not ask it at the same moment.
"""

from __future__ import annotations

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts


def by_clock(facts: Facts, node: cst.CSTNode) -> bool | None:
    """Label what this process reads from its clock, or the system draws."""
    name = facts.qualified(node.func) if isinstance(node, cst.Call) else ""
    is_own = name in libraries.CLOCKS or name in libraries.SYSTEM_NUMBERS
    return False if name.endswith("from_main_process") else is_own or None


def from_outside(facts: Facts, node: cst.CSTNode) -> bool | None:
    """Label what may differ between ranks."""
    if isinstance(node, cst.Call):
        is_sent = facts.qualified(node.func).endswith("from_main_process")
        return False if is_sent else _asks_outside(facts, node) or None
    return (isinstance(node, cst.Name) and _is_set_beside(facts, node.value)) or None


def _asks_outside(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call reads a clock, or is of a library's function that is not known to compute."""
    name = facts.qualified(call.func)
    if not facts.is_of_import(call.func) or facts.called_functions(call):
        return name in libraries.CLOCKS | {"input", "open"}
    computes = name.partition(".")[0] in libraries.COMPUTING_PACKAGES
    is_same = computes or name.startswith(libraries.SAME_EVERYWHERE)
    return not is_same or name in libraries.CLOCKS or name.startswith(libraries.OF_THIS_MACHINE)


def _is_set_beside(facts: Facts, name: str) -> bool:
    """Return whether a function that is handed to something else, such as a signal's handler, sets a global name."""
    shared = (node for node in facts.nodes(cst.Global) if name in {item.name.value for item in node.names})
    setters = (function for node in shared if (function := facts.around(node, cst.FunctionDef)) is not None)
    return any(facts.called(use) is None for setter in setters for use in facts.loads_of(setter.name.value))
