"""The shards of a model that all ranks train together (FSDP), put together as the numbers of one model."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nb2ddp.rehearse.observed import Rank


@dataclass(frozen=True)
class Whole:
    """The trained numbers of all ranks. ``missing``: how many no rank holds. ``apart``: how many two hold unequally."""

    numbers: array[float]
    missing: int
    apart: int


def are_sharded(ranks: Sequence[Rank]) -> bool:
    """Return whether a rank holds but a part of the trained parameters."""
    return any(rank.pieces is not None for rank in ranks)


def joined(ranks: Sequence[Rank]) -> Whole | None:
    """Return what the ranks hold after the last step, put together; None where that is not known."""
    held = [(rank.numbers(), rank.pieces) for rank in ranks]
    totals = [[total for _, _, total in pieces or ()] for _, pieces in held]
    if not totals[0] or any(other != totals[0] for other in totals):
        return None
    whole = array("f", bytes(4 * sum(totals[0])))
    filled = bytearray(len(whole))
    apart = 0
    for numbers, pieces in held:
        if numbers is None or pieces is None or len(numbers) != sum(count for _, count, _ in pieces):
            return None
        taken = 0
        for place, count in _places(pieces):
            own = numbers[taken : taken + count]
            taken += count
            if any(filled[place : place + count]):
                apart += sum(a != b for a, b in zip(own, whole[place : place + count], strict=True))
            else:
                whole[place : place + count] = own
                filled[place : place + count] = b"\1" * count
    return Whole(whole, filled.count(0), apart)


def _places(pieces: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where each piece begins among all numbers, and how long it is."""
    start = 0
    for first, count, total in pieces:
        yield start + first, count
        start += total
