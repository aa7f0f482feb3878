"""Checks of the model: where it is loaded, whether the replicas agree, and whether they train as one."""

from __future__ import annotations

import math
from array import array

from nb2ddp.rehearse.evidence import TOLERANCE, Evidence, Fault, Point, relative
from nb2ddp.rehearse.observed import Rank
from nb2ddp.rehearse.shards import are_sharded, joined

_AUTOMATIC = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})


def loads(evidence: Evidence) -> Point:
    """Check that every rank loads its own copy of the model on its own device."""
    said, faults = [], []
    for rank in evidence.ranks:
        notes = _before_end_of_training(rank)
        said.append(
            f"rank {rank.number}: " + (", ".join(_load(note) for note in notes) or "nothing is loaded")
        )
        for note in notes:
            if (wrong := _not_own(note["device_map"], rank.number)) is not None:
                sentence = (
                    f"rank {rank.number} loads {note['name']} with device_map={wrong!r}, not on its own GPU"
                )
                faults.append(Fault("shared-device", sentence))
    counts = {len(_before_end_of_training(rank)) for rank in evidence.ranks}
    if len(counts) > 1:
        faults.append(Fault("shared-device", f"the ranks do not load the same number of models: {counts}"))
    return Point(1, "loads", "; ".join(said), tuple(faults), seen=counts != {0})


def _before_end_of_training(rank: Rank) -> list[dict[str, object]]:
    last = max((i for i, note in enumerate(rank.notes) if note["kind"] == "step"), default=len(rank.notes))
    return [note for note in rank.notes[:last] if note["kind"] == "load"]


def _load(note: dict[str, object]) -> str:
    devices = note["devices"]
    assert isinstance(devices, list)
    asked = f", device_map {note['device_map']}" if note["device_map"] is not None else ""
    return f"{note['model']} on {' and '.join(map(str, devices))}{asked}"


def _not_own(device_map: object, rank: int) -> object:
    """Return what of a device_map names another device than the rank's own; None where nothing does."""
    if isinstance(device_map, str):
        return device_map if device_map in _AUTOMATIC else None
    if isinstance(device_map, dict):
        own = (rank, str(rank), f"cuda:{rank}", "cpu", "disk", "cuda")
        return None if all(value in own for value in device_map.values()) else device_map
    return None


def replicas(evidence: Evidence) -> Point:
    """Check that the replicas are equal, bit for bit, at every step, and end near the notebook's model.

    Of a model that is sharded, all ranks' shards together have to be near the notebook's.
    """
    if are_sharded(evidence.ranks):
        return _shards(evidence)
    faults = []
    starts = {rank.first_digest for rank in evidence.ranks}
    if len(starts) > 1:
        faults.append(Fault("replicas-differ", "the ranks start from different parameters"))
    for number, (_, steps) in enumerate(evidence.together, start=1):
        if len({step.digest for step in steps}) > 1:
            sentence = f"the ranks' parameters are no longer the same after step {number}"
            faults.append(Fault("replicas-differ", sentence))
            break
    said = [_agreement(evidence)]
    off = trained_apart(evidence)
    if off is not None:
        said.append(f"{off:.1e} (relative) from the notebook's")
        faults += _too_far(evidence, off)
    return Point(2, "replicas", "; ".join(said), tuple(faults), seen=bool(evidence.together))


def _agreement(evidence: Evidence) -> str:
    """Return in words when the parameters of all ranks were equal, and whether the training changed them."""
    starts = {rank.first_digest for rank in evidence.ranks}
    equal = [len({step.digest for step in steps}) == 1 for _, steps in evidence.together]
    if not equal:
        return "no step that all ranks made"
    start = "equal, bit for bit, at the start" if len(starts) == 1 else "not equal at the start"
    said = f"{start} and after {sum(equal)} of {len(equal)} steps"
    unchanged = all(rank.steps[-1].digest == rank.first_digest for rank in evidence.ranks)
    return f"{said}; the training did not change them" if unchanged else said


