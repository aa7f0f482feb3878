"""The promise, point by point: what the runs showed, and what is wrong about it.

Each function of `POINTS` looks at one `Evidence` and gives one `Point`. A fault has a key, so that machines
(and tests) can tell it, and a sentence.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.rehearse.observed import Rank, Step, frames
from nb2ddp.rehearse.runs import Run

TOLERANCE = 1e-4
"""How much (relative) a loss or the parameters may differ between one process and several."""

_AUTOMATIC = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
_UNTOLD = "cannot be told: this script's batches come without indices"
_BY_DESIGN = "rng_state"  # a Trainer's checkpoint keeps one for each rank

# What is behind it all comes first: a fault has consequences, which are faults too.
CAUSES = (
    "rank-dependent-arguments early-exit other-order same-samples other-batch not-synchronised "
    "synchronised-twice all-ranks-save shared-device failed hang other-collectives left-processes "
    "missing-samples other-files replicas-differ other-losses other-parameters plain-differs printed-twice"
).split()


@dataclass(frozen=True)
class Fault:
    key: str
    sentence: str


@dataclass(frozen=True)
class Point:
    """``number`` is the promise's own, None for what is measured beside it.

    ``seen`` is False where there was nothing to measure: then it has not passed, and not failed either.
    """

    number: int | None
    title: str
    measured: str
    faults: tuple[Fault, ...] = ()
    seen: bool = True

    @property
    def state(self) -> Literal["passed", "failed", "unseen"]:
        return "failed" if self.faults else "passed" if self.seen else "unseen"


@dataclass(frozen=True)
class Evidence:
    """The three runs and what was noted in them; ``one`` is the notebook, ``plain`` the script alone."""

    run: Run
    one: Rank
    plain: Rank
    plain_run: Run
    ranks: Sequence[Rank]
    other_losses: str = ""

    @cached_property
    def rows(self) -> list[tuple[float | None, float | None]]:
        """The loss of each step in one process and, as the mean over the ranks, in several."""
        losses = [rank.losses for rank in self.ranks]
        several = [sum(step) / len(step) for step in zip(*losses, strict=False)]
        count = max(len(several), len(self.one.losses))
        return list(zip(_padded(self.one.losses, count), _padded(several, count), strict=True))

    @property
    def reference_error(self) -> str:
        """The error that the notebook's own code ends with too, after its training."""
        return last_line(self.one) if self.one.code else ""

    @cached_property
    def together(self) -> list[tuple[Step, list[Step]]]:
        """Each step of the notebook with the ranks' own."""
        return [
            (single, list(several))
            for single, *several in zip(self.one.steps, *(rank.steps for rank in self.ranks), strict=False)
        ]


def _padded(values: Sequence[float], count: int) -> list[float | None]:
    return [*values, *[None] * (count - len(values))]


