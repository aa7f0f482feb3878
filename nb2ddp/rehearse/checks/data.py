"""Checks of the data: how the samples of a step are divided among the ranks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from nb2ddp.rehearse.evidence import UNKNOWN_SAMPLES, Evidence, Fault, Point, is_undivided
from nb2ddp.rehearse.observed import Note, Rank, Step

_DISTRIBUTED = "DistributedSampler"
Samples = tuple[int | str, ...]
"""Places in the data set, or digests of rows."""


def samples(evidence: Evidence) -> Point:
    """Check that the ranks divide the notebook's samples among them: none twice, none left out."""
    if evidence.handmade and (shuffled := other_shuffle(evidence)) is not None:
        faults = [*_epochs(evidence), _other_shuffle(evidence, shuffled)]
        said = "each epoch has the notebook's samples, once, in another order"
        return Point(4, "samples", said, tuple(faults))
    found: dict[str, Fault] = {fault.key: fault for fault in _other_order(evidence)}
    drawn = compared = 0
    for number, (single, steps) in enumerate(evidence.together, start=1):
        shares, own = _shares(single, steps)
        if shares is None:
            continue
        drawn += sum(map(len, shares))
        compared += own is not None
        if not is_undivided(single, steps):
            for fault in _unlike(evidence, number, shares, own):
                found.setdefault(fault.key, fault)
    faults = list(found.values())
    if evidence.handmade:
        faults += [*_not_divided(evidence), *_epochs(evidence)]
    if not drawn:
        return Point(4, "samples", UNKNOWN_SAMPLES, tuple(faults), seen=False)
    each = ", ".join(
        f"{sum(len(step.indices or step.rows or ()) for step in rank.steps)} on rank {rank.number}"
        for rank in evidence.ranks
    )
    said = f"{each}; {compared} steps compared with the notebook's"
    if evidence.undivided:
        said = f"{said}; in {evidence.undivided} steps each rank computes all samples"
    return Point(4, "samples", said, tuple(faults))


def _unlike(
    evidence: Evidence, number: int, shares: Sequence[Samples], own: Samples | None
) -> Iterator[Fault]:
    """Yield what is wrong with the ranks' samples of a step: some twice, or some of the notebook's left out."""
    counted = [sample for share in shares for sample in share]
    line = loader_line(evidence.ranks[0])
    # GRPO draws a sample once for each of its completions, in one process too
    often = Counter(own or ())
    twice = [sample for sample, times in Counter(counted).items() if times > max(1, often[sample])]
    # fewer samples than ranks: some rank has to take one that another has
    if twice and (own is None or len(own) >= len(shares)):
        sentence = f"all ranks train on the same samples in step {number}: each must take its own share"
        if len({frozenset(share) for share in shares}) > 1:
            sentence = (
                f"of the {len(counted)} samples that the ranks draw in step {number}, {len(twice)} are drawn by more "
                "than one: each rank shuffles for itself"
            )
        yield _lone_pass(evidence, number) or Fault("same-samples", sentence, line, number)
    lacking = len({*(own or ())} - {*counted})
    # more samples than the notebook's: that is said of the batch
    if own is not None and lacking and not (evidence.handmade and len(counted) > len(own)):
        sentence = f"{lacking} of the notebook's {len(own)} samples of step {number} are trained by no rank"
        yield Fault("missing-samples", sentence, line, number)


def _lone_pass(evidence: Evidence, number: int) -> Fault | None:
    """Return the fault of a rank that alone goes through a data loader before a step, to evaluate, say."""
    zero, *others = evidence.ranks
    for rank in others:
        for own, other in itertools.zip_longest(zero.passes_before(number), rank.passes_before(number)):
            if own == other:
                continue
            alone, line = (rank.number, other) if own is None else (0, own)
            sentence = (
                f"rank {alone} alone goes through a data loader here, which draws a random number: the ranks no "
                f"longer draw alike, and shuffle their samples apart from step {number} on"
            )
            return Fault("other-order", sentence, line, number)
    return None


def loader_line(rank: Rank, *, sampler: bool = True) -> int | None:
    """Return the line of the sampler, or the loader, that a rank trains on; of a Trainer's, that of its arguments."""
    lines = [(sampler and note.get("sampler_line")) or note.get("line") for note in rank.loaders]
    return rank.line("train") or next(filter(None, lines), None)


