"""Find where the init block stands: before the first statement that needs it, or that may import a CUDA library."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import installs, modules
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.analysis.files import is_file_test
from nb2ddp.analysis.rank_zero_work import why_alone
from nb2ddp.analysis.shell_commands import ShellCall, shell_calls
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import imported_modules


@asked_once
def first_below(facts: Facts) -> cst.CSTNode | None:
    """Return the first statement that runs below the init block; None where none needs it."""
    shells = {shell.call: shell for shell in shell_calls(facts)}
    gone = in_setup_step(facts)
    shown = {value for cell in facts.cells for value in facts.shown(cell)}
    missing: set[str] = set()  # names that only the setup step binds; the init block imports them again
    for statement in facts.top_statements:
        if is_future(statement):
            continue
        if statement in gone:
            missing |= facts.binds_in(statement) - {"os"}
            continue
        shows = any(facts.contains(statement, value) for value in shown)
        calls = any(_needs_block(facts, call, shells.get(call)) for call in facts.calls_in(statement))
        reads = "cuda:" in cst_nodes.code_of(statement) or not missing.isdisjoint(facts.loads_in(statement))
        if shows or calls or reads or not _is_light(facts, statement, shells):
            return statement
        missing -= facts.binds_in(statement)
    return None


def in_setup_step(facts: Facts) -> set[cst.CSTNode]:
    """Return the statements that installing packages leaves out of the script."""
    step = installs.plan(facts)
    return {*step.dropped, *step.leftovers}


def is_future(statement: cst.CSTNode) -> bool:
    """Match ``from __future__ import ...``."""
    line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(line, cst.ImportFrom) and cst_nodes.is_word(line.module, "__future__")


def _needs_block(facts: Facts, call: cst.Call, shell: ShellCall | None) -> bool:
    """Return whether other rules insert a name of the init block here, around writes and commands, or a rank prints."""
    if shell is not None:
        return not (shell.is_install or shell.is_environment or shell.name in libraries.DISPLAY_MAGICS)
    return is_file_test(facts, call) or why_alone(facts, call) is not None or facts.shows(call)


def touches_environment(statement: cst.CSTNode) -> bool:
    """Return whether a statement sets or reads variables of the environment, or the path of modules."""
    code = cst_nodes.code_of(statement)
    return "environ" in code or "sys.path" in code or "'env'" in code or "'set_env'" in code


def _is_light(facts: Facts, node: cst.CSTNode, shells: Mapping[cst.Call, ShellCall]) -> bool:
    """Return whether a statement imports no heavy package, and calls nothing but to set the environment."""
    imports = facts.nodes(cst.Import, cst.ImportFrom, within=node)
    names = [module for found in imports for module in imported_modules(found)]
    magics = {*shells, *(shell.func.value for shell in shells if isinstance(shell.func, cst.Attribute))}
    calls = (call for call in facts.calls_in(node) if call not in magics)
    only_sets = all(touches_environment(facts.statement(call)) for call in calls)
    own = facts.once(modules.reader)  # a module beside the notebook may import one
    return only_sets and not any(n.partition(".")[0] in libraries.HEAVY_PACKAGES or own(n) for n in names)
