"""Small helpers to put programs together from lines."""

from __future__ import annotations

from collections.abc import Iterable

Lines = list[str]


def lines(text: str) -> Lines:
    """The lines of a block of code, without the empty ones at its ends."""
    return text.strip("\n").split("\n") if text.strip() else []


def indent(block: Iterable[str], depth: int = 1) -> Lines:
    return [("    " * depth + line) if line else line for line in block]


def under(head: str, block: Lines) -> Lines:
    """``head`` and its indented block; a block without lines gets ``pass``."""
    return [head, *indent(block or ["pass"])]
