"""Checks of the data: how the samples of a step are divided among the ranks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from nb2ddp.rehearse.evidence import UNTOLD, Evidence, Fault, Point, is_undivided
from nb2ddp.rehearse.observed import Rank, Step

_DISTRIBUTED = "DistributedSampler"


def samples(evidence: Evidence) -> Point:
    """Check that the ranks divide the notebook's samples among them: none twice, none left out."""
    if evidence.handmade and (reordered := _reordered(evidence)) is not None:
        return reordered
    faults = [*_other_order(evidence)]
    drawn = compared = 0
    for number, (single, steps) in enumerate(evidence.together, start=1):
        shares = _shares(steps)
        if shares is None:
            continue
        counted = [sample for share in shares for sample in share]
        drawn += len(counted)
        mine = _own(single, steps)
        if is_undivided(single, steps):
            compared += 1
            continue
        # GRPO draws a sample once for each of its completions, in one process too
        often = Counter(mine or ())
        twice = [sample for sample, times in Counter(counted).items() if times > max(1, often[sample])]
        # fewer samples than ranks: some rank has to take one that another has
        whole = mine is not None and len(mine) >= len(steps)
        if twice and (whole or mine is None) and not any(f.key == "same-samples" for f in faults):
            sentence = _same(shares, number, len(twice), len(counted))
            faults.append(Fault("same-samples", sentence, loader_line(evidence.ranks[0]), number))
        if mine is not None:
            compared += 1
            lacking = len(set(mine) - set(counted))
            # more samples than the notebook's: that is said of the batch
            too_many = evidence.handmade and len(counted) > len(mine)
            if lacking and not too_many and not any(fault.key == "missing-samples" for fault in faults):
                sentence = (
                    f"{lacking} of the notebook's {len(mine)} samples of step {number} are trained by no rank"
                )
                faults.append(Fault("missing-samples", sentence, loader_line(evidence.ranks[0]), number))
    if evidence.handmade:
        faults += [*_not_divided(evidence), *_epochs(evidence)]
    if not drawn:
        said = UNTOLD
    else:
        each = ", ".join(
            f"{sum(len(s.indices or s.rows or ()) for s in rank.steps)} on rank {rank.number}"
            for rank in evidence.ranks
        )
        said = f"{each}; {compared} steps compared with the notebook's"
        if evidence.undivided:
            said = f"{said}; in {evidence.undivided} steps each rank computes all samples"
    return Point(4, "samples", said, tuple(faults), seen=drawn > 0)


def loader_line(rank: Rank, *, sampler: bool = True) -> int | None:
    """Return the line of the sampler, or the loader, that a rank trains on; of a Trainer's, that of its arguments."""
    used = {iterator for note in rank.of("step") for iterator, _ in note["batches"]}
    loaders = [note for note in rank.of("loader") if note["iterator"] in used]
    of_trainer = rank.line("train")
    lines = [(note.get("sampler_line") if sampler else None) or note.get("line") for note in loaders]
    return of_trainer or next(filter(None, lines), None)


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


def _reordered(evidence: Evidence) -> Point | None:
    """Return the point for ranks that train the notebook's samples of each epoch in another random order."""
    if (shuffled := other_shuffle(evidence)) is None:
        return None
    faults = [*_epochs(evidence)]
    by = f" ({_DISTRIBUTED} draws them)" if _samplers(evidence.ranks[0]) == {_DISTRIBUTED} else ""
    sentence = (
        f"the samples come in another order than the notebook's from step {shuffled} on{by}: each epoch trains each "
        "of them once, but the steps are made of others"
    )
    faults.append(Fault("other-shuffle", sentence, loader_line(evidence.ranks[0]), shuffled))
    said = "each epoch has the notebook's samples, once, in another order"
    return Point(4, "samples", said, tuple(faults))


def _samplers(rank: Rank) -> set[str]:
    """Return the classes of the samplers of the loaders that a rank trains on."""
    used = {number for number, _ in rank.epochs}
    return {note["sampler"] for note in rank.of("loader") if note["iterator"] in used}


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
        sizes = evidence.one.batch_sizes(number)
        order[str(number)] = [list(itertools.islice(left, size)) for size in sizes]
    return order


