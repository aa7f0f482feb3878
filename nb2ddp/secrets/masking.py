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
            lines = re.split(r"\\n|[^A-Za-z0-9+/=]", key[1])
            marks.update((line, "***") for line in lines if len(line) >= _SHORTEST)
    if not marks:
        return lambda text: text
    pattern = re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
    return lambda text: pattern.sub(lambda found: marks[found[0]], text)


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
