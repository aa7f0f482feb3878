"""Which statements install something, and what they need: the run-once step ``setup_env.py``.

The step is a slice of the notebook: every top-level statement that installs, and the statements before it
that give it its names (versions worked out, imports). Nothing else of the notebook runs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts, Statement
from nb2ddp.rewrite import Drop, Edit, Finding, Need, Options, Rule
from nb2ddp.shell import ShellCall, shell_calls


# The script's init block imports these.
_PROVIDED = frozenset({"os", "sys", "torch"})


@dataclass(frozen=True)
class InstallPlan:
    """``slice``: statements of the step. ``dropped``: installs to take out of the training script.
    ``leftovers``: what is useless there without them. ``silenced``: installs that are part of something else."""

    slice: tuple[Statement, ...]
    dropped: tuple[Statement, ...]
    leftovers: tuple[Statement, ...]
    silenced: tuple[ShellCall, ...]


def plan(facts: Facts) -> InstallPlan:
    """Find the installs and cut the notebook in two."""
    tops: dict[Statement, list[ShellCall]] = {}
    for shell in shell_calls(facts):
        if shell.is_install:
            tops.setdefault(facts.top_statement(shell.call), []).append(shell)
    wanted = _slice(facts, list(tops))
    lines = {top: [_line_of(facts, shell) for shell in shells] for top, shells in tops.items()}
    useless = {top for top in wanted if lines.get(top) != [top] and _is_quiet(facts, top)}
    while True:  # what stays in the script may need what was to go
        gone = [*useless, *(line for top in tops if top not in useless for line in lines[top] if line)]
        needed = {
            top
            for top in useless
            if any(facts.is_read_outside(name, *gone) for name in facts.binds_in(top) - _PROVIDED)
        }
        if not needed:
            break
        useless -= needed
    mixed = [top for top in tops if top not in useless]
    return InstallPlan(
        slice=tuple(wanted),
        dropped=tuple(dict.fromkeys(line for top in mixed for line in lines[top] if line)),
        leftovers=tuple(top for top in wanted if top in useless),
        silenced=tuple(shell for top in mixed for shell in tops[top] if _line_of(facts, shell) is None),
    )


def _line_of(facts: Facts, shell: ShellCall) -> Statement | None:
    """The line that is this install and nothing else."""
    line = facts.statement(shell.call)
    match line:
        case cst.SimpleStatementLine(body=[cst.Expr(value=value)]) if value is shell.call:
            return line
        case _:
            return None


def setup_rule(step: InstallPlan) -> Rule:
    """The rule that leaves only the install step of a notebook."""
    kept = set(step.slice)

    def find(facts: Facts, options: Options) -> Iterator[Finding]:
        cells = {facts.cell(statement) for statement in kept}
        for statement in facts.top_statements:
            if statement not in kept and facts.cell(statement) in cells:
                yield Drop(statement, "no part of the installation", with_comments=True)
        for shell in shell_calls(facts):
            if facts.top_statement(shell.call) in kept:
                yield Need("shell")
                yield Edit(shell.call, "run in a shell", _runner(facts, shell))

    return Rule("install-step", "", find)


def _runner(facts: Facts, shell: ShellCall) -> Callable[[cst.CSTNode], cst.CSTNode]:
    code = shell.code(facts.bound_names)
    function = "shell_output" if shell.kind == "output" else "shell"
    return lambda _: cstkit.expression(f"{function}({code})")


def _slice(facts: Facts, statements: list[Statement]) -> list[Statement]:
    """The statements, and those before them that bind names they use, in order."""
    wanted = {*statements}
    queue = list(statements)
    while queue:
        statement = queue.pop()
        names = _used_names(facts, statement)
        for other in facts.top_statements:
            if facts.order(other) >= facts.order(statement):
                break
            if other not in wanted and facts.binds_in(other) & names:
                wanted.add(other)
                queue.append(other)
    return sorted(wanted, key=facts.order)


def _used_names(facts: Facts, statement: Statement) -> frozenset[str]:
    """Names that a statement reads, also inside its shell lines."""
    names = set(facts.loads_in(statement))
    for shell in shell_calls(facts):
        if facts.contains(statement, shell.call):
            code = shell.code(facts.bound_names)
            if code.startswith("f"):
                tree = cst.parse_expression(code)
                names |= {n.value for n in _names(tree)}
    return frozenset(names)


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    if isinstance(node, cst.Name):
        yield node
    for child in node.children:
        yield from _names(child)


def _is_quiet(facts: Facts, node: cst.CSTNode) -> bool:
    """Whether a statement changes no state but its own names: imports, assignments, installs, prints."""
    match node:
        case cst.SimpleStatementLine(body=parts):
            return all(_is_quiet(facts, part) for part in parts)
        case cst.Import() | cst.ImportFrom() | cst.Pass():
            return True
        case cst.Assign(targets=targets):
            return all(isinstance(t.target, cst.Name | cst.Tuple) for t in targets)
        case cst.Expr(value=cst.Call() as call):
            name = facts.qualified(call.func)
            return name == "print" or any(s.call is call and s.is_install for s in shell_calls(facts))
        case cst.If(body=body, orelse=orelse):
            return _is_quiet(facts, body) and (orelse is None or _is_quiet(facts, orelse))
        case cst.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            rest = [h.body for h in handlers] + [part.body for part in (orelse, final) if part is not None]
            return all(_is_quiet(facts, part) for part in [body, *rest])
        case cst.Else(body=body):
            return _is_quiet(facts, body)
        case cst.IndentedBlock(body=parts) | cst.SimpleStatementSuite(body=parts):
            return all(_is_quiet(facts, part) for part in parts)
        case _:
            return False
