"""Find secrets in texts: by their forms, also where code puts them together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nb2ddp.secrets.constants import HOLE, built
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


@dataclass(frozen=True)
class Match:
    """A secret with its value."""

    secret: Secret
    value: str


def scan(texts: Sequence[Text]) -> list[Secret]:
    """Return the secrets in texts that belong together, such as the cells of one notebook."""
    return _without_repeats(matches(texts))


def matches(texts: Sequence[Text]) -> list[Match]:
    """Return what the rules match in texts, as they are written and as code puts them together."""
    made = built(tuple(part.text if part.is_code else "" for part in texts))
    lowered = "\n".join([*(part.text for part in texts), *(one.text for one in made)]).lower()
    rules = [rule for rule in all_rules() if rule.may_be_in(lowered)]
    if not rules:
        return []
    found: list[Match] = []
    for part in texts:
        for rule, start, end in _in_text(part.text, rules):
            value = part.text[start:end]
            line = part.text.count("\n", 0, start) + 1
            found.append(Match(_secret(rule, part.place, line, value), value))
    for one in made:
        text = one.text
        for rule, start, end in _in_text(text, rules):
            if HOLE not in (value := text[start:end]):
                found.append(Match(_secret(rule, texts[one.index].place, one.line, value), value))
    return found


def _in_text(text: str, rules: list[Rule]) -> Iterator[tuple[Rule, int, int]]:
    """Yield what the rules match in a text: the rule, and where the secret begins and ends."""
    lowered = text.lower()
    for rule in rules:
        if not (rule.near or any(word in lowered for word in rule.keywords)):
            continue
        for match in rule.pattern.finditer(text):
            group = match.lastindex or 0
            start = match.start(group)
            before = text[max(text.rfind("\n", 0, start) + 1, start - 100) : start]
            if rule.takes(match[group]) and rule.fits_after(before):
                yield rule, start, match.end(group)


def _secret(rule: Rule, place: str, line: int, value: str) -> Secret:
    digest = hashlib.sha256(f"nb2ddp\0{value}".encode(errors="replace")).hexdigest()
    return Secret(rule.id, rule.description, place, line, rule.beginning(value), digest[:12])


_GENERAL = (*WRITTEN, "authorization-header")


def _without_repeats(found: list[Match]) -> list[Secret]:
    """Return each secret once.

    Left out are what a general rule has found in a line where a special one has found something, and a part
    of a string where the whole string was found.
    """
    special = {(one.secret.place, one.secret.line) for one in found if one.secret.rule not in _GENERAL}
    values: dict[tuple[str, str], set[str]] = {}
    for secret, value in ((one.secret, one.value) for one in found):
        values.setdefault((secret.place, secret.rule), set()).add(value)
    kept: dict[tuple[str, str, int], Secret] = {}
    for secret, value in ((one.secret, one.value) for one in found):
        others = values[secret.place, secret.rule]
        is_part = len(others) < 100 and any(value != other and value in other for other in others)
        if not is_part and not (secret.rule in _GENERAL and (secret.place, secret.line) in special):
            kept.setdefault((secret.fingerprint, secret.place, secret.line), secret)
    order = {secret.place: n for n, secret in reversed(list(enumerate(kept.values())))}
    return sorted(kept.values(), key=lambda secret: (order[secret.place], secret.line))
