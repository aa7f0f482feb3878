"""Report what `nb2ddp prove` has found: for people, by fault and line, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nb2ddp.rehearse import report
from nb2ddp.rehearse.evidence import ADVICE, Fault
from nb2ddp.rehearse.rehearsal import OUTCOMES, Outcome, Rehearsal
from nb2ddp.secrets import masker

_FOLLOWS = frozenset(
    "other-losses other-figures other-parameters replicas-differ plain-differs missing-samples other-collectives "
    "printed-twice other-files".split()
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
    yield from report.point_lines(result)
    for number, fault in enumerate(result.faults):
        follows = number > 0 and fault.key in _FOLLOWS
        yield f"{_sentence(fault, script.name)} [{fault.key}]{' (may follow from the first)' * follows}"
        if (line := _code(fault, code)) is not None:
            yield f"    {line}"
        if not follows:
            yield f"    What to do: {ADVICE[fault.key]}"
    yield from result.notes
    yield from report.stack_lines(result)
    if result.faults:
        yield ""
    yield f"{verdict(result, script)} ({result.seconds:.0f} s)"


def _code(fault: Fault, code: str) -> str | None:
    """Return the line of the script that a fault is about, without secrets."""
    source = code.splitlines()
    if not fault.line or fault.line > len(source):
        return None
    return masker([code])(source[fault.line - 1].strip())


def as_json(result: Rehearsal, script: Path, code: str) -> dict[str, Any]:
    """Return the whole result as plain values; the keys are part of the interface."""
    return {
        **report.as_json(result),
        "script": str(script),
        "outcome": result.outcome,
        "exit_code": OUTCOMES[result.outcome],
        "verdict": verdict(result, script),
        "first_step": min((fault.step for fault in result.faults if fault.step), default=None),
        "faults": [
            {**vars(fault), "code": _code(fault, code), "advice": ADVICE[fault.key]}
            for fault in result.faults
        ],
    }
