"""Checks of the run as a whole: files, exit codes, collectives, arguments, what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.rehearse.evidence import TOLERANCE, Evidence, Fault, Point, last_line, relative, some
from nb2ddp.rehearse.observed import Rank, failing_line, frames

AUTOMATIC = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""The values of device_map that spread one model over several GPUs."""

_PER_RANK = "rng_state"  # a Trainer's checkpoint keeps one for each rank


def files(evidence: Evidence) -> Point:
    """Check that the notebook's files are written, by rank 0 alone."""
    faults = []
    by_zero = set(evidence.ranks[0].written)
    for rank in evidence.ranks[1:]:
        extra = [name for name in rank.written if _PER_RANK not in name]
        if extra:
            also = ", which rank 0 writes too" if by_zero & set(extra) else ""
            sentence = f"rank {rank.number} writes {some(extra)}{also}"
            faults.append(Fault("all-ranks-save", sentence, rank.wrote_at(extra[0])))
    expected = {name for name in evidence.one.written if _PER_RANK not in name}
    made = {name for name in by_zero if _PER_RANK not in name}
    if _ended_well(evidence):
        if lacking := sorted(expected - made):
            faults.append(Fault("other-files", f"the notebook's {some(lacking)} not written"))
        if more := sorted(made - expected):
            sentence = f"{some(more)} written, which the notebook does not write"
            faults.append(Fault("other-files", sentence, evidence.ranks[0].wrote_at(more[0])))
    own = sum(_PER_RANK in name for rank in evidence.ranks[1:] for name in rank.written)
    said = f"{len(made)} by rank 0, {len(expected)} by the notebook"
    if own and not faults:
        said += f"; the checkpoints keep the random state of each rank ({own} more)"
    return Point(5, "files", said, tuple(faults))


def _ended_well(evidence: Evidence) -> bool:
    return evidence.run.hung is None and not any(rank.code for rank in evidence.ranks)


def ends(evidence: Evidence) -> Point:
    """Check that all ranks end with exit code 0 and leave no process."""
    run, ranks = evidence.run, evidence.ranks
    faults = []
    most = max(len(evidence.one.steps), *(len(rank.steps) for rank in ranks))
    failed = sorted((rank for rank in ranks if rank.code), key=lambda rank: rank.ended)
    first = failed[0] if failed else None
    early = [rank for rank in ranks if len(rank.steps) < most and rank.code == 0]
    for rank in early:
        if run.hung or first is not None or len(early) < len(ranks):
            sentence = f"rank {rank.number} ended (exit code 0) after {len(rank.steps)} of {most} steps"
            faults.append(Fault("early-exit", f"{sentence}, and the others wait for it"))
    if run.hung:
        faults.append(Fault("hang", f"{run.hung}: {_where(ranks)}", _waiting_line(ranks)))
    elif first is not None:
        what = last_line(first)
        if not evidence.reference_error or what != evidence.reference_error:
            sentence = f"rank {first.number} failed (exit code {first.code}) after {len(first.steps)} steps"
            line = failing_line(first.errors, SCRIPT)
            faults.append(Fault("failed", f"{sentence}: {what or 'without a message'}", line))
    elif evidence.handmade and not any(rank.steps for rank in ranks):
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


def _waiting_line(ranks: Sequence[Rank]) -> int | None:
    """Return the line at which a rank waits for the others, else one at which a rank stands."""
    standing = [(rank.pending, frames(rank.stack, SCRIPT)) for rank in ranks]
    waiting = [calls[0][1] for pending, calls in standing if pending and calls]
    return next(iter([*waiting, *(calls[0][1] for _, calls in standing if calls)]), None)


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
    kinds = [[name for name, _ in rank.collectives] for rank in ranks]
    for number, names in enumerate(kinds[1:], start=1):
        differing = next(
            (i for i, pair in enumerate(zip(kinds[0], names, strict=False)) if pair[0] != pair[1]), None
        )
        if differing is not None:
            zero, other = kinds[0][differing], names[differing]
            sentence = f"collective {differing + 1} is {zero} on rank 0 and {other} on rank {number}"
            yield Fault("other-collectives", sentence, ranks[0].collectives[differing][1])
        elif len(names) != len(kinds[0]):
            sentence = f"rank 0 enters {len(kinds[0])} collectives, rank {number} {len(names)}"
            longer = ranks[0] if len(kinds[0]) > len(names) else ranks[number]
            line = longer.collectives[min(len(names), len(kinds[0]))][1]
            yield Fault("other-collectives", sentence, line)


