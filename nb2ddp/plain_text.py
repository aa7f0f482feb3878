"""Keep text from outside (file names, titles, code, log lines) text wherever it is shown or written."""

from __future__ import annotations

import json
import re
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
