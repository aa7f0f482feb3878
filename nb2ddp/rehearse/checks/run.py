"""Checks of the run as a whole: files, exit codes, collectives, arguments, what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.rehearse.evidence import TOLERANCE, Evidence, Fault, Point, last_line, relative, some
from nb2ddp.rehearse.observed import Rank, failing_line, frames

AUTOMATIC = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""The values of device_map that spread one model over several GPUs."""

_PER_RANK = "rng_state"  # a Trainer's checkpoint keeps one for each rank
_SHOWN = re.compile(r"plot_\d+\.(png|html)")  # in the script, what a notebook shows below a cell


def files(evidence: Evidence) -> Point:
    """Check that the notebook's files are written, by rank 0 alone."""
    zero, *others = evidence.ranks
    expected, made = _shared_files(evidence.one), _shared_files(zero)
    faults = []
    for rank in others:
        if extra := _shared_files(rank):
            also = ", which rank 0 writes too" if set(made) & set(extra) else ""
            sentence = f"rank {rank.number} writes {some(extra)}{also}"
            faults.append(Fault("all-ranks-save", sentence, rank.wrote_at(extra[0])))
    if evidence.run.hung is None and not any(rank.code for rank in evidence.ranks):
        if lacking := sorted(set(expected) - set(made)):
            faults.append(Fault("other-files", f"the notebook's {some(lacking)} not written"))
        if more := sorted(set(made) - set(expected)):
            sentence = f"{some(more)} written, which the notebook does not write"
            faults.append(Fault("other-files", sentence, zero.wrote_at(more[0])))
    counts = [(rank.number, len(_shared_files(rank))) for rank in evidence.ranks]
    said = "".join(f"{count} by rank {number}, " for number, count in counts if count or number == 0)
    said += f"{len(expected)} by the notebook"
    own = sum(_PER_RANK in name for rank in others for name in rank.written)
    if own and not faults:
        said += f"; the checkpoints keep the random state of each rank ({own} more)"
    return Point(5, "files", said, tuple(faults))


def _shared_files(rank: Rank) -> list[str]:
    return [name for name in rank.written if _PER_RANK not in name and not _SHOWN.fullmatch(name)]


def ends(evidence: Evidence) -> Point:
    """Check that all ranks end with exit code 0 and leave no process."""
    run, ranks = evidence.run, evidence.ranks
    most = max(len(rank.steps) for rank in (evidence.one, *ranks))
    first = min((rank for rank in ranks if rank.code), key=lambda rank: rank.ended, default=None)
    early = [rank for rank in ranks if len(rank.steps) < most and rank.code == 0]
    faults = []
    if run.hung or first is not None or len(early) < len(ranks):
        for rank in early:
            sentence = f"rank {rank.number} ended (exit code 0) after {len(rank.steps)} of {most} steps"
            faults.append(Fault("early-exit", f"{sentence}, and the others wait for it"))
    if run.hung:
        waiting_first = sorted(ranks, key=lambda rank: rank.pending is None)
        stands = (calls[0][1] for rank in waiting_first if (calls := frames(rank.stack, SCRIPT)))
        faults.append(Fault("hang", f"{run.hung}: {_where(ranks)}", next(stands, None)))
    elif first is not None:
        what = last_line(first)
        if not evidence.reference_error or what != evidence.reference_error:
            sentence = f"rank {first.number} failed (exit code {first.code}) after {len(first.steps)} steps"
            line = failing_line(first.errors, SCRIPT)
            faults.append(Fault("failed", f"{sentence}: {what or 'without a message'}", line))
    elif not any(rank.steps for rank in ranks):
        sentence = "the script ends without a single optimizer step: it does not train when it is started"
        faults.append(Fault("no-training", sentence))
    if run.left:
        faults.append(Fault("left-processes", f"{run.left} processes were left behind"))
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
            said.append(f"rank {rank.number} was at line {calls[-1][1]} of the script{pending}")
        else:
            said.append(f"the stack of rank {rank.number} is not known")
    return "; ".join(said)


def _collectives(ranks: Sequence[Rank]) -> Iterator[Fault]:
    """Check that all ranks enter the same collectives in the same order, and leave the last one."""
    for rank in ranks:
        if rank.pending:
            name, line = rank.pending
            where = f" (line {line} of the script)" if line else ""
            yield Fault("other-collectives", f"rank {rank.number} never leaves {name}{where}", line)
    zero = ranks[0].collectives
    for rank in ranks[1:]:
        other = rank.collectives
        pairs = enumerate(zip(zero, other, strict=False), start=1)
        differing = next(((n, a, b) for n, (a, b) in pairs if a[0] != b[0]), None)
        if differing is not None:
            number, (name, line), (other_name, _) = differing
            sentence = f"collective {number} is {name} on rank 0 and {other_name} on rank {rank.number}"
            yield Fault("other-collectives", sentence, line)
        elif len(other) != len(zero):
            sentence = f"rank 0 enters {len(zero)} collectives, rank {rank.number} {len(other)}"
            _, line = max(zero, other, key=len)[min(len(other), len(zero))]
            yield Fault("other-collectives", sentence, line)


