"""Write the run-once install step, setup_env.py, from the statements that `analysis.installs` found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.installs import InstallPlan
from nb2ddp.analysis.shell_commands import RUNNERS, ShellCall, shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Drop, Edit, Finding, Rule
from nb2ddp.source import cst_nodes
from nb2ddp.source.shell_text import command_code, literal


def setup_rule(step: InstallPlan) -> Rule:
    """Return the rule that leaves only the install step of a notebook."""
    kept = set(step.slice)

    def find(facts: Facts, options: Options) -> Iterator[Finding]:
        for line in step.beside:
            yield Drop(line, "no part of the installation")
        cells = {facts.cell(statement) for statement in kept}
        for statement in facts.top_statements:
            if statement not in kept and facts.cell(statement) in cells:
                yield Drop(statement, "no part of the installation", with_comments=True)
        for shell in shell_calls(facts):
            is_python = facts.qualified(shell.call.func) in RUNNERS
            if facts.top_statement(shell.call) in kept and not is_python:
                yield Edit(shell.call, "run in a shell", _runner(facts, shell))

    return Rule("install-step", "", find)


def _runner(facts: Facts, shell: ShellCall) -> Callable[[cst.CSTNode], cst.CSTNode]:
    if shell.kind == "line" and shell.name == "cd":
        folder = command_code(shell.folder, facts.bound_names)
        return lambda _: cst_nodes.expression(f"change_folder({folder})")
    if shell.is_environment:
        name, value = shell.variable(facts.bound_names)
        return lambda _: cst_nodes.expression(
            f'os.environ.update({{"{name}": {value}}})' if value else "None"
        )
    if shell.name == "writefile":
        path, text = command_code(shell.file, facts.bound_names), literal([shell.body])
        mode = "a" if shell.text.startswith("-a ") else "w"
        return lambda _: cst_nodes.expression(f'open({path}, "{mode}", encoding="utf-8").write({text})')
    code = shell.code(facts.bound_names)
    function = "shell_output" if shell.kind == "output" else "shell"
    return lambda _: cst_nodes.expression(f"{function}({code})")
