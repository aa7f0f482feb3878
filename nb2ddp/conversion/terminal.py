"""Show a conversion in a terminal: a heading, the changes by cell, the batch, the notes, the declines."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Literal

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nb2ddp.conversion.pipeline import Conversion
from nb2ddp.conversion.report import Entry, attention, batches, folded
from nb2ddp.conversion.secret_notes import RULE as SECRET
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.plain_text import terminal_safe
from nb2ddp.rewriting.findings import Change
from nb2ddp.secrets import masker
from nb2ddp.source.cells import Place
from nb2ddp.source.line_matcher import LineMatcher

Detail = Literal["quiet", "brief", "normal", "verbose"]
"""What needs attention alone (quiet; brief: one of many), folded changes, or each change with its code.

Of what is declined no change is made, so that only the last names them.
"""

_COLORS = {"converted": "green", "declined": "yellow", "failed": "red"}
_MANY_CELLS = 6  # in which something is done, each of which is listed
_WIDE = 120  # columns, where no terminal says how many


def console_for(stream: IO[str]) -> Console:
    """Return a console that colours on a terminal alone, and not with NO_COLOR set."""
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def show(
    console: Console, conversion: Conversion, world_size: int, detail: Detail, failure: str | None = None
) -> None:
    """Print the report of one notebook; for ``quiet`` and ``brief`` nothing where nothing needs attention."""
    with console.capture() as capture:
        for part in _parts(conversion, world_size, detail, failure):
            console.print(part)
    text = capture.get()
    if not console.is_terminal:  # the columns are filled with spaces, which a file has no use for
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    console.file.write(text)
    console.file.flush()


def _parts(
    conversion: Conversion, world_size: int, detail: Detail, failure: str | None
) -> Iterator[RenderableType]:
    notes: Sequence[Change] = conversion.notes
    short = detail in ("quiet", "brief")
    split = batches(conversion.changes, world_size, uneven_alone=short)
    if short:
        notes = attention(conversion)
        if not (notes or split or conversion.declined) and failure is None:
            return
    yield _heading(conversion, failure)
    noted = {(note.place, note.why) for note in notes}
    changes = [change for change in conversion.changes if (change.place, change.why) not in noted]
    if changes and (detail == "verbose" or (detail == "normal" and not conversion.declined)):
        each = [entry for change in changes for entry in folded([change])]
        entries = each if detail == "verbose" else _without_repeats(folded(changes))
        yield _table(entries, conversion, with_code=detail == "verbose")
    for line in split:
        yield _indented(Text(f"Batch: {line}", style="bold"))
    for title, told, color in (("Notes", notes, "yellow"), ("Declined", conversion.declined, "red")):
        if told:
            yield _indented(Text(title, style=f"bold {color}"))
            yield _table(folded(told), conversion)
    if failure is not None:
        yield _indented(Text(terminal_safe(failure), style="red"))


def _without_repeats(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield what is done in many cells for one reason at its first cell alone, with their number."""
    count = collections.Counter((entry.rule, entry.why) for entry in entries)
    said = set[tuple[str, str]]()
    for entry in entries:
        kind = entry.rule, entry.why
        if kind not in said and count[kind] > _MANY_CELLS:
            entry = dataclasses.replace(entry, why=f"{entry.why}, here and in {count[kind] - 1} other cells")
        if kind not in said or count[kind] <= _MANY_CELLS:
            yield entry
        said.add(kind)


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


def _heading(conversion: Conversion, failure: str | None) -> Text:
    status = "failed" if failure is not None else conversion.status
    heading = Text.assemble(
        (terminal_safe(conversion.notebook.name), "bold"), ": ", (status, _COLORS[status])
    )
    return heading.append(f" ({conversion.task})") if conversion.task not in ("", "none") else heading


def _table(entries: Iterable[Entry], conversion: Conversion, *, with_code: bool = False) -> Padding:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(max_width=16)
    table.add_column(overflow="fold")
    cell: int | None = -1
    for entry in entries:
        label = "" if entry.cell == cell else f"cell {entry.cell}" if entry.cell else "notebook"
        cell = entry.cell
        table.add_row(
            label, entry.where, Text.assemble(terminal_safe(entry.why), (f" [{entry.rule}]", "dim"))
        )
        for line in _code(entry, conversion) if with_code else ():
            table.add_row("", "", Text(line, style="cyan", no_wrap=True, overflow="ellipsis"))
    return _indented(table)


def diff(conversion: Conversion) -> Iterator[str]:
    """Yield a unified diff from the notebook's code to the script, with marks in the place of secrets."""
    assert conversion.source is not None
    assert conversion.script is not None
    code = [cell.source for cell in conversion.source.cells if cell.kind == "code"]
    mask = masker([*code, conversion.script.text])
    before, after = mask("\n".join(code)).splitlines(), mask(conversion.script.text).splitlines()
    for number, group in enumerate(LineMatcher(before, after).get_grouped_opcodes()):
        if not number:
            yield from (f"--- {conversion.notebook.name}", f"+++ {SCRIPT}")
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield f"@@ -{_range(a, b)} +{_range(c, d)} @@"
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from (f" {line}" for line in before[a:b])
                continue
            yield from (f"-{line}" for line in before[a:b])
            yield from (f"+{line}" for line in after[c:d])


def _range(start: int, end: int) -> str:
    """Return a range of lines as a unified diff has it: from 1, and without a length of one."""
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


_masker_of = functools.lru_cache(maxsize=1)(masker)


def _code(entry: Entry, conversion: Conversion) -> Iterator[str]:
    """Yield the notebook's lines that an entry is about, without those that hold a secret."""
    if conversion.source is None or entry.cell is None:
        return
    secret = {note.place for note in conversion.notes if note.rule == SECRET}
    mask = _masker_of(tuple(cell.source for cell in conversion.source.cells))
    for cell in conversion.source.cells:
        if cell.number == entry.cell:
            source = cell.source.split("\n")
            yield from (
                terminal_safe(mask(source[line - 1].strip()))
                for line in entry.lines
                if line <= len(source) and Place(cell.number, line) not in secret
            )
