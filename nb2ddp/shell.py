"""Shell lines and magics, as the IPython transformer leaves them: what they are and what they say."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp import cstkit
from nb2ddp.facts import Facts

_SHELL_METHODS = frozenset({"system", "system_raw", "system_piped"})
_INSTALL = re.compile(
    r"""^\s*(?:\w+=\S*\s+)*(?:sudo\s+(?:-\w+\s+)*)?(?:nohup\s+|time\s+)?
    (?:
        (?:\S*python[\d.]*|\{sys\.executable\})\s+-m\s+(?:pip|uv|ensurepip)\b.*
      | (?:\S*/)?(?:pip3?|uv(?:\s+pip)?|conda|mamba|apt|apt-get|dpkg|npm|yarn|brew)\s+(?:-\S+\s+)*
        (?:install|uninstall|update|upgrade|sync|remove|purge|add|-i)\b.*
      | pip3?-autoremove\b.*
      | (?:curl|wget)\b.*(?:install|setup)\S*\.sh\b.*
    )""",
    re.VERBOSE | re.DOTALL,
)
_EXPANSION = re.compile(r"\{\{|\}\}|\{([^{}\n]+)\}|\$\$|\$([A-Za-z_]\w*)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, eq=False)
class ShellCall:
    """One ``get_ipython()`` call: ``kind`` is system, output, line, cell or bare.

    ``name`` is the magic's; ``text`` the command or the magic's arguments; ``body`` a cell magic's body.
    """

    call: cst.Call
    kind: str
    name: str = ""
    text: str = ""
    body: str = ""

    @property
    def is_install(self) -> bool:
        """Whether it sets the machine up, rather than doing something for this run."""
        if self.kind in ("system", "output"):
            return is_install(self.text)
        if self.kind == "line":
            return self.name in ("pip", "conda", "mamba", "uv") and is_install(f"{self.name} {self.text}")
        if self.kind == "cell" and self.name == "bash":
            return is_install_script(self.body)
        return False

    @property
    def command(self) -> str:
        """What the shell is to run."""
        if self.kind == "line":
            return f"{self.name} {self.text}".strip()
        return self.body if self.kind == "cell" else self.text.strip()

    def code(self, names: Collection[str]) -> str:
        """The command as Python; IPython expands variables in lines, and leaves a ``%%bash`` body alone."""
        return literal([self.body]) if self.kind == "cell" else command_code(self.command, names)


def is_install(command: str) -> bool:
    """Whether a shell command installs packages (``a && b`` counts if any part does)."""
    return any(_INSTALL.match(part) for part in re.split(r"&&|\|\||;|\n", command))


def is_install_script(body: str) -> bool:
    """Whether a ``%%bash`` body sets the machine up; the rest of it can only leave files."""
    return is_install(re.sub(r"\\\n", " ", body))


def shell_calls(facts: Facts) -> Iterator[ShellCall]:
    """Every ``get_ipython()`` call of the notebook, and ``os.system`` where it installs."""
    inner: set[cst.CSTNode] = set()
    for call in facts.calls:
        func = call.func
        if facts.qualified(func) == "os.system" and call.args:
            text = cstkit.string_value(call.args[0].value)
            if text is not None and is_install(text):
                yield ShellCall(call, "system", text=text)
            continue
        if isinstance(func, cst.Attribute) and _is_get_ipython(func.value):
            inner.add(func.value)
            texts = [cstkit.string_value(argument.value) or "" for argument in call.args]
            attr = func.attr.value
            if attr in _SHELL_METHODS and texts:
                yield ShellCall(call, "system", text=texts[0])
            elif attr == "getoutput" and texts:
                yield ShellCall(call, "output", text=texts[0])
            elif attr in ("run_line_magic", "magic") and texts:
                name, text = texts[0], texts[1] if len(texts) > 1 else ""
                if attr == "magic":
                    name, _, text = name.partition(" ")
                yield ShellCall(call, "line", name, text.strip())
            elif attr == "run_cell_magic" and len(texts) == 3:
                yield ShellCall(call, "cell", texts[0], texts[1], texts[2])
            else:
                yield ShellCall(call, "other", attr)
        elif _is_get_ipython(call) and call not in inner:
            yield ShellCall(call, "bare")


def command_code(command: str, names: Collection[str]) -> str:
    """The command as a Python literal: ``{name}`` and ``$name`` of notebook variables become an f-string.

    IPython expands them from the notebook's variables and leaves all others to the shell; so do we, by the
    names that the notebook binds.
    """
    known = {*names, *dir(builtins)}
    parts: list[str] = [""]  # text, expression, text, ...
    position = 0
    for match in _EXPANSION.finditer(command):
        parts[-1] += command[position : match.start()]
        position = match.end()
        expression, variable = match.groups()
        if match.group() in ("{{", "}}", "$$"):
            parts[-1] += match.group()[0]
        elif expression is not None and _is_known(expression, known):
            parts += [expression.strip(), ""]
        elif variable is not None and variable in names:
            parts += [variable, ""]
        else:
            parts[-1] += match.group()
    parts[-1] += command[position:]
    return literal(parts[::2], parts[1::2])


def _is_known(expression: str, known: Collection[str]) -> bool:
    """Whether ``{expression}`` can be worked out from known names; ``{a,b}`` and ``{1..3}`` are the shell's."""
    if not _NAME.match(expression.strip()):
        return False
    try:
        tree = ast.parse(f"f{'{' + expression + '}'!r}", mode="eval")
    except (SyntaxError, ValueError):
        return False
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return all(node.id in known or node.id in own for node in names)


def literal(texts: Sequence[str], expressions: Sequence[str] = ()) -> str:
    """A readable literal of texts with expressions between them: one line, or the very lines in triple quotes."""
    quote = _quote("".join(texts), "".join(expressions))
    escaped = [_escaped(text, quote) for text in texts]
    if not expressions:
        return quote + escaped[0] + quote
    first, *rest = (text.replace("{", "{{").replace("}", "}}") for text in escaped)
    body = first + "".join(
        f"{{{expression}}}{text}" for expression, text in zip(expressions, rest, strict=True)
    )
    return f"f{quote}{body}{quote}"


def _quote(text: str, expressions: str) -> str:
    """The quotes that need no escapes, where there are such; expressions must not hold them (Python 3.11)."""
    several = ['"""', "'''"] if "\n" in text else []
    usable = [q for q in (*several, '"', "'", '"""', "'''") if q not in expressions]
    clean = (q for q in usable if q not in text and not text.endswith(q[0]))
    return next(clean, usable[0] if usable else '"')


def _escaped(text: str, quote: str) -> str:
    kept = {"\n"} if len(quote) == 3 else set()
    text = "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode()
        for c in text.replace("\\", "\\\\")
    )
    return text.replace(quote[0], "\\" + quote[0]) if quote in text or text.endswith(quote[0]) else text


def _is_get_ipython(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "get_ipython"