def last_line(rank: Rank) -> str:
    """The error that ended a rank."""
    lines = [line for line in rank.errors.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return re.sub(r"^\[rank\d+\]: ", "", lines[-1]) if lines else ""


def relative(one: float, other: float) -> float:
    """The difference of two numbers, relative to the first."""
    return abs(other - one) / max(abs(one), 1e-12)


def _names(ranks: Sequence[Rank]) -> str:
    return " and ".join(f"rank {rank.number}" for rank in ranks)


# ---------------------------------------------------------------------------------------------------------
# The seven points


def loads(evidence: Evidence) -> Point:
    """Every rank loads its own copy on its own device."""
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
    """The part of a device_map that names another device than the rank's own; None where there is none."""
    if isinstance(device_map, str):
        return device_map if device_map in _AUTOMATIC else None
    if isinstance(device_map, dict):
        own = (rank, str(rank), f"cuda:{rank}", "cpu", "disk", "cuda")
        return None if all(value in own for value in device_map.values()) else device_map
    return None


def replicas(evidence: Evidence) -> Point:
    """The ranks hold the same parameters, bit for bit, from the start to the end; and the notebook's."""
    faults = []
    starts = {rank.first_digest for rank in evidence.ranks}
    if len(starts) > 1:
        faults.append(Fault("replicas-differ", "the ranks start from different parameters"))
    for number, (_, steps) in enumerate(evidence.together, start=1):
        if len({step.digest for step in steps}) > 1:
            sentence = f"the ranks' parameters are no longer the same after step {number}"
            faults.append(Fault("replicas-differ", sentence))
            break
    said = []
    for rank in evidence.ranks:
        end = rank.steps[-1].digest if rank.steps else "none"
        said.append(f"rank {rank.number}: {rank.first_digest or 'none'} to {end}")
    distance = _distance(evidence.one, evidence.ranks[0])
    if distance is not None:
        said.append(f"{distance:.1e} from the notebook's, relative")
        if not distance <= TOLERANCE and not evidence.other_losses:
            sentence = f"the trained parameters are {distance:.1e} (relative) from the notebook's"
            faults.append(Fault("other-parameters", sentence))
    return Point(2, "replicas", "; ".join(said), tuple(faults), seen=bool(evidence.together))


def _distance(one: Rank, other: Rank) -> float | None:
    first, second = one.numbers(), other.numbers()
    if first is None or second is None or len(first) != len(second):
        return None
    norm = math.fsum(a * a for a in first)
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(first, second, strict=True)) / (norm or 1))


def losses(evidence: Evidence) -> Point:
    """The losses are the notebook's, step by step."""
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


def samples(evidence: Evidence) -> Point:
    """The ranks share out the notebook's samples: no sample twice, none left out."""
    faults = [*_other_order(evidence)]
    drawn = compared = 0
    for number, (single, steps) in enumerate(evidence.together, start=1):
        shares = _shares(steps)
        if shares is None:
            continue
        counted = [sample for share in shares for sample in share]
        drawn += len(counted)
        mine = _own(single, steps)
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
        said = _UNTOLD
    else:
        each = ", ".join(
            f"{sum(len(s.indices or s.rows or ()) for s in rank.steps)} by rank {rank.number}"
            for rank in evidence.ranks
        )
        said = f"{each}; {compared} steps compared with the notebook's"
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
        "the ranks shuffle each on their own"
    )


def _other_order(evidence: Evidence) -> Iterator[Fault]:
    """Whether the same places of the data set hold the same rows on all ranks."""
    data = [rank.training_data for rank in evidence.ranks]
    for found in zip(*data, strict=False):
        if len({digest for _, digest in found}) > 1:
            sentence = (
                "the ranks hold different rows, or the same in another order: a shuffle or split has no seed"
            )
            yield Fault("other-order", sentence)
            return
    rows: dict[int, str] = {}
    for rank in (*evidence.ranks, evidence.one):
        for step in rank.steps:
            for index, row in zip(step.indices or (), step.rows or (), strict=False):
                if rows.setdefault(index, row) != row:
                    where = "on all ranks" if rank is not evidence.one else "for the ranks and the notebook"
                    sentence = (
                        f"row {index} of the data set is not the same {where}: is a shuffle without a seed?"
                    )
                    yield Fault("other-order", sentence)
                    return


def files(evidence: Evidence) -> Point:
    """The files of the notebook are written, each by rank 0 alone."""
    faults = []
    by_zero = set(evidence.ranks[0].written)
    for rank in evidence.ranks[1:]:
        extra = [name for name in rank.written if _BY_DESIGN not in name]
        if extra:
            also = ", which rank 0 writes too" if by_zero & set(extra) else ""
            sentence = f"rank {rank.number} writes {_some(extra)}{also}"
            faults.append(Fault("all-ranks-save", sentence))
    expected = {name for name in evidence.one.written if _BY_DESIGN not in name}
    made = {name for name in by_zero if _BY_DESIGN not in name}
    if _ended_well(evidence):
        if lacking := sorted(expected - made):
            faults.append(Fault("other-files", f"the notebook's {_some(lacking)} not written"))
        if more := sorted(made - expected):
            faults.append(Fault("other-files", f"{_some(more)} written, which the notebook does not write"))
    said = ", ".join(f"{len(rank.written)} by rank {rank.number}" for rank in evidence.ranks)
    return Point(5, "files", f"{said}, {len(evidence.one.written)} by the notebook", tuple(faults))