def _not_divided(evidence: Evidence) -> Iterator[Fault]:
    """Check that no rank computes all samples of each step; with a batch norm, that is right on a CPU."""
    if not evidence.together or evidence.undivided < len(evidence.together):
        return
    if not any(rank.of("norm") for rank in evidence.ranks):
        sentence = (
            "each rank trains on all samples of every step, as the notebook does alone: nothing is divided, so "
            "that no time is saved"
        )
        yield Fault("not-divided", sentence, loader_line(evidence.ranks[0]), 1)


def _other_shuffle(evidence: Evidence, number: int) -> Fault:
    """Return the fault of ranks that train the notebook's samples of each epoch in another random order."""
    by = f" ({_DISTRIBUTED} draws them)" if _samplers(evidence.ranks[0]) == {_DISTRIBUTED} else ""
    sentence = (
        f"the samples come in another order than the notebook's from step {number} on{by}: each epoch trains each "
        "of them once, but the steps are made of others"
    )
    return Fault("other-shuffle", sentence, loader_line(evidence.ranks[0]), number)


def _samplers(rank: Rank) -> set[str]:
    """Return the classes of the samplers of the loaders that a rank trains on."""
    return {note["sampler"] for note in rank.loaders}


def other_shuffle(evidence: Evidence) -> int | None:
    """Return the first step that has other samples than the notebook's, where the whole epochs have the same.

    None where the order is the same, or the epochs are not.
    """
    first = None
    for number, (single, steps) in enumerate(evidence.together, start=1):
        parts = [step.indices for step in steps]
        if single.indices is None or any(part is None for part in parts):
            return None
        drawn = sorted(index for part in parts for index in part or ())
        if len(drawn) != len(single.indices):
            return None
        if first is None and drawn != sorted(single.indices):
            first = number
    own, ranks = evidence.one.epochs, [rank.epochs for rank in evidence.ranks]
    if first is None or any(len(epochs) != len(own) for epochs in ranks):
        return None
    if next(_other_order(evidence), None) is not None:
        return None
    for number, (_, indices) in enumerate(own):
        if sorted(index for epochs in ranks for index in epochs[number][1]) != sorted(indices):
            return None
    return first


def ranks_order(evidence: Evidence) -> dict[str, list[list[int]]]:
    """Return the batches that the notebook's iterators would give if each step had the ranks' samples."""
    drawn: dict[int, list[int]] = {number: [] for number, _ in evidence.one.epochs}
    for note, (_, steps) in zip(evidence.one.of("step"), evidence.together, strict=False):
        drawn[note["batches"][0][0]] += [index for step in steps for index in step.indices or ()]
    order = {}
    for number, indices in drawn.items():
        left = iter(indices)
        given = (note for note in evidence.one.of("batch") if note["iterator"] == number)
        order[str(number)] = [list(itertools.islice(left, len(note["indices"] or ()))) for note in given]
    return order


def _epochs(evidence: Evidence) -> Iterator[Fault]:
    """Check that each epoch has another order where the notebook's have, and each sample once."""
    own, *ranks = ([indices for _, indices in rank.epochs] for rank in (evidence.one, *evidence.ranks))
    if not evidence.together or any(len(epochs) != len(own) for epochs in ranks):
        return
    line = loader_line(evidence.ranks[0])
    if len(own) > 1 and own[0] != own[1] and all(epochs[0] == epochs[1] for epochs in ranks):
        forgotten = _samplers(evidence.ranks[0]) == {_DISTRIBUTED}
        why = ": set_epoch() of the sampler is not called" if forgotten else ""
        sentence = (
            "every epoch draws the samples in the same order on each rank; the notebook draws another one each "
            f"epoch{why}"
        )
        yield Fault("same-epochs", sentence, line)
    single, steps = evidence.together[0]
    if sum(step.count or 0 for step in steps) != single.count or evidence.undivided:
        return
    for number, mine in enumerate(own):
        drawn = Counter(index for epochs in ranks for index in epochs[number])
        often = Counter(mine)
        twice = [index for index, times in drawn.items() if times > often[index]]
        if twice and len(drawn) >= len(often) and drawn.total() > often.total():
            several = "samples are" if len(twice) > 1 else "sample is"
            sentence = (
                f"{len(twice)} {several} trained more often in epoch {number + 1} than in the notebook's"
            )
            yield Fault("repeated-samples", sentence, line)
            return


