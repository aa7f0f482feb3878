"""Checks of the model: where it is loaded, whether the replicas agree, and whether they train as one."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence

from nb2ddp.rehearse.checks.run import AUTOMATIC
from nb2ddp.rehearse.evidence import TOLERANCE, Evidence, Fault, Point, relative
from nb2ddp.rehearse.observed import Rank, Step
from nb2ddp.rehearse.shards import are_sharded, joined

_ROUNDED = 0.1  # how far rounding may take parameters whose gradients are nothing else


def loads(evidence: Evidence) -> Point:
    """Check that every rank loads its own copy of the model on its own device."""
    said: list[str] = []
    faults: list[Fault] = []
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
                if not (evidence.handmade and faults):
                    faults.append(Fault("shared-device", sentence, _line_of(note)))
    counts = {len(_before_end_of_training(rank)) for rank in evidence.ranks}
    if len(counts) > 1:
        faults.append(Fault("shared-device", f"the ranks do not load the same number of models: {counts}"))
    placed = [*_placed(evidence)]
    return Point(1, "loads", "; ".join(said), tuple(faults + placed), seen=counts != {0} or bool(placed))


def _line_of(note: Mapping[str, object]) -> int | None:
    line = note.get("line")
    return line if isinstance(line, int) else None


def _placed(evidence: Evidence) -> Iterator[Fault]:
    """Check that no rank puts a model on the GPU of another: "cuda" is GPU 0 where no GPU was chosen."""
    for rank in evidence.ranks[1:]:
        for note in rank.of("placed"):
            if note["gpu"] != rank.number:
                sentence = f"rank {rank.number} puts its model on GPU {note['gpu']}, which is another rank's"
                yield Fault("shared-device", sentence, note["line"])
                return


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
        return device_map if device_map in AUTOMATIC else None
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
            faults.append(
                Fault("replicas-differ", sentence, evidence.ranks[0].steps[number - 1].line, number)
            )
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
    if off <= TOLERANCE or evidence.other_losses or (off <= _ROUNDED and _only_rounded(evidence)):
        return []
    return [Fault("other-parameters", f"the trained parameters are {off:.1e} (relative) from the notebook's")]


def _only_rounded(evidence: Evidence) -> bool:
    """Return whether each step of any script has the notebook's loss and gradients.

    A bias before a batch norm has no gradient but rounding, which Adam makes whole steps of.
    """
    both = [(one, other) for one, other in evidence.rows if one is not None and other is not None]
    norms = [
        (single.gradients[1], steps[0].gradients[1])
        for single, steps in evidence.together
        if single.gradients and steps[0].gradients
    ]
    whole = evidence.handmade and len(norms) == len(both) == len(evidence.rows)
    return whole and all(relative(a, b) <= TOLERANCE for a, b in (*both, *norms))


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
        line = evidence.ranks[0].steps[off[0] - 1].backward
        sentence = f"{sentence} ({len(off)} of {len(both)} steps differ)"
        faults.append(Fault("other-losses", sentence, line, off[0]))
        if evidence.handmade:
            faults += _why_other_losses(evidence, off[0])
    if len(both) < len(rows):
        made = len(evidence.one.losses)
        sentence = f"{len(rows) - len(both)} steps were made by one side alone; the notebook makes {made}"
        faults.append(Fault("other-losses", sentence))
    largest = max((relative(a, b) for a, b in both), default=math.nan)
    said = f"{len(both)} steps, largest difference {largest:.1e} (relative)"
    if evidence.other_losses:
        said = f"{said}; they differ by nature: {evidence.other_losses}"
    return Point(3, "losses", said, tuple(faults), seen=not evidence.other_losses)


def _why_other_losses(evidence: Evidence, number: int) -> Iterator[Fault]:
    """Yield what is behind a loss that differs although the ranks' samples are those of the notebook's step."""
    single, steps = evidence.together[number - 1]
    parts = [step.rows or step.indices for step in steps]
    whole = single.rows if all(step.rows for step in steps) else single.indices
    if whole is None or any(part is None for part in parts):
        return
    if sorted(map(str, whole)) != sorted(str(sample) for part in parts for sample in part or ()):
        return
    norms = [note for rank in evidence.ranks for note in rank.of("norm")]
    if norms:
        sentence = (
            f"{norms[0]['layer']} normalises with the statistics of each rank's own rows; in the notebook it has "
            "those of the whole batch"
        )
        yield Fault("batch-norm", sentence, evidence.ranks[0].line("wrap") or norms[0]["line"], number)
        return
    if (means := _mean_of_means(single, steps)) is not None:
        what, counts = means
        sentence = (
            f"the loss of step {number} is the mean of the ranks' means, over {' and '.join(map(str, counts))} "
            f"{what}; the notebook's is one mean over all {sum(counts)}"
        )
        yield Fault("mean-of-means", sentence, evidence.ranks[0].steps[number - 1].backward, number)


def _mean_of_means(single: Step, steps: Sequence[Step]) -> tuple[str, list[int]] | None:
    """Return what was counted, and how many by rank, where weighting by it gives the notebook's loss."""
    if single.micro_batches > 1 and any(step.micro_batches > 1 for step in steps):
        return None
    names = {name for step in steps for name in step.counts}
    candidates = {"samples": [step.count or 0 for step in steps]}
    candidates |= {name: [step.counts.get(name, 0) for step in steps] for name in sorted(names)}
    for name, counts in candidates.items():
        if len(set(counts)) < 2 or not all(counts):
            continue
        weighted = sum(step.loss * count for step, count in zip(steps, counts, strict=True)) / sum(counts)
        if relative(single.loss, weighted) < TOLERANCE:
            return name, counts
    return None


