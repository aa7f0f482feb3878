"""Replace notebook magics by the Python that they stand for.

``%env`` sets ``os.environ``, ``%cd`` changes the folder if it is there, ``%%writefile`` writes its file once. Magics
that only shape the notebook's display are dropped, and what reads the result of ``%run_ddp``. A magic that nb2ddp does
not know is left out with a note; one that runs code, as ``%run`` does, stops the conversion.

.. code-block:: diff

    -get_ipython().run_line_magic('env', 'WANDB_PROJECT=demo')
    +os.environ["WANDB_PROJECT"] = "demo"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import modules
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_zero_work import kept_open
from nb2ddp.analysis.shell_commands import ShellCall, shell_calls
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Decline, Drop, Edit, Finding, Note
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement, imported_modules
from nb2ddp.source.shell_text import command_code, literal

# Line magics that are shell commands.
COMMANDS = frozenset("ls cat cp mv rm mkdir rmdir pwd man less more ll pip conda mamba uv".split())
# Magics of IPython and its extensions that run code, or give names a value; others show something, or change a display.
_RUN = frozenset("run load loadpy store macro rerun recall alias script sql R cython julia px autopx".split())
_TIMING = frozenset({"time", "timeit", "prun"})  # where no code follows
# What %run_ddp binds its result to: `nb2ddp.jupyter.history.RESULT_NAME`.
_RESULT = "_ddp"
_NO_RESULT = f"this reads `{_RESULT}`, the result of %run_ddp, or what is made of it; a script has none"


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for shell in shell_calls(facts):
        if shell.is_install or shell.is_shell:
            continue
        kept = (a for a in facts.attributes if a.attr.value == "events" and facts.is_made_of(a, shell.call))
        asked = next(kept, facts.parent(shell.call)) if shell.kind == "bare" else None
        name = asked.attr.value if isinstance(asked, cst.Attribute) else shell.name
        if shell.kind == "line":
            yield from _line(facts, shell)
        elif shell.kind == "cell":
            yield from _cell(facts, shell)
        elif shell.kind == "bare" and name[:2] in ("", "__"):  # str(get_ipython()), if get_ipython():
            yield Edit.to(shell.call, "there is no IPython in a script", "None")
        elif name == "ast_node_interactivity":
            yield Drop(facts.statement(shell.call), "each value of a cell is shown, where it says so")
        else:
            why = f"get_ipython().{name} has no meaning in a script; remove it, or write it in Python"
            yield Decline(why, shell.call)
    yield from _imports(facts)
    yield from _of_results(facts)


def _imports(facts: Facts) -> Iterator[Finding]:
    """Remove ``from IPython import get_ipython``, which is no longer called."""
    for node in facts.nodes(cst.ImportFrom):
        names = () if isinstance(node.names, cst.ImportStar) else node.names
        if [cst_nodes.code_of(alias) for alias in names] == ["get_ipython"]:
            why, line = "there is no IPython in a script", facts.line_of(node)
            yield Edit(node, why, _small_statement) if line is None else Drop(line, why)


def _line(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    statement, line, os = facts.statement(shell.call), facts.parent(shell.call), facts.our("os")
    if not isinstance(line, cst.Expr):
        yield from _value(facts, shell)
    elif shell.name == "capture":
        if shell.text in facts.loaded_names - facts.bound_names:
            why = f"the output that %%capture keeps in {shell.text} is not there in a script"
            yield Decline(f"{why}; print it instead", shell.call)
        else:
            yield Drop(statement, "%%capture hides the output of a cell in the notebook")
    elif shell.is_environment:
        name, value = shell.variable(facts.names_at(shell.call))
        if not value:
            yield Drop(statement, f"%{shell.name} only shows variables")
            return
        code = f'{os}.environ["{name}"] = {value}'
        yield Edit(line, "%env sets an environment variable", partial(_small_statement, code=code))
    elif shell.name == "cd" and shell.folder[:1] == "-" != shell.folder:
        yield Decline("a script has no history that %cd could go back in; name the folder", shell.call)
    elif shell.name == "cd":
        code = f"{helper(facts, 'cd')}({command_code(shell.folder, facts.names_at(shell.call))})"
        yield Edit.to(shell.call, "%cd changes the working folder", code)
    elif shell.name in libraries.DISPLAY_MAGICS | (frozenset() if shell.text else _TIMING):
        yield Drop(statement, f"%{shell.name} is for the notebook alone")
    elif shell.name in COMMANDS:
        code = f"{helper(facts, 'shell')}({shell.code(facts.names_at(shell.call))})"
        yield Edit.to(shell.call, "runs once, on rank 0", code)
    elif shell.name in _RUN or re.search(r"<<|\w\(", shell.text):
        yield Decline(f"%{shell.name} runs code, or gives names a value; write it in Python", shell.call)
    else:
        why = f"%{shell.name} is left out, for a script has no such magic"
        yield Drop(statement, why, comment=f"%{shell.name} is left out")
        yield Note(f"{why}; if it does more than show something, write it in Python", shell.call)


def _value(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    """Replace a magic whose value is used: ``here = %pwd``."""
    if shell.name == "pwd":
        code = f"{facts.our('os')}.getcwd()"
    elif shell.name == "env" and shell.text.isidentifier():
        code = f'{facts.our("os")}.environ["{shell.text}"]'
    else:
        yield Decline(f"the value of %{shell.name} is not there in a script; write it in Python", shell.call)
        return
    yield Edit.to(shell.call, f"%{shell.name} in Python", code)


def _cell(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    if shell.name == "run_ddp":
        why = f"%%run_ddp {shell.text} trains nothing"
        yield Drop(facts.statement(shell.call), why, comment=f"{why}: what stood below it is left out")
    elif shell.name == "writefile":
        append, path = shell.text.startswith("-a "), command_code(shell.file, facts.names_at(shell.call))
        yield from _of_module(facts, shell)
        mode = ', "a"' if append else ""
        body = shell.body + "\n" * (shell.body[-1:] not in ("", "\n"))  # as IPython's
        code = f"{helper(facts, 'write_file')}({path}, {literal([body])}{mode})"
        yield Edit.to(shell.call, "%%writefile writes its file once, on rank 0", code)
    else:
        why = f"%%{shell.name} is a cell magic that nb2ddp does not know; write it in Python"
        yield Decline(why, shell.call)


def _of_module(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    """Decline a module that is written again after its import, and note one that keeps a file open."""
    module = shell.file.removeprefix("./").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    imports = [node for node in facts.nodes(cst.Import, cst.ImportFrom) if module in imported_modules(node)]
    reloads = (other.text for other in shell_calls(facts) if other.name == "autoreload")
    looks = not {"", "0", "off"}.issuperset(reloads)
    if looks and any(facts.order(node) < facts.order(shell.call) for node in imports):
        why = f"%autoreload reads {shell.file} again here, and a script reads a module once: write it before its import"
        yield Decline(why, shell.call)
    own = facts.once(modules.reader)(module) if imports else None
    if own and any(own.scope(call) is None and kept_open(own, call) is not None for call in own.live_calls):
        why = f"{shell.file} keeps a file open, to which every rank that imports it writes: open it in a cell"
        yield Note(why, shell.call)


def _of_results(facts: Facts) -> Iterator[Finding]:
    """Leave out what reads a result of %run_ddp, or is made of one."""
    if _RESULT in facts.bound_names or _RESULT not in facts.loaded_names:
        return

    lost, left_out = {_RESULT}, set[Statement]()
    while more := [s for s in facts.top_statements if s not in left_out and lost & facts.loads_in(s)]:
        left_out.update(more)
        rest = frozenset().union(*(facts.binds_in(s) for s in facts.top_statements if s not in left_out))
        lost.update(name for statement in more for name in facts.binds_in(statement) - rest)
    for statement in sorted(left_out, key=facts.order):
        parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else (statement,)
        reading = [part for part in parts if lost & facts.loads_in(part)]
        if facts.runs(statement, facts.is_collective):
            yield Decline(f"{_NO_RESULT}, and this trains with it: take it out here", statement)
        elif len(reading) == len(parts):
            yield Drop(statement, _NO_RESULT, comment=_NO_RESULT)
        else:
            yield from (Edit(part, _NO_RESULT, _small_statement) for part in reading)


def _small_statement(node: cst.CSTNode, code: str = "pass") -> cst.CSTNode:
    """Replace ``node`` by the statement ``code``; the rest of the line stays."""
    assert isinstance(node, cst.BaseSmallStatement)
    new = cst_nodes.statements(code)[0]
    assert isinstance(new, cst.SimpleStatementLine)
    return new.body[0].with_changes(semicolon=node.semicolon)
