"""Keep text from outside (file names, titles, code, log lines) text wherever it is shown or written."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

# C0 and C1 controls but tab and line feed, bidirectional marks, line separators, halves of characters.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def docstring_safe(text: str) -> str:
    """Return ``text`` as one line that neither ends a docstring or comment nor escapes anything in it.

    Double quotes become single ones; backslashes, line breaks, control characters, bidirectional marks and
    surrogates become ``_``.
    """
    return "".join(c if c.isprintable() and c != "\\" else "_" for c in text.replace('"', "'"))


def terminal_safe(text: str) -> str:
    """Return ``text`` with control characters, bidirectional marks and surrogates as visible escapes.

    Line breaks and tabs stay.
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def markup_safe(text: str) -> str:
    """Return markup without the characters that HTML and SVG files cannot hold, as U+FFFD."""
    return _UNSAFE.sub("\ufffd", text)


def json_text(document: Any) -> str:
    """Return ``document`` as indented JSON that any terminal can show and UTF-8 can encode."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_IN_BACKTICKS = re.compile(r"`[^`]*`")


def wrapped(line: str, width: int) -> str:
    """Return a line broken between words; what follows stands below the line's last column that a gap begins.

    What stands in backticks is to be copied, and stays on one line.
    """
    if len(line) <= width:
        return line
    gaps = [gap.end() for gap in re.finditer(" {2,}", line) if gap.end() < width // 2]
    indent = gaps[-1] if gaps else 0
    if not line[:indent].strip():
        indent += 2
    whole = _IN_BACKTICKS.sub(lambda found: found[0].replace(" ", "\0"), line)
    return textwrap.fill(
        whole, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    ).replace("\0", " ")