def _epochs(evidence: Evidence) -> Iterator[Fault]:
    """Check that each epoch has another order where the notebook's have, and each sample once."""
    own, ranks = evidence.one.epochs, [rank.epochs for rank in evidence.ranks]
    flat = [[indices for _, indices in epochs] for epochs in (own, *ranks)]
    if any(len(epochs) != len(flat[0]) for epochs in flat):
        return
    if len(own) > 1 and flat[0][0] != flat[0][1] and all(epochs[0] == epochs[1] for epochs in flat[1:]):
        forgotten = _samplers(evidence.ranks[0]) == {_DISTRIBUTED}
        why = ": set_epoch() of the sampler is not called" if forgotten else ""
        sentence = (
            "every epoch draws the samples in the same order on each rank; the notebook draws another one each "
            f"epoch{why}"
        )
        yield Fault("same-epochs", sentence, loader_line(evidence.ranks[0]))
    first = evidence.together[0]
    if sum(step.count or 0 for step in first[1]) != first[0].count:
        return
    for number, mine in enumerate(flat[0]):
        drawn = Counter(index for epochs in flat[1:] for index in epochs[number])
        often = Counter(mine)
        twice = [index for index, times in drawn.items() if times > often[index]]
        complete = len(drawn) >= len(often)
        if twice and complete and sum(drawn.values()) > sum(often.values()) and evidence.undivided == 0:
            several = "samples are" if len(twice) > 1 else "sample is"
            sentence = (
                f"{len(twice)} {several} trained more often in epoch {number + 1} than in the notebook's"
            )
            yield Fault("repeated-samples", sentence, loader_line(evidence.ranks[0]))
            return


def _shares(steps: Sequence[Step]) -> list[tuple[int | str, ...]] | None:
    indices = [step.indices for step in steps]
    if all(share is not None for share in indices):
        return [tuple(share or ()) for share in indices]
    rows = [step.rows for step in steps]
    if all(share is not None for share in rows):
        return [tuple(share or ()) for share in rows]
    return None


def _own(single: Step, steps: Sequence[Step]) -> tuple[int | str, ...] | None:
    return single.indices if all(step.indices is not None for step in steps) else single.rows


def _same(shares: Sequence[tuple[int | str, ...]], step: int, twice: int, count: int) -> str:
    if len({frozenset(share) for share in shares}) == 1:
        return f"all ranks train on the same samples in step {step}: each must take its own share"
    return (
        f"{twice} samples of step {step} are drawn by more than one rank ({count} drawn in all): "
        "each rank shuffles for itself"
    )


def _other_order(evidence: Evidence) -> Iterator[Fault]:
    """Check that an index of the data set means the same row on all ranks and in the notebook."""
    data = [rank.training_data for rank in evidence.ranks]
    for found in zip(*data, strict=False):
        if len({digest for _, digest in found}) > 1:
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
    draws = [[(note["line"], note["digest"]) for note in rank.of("draw")] for rank in evidence.ranks]
    zero = evidence.ranks[0].of("draw")
    for rank, found in zip(evidence.ranks[1:], draws[1:], strict=True):
        place = next(
            (i for i, pair in enumerate(zip(draws[0], found, strict=False)) if pair[0] != pair[1]), None
        )
        if place is None and len(found) != len(draws[0]):
            place = min(len(found), len(draws[0]))
        if place is None:
            continue
        other = rank.of("draw")
        first = zero[place] if place < len(zero) else None
        second = other[place] if place < len(other) else None
        if first is not None and second is not None and first["line"] == second["line"]:
            sentence = (
                f"{first['name']} gives other values on rank {rank.number} than on rank 0, so that the ranks hold "
                "different data: it has no seed, or not the same"
            )
            return Fault("other-order", sentence, first["line"])
        lone, number = (first, 0) if second is None or first is not None else (second, rank.number)
        if lone is not None:
            sentence = (
                f"{lone['name']} is called on rank {number} and not on rank {0 if number else rank.number}, so that "
                "an index means another sample there"
            )
            return Fault("other-order", sentence, lone["line"])
    sentence = "the ranks hold different rows, or the same in another order: a shuffle or split has no seed"
    return Fault("other-order", sentence)


def _rows_by_index(rank: Rank) -> Iterator[tuple[int, str]]:
    for step in rank.steps:
        yield from zip(step.indices or (), step.rows or (), strict=False)


def _other_row(index: int, where: str) -> Fault:
    sentence = f"row {index} of the data set is not the same {where}: is a shuffle without a seed?"
    return Fault("other-order", sentence)


def batch(evidence: Evidence) -> Point:
    """Check that a step takes as many samples as the notebook's."""
    faults = []
    said = UNTOLD
    for single, steps in evidence.together:
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
            sentence = f"a step takes {count} samples, the notebook's takes {mine}: is accumulation divided?"
            number = next(n for n, (one, _) in enumerate(evidence.together, start=1) if one is single)
            faults.append(
                Fault("other-batch", sentence, loader_line(evidence.ranks[0], sampler=False), number)
            )
            break
    return Point(None, "effective batch", said, tuple(faults), seen=said != UNTOLD)