def group(evidence: Evidence) -> Point:
    """Check that the script makes the processes that torchrun starts ranks of one group."""
    ranks = evidence.ranks
    joined = [rank for rank in ranks if rank.of("group")]
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
    elif not joined and any(rank.steps for rank in ranks):
        sentence = (
            f"the script joins no process group: each of the {len(ranks)} processes that torchrun starts trains the "
            "whole notebook by itself"
        )
        faults.append(Fault("no-group", sentence, ranks[0].steps[0].line if ranks[0].steps else None))
    said = f"{len(joined)} of {len(ranks)} processes joined a group"
    return Point(1, "group", said, tuple(faults), seen=any(rank.steps for rank in ranks))


def plain(evidence: Evidence) -> Point:
    """Check that ``python train_ddp.py``, in one process, trains as the notebook does, bit for bit."""
    rank, one = evidence.plain, evidence.one
    faults = []
    if evidence.handmade:
        return _plain_handmade(evidence)
    if evidence.plain_run.hung:
        faults.append(Fault("plain-differs", evidence.plain_run.hung))
    elif rank.code and last_line(rank) != evidence.reference_error:
        faults.append(Fault("plain-differs", f"it failed (exit code {rank.code}): {last_line(rank)}"))
    ends_alike = [step.digest for step in rank.steps[-1:]] == [step.digest for step in one.steps[-1:]]
    if rank.losses != one.losses or not ends_alike:
        faults.append(Fault("plain-differs", "its losses or parameters are not the notebook's, to the bit"))
    elif set(rank.written) != set(one.written):
        odd = sorted(set(rank.written) ^ set(one.written))
        faults.append(Fault("plain-differs", f"it and the notebook do not write the same files: {some(odd)}"))
    equal = "equal" if ends_alike else "not equal"
    said = f"exit code {rank.code}, {len(rank.losses)} steps, parameters {equal}"
    return Point(7, "plain python", said, tuple(faults), seen=not evidence.reference_error)


def _plain_handmade(evidence: Evidence) -> Point:
    """Check that the script trains as the notebook does in one process too, if it trains there at all."""
    rank, one = evidence.plain, evidence.one
    title = "plain python"
    if not rank.steps:
        why = evidence.plain_run.hung or last_line(rank) or "it makes no optimizer step"
        return Point(7, title, f"it does not train without torchrun ({why})", seen=False)
    off = [
        number
        for number, (a, b) in enumerate(zip(one.losses, rank.losses, strict=False), start=1)
        if not relative(a, b) <= TOLERANCE
    ]
    faults = []
    if rank.code and last_line(rank) != evidence.reference_error:
        sentence = f"in one process it fails (exit code {rank.code}): {last_line(rank)}"
        faults.append(Fault("plain-differs", sentence, failing_line(rank.errors, SCRIPT)))
    elif (off or len(rank.steps) != len(one.steps)) and not evidence.other_losses:
        first = off[0] if off else min(len(rank.steps), len(one.steps)) + 1
        sentence = f"in one process it is not the notebook's run, from step {first} on"
        line = rank.steps[min(first, len(rank.steps)) - 1].backward
        faults.append(Fault("plain-differs", sentence, line, first))
    said = f"exit code {rank.code}, {len(rank.losses)} of the notebook's {len(one.losses)} steps"
    return Point(7, title, said, tuple(faults), seen=not evidence.reference_error)


def arguments(evidence: Evidence) -> Point:
    """Check that the Trainers' arguments are the same on all ranks."""
    faults = []
    trainings = [[note["arguments"] for note in rank.of("train")] for rank in evidence.ranks]
    lines = [note.get("line") for note in evidence.ranks[0].of("train")]
    for number, of_rank in enumerate(trainings[1:], start=1):
        for zero, other, line in zip(trainings[0], of_rank, lines, strict=False):
            for name in zero:
                if zero[name] != other.get(name):
                    sentence = f"{name} is {zero[name]} on rank 0 and {other.get(name)} on rank {number}"
                    faults.append(Fault("rank-dependent-arguments", sentence, line))
    count = len(trainings[0])
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
