"""What was done, as text for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nb2ddp.conversion.pipeline import SCRIPT, Conversion
from nb2ddp.conversion.script import Script
from nb2ddp.rewriting.findings import Change
from nb2ddp.source import ipython_syntax
from nb2ddp.source.cells import Place


def as_json(conversion: Conversion) -> dict[str, Any]:
    """One notebook's report: {notebook, status, script, changes, declined, notes, source_map}.

    ``source_map`` holds runs of the script's lines: [first line, how many, cell, first line in the cell].
    """
    places = notebook_places(conversion.script) if conversion.script else {}
    return {
        "notebook": str(conversion.notebook),
        "status": conversion.status,
        "script": SCRIPT if conversion.status == "converted" else None,
        "changes": [
            _entry(change, script_line=conversion.script.line(change.place) if conversion.script else None)
            for change in conversion.changes
        ],
        "declined": [_entry(change) for change in conversion.declined],
        "notes": [_sentence(change) for change in conversion.notes],
        "source_map": list(_runs(places)),
    }


def notebook_places(script: Script) -> dict[int, Place]:
    """Return the notebook's place for each line (from 1) of the script; lines that nb2ddp added have none."""
    origins = {
        number: ipython_syntax.align(cell.python.text.split("\n"), script.rewritten[number].split("\n"))
        for number, cell in script.cells.items()
        if number in script.rewritten
    }
    places = {}
    for number, line in enumerate(script.lines, start=1):
        if line.cell in origins and line.text.strip():
            old = origins[line.cell]
            python = script.cells[line.cell].python
            places[number] = Place(line.cell, python.notebook_line(old[min(line.number, len(old) - 1)]))
    return places


def _runs(places: dict[int, Place]) -> Iterator[list[int]]:
    run: list[int] = []
    for number, place in places.items():
        if run and (number, place.cell, place.line) == (run[0] + run[1], run[2], run[3] + run[1]):
            run[1] += 1
            continue
        if run:
            yield run
        run = [number, 1, place.cell, place.line]
    if run:
        yield run


def _entry(change: Change, **more: int | None) -> dict[str, Any]:
    return {
        "rule": change.rule,
        "cell": change.place.cell if change.place else None,
        "line": change.place.line if change.place else None,
        **more,
        "why": change.why,
    }


def _sentence(change: Change) -> str:
    return f"cell {change.place.cell}, line {change.place.line}: {change.why}" if change.place else change.why


def lines(conversion: Conversion) -> list[str]:
    """The report as lines of text; every line names the notebook, so that several can be told apart."""
    name = conversion.notebook.name
    text = []
    seen = set()
    for change in conversion.changes:
        line = f"{name}: {_sentence(change)} [{change.rule}]"
        if line not in seen:
            seen.add(line)
            text.append(line)
    text += [f"{name}: note: {_sentence(change)} [{change.rule}]" for change in conversion.notes]
    return text + declines(conversion)


def declines(conversion: Conversion) -> list[str]:
    """The lines of the report that say what was declined, and why."""
    name = conversion.notebook.name
    return [f"{name}: declined: {_sentence(change)} [{change.rule}]" for change in conversion.declined]
