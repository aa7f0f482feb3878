"""Highlight Python code as HTML, line by line. The only module that knows Pygments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter

from markupsafe import Markup, escape

_MOST_TEXT = 200_000
"""Longer code is shown without colours: the lexer's time grows with it, and a page that large is rarely read."""


def highlighted(text: str) -> Sequence[Markup]:
    """Return the lines of a text, split at line feeds; tokens are spans with one of six classes."""
    plain = [escape(line) for line in text.split("\n")]
    if len(text) > _MOST_TEXT:
        return plain
    from pygments.lexers.python import PythonLexer
    from pygments.token import Token

    classes = {
        Token.Comment: "co",
        Token.Literal.String: "st",
        Token.Literal.Number: "nu",
        Token.Keyword: "kw",
        Token.Operator.Word: "kw",
        Token.Name.Function: "fu",
        Token.Name.Class: "fu",
        Token.Name.Decorator: "de",
    }
    names: dict[object, str] = {}
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        if kind not in names:
            names[kind] = next((name for token, name in classes.items() if kind in token), "")
        first, *others = value.split("\n")
        lines[-1].append((names[kind], first))
        lines += [[(names[kind], part)] for part in others]
    if len(lines) != len(plain):  # the lexer takes a byte order mark away
        return plain
    return [Markup("".join(_spans(line))) for line in lines]


def _spans(parts: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, group in itertools.groupby(parts, key=itemgetter(0)):
        text = str(escape("".join(part for _, part in group)))
        yield f'<span class="{name}">{text}</span>' if name and text else text
