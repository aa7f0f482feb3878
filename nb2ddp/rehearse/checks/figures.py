"""The check of the figures: what rank 0 prints and its Trainers log, beside what the notebook does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from nb2ddp.rehearse.evidence import Evidence, Fault, Point, relative
from nb2ddp.rehearse.observed import Rank

_UNIT = r"(?:ms|s|secs?|seconds?|mins?|minutes?|h|hours?|it/s)\b"  # of a time
_NUMBER = re.compile(
    rf"(?<![\w.])[-+]?(?>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?=\W|$|{_UNIT})|\bnan\b|\binf\b"
)
_VARIES = re.compile(r"runtime|per_second|_time$|flos|memory|num_tokens")  # what differs from run to run
_UNIT_OF_TIME = re.compile(rf"\s*{_UNIT}")
_TIME = re.compile(r"(?i)\b(?:time|took|elapsed|eta)\b\W{0,3}$")  # what stands before a time
_TOLERANCE = 2e-3
_ROUNDED = 1e-4  # the last digit of a loss that a Trainer logs

Number = tuple[float, float]
"""A number, and the unit of the last digit that is shown of it."""
Figure = tuple[str, tuple[Number, ...], int | None]
"""The text around the numbers, the numbers, and the line of the script."""


def figures(evidence: Evidence) -> Point:
    """Check that each figure that the script prints or logs, and the notebook too, is the notebook's."""
    plain = dict(_paired(_figures(evidence.one), _figures(evidence.plain)))
    faults: list[Fault] = []
    compared = 0
    for own, found in _paired(_figures(evidence.one), _figures(evidence.ranks[0])):
        alone = plain.get(own)
        if alone is not None and _differ(own, alone) and evidence.plain.losses == evidence.one.losses:
            continue  # a time, say: it differs in one process too
        compared += len(own[1])
        if _differ(own, found) and not faults and not evidence.other_losses:
            (one, _), (other, _) = next(pair for pair in zip(own[1], found[1], strict=True) if _far(*pair))
            text = " ".join(own[0].split())[:60]
            sentence = f'rank 0 gives {other:g} where the notebook gives {one:g} ("{text}")'
            faults.append(Fault("other-figures", sentence, found[2]))
    said = f"{compared} figures compared with the notebook's"
    if not compared:
        said = "no figure of the notebook is printed"
    return Point(3, "figures", said, tuple(faults), seen=compared > 0)


def _figures(rank: Rank) -> list[Figure]:
    found: list[Figure] = []
    for note in rank.of("print", "log"):
        if note["kind"] == "log":
            names = sorted(name for name in note["values"] if not _VARIES.search(name))
            found += [(f"{name}: #", ((note["values"][name], _ROUNDED),), note.get("line")) for name in names]
        elif numbers := tuple(map(_number, _NUMBER.finditer(note["text"]))):
            found.append((_NUMBER.sub("#", note["text"]), numbers, note.get("line")))
    return found


def _number(found: re.Match[str]) -> Number:
    """Return a number that was printed; a time may be any."""
    mantissa, _, exponent = found[0].lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    if _UNIT_OF_TIME.match(found.string, found.end()) or _TIME.search(found.string[: found.start()]):
        return float(found[0]), math.inf
    return float(found[0]), 10.0**-decimals if "." in mantissa else 0.0


def _paired(own: Sequence[Figure], others: Sequence[Figure]) -> Iterator[tuple[Figure, Figure]]:
    """Yield the figures of the same text, the first with the first; a text that is not there as often is left out."""
    by_text: dict[str, tuple[list[Figure], list[Figure]]] = {}
    for side, figures in enumerate((own, others)):
        for figure in figures:
            by_text.setdefault(figure[0], ([], []))[side].append(figure)
    for mine, found in by_text.values():
        if len(mine) == len(found):
            yield from zip(mine, found, strict=True)


def _differ(one: Figure, other: Figure) -> bool:
    return any(_far(a, b) for a, b in zip(one[1], other[1], strict=True))


def _far(one: Number, other: Number) -> bool:
    (a, unit), (b, _) = one, other
    same = a == b or (a != a and b != b) or relative(a, b) <= _TOLERANCE
    return not same and not abs(a - b) <= 1.01 * unit
