"""Checks of the data: how the samples of a step are divided among the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nb2ddp.rehearse.evidence import UNTOLD, Evidence, Fault, Point, is_undivided
from nb2ddp.rehearse.observed import Rank, Step


def samples(evidence: Evidence) -> Point:
    """Check that the ranks divide the notebook's samples among them: none twice, none left out."""
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
            faults.append(Fault("same-samples", _same(shares, number, len(twice), len(counted))))
        if mine is not None:
            compared += 1
            lacking = len(set(mine) - set(counted))
            if lacking and not any(fault.key == "missing-samples" for fault in faults):
                sentence = (
                    f"{lacking} of the notebook's {len(mine)} samples of step {number} are trained by no rank"
                )
                faults.append(Fault("missing-samples", sentence))
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
            sentence = (
                "the ranks hold different rows, or the same in another order: a shuffle or split has no seed"
            )
            yield Fault("other-order", sentence)
            return
    own: dict[int, set[str]] = {}  # of several data sets, as of folds, an index means several rows
    for index, row in _rows_by_index(evidence.one):
        own.setdefault(index, set()).add(row)
    rows: dict[int, str] = {}
    for rank in evidence.ranks:
        for index, row in _rows_by_index(rank):
            if rows.setdefault(index, row) != row and not {row, rows[index]} <= own.get(index, set()):
                yield _other_row(index, "on all ranks")
                return
    for index, row in rows.items():
        if row not in own.get(index, {row}):
            yield _other_row(index, "for the ranks and the notebook")
            return


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
            faults.append(Fault("other-batch", sentence))
            break
    return Point(None, "effective batch", said, tuple(faults), seen=said != UNTOLD)
