"""The outcome of a check."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "skip"]

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Outcome:
    """One line of the report: what was seen, and what to do about it (never empty for "warn" and "fail")."""

    status: Status
    seen: str
    to_do: str = ""


def ok(seen: str) -> Outcome:
    return Outcome("ok", seen)


def warn(seen: str, to_do: str) -> Outcome:
    """Return a warning: training may work, but not as well as it could."""
    return Outcome("warn", seen, to_do)


def fail(seen: str, to_do: str) -> Outcome:
    """Return a failure: training on several GPUs will not work."""
    return Outcome("fail", seen, to_do)


def skip(why: str, to_do: str = "") -> Outcome:
    """Return that this was not checked."""
    return Outcome("skip", why, to_do)


def size(count: int) -> str:
    """Return a number of bytes for people: "15 GiB", "64 MiB"."""
    return f"{count / _GIB:.0f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def command(*words: object) -> str:
    """Return a command that can be copied from the report into a shell."""
    return f"`{shlex.join(map(str, words))}`"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 GPU", "2 GPUs"; "1 process", "2 processes"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
