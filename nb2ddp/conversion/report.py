"""Report on a conversion: as JSON, one line a change, GitHub annotations, and the parts for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nb2ddp.conversion import secret_notes
from nb2ddp.conversion.pipeline import Conversion
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.plain_text import terminal_safe
from nb2ddp.rewriting.findings import Batch, Change, TooLarge
from nb2ddp.source.cells import Place
from nb2ddp.source.file_lines import file_lines


def as_json(conversion: Conversion) -> dict[str, Any]:
    """Return one notebook's report: {notebook, status, script, changes, declined, notes, source_map}.

    ``source_map`` holds runs of the script's lines: [first line, how many, cell, first line in the cell].
    """
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
        "source_map": list(_runs(conversion.script.places if conversion.script else {})),
    }


def _runs(places: Mapping[int, Place]) -> Iterator[list[int]]:
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


# ---- one line a change -------------------------------------------------------------------------------------


def lines(conversion: Conversion) -> list[str]:
    """Return the report as whole lines; each names the notebook, so that several can be told apart."""
    name = conversion.notebook.name
    text = [f"{name}: {_sentence(change)} [{change.rule}]" for change in conversion.changes]
    text += [f"{name}: note: {_sentence(change)} [{change.rule}]" for change in conversion.notes]
    text += [f"{name}: declined: {_sentence(change)} [{change.rule}]" for change in conversion.declined]
    return [terminal_safe(line) for line in dict.fromkeys(text)]


def github_lines(conversion: Conversion, failure: str | None = None) -> Iterator[str]:
    """Yield the workflow commands with which GitHub Actions annotates the notebook's file.

    An annotation is on the line of the file that holds the cell's line, or on line 1; the message names cell and line.
    """
    first = file_lines(conversion.source) if conversion.source else {}

    def annotation(kind: str, change: Change, sentence: str) -> str:
        place = change.place
        line = first[place.cell] + place.line - 1 if place and place.cell in first else 1
        return _annotation(kind, conversion, sentence, change.rule, line)

    for change in conversion.notes:
        yield annotation("warning" if _needs_attention(change) else "notice", change, _sentence(change))
    for change in conversion.declined:
        yield annotation("error", change, f"declined: {_sentence(change)}")
    if failure is not None:
        yield _annotation("error", conversion, failure)
    elif conversion.status == "converted":
        count = len(conversion.changes)
        yield _annotation("notice", conversion, f"converted, {count} change{'s' * (count != 1)}")


def _annotation(kind: str, conversion: Conversion, message: str, rule: str = "", line: int = 1) -> str:
    title = f"nb2ddp {rule}".strip()
    file = _escaped(str(conversion.notebook), ",:")
    return f"::{kind} file={file},line={line},title={title}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return terminal_safe(text)


# ---- the parts of the report for a terminal ----------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What one rule did for one reason in one cell; ``cell`` is None for the notebook as a whole."""

    cell: int | None
    lines: tuple[int, ...]
    why: str
    rule: str

    @property
    def where(self) -> str:
        """Return the lines in words: "line 5", "lines 5-8, 11"."""
        if not self.lines:
            return ""
        spans: list[list[int]] = []
        for line in self.lines:
            if spans and line <= spans[-1][-1] + 1:
                spans[-1][1:] = [line]
            else:
                spans.append([line])
        said = ", ".join("-".join(map(str, span)) for span in spans)
        return f"line{'s' if len(self.lines) > 1 else ''} {said}"


def folded(changes: Iterable[Change]) -> list[Entry]:
    """Return the changes by cell, with those of one rule and one reason in a cell as one entry."""
    found: dict[tuple[int, str, str], set[int]] = {}
    for change in changes:
        place = change.place
        found.setdefault((place.cell if place else 0, change.why, change.rule), set()).update(
            [place.line] if place else []
        )
    entries = [Entry(cell or None, tuple(sorted(at)), why, rule) for (cell, why, rule), at in found.items()]
    return sorted(entries, key=lambda entry: (entry.cell or 0, entry.lines[:1]))


def _trained(batch: Batch) -> tuple[int, int]:
    """Return the per-device batch and accumulation steps that one GPU trains with: Unsloth makes whole groups."""
    if batch.per_device * batch.accumulation % batch.generations:
        return batch.generations, batch.accumulation
    return batch.per_device, batch.accumulation


def split(batch: Batch, world_size: int) -> tuple[int, int]:
    """Return each rank's per-device batch and accumulation steps, as `share_batch` of the script does."""
    per_device, accumulation = _trained(batch)
    common = math.gcd(accumulation, world_size)
    steps = accumulation // common
    per_rank = max(per_device // (world_size // common), 1)
    while per_rank * steps * world_size % batch.generations:
        per_rank += 1
    return per_rank, steps


def batches(changes: Sequence[Change], world_size: int, *, uneven_alone: bool = False) -> list[str]:
    """Return one line for each batch that is split: "2 x 4 on one GPU -> 2 x 2 x 2 GPUs = 8".

    With ``uneven_alone`` only those of which a step takes another number of samples than in the notebook.
    """
    gpus = f"{world_size} GPU{'s' * (world_size > 1)}"
    found = []
    for change in changes:
        batch = change.data
        if not isinstance(batch, Batch) or not batch.per_device or not batch.accumulation:
            continue
        if batch.in_turns:
            total = batch.per_device * batch.accumulation
            if not uneven_alone:
                line = f"{batch.per_device} x {batch.accumulation} on one GPU -> the same {total}"
                used = f"divided over {gpus}" if total >= world_size else f"computed on {total} of {gpus}"
                found.append(f"{line}, {used}")
            continue
        per_rank, steps = split(batch, world_size)
        per_device, accumulation = _trained(batch)
        total, wanted = per_rank * steps * world_size, per_device * accumulation
        whole = f" (whole groups of {batch.generations})" if per_device != batch.per_device else ""
        line = f"{per_device} x {accumulation} on one GPU{whole} -> {per_rank} x {steps} x {gpus} = {total}"
        uneven = f", not {wanted}: this batch cannot be split evenly over {gpus}"
        if total != wanted or not uneven_alone:
            found.append(line + uneven * (total != wanted))
    return list(dict.fromkeys(found))


def attention(conversion: Conversion) -> list[Change]:
    """Return the notes that must not be missed: a model that does not fit, and secrets in the notebook."""
    return [note for note in conversion.notes if _needs_attention(note)]


def _needs_attention(note: Change) -> bool:
    return isinstance(note.data, TooLarge) or note.rule == secret_notes.RULE


def too_large(conversion: Conversion) -> TooLarge | None:
    """Return the figures of a model that does not fit on the GPUs, if there is one."""
    return next((note.data for note in conversion.notes if isinstance(note.data, TooLarge)), None)
