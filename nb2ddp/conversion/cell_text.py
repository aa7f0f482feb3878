"""Make a cell's text what IPython runs: commands without a ``%``, and imports from ``__future__`` in mid-cell."""

from __future__ import annotations
import __future__

import re

from nb2ddp.source import ipython_syntax
from nb2ddp.source.syntax_check import NOT_PYTHON, check

# Magics that are shell commands, which IPython runs without their `%` where no variable has the name.
_COMMANDS = r"pip3?|conda|mamba|uv|ls|ll|cd|pwd|mkdir|rmdir|cp|mv|rm|cat|less|more"
_AUTOMAGIC = re.compile(rf"({_COMMANDS})(?:[ \t]+(?!\S{{0,2}}=|[(\[,:]|(?:in|is|and|or|if|not)\b).*)?\s*$")
_FEATURE = "|".join(__future__.all_feature_names)
_FUTURE = re.compile(rf"from __future__ import (?:(?:{_FEATURE})\b[\s,]*)+(?:#.*)?")


def with_automagic(source: str, bound: frozenset[str]) -> str:
    """Return a cell's text with a ``%`` before commands such as ``pip install x``, as IPython reads them.

    ``bound`` are the names that the notebook gives a value: a variable goes before a command of its name.
    """
    if source.startswith("%%"):
        return source
    lines = source.split("\n")
    quotes, goes_on = 0, False
    for number, line in enumerate(lines):
        found = _AUTOMAGIC.match(line)
        if found and found[1] not in bound and not goes_on and quotes % 2 == 0:
            lines[number] = f"%{'pip' if found[1] == 'pip3' else found[1]}{line[found.end(1) :]}"
        quotes += len(re.findall(r'"""|\'\'\'', line))
        goes_on = line.rstrip().endswith(("\\", "(", "[", "{", ","))
    return "\n".join(lines)


def without_futures(source: str) -> tuple[str, list[str]]:
    """Return a cell's text with empty lines for its imports from ``__future__``, and these imports."""
    found = [line.strip() for line in source.split("\n") if _FUTURE.fullmatch(line.strip())]
    if not found or _is_valid(source):
        return source, []
    lines = ["" if line.strip() in found else line for line in source.split("\n")]
    return "\n".join(lines), found


def _is_valid(source: str) -> bool:
    try:
        check(ipython_syntax.to_python(source).text)
    except NOT_PYTHON:
        return False
    return True
