"""Notebook magics become the Python that they stand for.

``%env`` sets ``os.environ``, ``%cd`` changes the folder, ``%%writefile`` writes its file once. Magics that
only shape the notebook's display are dropped. A magic that we do not know stops the conversion.

.. code-block:: diff

    -get_ipython().run_line_magic('env', 'WANDB_PROJECT=demo')
    +os.environ["WANDB_PROJECT"] = "demo"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts
from nb2ddp.rewrite import Decline, Drop, Edit, Finding, Need, Note, Options, Rule
from nb2ddp.shell import ShellCall, command_code, literal, shell_calls

# Magics that shape the notebook alone.
DISPLAY = frozenset(
    "matplotlib pylab load_ext reload_ext unload_ext autoreload config precision pinfo pinfo2 psearch who whos "
    "who_ls xmode colors history hist doctest_mode tensorboard lsmagic magic quickref pdb debug "
    "automagic autosave reset_selective memit".split()
)
# Line magics that are shell commands.
COMMANDS = frozenset("ls cat cp mv rm mkdir rmdir pwd man less more ll".split())


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    for shell in shell_calls(facts):
        if shell.is_install or shell.kind in ("system", "output"):
            continue
        if shell.kind == "bare":
            yield from _bare(facts, shell)
        elif shell.kind == "line":
            yield from _line(facts, shell)
        elif shell.kind == "cell":
            yield from _cell(facts, shell)
        else:
            yield Decline(f"get_ipython().{shell.name} has no meaning in a script; remove it", shell.call)


def _bare(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    """``str(get_ipython())`` and ``if get_ipython():`` ask where they run: not in a notebook."""
    attribute = facts.parent(shell.call)
    if isinstance(attribute, cst.Attribute) and not attribute.attr.value.startswith("__"):
        yield Decline(
            f"get_ipython().{attribute.attr.value} has no meaning in a script; remove it", shell.call
        )
    else:
        yield Edit(shell.call, "there is no IPython in a script", partial(cstkit.replaced, code="None"))


def _line(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    statement = facts.statement(shell.call)
    if not isinstance(facts.parent(shell.call), cst.Expr):
        yield from _value(facts, shell)
    elif shell.name == "capture" and shell.text in facts.loaded_names:
        yield Decline(f"the output that %%capture keeps in {shell.text} is not there in a script", shell.call)
    elif shell.name in ("env", "set_env"):
        name, separator, value = shell.text.partition("=" if "=" in shell.text else " ")
        if not separator:
            yield Drop(statement, f"%{shell.name} only shows variables")
            return
        if re.search(r"\s#", value):
            yield Note(
                f"IPython keeps the comment as part of {name.strip()}'s value, and so does the script",
                shell.call,
            )
        code = f'os.environ["{name.strip()}"] = {command_code(value.strip(), facts.bound_names)}'
        yield Edit(statement, "%env sets an environment variable", partial(_statement, code=code))
    elif shell.name == "cd":
        folder = shell.text.removeprefix("-q ").strip().strip("\"'") or "~"
        if folder.startswith("-"):
            yield Decline(f"%cd {folder}: a script has no history of folders; name the folder", shell.call)
            return
        path = command_code(folder, facts.bound_names)
        code = f"os.chdir(os.path.expanduser({path}))" if folder.startswith("~") else f"os.chdir({path})"
        yield Edit(statement, "%cd changes the working folder", partial(_statement, code=code))
    elif shell.name in DISPLAY or shell.name in ("capture", "time", "timeit", "prun") and not shell.text:
        yield Drop(statement, f"%{shell.name} is for the notebook alone")
    elif shell.name in COMMANDS:
        code = f"{facts.our('shell')}({shell.code(facts.bound_names)})"
        yield Need("shell")
        yield Edit(shell.call, "runs once, on rank 0", partial(cstkit.replaced, code=code))
    else:
        yield Decline(f"%{shell.name} is a magic that nb2ddp does not know; write it in Python", shell.call)


def _value(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    """A magic whose value is used: ``here = %pwd``."""
    if shell.name == "pwd":
        code = "os.getcwd()"
    elif shell.name == "env" and shell.text.isidentifier():
        code = f'os.environ["{shell.text}"]'
    else:
        yield Decline(f"the value of %{shell.name} is not there in a script; write it in Python", shell.call)
        return
    yield Edit(shell.call, f"%{shell.name} in Python", partial(cstkit.replaced, code=code))


def _cell(facts: Facts, shell: ShellCall) -> Iterator[Finding]:
    if shell.name == "bash":
        return
    if shell.name == "writefile":
        append = shell.text.startswith("-a ")
        path = command_code(shell.text.removeprefix("-a ").strip().strip("\"'"), facts.bound_names)
        mode = ', "a"' if append else ""
        code = f"{facts.our('write_file')}({path}, {literal(shell.body)}{mode})"
        yield Need("write_file")
        yield Edit(
            shell.call,
            "%%writefile writes its file once, on rank 0",
            partial(cstkit.replaced, code=code),
        )
    else:
        yield Decline(
            f"%%{shell.name} is a cell magic that nb2ddp does not know; write it in Python", shell.call
        )


def _statement(node: cst.CSTNode, code: str) -> cst.CSTNode:
    """The one small statement ``code`` on the line ``node``, with the comments of that line."""
    assert isinstance(node, cst.SimpleStatementLine)
    new = cstkit.statements(code)[0]
    assert isinstance(new, cst.SimpleStatementLine)
    return node.with_changes(body=new.body)


rule = Rule("magics", __doc__, find)
