"""Checks of the model: where it is loaded, whether the replicas agree, and whether they train as one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nb2ddp.rehearse.checks.run import AUTOMATIC
from nb2ddp.rehearse.evidence import TOLERANCE, Evidence, Fault, Point, relative
from nb2ddp.rehearse.observed import Note, Rank, Step

_ROUNDED = 0.1  # how far rounding may take parameters whose gradients are nothing else
_MULTIPLE = 100 * TOLERANCE  # how near the gradients' lengths are to a multiple of the notebook's


def loads(evidence: Evidence) -> Point:
    """Check that every rank loads its own copy of the model on its own device."""
    loaded = {rank.number: _before_end_of_training(rank) for rank in evidence.ranks}
    each = {number: ", ".join(map(_load, notes)) or "nothing is loaded" for number, notes in loaded.items()}
    faults = [*_loaded_elsewhere(loaded)]
    counts = {len(notes) for notes in loaded.values()}
    if len(counts) > 1:
        faults.append(Fault("shared-device", f"the ranks do not load the same number of models: {counts}"))
    placed = [*_placed_elsewhere(evidence)]
    said = "; ".join(f"rank {number}: {models}" for number, models in each.items())
    return Point(1, "loads", said, tuple(faults + placed), seen=counts != {0} or bool(placed))


def _loaded_elsewhere(loaded: Mapping[int, Sequence[Note]]) -> Iterator[Fault]:
    """Yield the first load with a device_map that names another rank's GPU, or several GPUs."""
    for number, notes in loaded.items():
        for note in notes:
            if not _is_own(note["device_map"], number):
                what = f"loads {note['name']} with device_map={note['device_map']!r}"
                sentence = f"rank {number} {what}, not on its own GPU"
                yield Fault("shared-device", sentence, note.get("line"))
                return


def _placed_elsewhere(evidence: Evidence) -> Iterator[Fault]:
    """Yield the first model that is put on the GPU of another rank: "cuda" is GPU 0 where no GPU was chosen."""
    for rank in evidence.ranks[1:]:
        for note in rank.of("placed"):
            if note["gpu"] != rank.number:
                sentence = f"rank {rank.number} puts its model on GPU {note['gpu']}, which is another rank's"
                yield Fault("shared-device", sentence, note["line"])
                return


def _before_end_of_training(rank: Rank) -> list[Note]:
    last = max((i for i, note in enumerate(rank.notes) if note["kind"] == "step"), default=len(rank.notes))
    return [note for note in rank.notes[:last] if note["kind"] == "load"]


def _load(note: Note) -> str:
    asked = f", device_map {note['device_map']}" if note["device_map"] is not None else ""
    return f"{note['model']} on {' and '.join(note['devices'])}{asked}"


def _is_own(device_map: object, rank: int) -> bool:
    """Return whether a device_map names no other device than the rank's own."""
    if isinstance(device_map, dict):
        own = (rank, str(rank), f"cuda:{rank}", "cpu", "disk", "cuda")
        return all(value in own for value in device_map.values())
    return device_map not in AUTOMATIC if isinstance(device_map, str) else True


def replicas(evidence: Evidence) -> Point:
    """Check that the replicas are equal, bit for bit, at every step, and end near the notebook's model."""
    faults = []
    start = "equal, bit for bit, at the start"
    if len({rank.first_digest for rank in evidence.ranks}) > 1:
        start = "not equal at the start"
        faults.append(Fault("replicas-differ", "the ranks start from different parameters"))
    equal = [len({step.digest for step in steps}) == 1 for _, steps in evidence.together]
    said = f"{start} and after {sum(equal)} of {len(equal)} steps" if equal else "no step that all ranks made"
    if not all(equal):
        number = equal.index(False) + 1
        sentence = f"the ranks' parameters are no longer the same after step {number}"
        line = evidence.ranks[0].steps[number - 1].line
        faults.append(Fault("replicas-differ", sentence, line, number))
    if all(rank.steps and rank.steps[-1].digest == rank.first_digest for rank in evidence.ranks):
        said = f"{said}; the training did not change them"
    off = trained_apart(evidence)
    if off is not None:
        apart = f"{off:.1e} (relative) from the notebook's"
        said = f"{said}; {apart}"
        is_near = off <= TOLERANCE or (off <= _ROUNDED and _only_rounded(evidence))
        if not is_near and not evidence.other_losses:
            faults.append(Fault("other-parameters", f"the trained parameters are {apart}"))
    return Point(2, "replicas", said, tuple(faults), seen=bool(equal))


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
    return distance(evidence.one, evidence.ranks[0])


def distance(one: Rank, other: Rank) -> float | None:
    """Return how far the trained parameters of two processes are apart, relative to the first; None if unknown."""
    first, second = one.numbers(), other.numbers()
    if first is None or second is None or len(first) != len(second):
        return None
    return _length([a - b for a, b in zip(first, second, strict=True)]) / (_length(first) or 1)