def group(evidence: Evidence) -> Point:
    """Check that the script makes the processes that torchrun starts ranks of one group."""
    ranks = evidence.ranks
    joined = [rank for rank in ranks if rank.of("group")]
    trained = any(rank.steps for rank in ranks)
    faults = []
    spread = next((note for note in ranks[0].of("load") if note["device_map"] in AUTOMATIC), None)
    if not joined and (line := ranks[0].line("data_parallel")):
        sentence = (
            "the model is wrapped in DataParallel: one process computes for all GPUs, and there are no ranks that "
            "could each have a GPU and a process of its own"
        )
        faults.append(Fault("one-process", sentence, line))
    elif not joined and spread is not None:
        sentence = (
            f"device_map={spread['device_map']!r} spreads one model over all GPUs, which compute one after another: "
            "one process trains, and no time is saved"
        )
        faults.append(Fault("one-process", sentence, spread.get("line")))
    elif not joined and trained:
        sentence = (
            f"the script joins no process group: each of the {len(ranks)} processes that torchrun starts trains the "
            "whole notebook by itself"
        )
        faults.append(Fault("no-group", sentence, ranks[0].steps[0].line if ranks[0].steps else None))
    said = f"{len(joined)} of {len(ranks)} processes joined a group"
    return Point(1, "group", said, tuple(faults), seen=trained)


def plain(evidence: Evidence) -> Point:
    """Check that the script trains in one process as the notebook does.

    What we have converted does so bit for bit, and writes the same files; a script by hand may need torchrun.
    """
    rank, one = evidence.plain, evidence.one
    exact = not evidence.handmade
    hung, error = evidence.plain_run.hung, last_line(rank)
    if not exact and not rank.steps:
        why = hung or error or "it makes no optimizer step"
        return Point(7, "plain python", f"it does not train without torchrun ({why})", seen=False)
    faults = []
    losses = list(zip(one.losses, rank.losses, strict=False))
    same = len(rank.steps) == len(one.steps)
    off = [n for n, (a, b) in enumerate(losses, 1) if (a != b if exact else not relative(a, b) <= TOLERANCE)]
    ends_alike = [step.digest for step in rank.steps[-1:]] == [step.digest for step in one.steps[-1:]]
    if hung:
        faults.append(Fault("plain-differs", f"in one process {hung}"))
    elif rank.code and error != evidence.reference_error:
        sentence = f"in one process it fails (exit code {rank.code}): {error}"
        faults.append(Fault("plain-differs", sentence, failing_line(rank.errors, SCRIPT)))
    elif (off or not same) and (exact or not evidence.other_losses):
        first = off[0] if off else min(len(rank.steps), len(one.steps)) + 1
        sentence = f"in one process it is not the notebook's run, from step {first} on"
        line = rank.steps[min(first, len(rank.steps)) - 1].backward if rank.steps else None
        faults.append(Fault("plain-differs", sentence, line, first))
    elif exact and not ends_alike:
        sentence = "in one process its parameters are not the notebook's, to the bit"
        faults.append(Fault("plain-differs", sentence))
    elif exact and (odd := sorted({*_shared_files(rank)} ^ {*_shared_files(one)})):
        sentence = f"in one process it and the notebook do not write the same files: {some(odd)}"
        faults.append(Fault("plain-differs", sentence))
    equal = f", parameters {'' if ends_alike else 'not '}equal" * exact
    said = (
        f"exit code {rank.code}, {len(rank.losses)} steps for the notebook's {len(one.losses)}, "
        f"{len(losses) - len(off)} with its loss{equal}"
    )
    return Point(7, "plain python", said, tuple(faults), seen=not evidence.reference_error)


def arguments(evidence: Evidence) -> Point:
    """Check that the Trainers' arguments are the same on all ranks."""
    zero, *others = evidence.ranks
    trainings = zero.of("train")
    faults = []
    for rank in others:
        for own, other in zip(trainings, rank.of("train"), strict=False):
            for name, value in own["arguments"].items():
                if value != (found := other["arguments"].get(name)):
                    sentence = f"{name} is {value} on rank 0 and {found} on rank {rank.number}"
                    faults.append(Fault("rank-dependent-arguments", sentence, own.get("line")))
    count = len(trainings)
    said = f"{count} Trainer{'s' if count > 1 else ''} compared" if count else "no Trainer trains here"
    return Point(None, "arguments", said, tuple(faults), seen=count > 0)


def prints(evidence: Evidence) -> Point:
    """Check that rank 0 alone prints."""
    said = ", ".join(f"{_lines(rank.printed)} by rank {rank.number}" for rank in evidence.ranks)
    faults = tuple(
        Fault("printed-twice", f"rank {rank.number} prints {_lines(rank.printed)} too", rank.line("print"))
        for rank in evidence.ranks[1:]
        if rank.printed
    )
    return Point(None, "prints", said, faults)


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
