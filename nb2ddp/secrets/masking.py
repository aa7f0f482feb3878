"""Put a mark in the place of each secret in code that is shown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from nb2ddp.secrets.scan import ENCODED, Text, joined, matches

_KEY_BODY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----(.{0,20000}?)-----END", re.DOTALL
)
_SHORTEST = 6  # characters of a piece of a secret that is worth a mark
_WORD = 12  # a shorter secret is marked where it stands alone; one of under 8 characters, where it stands in an address
_KEY_LINE = re.compile(
    r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{32,}={0,2}(?:(?:\\n|\s)+[A-Za-z0-9+/]{6,31}={0,2}(?![A-Za-z0-9+/=]))?"
)


def masker(texts: Sequence[str]) -> Callable[[str], str]:
    """Return a function that masks the secrets of these texts, which belong together, in any text.

    A secret that is written in parts is masked in each of them; so are the lines of a private key, and a
    secret in base64.
    """
    parts = [Text("", text) for text in texts]
    marks: dict[str, str] = {}
    for secret, value in matches(parts):
        if secret.rule != "private-key" and (secret.start or value not in marks):
            marks[value] = f"{secret.start}***"
    values = tuple(marks)
    for text in texts:
        for value in values:
            marks.update(dict.fromkeys(_pieces(text, value), "***"))
        marks.update((found[1], "***") for found in ENCODED.finditer(text) if values)
        for key in _KEY_BODY.finditer(text):
            lines = [line for found in _KEY_LINE.finditer(key[1]) for line in re.split(r"\\n|\s+", found[0])]
            marks.update((line, "***") for line in lines if len(line) >= _SHORTEST)
    if not marks:
        return lambda text: text
    pattern = re.compile("|".join(map(_where, sorted(marks, key=len, reverse=True))))
    return lambda text: pattern.sub(lambda found: marks[found[0]], text)


def _where(value: str) -> str:
    """Return a pattern for a secret: `train` as a password is no reason to mask `trainer`."""
    if len(value) >= _WORD:
        return re.escape(value)
    if len(value) < 8:
        return rf"(?<=:){re.escape(value)}(?=@)"
    return rf"(?<![^\s:='\"]){re.escape(value)}(?![^\s@'\":,;)])"


def _pieces(text: str, value: str) -> list[str]:
    """Return the pieces in which a value is written in a text, if it is in more than one."""
    whole, offsets = joined(text)
    start = whole.find(value)
    if start < 0:
        return []
    cuts = [cut for cut, _ in offsets if start < cut < start + len(value)]
    ends = [start, *cuts, start + len(value)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(ends)]
    return [piece for piece in pieces if len(piece) >= _SHORTEST] if cuts else []
