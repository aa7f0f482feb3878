"""Share out an optimizer step's samples evenly, by their lengths.

DDP waits in every step for the rank with the most work. Where rows differ in length, the notebook's order gives
one rank more tokens than the others, and two GPUs come to 1.5 to 1.7 times the speed of one. Here the set of
samples of each optimizer step stays the notebook's. Length decides which rank takes a micro-batch of the
notebook's (batches="dealt"), or which rank takes a sample, and in which micro-batch (batches="even"). A loss that
is a mean over the step's tokens is the same as in one process.

A padded micro-batch costs its rows times its longest row: rows of like lengths go together. A padding-free one
costs its tokens and leaves nothing to save: the tokens are spread evenly over the micro-batches too, for short
ones would cost the GPU's launches all the same. Shares are a pure function of the lengths, so every rank finds
the same ones without asking the others.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

_Share = list[list[int]]  # one rank's micro-batches of a step: positions in the step's samples


def _count_micro_batches(samples: int, world_size: int, batch_size: int) -> int:
    """Return how many micro-batches each rank takes of a step with so many samples.

    As few as the batch size allows, yet no more than leave a sample for each: with 8 samples in batches of
    1 on 3 ranks these are 2, of which some hold two rows.
    """
    if samples < world_size:
        raise ValueError(f"{samples} samples cannot be shared among {world_size} ranks")
    return min(math.ceil(samples / (world_size * batch_size)), samples // world_size)


def _share_evenly(
    lengths: Sequence[int],
    world_size: int,
    batch_size: int,
    *,
    micro_batches: int = 0,
    padded: bool = True,
    equal_counts: bool = True,
    longest: int = 0,
) -> list[_Share]:
    """Return each rank's micro-batches of one optimizer step, as positions in ``lengths``.

    Every rank gets the same number of micro-batches (``micro_batches``, or as few as ``batch_size`` allows) and
    none is empty; together they hold each sample once. With ``equal_counts`` they hold as many rows as one another
    (or differ by one, where the samples do not divide). Without it a micro-batch may hold more rows than
    ``batch_size`` if they are short: never more tokens, padding included, than ``batch_size`` rows of ``longest``.
    The slowest rank never has more to do than with the notebook's own micro-batches taken in turns, and where
    nothing is gained, as with rows of equal length, these are what comes back. Otherwise each rank's most
    expensive micro-batch comes first.
    """
    micro_batches = micro_batches or _count_micro_batches(len(lengths), world_size, batch_size)
    cost = _Cost(lengths, padded)
    order = sorted(range(len(lengths)), key=lambda sample: (-lengths[sample], sample))
    room = batch_size * max(longest, lengths[order[0]])
    in_turns = _in_turns(len(lengths), world_size, micro_batches)
    plans = [*in_turns]
    if not equal_counts:
        if padded:
            plans += _like_lengths(order, world_size, micro_batches, cost, room)
        else:
            plans += _spread(order, world_size, micro_batches, cost, len(order), room)
    even = _spread(order, world_size, micro_batches, cost, math.ceil(len(order) / world_size), None)
    plans += _in_rows(order, even, world_size, micro_batches, cost) if padded else even
    best = min(plans, key=lambda plan: max(map(cost.of_share, plan)))
    if best in in_turns:
        return best
    return [
        [sorted(batch) for batch in sorted(share, key=lambda batch: (-cost.of_batch(batch), min(batch)))]
        for share in best
    ]


class _Cost:
    """What a micro-batch costs in time and memory: its tokens, padding included."""

    def __init__(self, lengths: Sequence[int], padded: bool) -> None:
        self.lengths = lengths
        self.padded = padded

    def of_batch(self, batch: Sequence[int]) -> int:
        rows = [self.lengths[sample] for sample in batch]
        return len(rows) * max(rows) if self.padded else sum(rows)

    def of_share(self, share: _Share) -> int:
        return sum(map(self.of_batch, share))


def _in_turns(samples: int, ranks: int, micro_batches: int) -> list[list[_Share]]:
    """Return micro-batches in the notebook's order, taken in turns by the ranks; [] where they do not divide."""
    size, rest = divmod(samples, ranks * micro_batches)
    if rest:
        return []
    batches = [list(range(start, start + size)) for start in range(0, samples, size)]
    return [[batches[rank::ranks] for rank in range(ranks)]]