def _shares(single: Step, steps: Sequence[Step]) -> tuple[list[Samples] | None, Samples | None]:
    """Return the samples of each rank in a step and the notebook's, by their places or else by their rows."""
    for kind in ("indices", "rows"):
        shares = [getattr(step, kind) for step in steps]
        if None not in shares:
            return shares, getattr(single, kind)
    return None, None


def _other_order(evidence: Evidence) -> Iterator[Fault]:
    """Check that an index of the data set means the same row on all ranks and in the notebook."""
    data = [[note["digest"] for note in rank.loaders] for rank in evidence.ranks]
    if any(len(set(digests)) > 1 for digests in zip(*data, strict=False)):
        yield _other_data(evidence)
        return
    own: dict[int, set[str]] = {}  # of several data sets, as of folds, an index means several rows
    for index, row in _rows_by_index(evidence.one):
        own.setdefault(index, set()).add(row)
    rows: dict[int, str] = {}
    for rank in evidence.ranks:
        for index, row in _rows_by_index(rank):
            if rows.setdefault(index, row) != row and not {row, rows[index]} <= own.get(index, set()):
                yield _other_data(evidence) if evidence.handmade else _other_row(index, "on all ranks")
                return
    for index, row in rows.items():
        if row not in own.get(index, {row}):
            yield _other_row(index, "for the ranks and the notebook")
            return


def _other_data(evidence: Evidence) -> Fault:
    """Return the fault of ranks that hold different data, with the first draw that differs between them."""
    zero, *others = evidence.ranks
    for rank in others:
        for own, other in itertools.zip_longest(zero.of("draw"), rank.of("draw")):
            if (fault := _other_draw(own, other, rank.number)) is not None:
                return fault
    sentence = "the ranks hold different rows, or the same in another order: a shuffle or split has no seed"
    return Fault("other-order", sentence)


def _other_draw(zero: Note | None, other: Note | None, number: int) -> Fault | None:
    """Return the fault of a draw of random numbers that rank 0 and another rank do not make alike; None if they do."""
    if zero is not None and other is not None and zero["line"] == other["line"]:
        if zero["digest"] == other["digest"]:
            return None
        sentence = (
            f"{zero['name']} gives other values on rank {number} than on rank 0, so that the ranks hold "
            "different data: it has no seed, or not the same"
        )
        return Fault("other-order", sentence, zero["line"])
    draw, here, there = (zero, 0, number) if zero is not None else (other, number, 0)
    assert draw is not None
    sentence = (
        f"{draw['name']} is called on rank {here} and not on rank {there}, so that an index means another "
        "sample there"
    )
    return Fault("other-order", sentence, draw["line"])


def _rows_by_index(rank: Rank) -> Iterator[tuple[int, str]]:
    for step in rank.steps:
        yield from zip(step.indices or (), step.rows or (), strict=False)


def _other_row(index: int, where: str) -> Fault:
    sentence = f"row {index} of the data set is not the same {where}: is a shuffle without a seed?"
    return Fault("other-order", sentence)


def batch(evidence: Evidence) -> Point:
    """Check that a step takes as many samples as the notebook's."""
    said = UNKNOWN_SAMPLES
    faults: list[Fault] = []
    for number, (single, steps) in enumerate(evidence.together, start=1):
        counts = [step.count for step in steps if step.count is not None]
        mine = single.count
        if mine is None or len(counts) < len(steps):
            continue
        if is_undivided(single, steps):
            said = f"{mine} samples per step as in the notebook, all of them on each rank"
            continue
        count = sum(counts)
        said = f"{count} = {' + '.join(map(str, counts))} samples per step, the notebook's {mine}"
        if count != mine and mine >= len(steps):
            sentence = f"a step takes {count} samples, the notebook's takes {mine}"
            line = loader_line(evidence.ranks[0], sampler=False)
            faults.append(Fault("other-batch", sentence, line, number))
            break
    return Point(None, "effective batch", said, tuple(faults), seen=said != UNKNOWN_SAMPLES)
