"""Find secrets in texts: by their forms, also where a string is written in parts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nb2ddp.secrets.rules import WRITTEN, Rule, all_rules


@dataclass(frozen=True)
class Secret:
    """A secret that was found; the value itself is kept nowhere.

    start: what all secrets of the kind begin with, such as ``hf_``.
    fingerprint: what ``--allow-secret`` takes, a digest of the value alone: a notebook, its script and the
    Kaggle bundle repeat one another, and the same value is the same secret in each of them.
    """

    rule: str
    description: str
    place: str
    line: int
    start: str
    fingerprint: str

    @property
    def kind(self) -> str:
        """Return what it is, with its common beginning: "Hugging Face token (hf_…)"."""
        return f"{self.description} ({self.start}…)" if self.start else self.description

    def __str__(self) -> str:
        return f"{self.place}, line {self.line}: {self.kind} [{self.fingerprint}]"


@dataclass(frozen=True)
class Text:
    """A part of a notebook, or a file; ``is_code`` where strings may be written in parts."""

    place: str
    text: str
    is_code: bool = True


def scan(texts: Sequence[Text]) -> list[Secret]:
    """Return the secrets in texts that belong together, such as the cells of one notebook."""
    return _without_repeats(matches(texts))


def matches(texts: Sequence[Text]) -> list[tuple[Secret, str]]:
    """Return what the rules match in texts, with the values."""
    texts = [*texts, *(text for part in texts for text in _encoded(part))]
    everything = "\n".join(part.text for part in texts)
    whole = {id(part): joined(part.text) for part in texts if part.is_code}
    everything += "\n".join(text for text, _ in whole.values() if text)
    lowered = everything.lower()
    rules = [rule for rule in all_rules() if rule.may_be_in(lowered)]
    if not rules:
        return []
    found: list[tuple[Secret, str]] = []
    for part in texts:
        found += _in_text(part.text, None, part, rules)
        found += _in_text(*whole.get(id(part), ("", [])), part, rules)
    return found


ENCODED = re.compile(r"""b64decode\(\s{0,3}[rbfuRBFU]{0,2}["']([A-Za-z0-9+/_=-]{16,4000})["']""")


def _encoded(part: Text) -> Iterator[Text]:
    """Yield what the code decodes from base64, behind as many line breaks as stand before it."""
    for match in ENCODED.finditer(part.text) if part.is_code else ():
        with contextlib.suppress(ValueError):
            text = base64.b64decode(
                match[1] + "==", altchars="-_" if set(match[1]) & set("-_") else None
            ).decode()
            yield Text(part.place, "\n" * part.text.count("\n", 0, match.start()) + text, is_code=False)


def _in_text(
    text: str, offsets: list[tuple[int, int]] | None, part: Text, rules: list[Rule]
) -> Iterator[tuple[Secret, str]]:
    lowered = text.lower()
    for rule in rules:
        if not text or not (rule.near or any(word in lowered for word in rule.keywords)):
            continue
        for match in rule.pattern.finditer(text):
            group = match.lastindex or 0
            value, start = match[group], match.start(group)
            before = text[max(text.rfind("\n", 0, start) + 1, start - 100) : start]
            if rule.takes(value) and rule.fits_after(before):
                position = start if offsets is None else _original(offsets, start)
                yield _secret(rule, part.place, part.text.count("\n", 0, position) + 1, value), value


def _secret(rule: Rule, place: str, line: int, value: str) -> Secret:
    digest = hashlib.sha256(f"nb2ddp\0{value}".encode(errors="replace")).hexdigest()
    return Secret(rule.id, rule.description, place, line, rule.beginning(value), digest[:12])


_GENERAL = (*WRITTEN, "authorization-header")


def _without_repeats(found: list[tuple[Secret, str]]) -> list[Secret]:
    """Return each secret once.

    Left out are what a general rule has found in a line where a special one has found something, and a part
    of a string where the whole string was found.
    """
    special = {(secret.place, secret.line) for secret, _ in found if secret.rule not in _GENERAL}
    values: dict[tuple[str, str], set[str]] = {}
    for secret, value in found:
        values.setdefault((secret.place, secret.rule), set()).add(value)
    kept: dict[tuple[str, str, int], Secret] = {}
    for secret, value in found:
        others = values[secret.place, secret.rule]
        is_part = len(others) < 100 and any(value != other and value in other for other in others)
        if not is_part and not (secret.rule in _GENERAL and (secret.place, secret.line) in special):
            kept.setdefault((secret.fingerprint, secret.place, secret.line), secret)
    order = {secret.place: n for n, secret in reversed(list(enumerate(kept.values())))}
    return sorted(kept.values(), key=lambda secret: (order[secret.place], secret.line))


# ---------------------------------------------------------------------------------------------------------
# Strings in parts

_BETWEEN = re.compile(r"""(?<!\\)(["'])(?:[ \t]*\+?[ \t]*(?:\\?\r?\n[ \t]*)?\+?[ \t]*)[rbfuRBFU]{0,2}["']""")
_JOIN = re.compile(r"""(["'])\1\.join\(\s*[\[(]([^\])]{0,2000})[\])]""")
_COMMA = re.compile(r"""(["'])\s*,\s*[rbfuRBFU]{0,2}["']""")


def joined(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text with adjacent strings put together, and where its pieces come from.

    Empty where there is nothing to put together. ``"hf_" "abc"``, ``"hf_" + "abc"`` and
    ``"".join(["hf_", "abc"])`` become ``"hf_abc"``.
    """
    cuts = [match.span() for match in _BETWEEN.finditer(text)]
    for listed in _JOIN.finditer(text):
        cuts += [match.span() for match in _COMMA.finditer(text, *listed.span(2))]
    if not cuts:
        return "", []
    pieces, offsets, position, length = [], [], 0, 0
    for start, end in sorted(cuts):
        if start < position:
            continue
        offsets.append((length, position))
        pieces.append(text[position:start])
        length += start - position
        position = end
    offsets.append((length, position))
    pieces.append(text[position:])
    return "".join(pieces), offsets


def _original(offsets: list[tuple[int, int]], position: int) -> int:
    index = bisect_right(offsets, (position, len(offsets) and float("inf"))) - 1
    joined, original = offsets[index]
    return original + position - joined