def _some(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more files" if len(names) > 1 else names[0]


def _ended_well(evidence: Evidence) -> bool:
    return evidence.run.hung is None and not any(rank.code for rank in evidence.ranks)


def ends(evidence: Evidence) -> Point:
    """All ranks end, with exit code 0, and nothing is left of them."""
    run, ranks = evidence.run, evidence.ranks
    faults = []
    most = max(len(evidence.one.steps), *(len(rank.steps) for rank in ranks))
    failed = sorted((rank for rank in ranks if rank.code), key=lambda rank: rank.ended)
    first = failed[0] if failed else None
    early = [rank for rank in ranks if len(rank.steps) < most and rank.code == 0]
    for rank in early:
        if run.hung or first is not None or len(early) < len(ranks):
            sentence = f"rank {rank.number} ended (exit code 0) after {len(rank.steps)} of {most} steps"
            faults.append(Fault("early-exit", f"{sentence}, and the others cannot go on without it"))
    if run.hung:
        faults.append(Fault("hang", f"{run.hung}: {_where(ranks)}"))
    elif first is not None:
        what = last_line(first)
        if not evidence.reference_error or what != evidence.reference_error:
            sentence = f"rank {first.number} failed (exit code {first.code}) after {len(first.steps)} steps"
            faults.append(Fault("failed", f"{sentence}: {what or 'it said nothing'}"))
    if run.left:
        faults.append(Fault("left-processes", f"{run.left} processes were still there in the end"))
    faults += _collectives(ranks)
    codes = ", ".join(
        f"rank {rank.number} {'was stopped' if rank.code is None or run.hung else f'exit code {rank.code}'}"
        for rank in ranks
    )
    said = f"{codes} after {run.seconds:.0f} s; {run.left} processes left"
    return Point(6, "ends", said, tuple(faults), seen=not evidence.reference_error)


def _where(ranks: Sequence[Rank]) -> str:
    said = []
    for rank in ranks:
        calls = frames(rank.stack, SCRIPT)
        if rank.code is not None and not rank.stack:
            said.append(f"rank {rank.number} had ended")
        elif calls:
            pending = f", waiting in {rank.pending[0]}" if rank.pending else ""
            said.append(f"rank {rank.number} stood in line {calls[-1][1]} of the script{pending}")
        else:
            said.append(f"rank {rank.number} did not tell where it stood")
    return "; ".join(said)


def _collectives(ranks: Sequence[Rank]) -> Iterator[Fault]:
    """Whether all ranks went through the same collectives, and out of the last one."""
    for rank in ranks:
        if rank.pending:
            name, line = rank.pending
            where = f" (line {line} of the script)" if line else ""
            yield Fault("other-collectives", f"rank {rank.number} waits in {name}{where} for ever")
    kinds = [[name for name, _ in rank.collectives] for rank in ranks]
    for number, names in enumerate(kinds[1:], start=1):
        differing = next(
            (i for i, pair in enumerate(zip(kinds[0], names, strict=False)) if pair[0] != pair[1]), None
        )
        if differing is not None:
            zero, other = kinds[0][differing], names[differing]
            sentence = f"collective {differing + 1} is {zero} on rank 0 and {other} on rank {number}"
            yield Fault("other-collectives", sentence)
        elif len(names) != len(kinds[0]):
            sentence = f"rank 0 enters {len(kinds[0])} collectives, rank {number} {len(names)}"
            yield Fault("other-collectives", sentence)


def plain(evidence: Evidence) -> Point:
    """``python train_ddp.py``, in one process, is the notebook."""
    rank, one = evidence.plain, evidence.one
    faults = []
    if evidence.plain_run.hung:
        faults.append(Fault("plain-differs", evidence.plain_run.hung))
    elif rank.code and last_line(rank) != evidence.reference_error:
        faults.append(Fault("plain-differs", f"it failed (exit code {rank.code}): {last_line(rank)}"))
    ends_alike = [step.digest for step in rank.steps[-1:]] == [step.digest for step in one.steps[-1:]]
    if rank.losses != one.losses or not ends_alike:
        faults.append(Fault("plain-differs", "its losses or parameters are not the notebook's, to the bit"))
    elif set(rank.written) != set(one.written):
        odd = sorted(set(rank.written) ^ set(one.written))
        faults.append(
            Fault("plain-differs", f"it and the notebook do not write the same files: {_some(odd)}")
        )
    equal = "equal" if ends_alike else "not equal"
    said = f"exit code {rank.code}, {len(rank.losses)} steps, parameters {equal}"
    return Point(7, "plain python", said, tuple(faults), seen=not evidence.reference_error)


# ---------------------------------------------------------------------------------------------------------
# Beside them


def gradients(evidence: Evidence) -> Point:
    """The gradients are averaged over the ranks once in each optimizer step."""
    sets = [step.sets for rank in evidence.ranks for step in rank.steps]
    faults = []
    if sets and min(sets) < 0.01:
        sentence = "no gradients are averaged over the ranks: each trains a model of its own"
        faults.append(Fault("not-synchronised", sentence))
    elif sets and max(sets) >= 1.5:
        sentence = f"the gradients are averaged {max(sets):.1f} times in a step: two wrappers, or no no_sync"
        faults.append(Fault("synchronised-twice", sentence))
    mean = sum(sets) / len(sets) if sets else 0.0
    return Point(None, "gradients", f"averaged {mean:.2f} times per step", tuple(faults), seen=bool(sets))


def batch(evidence: Evidence) -> Point:
    """A step takes as many samples as the notebook's."""
    faults = []
    said = _UNTOLD
    for single, steps in evidence.together:
        shares, mine = _shares(steps), _own(single, steps)
        if shares is None or mine is None:
            continue
        count = sum(map(len, shares))
        parts = " + ".join(str(len(share)) for share in shares)
        said = f"{count} = {parts} samples per step, the notebook's {len(mine)}"
        if count != len(mine) and len(mine) >= len(steps):
            sentence = (
                f"a step takes {count} samples, the notebook's takes {len(mine)}: is accumulation divided?"
            )
            faults.append(Fault("other-batch", sentence))
            break
    return Point(None, "effective batch", said, tuple(faults), seen=said != _UNTOLD)


def arguments(evidence: Evidence) -> Point:
    """The Trainers' arguments are the same on all ranks."""
    faults = []
    trainings = [[note["arguments"] for note in rank.of("train")] for rank in evidence.ranks]
    for number, of_rank in enumerate(trainings[1:], start=1):
        for zero, other in zip(trainings[0], of_rank, strict=False):
            for name in zero:
                if zero[name] != other.get(name):
                    sentence = f"{name} is {zero[name]} on rank 0 and {other.get(name)} on rank {number}"
                    faults.append(Fault("rank-dependent-arguments", sentence))
    count = len(trainings[0])
    said = f"{count} Trainer{'s' if count > 1 else ''} compared" if count else "no Trainer trains here"
    return Point(None, "arguments", said, tuple(faults), seen=count > 0)


def prints(evidence: Evidence) -> Point:
    """Everything is printed once."""
    said = ", ".join(f"{rank.printed} lines by rank {rank.number}" for rank in evidence.ranks)
    faults = tuple(
        Fault("printed-twice", f"rank {rank.number} prints {rank.printed} lines too")
        for rank in evidence.ranks[1:]
        if rank.printed
    )
    return Point(None, "prints", said, faults)


POINTS: tuple[Callable[[Evidence], Point], ...] = (
    loads,
    replicas,
    losses,
    samples,
    files,
    ends,
    plain,
    gradients,
    batch,
    arguments,
    prints,
)