def _lightest_first(
    samples: Iterable[int], bins: int, cost: _Cost, fewest: int, most: int
) -> list[list[int]]:
    """Hand out samples, longest first, each to the bin with the least work, ``fewest`` to ``most`` a bin."""
    samples = list(samples)
    filled: list[list[int]] = [[] for _ in range(bins)]
    loads = [0] * bins
    for place, sample in enumerate(samples):
        missing = sum(max(fewest - len(held), 0) for held in filled)
        spare = len(samples) - place > missing
        free = [
            number for number, held in enumerate(filled) if len(held) < most and (spare or len(held) < fewest)
        ]
        lightest = min(free, key=lambda number: (loads[number], number))
        filled[lightest].append(sample)
        loads[lightest] += cost.lengths[sample]
    return filled


def _spread(
    order: Sequence[int], ranks: int, micro_batches: int, cost: _Cost, most: int, room: int | None
) -> list[list[_Share]]:
    """Spread the tokens over the ranks, then each rank's over its micro-batches; [] if they do not fit."""
    fewest = micro_batches if room else len(order) // ranks
    plan = []
    for held in _lightest_first(order, ranks, cost, fewest, most):
        rows = math.ceil(len(held) / micro_batches)
        limits = (1, len(held)) if room else (len(held) // micro_batches, rows)
        plan.append(_lightest_first(held, micro_batches, cost, *limits))
    if room and any(cost.of_batch(batch) > room for share in plan for batch in share):
        return []
    return [plan]


def _in_rows(
    order: Sequence[int], even: list[list[_Share]], ranks: int, micro_batches: int, cost: _Cost
) -> list[list[_Share]]:
    """Cut rows sorted by length into padded micro-batches: the whole step's, and each rank's own."""
    sorted_shares = []
    for share in even[0]:
        held = sorted((sample for batch in share for sample in batch), key=lambda s: (-cost.lengths[s], s))
        sorted_shares.append(_cut(held, micro_batches))
    return [_assign(_cut(order, ranks * micro_batches), ranks, cost), sorted_shares]


def _cut(samples: Sequence[int], pieces: int) -> list[list[int]]:
    """Cut samples into pieces of one size; where they do not divide, the last ones hold one more."""
    size, longer = divmod(len(samples), pieces)
    bounds = [number * size + max(number - (pieces - longer), 0) for number in range(pieces + 1)]
    return [list(samples[start:end]) for start, end in itertools.pairwise(bounds)]


def _assign(batches: list[list[int]], ranks: int, cost: _Cost) -> list[_Share]:
    """Assign micro-batches to ranks, the most expensive first; to each as many, or one fewer at the end."""
    most = math.ceil(len(batches) / ranks)
    shares: list[_Share] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for batch in sorted(batches, key=lambda batch: (-cost.of_batch(batch), batch[0])):
        free = [number for number, share in enumerate(shares) if len(share) < most]
        lightest = min(free, key=lambda number: (loads[number], number))
        shares[lightest].append(batch)
        loads[lightest] += cost.of_batch(batch)
    return shares


def _like_lengths(
    order: Sequence[int], ranks: int, micro_batches: int, cost: _Cost, room: int
) -> list[list[_Share]]:
    """Cut the sorted rows where the padding is least, or the most expensive micro-batch is cheapest."""
    plans = []
    for power in (1, 2, 4):
        cut = _cheapest_cut(order, ranks * micro_batches, cost, power, room)
        if cut is not None:
            plans.append(_assign(cut, ranks, cost))
    return plans


def _cheapest_cut(
    order: Sequence[int], pieces: int, cost: _Cost, power: int, room: int
) -> list[list[int]] | None:
    """Cut sorted rows into pieces with the least sum of (rows x longest) ** power; None where none fits.

    Many rows are cut in groups of a few, for the time that it takes grows with their square.
    """
    group = max(1, len(order) // max(96, 2 * pieces))
    bounds = [*range(0, len(order), group), len(order)]
    longest = [cost.lengths[order[bound]] for bound in bounds[:-1]]
    count = len(bounds) - 1
    # least[end]: the cheapest way to cut order[: bounds[end]] into the pieces so far; its last piece's begin
    least: list[float] = [0.0] + [math.inf] * count
    begins: list[list[int]] = []
    for piece in range(1, pieces + 1):
        following, begin = [math.inf] * (count + 1), [0] * (count + 1)
        for start in range(piece - 1, count - (pieces - piece)):
            if least[start] == math.inf:
                continue
            for end in range(start + 1, count - (pieces - piece) + 1):
                tokens = (bounds[end] - bounds[start]) * longest[start]
                if tokens > room:
                    break
                total = least[start] + tokens**power
                if total < following[end]:
                    following[end], begin[end] = total, start
        least = following
        begins.append(begin)
    if least[count] == math.inf:
        return None
    cut, end = [], count
    for begin in reversed(begins):
        cut.append(list(order[bounds[begin[end]] : bounds[end]]))
        end = begin[end]
    return cut[::-1]
