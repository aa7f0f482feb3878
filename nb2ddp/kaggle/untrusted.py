"""Check what a server, a log or a downloaded file says before it is used or shown."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, the clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?"
)
_KEPT_CONTROLS = "\n\r\t"


def shown(value: object, limit: int = 300) -> str:
    """Return a value as one short line that is safe on a terminal: control characters are escaped."""
    text = value if isinstance(value, str) else _repr(value)
    if len(text) > limit:
        text = f"{text[:limit]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, a deep list
        return f"<{type(value).__name__}>"


def text_of(value: object) -> str:
    """Return a text as it is, and "" for anything else."""
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float | None:
    """Return a finite number of ordinary size, and None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def count_of(value: object) -> int | None:
    """Return a whole number of ordinary size, and None for anything else."""
    return value if number_of(value) is not None and isinstance(value, int) else None


def list_of(value: object) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def dict_of(value: object) -> dict[str, Any]:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


class TerminalFilter:
    """Take from a log what a terminal would obey, but for line ends, tabs and colours."""

    def __init__(self) -> None:
        self._rest = ""

    def __call__(self, text: str) -> str:
        """Return the next piece; a sequence that is cut off at its end waits for the piece after it."""
        text = self._rest + text
        start = text.rfind("\x1b", max(0, len(text) - 200))
        is_cut = start >= 0 and not _COLOUR.match(text, start) and _is_open(text[start:])
        self._rest = text[start:] if is_cut else ""
        return _filtered(text[:start] if is_cut else text)

    def end(self) -> str:
        """Return what still waits."""
        rest, self._rest = self._rest, ""
        return _filtered(rest)


def _is_open(tail: str) -> bool:
    return re.fullmatch(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07]*|[PX^_].*)?", tail, re.DOTALL) is not None


def _filtered(text: str) -> str:
    parts = []
    position = 0
    for match in _SEQUENCE.finditer(text):
        parts.append(text[position : match.start()])
        if _COLOUR.fullmatch(match[0]):
            parts.append(match[0])
        position = match.end()
    parts.append(text[position:])
    return "".join(part if part.startswith("\x1b") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c for c in text if c in _KEPT_CONTROLS or unicodedata.category(c) not in ("Cc", "Cs"))
