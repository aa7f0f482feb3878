"""Checks of the run as a whole: files, exit codes, collectives, arguments, what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.rehearse.evidence import Evidence, Fault, Point, last_line, some
from nb2ddp.rehearse.observed import Rank, frames

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
            faults.append(Fault("all-ranks-save", sentence))
    expected = {name for name in evidence.one.written if _PER_RANK not in name}
    made = {name for name in by_zero if _PER_RANK not in name}
    if _ended_well(evidence):
        if lacking := sorted(expected - made):
            faults.append(Fault("other-files", f"the notebook's {some(lacking)} not written"))
        if more := sorted(made - expected):
            faults.append(Fault("other-files", f"{some(more)} written, which the notebook does not write"))
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
        faults.append(Fault("hang", f"{run.hung}: {_where(ranks)}"))
    elif first is not None:
        what = last_line(first)
        if not evidence.reference_error or what != evidence.reference_error:
            sentence = f"rank {first.number} failed (exit code {first.code}) after {len(first.steps)} steps"
            faults.append(Fault("failed", f"{sentence}: {what or 'without a message'}"))
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
            yield Fault("other-collectives", f"rank {rank.number} never leaves {name}{where}")
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
    """Check that ``python train_ddp.py``, in one process, trains as the notebook does, bit for bit."""
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
        faults.append(Fault("plain-differs", f"it and the notebook do not write the same files: {some(odd)}"))
    equal = "equal" if ends_alike else "not equal"
    said = f"exit code {rank.code}, {len(rank.losses)} steps, parameters {equal}"
    return Point(7, "plain python", said, tuple(faults), seen=not evidence.reference_error)


def arguments(evidence: Evidence) -> Point:
    """Check that the Trainers' arguments are the same on all ranks."""
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
    """Check that rank 0 alone prints."""
    said = ", ".join(f"{_lines(rank.printed)} by rank {rank.number}" for rank in evidence.ranks)
    faults = tuple(
        Fault("printed-twice", f"rank {rank.number} prints {_lines(rank.printed)} too")
        for rank in evidence.ranks[1:]
        if rank.printed
    )
    return Point(None, "prints", said, faults)


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
