"""The forms of secrets that are known, from ``rules.toml``, and what is a placeholder.

The forms are our own, written after what the issuers document, because no maintained set fits. Of 67 kinds
in tests/unit/secrets/test_found.py, which notebooks that train use, detect-secrets 1.5 (May 2024) has a form for 15
and its kept fork bc-detect-secrets for 12, none of them for Hugging Face, Kaggle, Weights & Biases or a model's
API; its entropy checks find most of the others, and something in 42 of the 48 lines that have to stay silent. It
also brings requests and PyYAML, and a second to import. gitleaks, betterleaks and Kingfisher come to Python as
binaries of 20 to 55 MB. A rule has a gitleaks rule's keys, so that one can be moved from there by hand.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

_ENTROPY = 3.0  # bits per character that a rule asks for unless it says otherwise
_DISTINCT = 8  # characters of a long secret that differ; a placeholder like hf_xxxxxxxx has fewer

_PLACEHOLDER = re.compile(
    r"(?i:x{5,}|\*{3}|\.{3}|…|your|example|placeholder|dummy|change_?me|insert|replace|redacted|<[^>]*>|todo|fixme"
    r"|sample|(.)\1{7,}|undefined|not_?needed|(?:goes_?|token_?|key_?)here|my_?(?:token|key|secret|password|api)"
    r"|^(?:secret_?(?:name|key|value)|(?:api_?)?key|password|passwd|fake)[\d!._-]{0,8}$)"
    r"|abcdefghijkl|ABCDEFGHIJKL"
)
WRITTEN = ("named-secret", "environment-secret", "setting-secret", "option-secret", "token-in-url")
"""Rules that know a secret by what is written before it, and not by its form."""

_PLAIN_URL_PASSWORD = re.compile(
    r"(?i)(?:pass(?:word|wd)?|pwd|secret|token|user(?:name)?|key|x+|\*+|\.+|\d{1,5})"
)


@dataclass(frozen=True)
class Rule:
    """One form of secret. The first group that matched is the secret, or else the whole match."""

    id: str
    description: str
    regex: str
    keywords: Sequence[str]
    entropy: float = _ENTROPY
    near: str | None = None
    after: str | None = None
    not_after: str | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    def fits_after(self, before: str) -> bool:
        """Return whether a match may stand behind this text."""
        if self.after and not re.search(self.after, before):
            return False
        return not (self.not_after and re.search(self.not_after, before))

    def may_be_in(self, lowered: str) -> bool:
        """Return whether a text, which is given in lower case, is worth a search."""
        return (self.near is None or self.near in lowered) and any(word in lowered for word in self.keywords)

    def beginning(self, value: str) -> str:
        """Return what a value has in common with all secrets of this form, or an empty text."""
        lowered = value.lower()
        words = [word for word in self.keywords if lowered.startswith(word) and word[-1] in "_-."]
        return value[: len(max(words, key=len))] if words and len(value) >= 20 else ""

    def takes(self, value: str) -> bool:
        """Return whether a match is no placeholder and as random as the rule asks for."""
        if self.id == "private-key":
            return True
        if self.id == "password-in-url":
            return not _PLAIN_URL_PASSWORD.fullmatch(value) and not value.startswith(("%", "["))
        body = max(re.split(r"[\W_]", value, maxsplit=1), key=len) if len(value) < 200 else value
        if len(set(body)) < _DISTINCT or _PLACEHOLDER.search(value):
            return False
        if self.id in WRITTEN and not _is_random(value):
            return False
        return entropy_of(value) >= self.entropy


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return the rules of ``rules.toml``."""
    text = files("nb2ddp.secrets").joinpath("rules.toml").read_text(encoding="utf-8")
    return tuple(Rule(**entry) for entry in tomllib.loads(text)["rules"])


def entropy_of(text: str) -> float:
    """Return the Shannon entropy of a text in bits per character.

    >>> entropy_of("aabb")
    1.0
    """
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) if text else 0.0


def _is_random(value: str) -> bool:
    """Return whether a value looks drawn and not written: letters and digits mixed, no path, no call."""
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return False
    if re.search(r"://|[()\[\]]|^[./~]|^\w+/[\w.-]+$", value):  # an address, a call, a path, a model's name
        return False
    words = re.findall(r"[A-Za-z]{4,}", value)
    switch = r"[a-z][0-9]|[0-9][a-z]|[a-z][A-Z]|[A-Z][0-9]|[0-9][A-Z]"
    if not re.search(r"[-_.:]", value):  # no words that are joined: "a1b" switches twice
        switch = f"(?={switch})"
    return len(re.findall(switch, value)) >= max(4, 2 * len(words))
