"""Report what `nb2ddp prove` has found: for people, by fault and line, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nb2ddp.rehearse import report
from nb2ddp.rehearse.advice import ADVICE
from nb2ddp.rehearse.evidence import Fault, FaultKey
from nb2ddp.rehearse.rehearsal import OUTCOMES, Outcome, Rehearsal
from nb2ddp.secrets import masker

_FOLLOWS: frozenset[FaultKey] = frozenset(
    {
        *(
            "other-losses",
            "other-figures",
            "other-parameters",
            "replicas-differ",
            "plain-differs",
            "missing-samples",
        ),
        *("other-collectives", "printed-twice", "other-files"),
    }
)
"""What other faults entail: where there is one of those, these may go with it."""

_VERDICTS: dict[Outcome, str] = {
    "same": "{script} trains what {notebook} trains, on {nproc} processes.",
    "different": "{script} does not train what {notebook} trains.",
    "fails": "{script} does not come to its end on {nproc} processes.",
    "hangs": "{script} hangs on {nproc} processes, and was ended.",
    "reordered": "{script} trains what {notebook} trains, but for the order of the samples.",
}


def verdict(result: Rehearsal, script: Path) -> str:
    """Return the result in one sentence."""
    names = {"script": script.name, "notebook": result.name, "nproc": result.nproc}
    said = _VERDICTS[result.outcome].format(**names)
    by_nature = f" Their losses differ by nature: {result.other_losses}." if result.other_losses else ""
    return f"{said}{by_nature}"


def _sentence(fault: Fault, name: str) -> str:
    end = "" if fault.sentence.endswith((".", "?")) else "."
    return f"{name}, line {fault.line}: {fault.sentence}{end}" if fault.line else f"{fault.sentence}{end}"


def lines(result: Rehearsal, script: Path, code: str) -> Iterator[str]:
    """Yield the report for a terminal: the points, each fault with its line and what to do, the verdict."""
    width = max(len(point.title) for point in result.points)
    for point in result.points:
        state = point.state.upper() if point.faults else point.state
        yield f"{point.number or ' '}  {point.title.ljust(width)}  {state}  {point.measured}"
    yield ""
    source, mask = code.splitlines(), masker([code])
    for fault in result.faults:
        follows = (
            " (may follow from the first)" if fault is not result.faults[0] and fault.key in _FOLLOWS else ""
        )
        yield f"{_sentence(fault, script.name)} [{fault.key}]{follows}"
        if fault.line and fault.line <= len(source):
            yield f"    {mask(source[fault.line - 1].strip())}"
        if not follows:
            yield f"    What to do: {ADVICE[fault.key]}"
    yield from result.notes
    for rank, stack in result.stacks:
        yield f"\nStack of rank {rank}:\n{stack}"
    if result.faults:
        yield ""
    yield f"{verdict(result, script)} ({result.seconds:.0f} s)"


def as_json(result: Rehearsal, script: Path, code: str) -> dict[str, Any]:
    """Return the whole result as plain values; the keys are part of the interface."""
    source, mask = code.splitlines(), masker([code])
    faults = [
        {
            **vars(fault),
            "code": mask(source[fault.line - 1].strip())
            if fault.line and fault.line <= len(source)
            else None,
            "advice": ADVICE[fault.key],
        }
        for fault in result.faults
    ]
    steps = [fault.step for fault in result.faults if fault.step]
    return {
        **report.as_json(result),
        "script": str(script),
        "outcome": result.outcome,
        "exit_code": OUTCOMES[result.outcome],
        "verdict": verdict(result, script),
        "first_step": min(steps, default=None),
        "faults": faults,
    }
