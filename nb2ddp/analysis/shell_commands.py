"""Find shell lines and magics in the form that IPython's transformer gives them, and read their commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.source import cst_nodes
from nb2ddp.source.shell_text import command_code, is_install, literal

RUNNERS = frozenset("os.system subprocess.run subprocess.call subprocess.check_call".split())
_SHELL_METHODS = frozenset({"system", "system_raw", "system_piped"})


@dataclass(frozen=True, eq=False)
class ShellCall:
    """A shell line or magic: a ``get_ipython()`` call. ``kind`` is system, output, line, cell, bare or other.

    ``name`` is the magic's name, ``text`` the command or the magic's arguments, ``body`` a cell magic's body, and
    ``computed`` the code of a command that is no literal.
    """

    call: cst.Call
    kind: str
    name: str = ""
    text: str = ""
    body: str = ""
    computed: str = ""

    @property
    def is_install(self) -> bool:
        """Return whether the command installs software, which is needed once per machine."""
        if self.kind in ("system", "output"):
            return is_install(self.text)
        if self.kind == "line":
            return self.name in ("pip", "conda", "mamba", "uv") and is_install(f"{self.name} {self.text}")
        return self.kind == "cell" and self.name == "bash" and is_install(self.body)

    @property
    def is_shell(self) -> bool:
        """Return whether a shell runs it, and not IPython: a line, or a ``%%bash`` cell."""
        return self.kind in ("system", "output") or (self.kind == "cell" and self.name == "bash")

    @property
    def is_environment(self) -> bool:
        """Return whether it sets or shows variables of the environment."""
        return self.kind == "line" and self.name in ("env", "set_env")

    @property
    def file(self) -> str:
        """Return the file that ``%%writefile`` writes."""
        return self.text.removeprefix("-a ").strip().strip("\"'")

    @property
    def folder(self) -> str:
        """Return the folder that ``%cd`` names, without quotes and backslashes, as a shell reads it."""
        return re.sub(r"""(\{[^{}]*\})|\\(.)|["']""", r"\1\2", self.text.removeprefix("-q ").strip()) or "~"

    @property
    def command(self) -> str:
        """Return the command line or script that the shell runs."""
        if self.kind == "line":
            return f"{self.name} {self.text}".strip()
        return self.body if self.kind == "cell" else self.text.strip()

    def code(self, names: Collection[str]) -> str:
        """Return the command as Python code.

        IPython expands variables in a shell line, but not in the body of ``%%bash``.
        """
        text = literal([self.body]) if self.kind == "cell" else command_code(self.command, names)
        return self.computed or text

    def variable(self, names: Collection[str]) -> tuple[str, str]:
        """Return the variable that ``%env A=1`` sets, and its value as Python code; no value where it only shows it."""
        name, separator, value = self.text.partition("=" if "=" in self.text else " ")
        return name.strip(), command_code(value.strip(), names) if separator else ""


@asked_once
def shell_calls(facts: Facts) -> Sequence[ShellCall]:
    """List every ``get_ipython()`` call, and each ``os.system`` or ``subprocess.run`` that installs."""
    found: list[ShellCall] = []
    inner: set[cst.CSTNode] = set()
    for call in facts.calls:
        func = call.func
        if facts.qualified(func) in RUNNERS and call.args:
            text = _given_command(facts, call)
            if text is not None and is_install(text):
                found.append(ShellCall(call, "system", text=text))
            continue
        if isinstance(func, cst.Attribute) and _is_shell(facts, func.value):
            inner.add(func.value)
            known = [cst_nodes.string_value(argument.value) for argument in call.args]
            texts, attr = [text or "" for text in known], func.attr.value
            if attr in (*_SHELL_METHODS, "getoutput") and texts:
                computed = cst_nodes.code_of(call.args[0].value) if known[0] is None else ""
                kind = "output" if attr == "getoutput" else "system"
                found.append(ShellCall(call, kind, text=texts[0], computed=computed))
            elif attr in ("run_line_magic", "magic") and texts and None not in known:
                name, _, text = " ".join(texts).strip().partition(" ")
                found.append(ShellCall(call, "line", name, text.strip()))
            elif attr == "run_cell_magic" and len(texts) == 3 and None not in known:
                found.append(ShellCall(call, "cell", texts[0], texts[1], texts[2]))
            else:
                found.append(ShellCall(call, "other", attr))
        elif _is_get_ipython(facts, call) and call not in inner:
            found.append(ShellCall(call, "bare"))
    return found


def shell_calls_in(facts: Facts, node: cst.CSTNode) -> Sequence[ShellCall]:
    """Return those of `shell_calls` that are inside ``node``."""
    return facts.part(node, shell_calls(facts), lambda shell: facts.order(shell.call))


def _is_shell(facts: Facts, node: cst.BaseExpression) -> bool:
    """Match ``get_ipython()``, and the names and attributes that keep it: ``self.shell``."""
    made = facts.assigned(node.attr.value) if isinstance(node, cst.Attribute) else [facts.bound(node)]
    held = [value for value in made if not cst_nodes.is_word(value, "None")]
    return bool(held) and all(_is_get_ipython(facts, value) for value in held)


def _given_command(facts: Facts, call: cst.Call) -> str | None:
    """Return the command line of ``os.system`` or ``subprocess.run``; None if it cannot be read off the call."""
    given = call.args[0].value
    if facts.qualified(call.func) == "os.system":
        return cst_nodes.string_value(given)
    elsewhere = facts.keyword(call, "cwd") or facts.keyword(call, "env")  # another folder or environment
    kept = cst.Expr | cst.Assign if isinstance(call.func, cst.Attribute) else cst.Expr
    if elsewhere or not isinstance(facts.parent(call), kept):
        return None  # it stays where it is, or the script reads the result
    if not isinstance(given, cst.List | cst.Tuple):
        return cst_nodes.string_value(given)
    parts = []
    for element in given.elements:
        text = cst_nodes.string_value(element.value)
        if text is None and not isinstance(element.value, cst.Name | cst.Attribute):
            return None
        parts.append(shlex.quote(text) if text is not None else f"{{{cst_nodes.code_of(element.value)}}}")
    return " ".join(parts)


def _is_get_ipython(facts: Facts, node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Call) and facts.qualified(node.func).rpartition(".")[2] == "get_ipython"