def losses(evidence: Evidence) -> Point:
    """Check that each step's loss is the notebook's."""
    rows = evidence.rows
    both = [(a, b) for a, b in rows if a is not None and b is not None]
    off = [n for n, (a, b) in enumerate(both, start=1) if not relative(a, b) <= TOLERANCE]
    faults = []
    if off and not evidence.other_losses:
        one, several = both[off[0] - 1]
        sentence = (
            f"the loss of step {off[0]} is {several:.4f}, the notebook's is {one:.4f} "
            f"({len(off)} of {len(both)} steps differ)"
        )
        line = evidence.ranks[0].steps[off[0] - 1].backward
        faults = [Fault("other-losses", sentence, line, off[0]), *_why_other_losses(evidence, off[0])]
    if len(both) < len(rows):
        made, expected = (sum(row[side] is not None for row in rows) for side in (1, 0))
        sentence = f"the ranks make {made} steps, the notebook makes {expected}"
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
    if norms := [note for rank in evidence.ranks for note in rank.of("norm")]:
        sentence = (
            f"{norms[0]['layer']} normalises with the statistics of each rank's own rows; in the notebook it has "
            "those of the whole batch"
        )
        yield Fault("batch-norm", sentence, evidence.ranks[0].line("wrap") or norms[0]["line"], number)
    elif (means := _mean_of_means(single, steps)) is not None:
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
    candidates = {"samples": [step.count or 0 for step in steps]}
    for name in sorted({name for step in steps for name in step.counts}):
        candidates[name] = [step.counts.get(name, 0) for step in steps]
    for name, counts in candidates.items():
        if len(set(counts)) < 2 or not all(counts):
            continue
        weighted = sum(step.loss * count for step, count in zip(steps, counts, strict=True)) / sum(counts)
        if relative(single.loss, weighted) < TOLERANCE:
            return name, counts
    return None


def gradients(evidence: Evidence) -> Point:
    """Check that the optimizers of all ranks take the same gradients, and no multiple of the notebook's."""
    steps = evidence.together
    apart = [len({step.gradients and step.gradients[0] for step in several}) > 1 for _, several in steps]
    said = f"the same on all ranks in {apart.count(False)} of {len(steps)} steps"
    if any(apart):
        faults = [_not_synchronised(evidence, apart.index(True) + 1)]
    elif faults := _scaled(evidence):
        said = f"{said}, but not the notebook's"
    return Point(None, "gradients", said, tuple(faults), bool(steps))


def _not_synchronised(evidence: Evidence, number: int) -> Fault:
    """Return the fault of ranks whose optimizers take different gradients in a step."""
    rank = evidence.ranks[0]
    step = rank.steps[number - 1]
    wrapped = rank.line("wrap")
    sentence = f"the gradients of step {number} are not the same on all ranks"
    exchanged = any(note["kind"] == "enter" and note["name"] != "barrier" for note in _amid(rank))
    if not evidence.handmade or exchanged:
        return Fault("not-synchronised", f"{sentence}: some are not synchronised", step.line, number)
    why = f"the wrapper of line {wrapped} is not what computes the loss, or not all of it"
    if wrapped is None:
        why = "nothing wraps the model in DistributedDataParallel"
    return Fault("not-synchronised", f"{sentence}: {why}", step.backward or step.line, number)


def _amid(rank: Rank) -> Sequence[Note]:
    """Return what a rank noted between the first batch and its last step."""
    places = [i for i, note in enumerate(rank.notes) if note["kind"] in ("batch", "step")]
    return rank.notes[places[0] : places[-1]] if places else ()


def _scaled(evidence: Evidence) -> list[Fault]:
    """Return the fault of gradients that point where the notebook's do, and are longer or shorter."""
    rank, count = evidence.ranks[0], len(evidence.ranks)
    one, other = evidence.one.first_gradients(), rank.first_gradients()
    if not evidence.handmade or not evidence.together or not one or not other or len(one) != len(other):
        return []
    lengths = _length(one), _length(other)
    if not all(lengths) or relative(*lengths) < _MULTIPLE:
        return []
    cosine = math.fsum(a * b for a, b in zip(one, other, strict=True)) / (lengths[0] * lengths[1])
    if cosine < 1 - TOLERANCE:
        return []
    times = lengths[1] / lengths[0]
    why = "the loss is scaled otherwise"
    if relative(count, times) < _MULTIPLE:
        why = f"they are summed over the {count} ranks, not averaged"
    elif relative(1 / count, times) < _MULTIPLE:
        why = f"they are divided by the {count} ranks once too often"
    reduced = next((note["line"] for note in _amid(rank) if note["kind"] == "enter" and note["line"]), None)
    sentence = f"the gradients of step 1 are {times:.3g} times the notebook's: {why}"
    line = reduced if reduced and times > 1 else rank.steps[0].backward
    return [Fault("summed-gradients", sentence, line, 1)]


def _length(numbers: Sequence[float]) -> float:
    return math.sqrt(math.fsum(number * number for number in numbers))
