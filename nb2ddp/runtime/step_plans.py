"""Plan which rank computes which micro-batches of a step, and which of their rows.

The costliest goes first, each to the rank with the least to do. Where rows may be divided, the micro-batch is cut in
two by their length as long as that makes the step shorter: it evens out the ranks, or short rows carry less padding.
"""

import functools
import itertools
from collections.abc import Collection
from typing import Any, NamedTuple

import torch

from nb2ddp.runtime.micro_batch_rows import _Part, _Rows
from nb2ddp.runtime.run_state import _run

_LEAST = 0.02  # of a step, that a cut has to save
_CUTS = 8  # that are tried of one micro-batch


class _Unit(NamedTuple):
    """What one rank computes in one call: a micro-batch, or some of its rows."""

    micro_batch: int
    part: _Part | None
    rank: int


class _Division(NamedTuple):
    """How the rows of a micro-batch are divided, and how the parts are computed."""

    rows: _Rows
    parts: list[_Part]
    trims: bool = False  # each part leaves out the padding that all of its rows have
    drops: bool = False  # each part drops out what the whole does
    shows_trims: bool | None = None  # whether padding may be left out, if these parts give the whole


def _planned(
    whole: list[_Rows], divisible: dict[int, _Rows], *, trims: bool, left_out: Collection[int] = ()
) -> list[_Unit]:
    """Return the units of a step in the order of micro-batches: of ``divisible`` ones also parts."""
    units: list[tuple[int, _Part | None]] = [(i, None) for i in range(len(whole)) if i not in left_out]
    costs: list[float] = [whole[i].cost for i, _ in units]
    least = _makespan(costs)
    while True:
        found: Any = None
        for place, (i, part) in enumerate(units):
            rows = divisible.get(i)
            for pieces in [] if rows is None else _cuts(rows, part):
                of = [rows.cost_of(piece, trims=trims) for piece in pieces] if rows is not None else []
                tried = [*costs[:place], *of, *costs[place + 1 :]]
                if (length := _makespan(tried)) < least * (1 - _LEAST):
                    least, found = length, (place, [(i, piece) for piece in pieces], tried)
        if found is None:
            break
        place, pieces, costs = found
        units[place : place + 1] = pieces
    owners, _ = _assigned(costs)
    return [_Unit(i, part, rank) for (i, part), rank in zip(units, owners, strict=True)]


def _equal_parts(rows: _Rows, *, by_length: bool = False) -> list[_Part]:
    """Return a micro-batch's rows in a part of equal size for each rank; fewer parts where it has fewer rows."""
    order = sorted(range(len(rows.lengths)), key=lambda row: rows.lengths[row] if by_length else row)
    size = min(len(order), _run.world_size)
    bounds = [len(order) * rank // size for rank in range(size + 1)] if size else []
    return [tuple(sorted(order[a:b])) for a, b in itertools.pairwise(bounds)]


def _cuts(rows: _Rows, part: _Part | None) -> list[tuple[_Part, _Part]]:
    """Return some ways to cut rows in two, shorter and longer ones."""
    every = range(len(rows.lengths)) if part is None else part
    order = sorted(every, key=lambda row: (rows.lengths[row], row))
    places = sorted({round(len(order) * number / _CUTS) for number in range(1, _CUTS)} - {0, len(order)})
    return [(tuple(sorted(order[:place])), tuple(sorted(order[place:]))) for place in places]


def _makespan(costs: list[float]) -> float:
    """Return how long a step takes; half as much counts what all ranks compute, for the next cut begins there."""
    _, loads = _assigned(costs)
    return max(loads) + sum(loads) / len(loads) / 2


def _assigned(costs: list[float]) -> tuple[list[int], list[float]]:
    """Return the rank of each unit, and what each rank has to do."""
    owners, loads = [0] * len(costs), [0.0] * _run.world_size
    for unit in sorted(range(len(costs)), key=lambda unit: -costs[unit]):
        owners[unit] = loads.index(min(loads))
        loads[owners[unit]] += costs[unit] + _cost_of_a_call()
    return owners, loads


@functools.cache
def _cost_of_a_call() -> int:
    """Return what a call costs whatever its length, in tokens."""
    return 256 if torch.cuda.is_available() else 16  # not at import: the script has not chosen its GPU yet