def _shards(evidence: Evidence) -> Point:
    """Check that the ranks' shards are one model, the notebook's: each number held, once or equally."""
    whole = joined(evidence.ranks)
    if whole is None:
        untold = "cannot be told: the shards are not cut along the first dimension, or are too large"
        return Point(2, "shards", untold, seen=False)
    faults = []
    total = len(whole.numbers)
    if whole.missing:
        sentence = f"{whole.missing} of {total} trained numbers are held by no rank"
        faults.append(Fault("other-parameters", sentence))
    if whole.apart:
        sentence = (
            f"{whole.apart} of {total} trained numbers, held by several ranks, are not the same on them"
        )
        faults.append(Fault("replicas-differ", sentence))
    counts = [sum(count for _, count, _ in rank.pieces or ()) for rank in evidence.ranks]
    each = ", ".join(
        f"{count} on rank {rank.number}" for rank, count in zip(evidence.ranks, counts, strict=True)
    )
    said = [f"of {total} trained numbers {each}"]
    if all(rank.steps and rank.steps[-1].digest == rank.first_digest for rank in evidence.ranks):
        said.append("the training did not change them")
    off = trained_apart(evidence)
    if off is not None:
        said.append(f"put together {off:.1e} (relative) from the notebook's")
        faults += _too_far(evidence, off)
    return Point(2, "shards", "; ".join(said), tuple(faults), seen=bool(evidence.together))


def _too_far(evidence: Evidence, off: float) -> list[Fault]:
    """Return the fault of parameters that are not near the notebook's, unless the losses tell it already."""
    if off <= TOLERANCE or evidence.other_losses:
        return []
    return [Fault("other-parameters", f"the trained parameters are {off:.1e} (relative) from the notebook's")]


def trained_apart(evidence: Evidence) -> float | None:
    """Return how far the ranks' trained parameters are from the notebook's; None if unknown."""
    if not are_sharded(evidence.ranks):
        return distance(evidence.one, evidence.ranks[0])
    whole = joined(evidence.ranks)
    return None if whole is None else _apart(evidence.one.numbers(), whole.numbers)


def distance(one: Rank, other: Rank) -> float | None:
    """Return how far the trained parameters of two processes are apart, relative to the first; None if unknown."""
    return _apart(one.numbers(), other.numbers())


def _apart(first: array[float] | None, second: array[float] | None) -> float | None:
    if first is None or second is None or len(first) != len(second):
        return None
    norm = math.fsum(a * a for a in first)
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(first, second, strict=True)) / (norm or 1))


def losses(evidence: Evidence) -> Point:
    """Check that each step's loss is the notebook's."""
    rows = evidence.rows
    both = [(a, b) for a, b in rows if a is not None and b is not None]
    off = [n for n, (a, b) in enumerate(both, start=1) if not relative(a, b) <= TOLERANCE]
    faults = []
    if off and not evidence.other_losses:
        one, several = both[off[0] - 1]
        sentence = f"the loss of step {off[0]} is {several:.4f}, the notebook's is {one:.4f}"
        faults.append(Fault("other-losses", f"{sentence} ({len(off)} of {len(both)} steps differ)"))
    if len(both) < len(rows):
        made = len(evidence.one.losses)
        sentence = f"{len(rows) - len(both)} steps were made by one side alone; the notebook makes {made}"
        faults.append(Fault("other-losses", sentence))
    largest = max((relative(a, b) for a, b in both), default=math.nan)
    said = f"{len(both)} steps, largest difference {largest:.1e} (relative)"
    if evidence.other_losses:
        said = f"{said}; they differ by nature: {evidence.other_losses}"
    return Point(3, "losses", said, tuple(faults), seen=not evidence.other_losses)


def gradients(evidence: Evidence) -> Point:
    """Check that the gradients are averaged over the ranks once per optimizer step."""
    steps = [step for rank in evidence.ranks for step in rank.steps]
    sharded = are_sharded(evidence.ranks)  # shards may be averaged in each micro-batch
    sets = [step.sets for step in steps]
    often = [step.sets >= (step.micro_batches if sharded else 1) + 0.5 for step in steps]
    faults = []
    if sets and min(sets) < 0.01:
        sentence = "no gradients are averaged over the ranks: each rank trains a model of its own"
        faults.append(Fault("not-synchronised", sentence))
    elif any(often):
        sentence = f"the gradients are averaged {max(sets):.1f} times in a step: two wrappers, or no no_sync"
        faults.append(Fault("synchronised-twice", sentence))
    mean = sum(sets) / len(sets) if sets else 0.0
    said = f"averaged {mean:.2f} times per step{', in shards' if sharded else ''}"
    return Point(None, "gradients", said, tuple(faults), seen=bool(sets))
