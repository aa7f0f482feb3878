"""Share each optimizer step's own samples evenly over the ranks.

DDP waits in every step for the rank with the most work. Where rows differ in length, the notebook's order
gives one rank more tokens than the other, and two GPUs come to 1.5 to 1.7 times the speed of one. Here the
order of the samples stays the notebook's, and so does the set of samples of each optimizer step; only which
rank takes a sample, and in which micro-batch, is decided by length. A loss that is a mean over the step's
tokens, or over equally many samples a micro-batch, is the same as in one process.

How micro-batches are made depends on what they cost. A padded one costs its rows times its longest row:
rows of like lengths go together. A padding-free one costs its tokens and leaves nothing to save: sorting
would only make long and short micro-batches, and the short ones cost the GPU's launches all the same, so the
tokens are spread evenly over the micro-batches, too.

The module needs neither torch nor nb2ddp: ``share_evenly`` is a pure function of the lengths, so every rank
finds the same shares without asking the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

# One rank's micro-batches of an optimizer step: positions in the step's samples.
Share = list[list[int]]


class Sampler(Protocol):
    """What a data loader draws its samples from; torch's samplers are such."""

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...


def count_micro_batches(samples: int, world_size: int, batch_size: int) -> int:
    """Return how many micro-batches each rank takes of a step with so many samples.

    As few as the batch size allows, yet no more than leave a sample for each: with 8 samples in batches of
    1 on 3 ranks these are 2, of which some hold two rows.
    """
    if samples < world_size:
        raise ValueError(f"{samples} samples cannot be shared among {world_size} ranks")
    return min(math.ceil(samples / (world_size * batch_size)), samples // world_size)


def share_evenly(
    lengths: Sequence[int],
    world_size: int,
    batch_size: int,
    *,
    padded: bool = True,
    equal_counts: bool = True,
    longest: int = 0,
    quadratic: float = 0.0,
) -> list[Share]:
    """Return each rank's micro-batches of one optimizer step, as positions in ``lengths``.

    Every rank gets the same number of micro-batches and none is empty; together they hold each sample once.
    With ``equal_counts`` they hold as many rows as one another (or differ by one, where the samples do not
    divide): a loss that is a mean over rows needs this. Without it, for a mean over the step's tokens, a
    micro-batch may hold more rows than ``batch_size`` if they are short: never more tokens, padding included,
    than ``batch_size`` rows of ``longest``. A row costs its tokens plus ``quadratic`` times their square, the
    share of attention. The slowest rank never has more to do than with the notebook's own micro-batches taken
    in turns, and where nothing is gained, as with rows of equal length, these are what comes back. Otherwise
    each rank's most expensive micro-batch comes first.
    """
    micro_batches = count_micro_batches(len(lengths), world_size, batch_size)
    cost = _Cost(lengths, padded, quadratic)
    order = sorted(range(len(lengths)), key=lambda sample: (-lengths[sample], sample))
    room = batch_size * max(longest, lengths[order[0]])
    plans = _in_turns(len(lengths), world_size, micro_batches, batch_size)
    if not equal_counts:
        if padded:
            plans += _like_lengths(order, world_size, micro_batches, cost, room)
        else:
            plans += _spread(order, world_size, micro_batches, cost, len(order), room)
    even = _spread(order, world_size, micro_batches, cost, math.ceil(len(order) / world_size), None)
    plans += _in_rows(order, even, world_size, micro_batches, cost) if padded else even
    best = min(plans, key=lambda plan: max(map(cost.of_share, plan)))
    if best is plans[0] and len(lengths) == world_size * micro_batches * batch_size:
        return best
    return [
        [sorted(batch) for batch in sorted(share, key=lambda batch: (-cost.of_batch(batch), min(batch)))]
        for share in best
    ]


class _Cost:
    """What a micro-batch costs, in tokens."""

    def __init__(self, lengths: Sequence[int], padded: bool, quadratic: float) -> None:
        self.lengths = lengths
        self.padded = padded
        self.rows = [length + quadratic * length * length for length in lengths]

    def of_batch(self, batch: Sequence[int]) -> float:
        rows = [self.rows[sample] for sample in batch]
        return len(rows) * max(rows) if self.padded else sum(rows)

    def of_share(self, share: Share) -> float:
        return sum(map(self.of_batch, share))

    def tokens(self, batch: Sequence[int]) -> int:
        """Count the tokens of a micro-batch, padding included: what its memory goes by."""
        rows = [self.lengths[sample] for sample in batch]
        return len(rows) * max(rows) if self.padded else sum(rows)


def _in_turns(samples: int, ranks: int, micro_batches: int, batch_size: int) -> list[list[Share]]:
    """Return the notebook's micro-batches, taken in turns by the ranks; [] where they do not divide."""
    if samples != ranks * micro_batches * batch_size:
        return []
    batches = [list(range(start, start + batch_size)) for start in range(0, samples, batch_size)]
    return [[batches[rank::ranks] for rank in range(ranks)]]


def _lightest_first(
    samples: Iterable[int], bins: int, cost: _Cost, fewest: int, most: int
) -> list[list[int]]:
    """Hand out samples, longest first, each to the bin with the least work, ``fewest`` to ``most`` a bin."""
    samples = list(samples)
    filled: list[list[int]] = [[] for _ in range(bins)]
    loads = [0.0] * bins
    for place, sample in enumerate(samples):
        missing = sum(max(fewest - len(held), 0) for held in filled)
        spare = len(samples) - place > missing
        free = [
            number for number, held in enumerate(filled) if len(held) < most and (spare or len(held) < fewest)
        ]
        lightest = min(free, key=lambda number: (loads[number], number))
        filled[lightest].append(sample)
        loads[lightest] += cost.rows[sample]
    return filled


def _spread(
    order: Sequence[int], ranks: int, micro_batches: int, cost: _Cost, most: int, room: int | None
) -> list[list[Share]]:
    """Spread the tokens over the ranks, then each rank's over its micro-batches; [] if they do not fit."""
    fewest = micro_batches if room else len(order) // ranks
    plan = []
    for held in _lightest_first(order, ranks, cost, fewest, most):
        rows = math.ceil(len(held) / micro_batches)
        limits = (1, len(held)) if room else (len(held) // micro_batches, rows)
        plan.append(_lightest_first(held, micro_batches, cost, *limits))
    if room and any(cost.tokens(batch) > room for share in plan for batch in share):
        return []
    return [plan]


def _in_rows(
    order: Sequence[int], even: list[list[Share]], ranks: int, micro_batches: int, cost: _Cost
) -> list[list[Share]]:
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
    return [list(samples[start:end]) for start, end in pairwise(bounds)]


def _assign(batches: list[list[int]], ranks: int, cost: _Cost) -> list[Share]:
    """Assign micro-batches to ranks, the most expensive first, equally many to each."""
    most = len(batches) // ranks
    shares: list[Share] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for batch in sorted(batches, key=lambda batch: (-cost.of_batch(batch), batch[0])):
        free = [number for number, share in enumerate(shares) if len(share) < most]
        lightest = min(free, key=lambda number: (loads[number], number))
        shares[lightest].append(batch)
        loads[lightest] += cost.of_batch(batch)
    return shares


def _like_lengths(
    order: Sequence[int], ranks: int, micro_batches: int, cost: _Cost, room: int
) -> list[list[Share]]:
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
    """Cut sorted rows into pieces with the least sum of (rows x longest) ** power; None where none fits."""
    count = len(order)
    rows = [cost.rows[sample] for sample in order]
    lengths = [cost.lengths[sample] for sample in order]
    # least[end]: the cheapest way to cut order[:end] into the pieces so far, and where its last piece begins
    least: list[float] = [0.0] + [math.inf] * count
    begins: list[list[int]] = []
    for piece in range(1, pieces + 1):
        following, begin = [math.inf] * (count + 1), [0] * (count + 1)
        for start in range(piece - 1, count - (pieces - piece)):
            if least[start] == math.inf:
                continue
            widest = min(count - (pieces - piece), start + room // lengths[start])
            for end in range(start + 1, widest + 1):
                total = least[start] + ((end - start) * rows[start]) ** power
                if total < following[end]:
                    following[end], begin[end] = total, start
        least = following
        begins.append(begin)
    if least[count] == math.inf:
        return None
    cut, end = [], count
    for begin in reversed(begins):
        cut.append(list(order[begin[end] : end]))
        end = begin[end]
    return cut[::-1]


class EvenBatches:
    """Yield one rank's micro-batches, step by step, of the samples that a sampler draws.

    ``step_samples`` is what the notebook takes for an optimizer step (batch x accumulation). An epoch's last
    step may hold fewer; if it holds fewer than there are ranks, its shortest sample is repeated, for a rank
    without one would leave the others waiting (``repeats`` counts these). ``drop_last`` leaves out what the
    notebook leaves out: an epoch's last batch where it is smaller than ``notebook_batch``.
    """

    def __init__(
        self,
        sampler: Sampler,
        lengths: Sequence[int] | Callable[[int], int],
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        step_samples: int,
        notebook_batch: int = 1,
        drop_last: bool = False,
        longest: int = 0,
        **options: Any,
    ) -> None:
        self.sampler = sampler  # Accelerate reaches through this name to set the epoch
        self.length_of = lengths if callable(lengths) else lengths.__getitem__
        self.rank = rank
        self.world_size = world_size
        self.batch_size = batch_size
        self.step_samples = step_samples
        self.drop_last = drop_last
        self.notebook_batch = notebook_batch
        self.longest = longest
        self.options = options
        self.repeats = 0

    def _sizes(self) -> Iterator[int]:
        """Yield the number of samples of each optimizer step of an epoch."""
        count = len(self.sampler)
        if self.drop_last:
            count -= count % self.notebook_batch
        full, rest = divmod(count, self.step_samples)
        yield from [self.step_samples] * full
        if rest:
            yield rest

    def __len__(self) -> int:
        return sum(
            count_micro_batches(max(size, self.world_size), self.world_size, self.batch_size)
            for size in self._sizes()
        )

    def __iter__(self) -> Iterator[list[int]]:
        self.repeats = 0
        drawn = iter(self.sampler)
        for size in self._sizes():
            samples = [next(drawn) for _ in range(size)]
            lengths = [self.length_of(sample) for sample in samples]
            while len(samples) < self.world_size:
                shortest = lengths.index(min(lengths))
                samples.append(samples[shortest])
                lengths.append(lengths[shortest])
                self.repeats += 1
            shares = share_evenly(
                lengths, self.world_size, self.batch_size, longest=self.longest, **self.options
            )
            for batch in shares[self.rank]:
                yield [samples[place] for place in batch]
        for _ in drawn:  # what drop_last leaves out: a sampler may count on being read to its end
            pass


def replace_batches(loader: Any, lengths: Sequence[int] | Callable[[int], int], **options: Any) -> Any:
    """Make a loader that Accelerate has prepared for DDP yield even micro-batches; return it.

    Accelerate's ``BatchSamplerShard`` then passes on what ``EvenBatches`` yields: it takes every batch, of
    any size, as its own. The notebook's sampler, its seed and its epoch stay where they were, and so does
    what skips the first batches when a run is resumed.
    """
    shard = loader.batch_sampler
    # a loader that skips batches wraps the shard and looks for the sampler here, to set its epoch
    shard.sampler = shard.batch_sampler.sampler
    shard.batch_sampler = EvenBatches(
        shard.sampler,
        lengths,
        rank=shard.process_index,
        world_size=shard.num_processes,
        batch_size=shard.batch_sampler.batch_size,
        drop_last=shard.batch_sampler.drop_last,
        **options,
    )
    shard.num_processes, shard.process_index, shard.batch_size = 1, 0, None
    return loader


def lengths_of(dataset: Any) -> list[int] | None:
    """Return the tokens of each row of a tokenised data set, None where they are not known.

    A row with several texts (a prompt, the chosen and the rejected answer) counts them all. Arrow tables say
    the lengths without the tokens being read.
    """
    names = list(getattr(dataset, "column_names", None) or [])
    tokens = [name for name in names if name == "input_ids" or name.endswith(("_input_ids", "_ids"))]
    tokens = [name for name in tokens if name not in ("position_ids", "token_type_ids")]
    if "input_ids" in tokens:
        tokens = ["input_ids"]
    if tokens and hasattr(dataset, "with_format"):
        import pyarrow.compute as pc

        totals: list[int] = []
        for table in dataset.select_columns(tokens).with_format("arrow").iter(batch_size=10_000):
            counted = [pc.list_value_length(table[name]).to_pylist() for name in tokens]
            totals += [sum(length or 0 for length in row) for row in zip(*counted, strict=True)]
        return totals
    rows = dataset if isinstance(dataset, list) else []
    known = bool(rows) and all(isinstance(row, dict) and "input_ids" in row for row in rows)
    return [len(row["input_ids"]) for row in rows] if known else None
