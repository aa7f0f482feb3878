"""Report a rehearsal: as text for people, as JSON for machines, as a page with curves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nb2ddp import __version__
from nb2ddp.errors import PLEASE_REPORT
from nb2ddp.rehearse.evidence import relative
from nb2ddp.rehearse.rehearsal import NOT_SHOWN, Rehearsal

_ROWS = 12  # steps in the table of the terminal; of more, the first and the last


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the whole result as plain values; the keys are part of the interface."""
    return {
        "notebook": rehearsal.name,
        "passed": rehearsal.passed,
        "nproc": rehearsal.nproc,
        "points": [
            {
                "number": point.number,
                "title": point.title,
                "state": point.state,
                "measured": point.measured,
                "faults": [vars(fault) for fault in point.faults],
            }
            for point in rehearsal.points
        ],
        "faults": [vars(fault) for fault in rehearsal.faults],
        "losses": [{"step": n, "one": a, "several": b} for n, (a, b) in enumerate(rehearsal.losses, start=1)],
        "replaced": list(rehearsal.replaced),
        "not_shown": [{"what": what, "why": why} for what, why in NOT_SHOWN],
        "notes": list(rehearsal.notes),
        "stacks": {str(rank): stack for rank, stack in rehearsal.stacks},
        "seconds": round(rehearsal.seconds, 1),
        "date": rehearsal.date.isoformat(timespec="seconds"),
        "versions": {"nb2ddp": __version__, **rehearsal.versions},
    }


def verdict(rehearsal: Rehearsal) -> str:
    """Return the result in one sentence."""
    if rehearsal.passed and rehearsal.notes:
        return f"{rehearsal.name} passed as far as it could be seen. {' '.join(rehearsal.notes)}"
    if rehearsal.passed:
        return f"{rehearsal.name} passed: {rehearsal.nproc} processes train what the notebook trains."
    sentence = rehearsal.faults[0].sentence
    return f"{rehearsal.name} failed: {sentence}{'' if sentence.endswith(('.', '?')) else '.'}"


def point_lines(rehearsal: Rehearsal, faults: bool = False) -> Iterator[str]:
    """Yield a line for each point, and below it those of its faults."""
    width = max(len(point.title) for point in rehearsal.points)
    for point in rehearsal.points:
        state = point.state.upper() if point.faults else point.state
        yield f"{point.number or ' '}  {point.title.ljust(width)}  {state}  {point.measured}"
        for fault in point.faults if faults else ():
            yield f"{' ' * (width + 5)}        {fault.sentence} [{fault.key}]"
    yield ""


def stack_lines(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield where each rank of a run that hung stood."""
    for rank, stack in rehearsal.stacks:
        yield f"\nStack of rank {rank}:\n{stack}"


def lines(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the report for a terminal."""
    yield from point_lines(rehearsal, faults=True)
    yield from _table(rehearsal)
    yield from stack_lines(rehearsal)
    if rehearsal.replaced:
        yield "\nReplaced:"
    for each in rehearsal.replaced:
        why = f" ({each['why']})" if each["why"] else ""
        yield f"  {each['what']} by {each['by']}{why}"
    yield "\nNot shown:"
    for what, why in NOT_SHOWN:
        yield f"  {what}: {why}"
    yield ""
    if not rehearsal.passed:
        yield f"If the script is as nb2ddp wrote it, the fault is nb2ddp's. {PLEASE_REPORT}."
    yield f"{verdict(rehearsal)} ({rehearsal.seconds:.0f} s)"


def page(rehearsal: Rehearsal, command: str = "") -> str:
    """Return the report as one HTML file that needs no other; ``command`` made it."""
    from nb2ddp.monitor.charts import curve_svg
    from nb2ddp.rendering import render

    names = ("one process", f"{rehearsal.nproc} processes")
    steps = list(enumerate(rehearsal.losses, start=1))
    curves = {
        name: [(float(step), loss) for step, row in steps if (loss := row[side]) is not None]
        for side, name in enumerate(names)
    }
    return render(
        "rehearse/page.html.j2",
        title=rehearsal.name,
        date=f"{rehearsal.date:%Y-%m-%d %H:%M}",
        seconds=round(rehearsal.seconds),
        command=command,
        versions={"nb2ddp": __version__, **rehearsal.versions},
        nproc=rehearsal.nproc,
        passed=rehearsal.passed,
        verdict=verdict(rehearsal),
        points=rehearsal.points,
        curve=curve_svg(curves),
        losses=list(_losses(rehearsal)),
        stacks=rehearsal.stacks,
        replaced=rehearsal.replaced,
        not_shown=NOT_SHOWN,
    )


def _table(rehearsal: Rehearsal) -> Iterator[str]:
    yield f"step  one process  {rehearsal.nproc} processes  difference"
    rows = list(_losses(rehearsal))
    for number, one, several, off in rows:
        if len(rows) > _ROWS and _ROWS // 2 < number <= len(rows) - _ROWS // 2:
            if number == _ROWS // 2 + 1:
                yield " ..."
            continue
        yield f"{number:4}  {one:>11}  {several:>11}  {off:>10}"


def _losses(rehearsal: Rehearsal) -> Iterator[tuple[int, str, str, str]]:
    for number, (one, several) in enumerate(rehearsal.losses, start=1):
        shown = ["-" if loss is None else f"{loss:.5f}" for loss in (one, several)]
        off = None if one is None or several is None else relative(one, several)
        yield number, shown[0], shown[1], "-" if off is None else f"{off:.1e}" if off else "0"
