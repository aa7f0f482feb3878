"""Find the statements that install software, and those that they need: the run-once step ``setup_env.py``.

The step is a slice of the notebook: every top-level statement that installs, and the statements before it
that bind the names it reads (computed versions, imports). No other code of the notebook runs in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.common_paths import makes_folder
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.analysis.files import may_exist, mode
from nb2ddp.analysis.shell_commands import RUNNERS, ShellCall, shell_calls, shell_calls_in
from nb2ddp.analysis.tree import grouped
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement

# The script's init block imports these.
_PROVIDED = frozenset({"os", "sys", "torch"})
# An install from local files: `-e .`, `-r requirements.txt`, `./a.whl`, `folder/package`; not from a URL.
_FROM_FILES = re.compile(
    r"\s(?:-[er]|--requirement)[\s=]+(?!\w+[:+])|\s\.{1,2}/?(?:\s|\[|$)|\s(?!\w+[:+])(?:[\w.-]+/\w|\S+\.(?:whl|deb|tar\.gz)\b)"
)


@dataclass(frozen=True)
class InstallPlan:
    """How the notebook is split into setup step and training script.

    ``slice``: statements of the setup step; ``beside``: lines of theirs that it leaves out. ``dropped``: installs to
    remove from the training script. ``leftovers``: statements that the training script does not need without them.
    ``silenced``: installs that are part of a larger statement.
    """

    slice: tuple[Statement, ...]
    beside: tuple[Statement, ...]
    dropped: tuple[Statement, ...]
    leftovers: tuple[Statement, ...]
    silenced: tuple[ShellCall, ...]


@asked_once
def plan(facts: Facts) -> InstallPlan:
    """Find the installs and split the notebook into setup step and training script."""
    installs = (shell for shell in shell_calls(facts) if shell.is_install)
    tops = grouped((facts.top_statement(shell.call), shell) for shell in installs)
    names = ("site.getsitepackages", "site.getusersitepackages", "sysconfig.get_path")
    folders = [call for call in facts.live_calls if tops and facts.qualified(call.func) in names]
    removing = {top for top in facts.top_statements if folders and _removes_packages(facts, top, folders)}
    beside = [line for top in tops for line in _beside(facts, top)]
    callers = {*_callers(facts, tops)}
    wanted = _slice(facts, beside, {*tops, *removing, *callers, *_preparations(facts, tops)})
    lines = {top: [facts.line_of(shell.call) for shell in shells] for top, shells in tops.items()}
    useless = removing | {t for t in wanted if lines.get(t) != [t] and _is_quiet(facts, t)} - callers
    while useless:  # a statement that stays in the script may read names of one that was to be removed
        gone = [*useless, *(line for top in tops if top not in useless for line in lines[top] if line)]
        bound = {name for top in useless for name in facts.binds_in(top) - _PROVIDED}
        outside = {name for name in bound if facts.is_read_outside(name, *gone)}
        needed = {top for top in useless if not outside.isdisjoint(facts.binds_in(top))}
        if not needed:
            break
        useless -= needed
    mixed = [top for top in tops if top not in useless]
    return InstallPlan(
        slice=tuple(wanted),
        beside=tuple(beside),
        dropped=tuple(dict.fromkeys(line for top in mixed for line in lines[top] if line)),
        leftovers=tuple(top for top in wanted if top in useless),
        silenced=tuple(shell for top in mixed for shell in tops[top] if facts.line_of(shell.call) is None),
    )


def _removes_packages(facts: Facts, statement: Statement, folders: list[cst.Call]) -> bool:
    """Match ``for d in site.getsitepackages(): shutil.rmtree(f"{d}/x")``, which installs above and below it need."""
    deletes = any(facts.qualified(c.func) in libraries.DELETING_FUNCTIONS for c in facts.calls_in(statement))
    nodes = facts.nodes(cst.Name, cst.Call, within=statement) if deletes else ()
    return any(facts.is_made_of(node, folder) for node in nodes for folder in folders)


def _callers(facts: Facts, tops: Mapping[Statement, list[ShellCall]]) -> Iterator[Statement]:
    """Yield the lines and loops that do nothing but call functions of the notebook that only install."""
    installs = {shell.call for shells in tops.values() for shell in shells}
    for top in facts.top_statements if any(facts.scope(call) is not None for call in installs) else ():
        live = top not in tops and not facts.is_dead(top) and facts.runs(top, installs.__contains__)
        if live and _is_quiet(facts, top, _STATES):
            yield top


def _preparations(facts: Facts, tops: Mapping[Statement, list[ShellCall]]) -> Iterator[Statement]:
    """Yield what fetches or writes the files that an install names: `git clone`, `%cd`, ``open("needs.txt", "w")``."""
    from_files = [top for top in tops if any(_FROM_FILES.search(shell.command) for shell in tops[top])]
    last = max(map(facts.order, from_files), default=0)
    words = {*re.split(r"[\s=\"']+", " ".join(shell.command for top in from_files for shell in tops[top]))}
    for text in facts.strings:
        top = facts.top_statement(text)
        writes = any("w" in mode(facts, call) for call in facts.calls_in(top))
        if cst_nodes.string_value(text) in words and writes and facts.order(text) < last:
            yield top
    for shell in shell_calls(facts):
        line = facts.line_of(shell.call)
        if line is None or facts.order(line) >= last or facts.top_statement(line) is not line:
            continue
        written = shell.name == "writefile" and shell.file in words
        if written or shell.kind == "system" or (shell.kind == "line" and shell.name == "cd"):
            yield line


def _beside(facts: Facts, top: Statement) -> Iterator[Statement]:
    """Yield the lines of a block that neither install nor bind anything, and read values of the notebook."""
    installs = [shell.call for shell in shell_calls_in(facts, top) if shell.is_install]
    for line in facts.nodes(cst.SimpleStatementLine, within=top):
        does = facts.binds_in(line) or any(facts.contains(line, call) for call in installs)
        read = (binding for name in facts.loads_in(line) for binding in facts.bindings(name))
        if not does and any(not facts.contains(top, binding.node) for binding in read):
            yield line


def _slice(facts: Facts, beside: Collection[Statement], statements: set[Statement]) -> list[Statement]:
    """Return the statements, and those before them that bind names that they use, or change their values, in order."""
    wanted: list[Statement] = []
    used: set[str] = set()
    variables: dict[cst.CSTNode, bool] = {node: reads for node, _, reads in facts.environment()}
    for top in reversed(facts.top_statements):
        changed = facts.binds_in(top) | facts.changes_in(top)
        made = [c for c in facts.calls_in(top) if makes_folder(facts, c) and may_exist(facts, c)]
        given: list[Any] = [facts.around(call, cst.BaseComp) or call for call in made]
        for node in given:  # and what its names get in this statement
            own = (b for b in facts.bindings_in(top) if facts.uses(b.name, node))
            given += {getattr(b.node, "iter", b.value) for b in own} - {None, *given}
        changed |= {name for node in given for name in facts.loads_in(node) if facts.bindings(name)}
        needed = top in statements or not used.isdisjoint(changed)
        if needed or (wanted and _sets_environment(facts, top, variables)):
            wanted.append(top)
            read = ((name, use) for name in facts.loads_in(top) for use in facts.uses(name, top))
            names = {name for name, use in read if facts.statement(use) not in beside}
            used |= names - (set() if needed else {"os"})  # setup_env.py imports os
    return wanted[::-1]


def _sets_environment(facts: Facts, statement: Statement, variables: Mapping[cst.CSTNode, bool]) -> bool:
    """Match ``os.environ["TORCH"] = torch.__version__`` and ``%env A=1``: an install may read the variable."""
    named = {node: reads for node, reads in variables.items() if facts.contains(statement, node)}
    named |= {shell.call: False for shell in shell_calls_in(facts, statement) if shell.is_environment}
    own = all(c in named or facts.qualified(c.func) == "get_ipython" for c in facts.calls_in(statement))
    known = all(facts.is_imported(name) for name in facts.loads_in(statement) - {"get_ipython"})
    return isinstance(statement, cst.SimpleStatementLine) and own and known and False in named.values()


_STATES = (cst.With, cst.FunctionDef, cst.ClassDef, cst.AugAssign, cst.Del, cst.Global, cst.Nonlocal)
_LOUD = (*_STATES, cst.For, cst.While, cst.Match, cst.AnnAssign, cst.Return, cst.Raise, cst.Assert)
_OK = RUNNERS | {"get_ipython", "print", "__import__", "importlib.import_module", "importlib.util.find_spec"}


def _is_quiet(facts: Facts, node: cst.CSTNode, loud: Any = _LOUD, seen: Any = frozenset()) -> bool:
    """Return whether code only imports, assigns, installs or prints, or calls functions that do no more."""
    made = {call: () if loud is _LOUD else facts.called_functions(call) for call in facts.calls_in(node)}
    known: set[Any] = {call for call in made if made[call] or facts.qualified(call.func) in _OK}
    known |= {shell.call for shell in shell_calls_in(facts, node) if shell.is_install}
    targets = (item.target for item in facts.nodes(cst.AssignTarget, within=node))
    plain = all(isinstance(target, cst.Name | cst.Tuple) for target in targets)
    does = {e.value for e in facts.nodes(cst.Expr, within=node)} | {*(made if loud is not _LOUD else ())}
    plain &= does <= known and not facts.nodes(*loud, within=node)
    inner = (f for found in made.values() for f in found)
    return plain and all(f not in seen and _is_quiet(facts, f.body, loud, seen | {f}) for f in inner)
