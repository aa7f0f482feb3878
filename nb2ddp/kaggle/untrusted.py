"""Check what a server, a log or a downloaded file says before it is used or shown."""

from __future__ import annotations

import contextlib
import math
import re
import unicodedata
from typing import Any

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_SEQUENCE = re.compile(
    r"(\x1b\][^\x07\x1b]*(?:\x07|\x1b\\?)?"  # OSC: titles, links, the clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\?)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?)"
)
_LONGEST = 200  # characters of a sequence that is waited for
_KEPT = "\n\r\t\x1b"  # of the control characters; of escapes, only colours are left


def shown(value: object, limit: int = 300) -> str:
    """Return a value as one short line that is safe on a terminal: control characters are escaped."""
    text = value if isinstance(value, str) else f"<{type(value).__name__}>"
    if not isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):  # an int of thousands of digits, a deep list
            text = repr(value)
    if len(text) > limit:
        text = f"{text[:limit]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


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
        """Return the next piece; a sequence at its end, which may be cut off, waits for the piece after it."""
        pieces = _SEQUENCE.split(self._rest + text)  # every other one is a sequence
        self._rest = ""
        if len(pieces) > 1 and not pieces[-1] and len(pieces[-2]) < _LONGEST:
            self._rest, pieces[-2] = pieces[-2], ""
        pieces[1::2] = [piece if _COLOUR.fullmatch(piece) else "" for piece in pieces[1::2]]
        kept = (c for c in "".join(pieces) if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cs"))
        return "".join(kept)

    def end(self) -> str:
        """Return what still waits."""
        rest, self._rest = self._rest, ""
        return rest if _COLOUR.fullmatch(rest) else ""
