"""What was done, as text for people and as JSON for machines."""

from __future__ import annotations

from typing import Any

from nb2ddp.conversion.pipeline import Conversion
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.plain_text import terminal_safe
from nb2ddp.rewriting.findings import Change


def as_json(conversion: Conversion) -> dict[str, Any]:
    """One notebook's report: {notebook, status, script, changes, declined, notes}."""
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
    }


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
    return [*map(terminal_safe, text), *declines(conversion)]


def declines(conversion: Conversion) -> list[str]:
    """The lines of the report that say what was declined, and why."""
    name = conversion.notebook.name
    return [
        terminal_safe(f"{name}: declined: {_sentence(change)} [{change.rule}]")
        for change in conversion.declined
    ]
