"""Read the text of shell lines: whether they install, and as Python's literals, with what IPython expands in them."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Sequence

from nb2ddp.source import ipython_syntax

_BUILTINS = frozenset(dir(builtins))
_INSTALL = re.compile(
    r"""^[\s(!]*(?:(?:then|else|do|exec|command|env|time|nohup)\s+)*
    (?:\w+=(?:"[^"]*"|'[^']*'|[^\s"'])*\s+)*(?:sudo\s+(?:-\w+\s+)*)?(?:nohup\s+|time\s+)?
    (?:
        (?:(?:\S*python[\d.]*|\{sys\.executable\})\s+-m\s+|\S*/)?
        (?:pip[\d.]*|uv(?:\s+pip)?|conda|mamba|apt|apt-get|dpkg|npm|yarn|brew)\s+(?:-\S+\s+)*
        (?:install|uninstall|update|upgrade|sync|remove|purge|add|-i)\b.*
      | (?:\S*python[\d.]*|\{sys\.executable\})\s+-m\s+ensurepip\b.*
      | \S*python[\d.]*\s+setup\.py\s+(?:-\S+\s+)*(?:install|develop)\b.*
      | pip3?-autoremove\b.*
      | rm\s.*(?:site|dist)-packages\b.*
      | (?:add-apt-repository|apt-key)\b.*
      | (?:curl|wget)\b.*(?:install|setup)\S*\.sh\b.*
    )""",
    re.VERBOSE | re.DOTALL,
)


def is_install(command: str) -> bool:
    """Return whether a shell command, or any part of ``a && b``, installs or removes packages."""
    return any(_INSTALL.match(part) for part in re.split(r"&&|[|;\n]", command.replace("\\\n", " ")))


def command_code(command: str, names: Collection[str]) -> str:
    """Return a command as a Python string literal: an f-string where IPython expands ``{name}`` and ``$name``.

    IPython expands either every expression of a line or, if one of them cannot be evaluated, none: the shell
    then gets ``{a,b}`` and ``$HOME`` as written. An expression can be evaluated if the notebook binds its names.
    """
    parts = ipython_syntax.expansions(command)
    if not all(_is_known(part.expression, names) for part in parts if part.expression is not None):
        return literal([command])
    texts, expressions = [""], []
    for part in parts:
        texts[-1] += part.text
        if part.expression is not None:
            expressions.append(part.expression.strip() + (f"!{part.conversion}" if part.conversion else ""))
            texts.append("")
    return literal(texts, expressions)


def expanded_names(command: str) -> list[str]:
    """List the names that the ``{expressions}`` and ``$names`` of a command read; none if IPython expands none."""
    parts = [part.expression for part in ipython_syntax.expansions(command) if part.expression is not None]
    read = [_names_read(part) for part in parts]
    return [name for names in read for name in names or ()] if None not in read else []


def _names_read(expression: str) -> list[str] | None:
    """Return the names that an expression reads and does not bind; None for what is no expression."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return None
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return [node.id for node in names if node.id not in own]


def _is_known(expression: str, known: Collection[str]) -> bool:
    """Return whether an expression can be evaluated from known names and builtins."""
    names = _names_read(expression)
    return names is not None and all(name in known or name in _BUILTINS for name in names)


def literal(texts: Sequence[str], expressions: Sequence[str] = ()) -> str:
    """Return texts, with expressions between them, as a readable literal, triple-quoted if it has several lines."""
    quote = _quote("".join(texts), "".join(expressions))
    bare = [re.sub("![rsa]$", "", code) for code in expressions]
    doubled = [text.replace("{", "{{").replace("}", "}}") for text in texts] if expressions else texts
    if quote is None or any("\\" in code or "lambda" in code or ":=" in code for code in expressions):
        fields = (code.removeprefix(part) for code, part in zip(expressions, bare, strict=True))
        body = "".join(f"{{{field}}}{text}" for field, text in zip(fields, doubled[1:], strict=True))
        return f"{literal([doubled[0] + body])}.format({', '.join(bare)})"  # Python 3.11 allows no f-string
    escaped = [_escaped(text, quote) for text in doubled]
    if texts[-1].endswith(quote[0]) and quote not in texts[-1]:
        escaped[-1] = f"{escaped[-1][:-1]}\\{quote[0]}"
    filled = (f" {code}" if code.startswith("{") else code for code in expressions)
    body = escaped[0] + "".join(f"{{{code}}}{text}" for code, text in zip(filled, escaped[1:], strict=True))
    return f"{'f' if expressions else ''}{quote}{body}{quote}"


def _quote(text: str, expressions: str) -> str | None:
    """Return quotes that need no escapes if there are any; the expressions must not contain them (Python 3.11)."""
    several = ['"""', "'''"] if "\n" in text else []
    usable = [q for q in (*several, '"', "'", '"""', "'''") if q not in expressions]
    clean = (q for q in usable if q not in text and not text.endswith(q[0]))
    return next(clean, usable[0] if usable else None)


def _escaped(text: str, quote: str) -> str:
    kept = {"\n"} if len(quote) == 3 else set()
    text = text.replace("\\", "\\\\")
    text = "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)
    return text.replace(quote[0], "\\" + quote[0]) if quote in text else text