def gradients(evidence: Evidence) -> Point:
    """Check that the ranks' gradients are averaged, or their parts of one mean added, once per optimizer step."""
    steps = [step for rank in evidence.ranks for step in rank.steps]
    sharded = are_sharded(evidence.ranks)  # shards may be averaged in each micro-batch
    sets = [step.sets for step in steps]
    often = [step.sets >= (step.micro_batches if sharded else 1) + 0.5 for step in steps]
    apart = _first_apart(evidence)
    by_script = not sharded and apart is None and _exchanges(evidence)
    faults = []
    if sets and min(sets) < 0.01 and not by_script:
        sentence = "no gradients are averaged over the ranks: each rank trains a model of its own"
        faults.append(Fault("not-synchronised", *_unsynchronised(evidence, sentence), apart))
    elif any(often):
        sentence = f"the gradients are averaged {max(sets):.1f} times in a step: two wrappers, or no no_sync"
        faults.append(Fault("synchronised-twice", sentence, evidence.ranks[0].line("wrap")))
    elif apart is not None and not sharded:
        sentence = f"the gradients of step {apart} are not the same on all ranks: some are not synchronised"
        faults.append(Fault("not-synchronised", sentence, evidence.ranks[0].steps[apart - 1].line, apart))
    elif (scaled := _scaled(evidence)) is not None:
        faults.append(scaled)
    mean = sum(sets) / len(sets) if sets else 0.0
    said = f"averaged {mean:.2f} times per step{', in shards' if sharded else ''}"
    if sets and by_script and mean < 0.01:
        said = "exchanged by the script itself, the same on all ranks in each step"
    return Point(None, "gradients", said, tuple(faults), seen=bool(sets))


def _first_apart(evidence: Evidence) -> int | None:
    """Return the first step whose gradients are not the same on all ranks; None where they always are, or unknown."""
    for number, (_, steps) in enumerate(evidence.together, start=1):
        if len({step.gradients and step.gradients[0] for step in steps}) > 1:
            return number
    return None


def _exchanges(evidence: Evidence) -> bool:
    """Return whether each rank has exchanged something between its first and its last step."""
    known = all(step.gradients for rank in evidence.ranks for step in rank.steps)
    return known and all(
        any(
            note["kind"] == "enter" and note["name"] not in ("barrier", "broadcast of buffers")
            for note in _amid(rank)
        )
        for rank in evidence.ranks
    )


def _amid(rank: Rank) -> Sequence[Mapping[str, object]]:
    """Return what a rank noted between the first batch and its last step."""
    places = [i for i, note in enumerate(rank.notes) if note["kind"] in ("batch", "step")]
    return rank.notes[places[0] : places[-1]] if places else ()


def _unsynchronised(evidence: Evidence, sentence: str) -> tuple[str, int | None]:
    """Return why nothing is synchronised, and the line to look at."""
    rank = evidence.ranks[0]
    line = rank.steps[0].backward or rank.steps[0].line
    wrapped = rank.line("wrap")
    if not evidence.handmade:
        return sentence, None
    if wrapped is None:
        return f"{sentence}, because nothing wraps it in DistributedDataParallel", line
    return f"{sentence}: the wrapper of line {wrapped} is not what computes the loss", line


def _scaled(evidence: Evidence) -> Fault | None:
    """Return the fault of gradients that point where the notebook's do, and are longer or shorter."""
    one, other = evidence.one.first_gradients(), evidence.ranks[0].first_gradients()
    if (
        not evidence.handmade
        or one is None
        or other is None
        or len(one) != len(other)
        or not evidence.together
    ):
        return None
    lengths = math.sqrt(math.fsum(a * a for a in one)), math.sqrt(math.fsum(b * b for b in other))
    if not all(lengths) or relative(*lengths) < 100 * TOLERANCE:
        return None
    if math.fsum(a * b for a, b in zip(one, other, strict=True)) / (lengths[0] * lengths[1]) < 1 - TOLERANCE:
        return None
    times, count = lengths[1] / lengths[0], len(evidence.ranks)
    rank = evidence.ranks[0]
    reduced = next((note["line"] for note in _amid(rank) if note["kind"] == "enter" and note["line"]), None)
    if relative(count, times) < 100 * TOLERANCE:
        why = f"they are summed over the {count} ranks, not averaged"
    elif relative(1 / count, times) < 100 * TOLERANCE:
        why = f"they are divided by the {count} ranks once too often"
    else:
        why = "the loss is scaled otherwise"
    sentence = f"the gradients of step 1 are {times:.3g} times the notebook's: {why}"
    line = reduced if isinstance(reduced, int) and times > 1 else rank.steps[0].backward
    return Fault("summed-gradients", sentence, line, 1)
