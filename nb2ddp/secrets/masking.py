"""Put a mark in the place of each secret in code that is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nb2ddp.secrets.constants import built
from nb2ddp.secrets.scan import Text, matches

_KEY_BODY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----(.{0,20000}?)-----END", re.DOTALL
)
_SHORTEST = (
    6  # characters of a part of a secret that is marked wherever it stands; a shorter one between quotes
)
_QUOTED = r"(?:(?<=[\"'}}])|(?<=%[sdr])){}(?=[\"'{{%])"
_HAS_LETTER = re.compile(r"[^\W_]")
_WORD = 12  # a shorter secret is marked where it stands alone; one of under 8 characters, where it stands in an address
_KEY_LINE = re.compile(
    r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{32,}={0,2}(?:(?:\\n|\s)+[A-Za-z0-9+/]{6,31}={0,2}(?![A-Za-z0-9+/=]))?"
)


def masker(texts: Sequence[str]) -> Callable[[str], str]:
    """Return a function that masks the secrets of these texts, which belong together, in any text.

    A secret that is written in parts is masked in each of them, in all of the texts; so are the lines of a private
    key, and what a secret is decoded from.
    """
    found = matches([Text("", text) for text in texts])
    marks: dict[str, str] = {}
    for one in found:
        if one.secret.rule != "private-key" and (one.secret.start or one.value not in marks):
            marks[one.value] = f"{one.secret.start}***"
    places = {value: _where(value) for value in marks}
    parts: set[str] = set()
    for made in built(tuple(texts)):
        spans = [key.span(1) for key in _KEY_BODY.finditer(made.text)]
        spans += [(at, at + len(value)) for value in marks if (at := made.text.find(value)) >= 0]
        parts.update(*(made.literals(*span) for span in spans))
    for part in parts - marks.keys():
        for line in filter(_HAS_LETTER.search, part.split("\n")):
            marks[line] = "***"
            places[line] = re.escape(line) if len(line) >= _SHORTEST else _QUOTED.format(re.escape(line))
    for text in texts:
        for key in _KEY_BODY.finditer(text):
            lines = [line for found in _KEY_LINE.finditer(key[1]) for line in re.split(r"\\n|\s+", found[0])]
            lines = [line for line in lines if len(line) >= _SHORTEST]
            marks.update(dict.fromkeys(lines, "***"))
            places.update(zip(lines, map(re.escape, lines), strict=True))
    if not marks:
        return lambda text: text
    pattern = re.compile("|".join(places[value] for value in sorted(places, key=len, reverse=True)))
    return lambda text: pattern.sub(lambda found: marks[found[0]], text)


def _where(value: str) -> str:
    """Return a pattern for a secret: `train` as a password is no reason to mask `trainer`."""
    if len(value) >= _WORD:
        return re.escape(value)
    if len(value) < 8:
        return rf"(?<=:){re.escape(value)}(?=@)"
    return rf"(?<![^\s:='\"]){re.escape(value)}(?![^\s@'\":,;)])"
