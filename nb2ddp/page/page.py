"""Make the page: one HTML file that needs no other, and runs no script but its own.

Whatever comes from outside passes Jinja's automatic escaping. Its content security policy names the digests
of the page's own style and script, so that a browser runs nothing else, and loads nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from nb2ddp import __version__
from nb2ddp.conversion.pipeline import Conversion
from nb2ddp.conversion.report import Entry, batches, folded
from nb2ddp.conversion.script import Script
from nb2ddp.ddp_folder import SCRIPT, SETUP
from nb2ddp.options import Options
from nb2ddp.page.alignment import Block, Row, aligned
from nb2ddp.page.highlight import highlighted
from nb2ddp.rendering import render
from nb2ddp.rewriting.findings import Change
from nb2ddp.secrets import masker
from nb2ddp.source.notebook import Notebook

Sign = Literal["", "~", "+", "-"]
Kind = Literal["declined", "note", "change"]
T4 = 15
"""GiB of a T4 that a process can use."""


@dataclass(frozen=True)
class Mark:
    """A numbered entry of the report, with the lines of both sides that it is about."""

    name: str
    kind: Kind
    entry: Entry
    lefts: tuple[str, ...] = ()
    rights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One line of one side; ``id`` is "" for a line that nothing can refer to, ``sign`` for one as it was."""

    code: Markup
    number: int = 0
    id: str = ""
    sign: Sign = ""
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class View:
    """A block as the template shows it."""

    title: str
    changed: bool
    lefts: Sequence[Line | None]
    rights: Sequence[Line | None]
    marks: Sequence[Mark]


def page(conversion: Conversion, options: Options, title: str = "") -> str:
    """Return the page of one conversion; ``title`` is the notebook's name unless given."""
    notebook = conversion.source
    assert notebook is not None  # there is nothing to show of one that could not be read
    blocks = aligned(notebook, conversion.script)
    shown = [conversion.files[name] for name in (SCRIPT, SETUP) if name in conversion.files]
    hide = masker([*(cell.source for cell in notebook.cells), *shown])  # others are to see the page
    marks = {
        "declined": _marks("declined", conversion.declined, blocks),
        "note": _marks("note", conversion.notes, blocks),
        "change": _marks("change", conversion.changes, blocks),
    }
    style, script = render("page/page.css.j2"), render("page/page.js.j2")
    return render(
        "page/page.html.j2",
        title=title or conversion.notebook.name,
        conversion=conversion,
        options=options,
        balanced=options.strategy == "balanced",
        version=__version__,
        marks=marks,
        whole=[mark for mark in marks["change"] if mark.entry.cell is None],
        batches=batches(conversion.changes, options.processes),
        memory=[(each.billions, *need) for each in conversion.memory for need in each.needs.items()],
        gpu="a T4" if options.gpu_memory == T4 else "one GPU",
        views=_views(notebook, conversion.script, blocks, marks, hide),
        setup=highlighted(hide(conversion.files[SETUP].removesuffix("\n")))
        if SETUP in conversion.files
        else (),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _marks(kind: Kind, changes: Sequence[Change], blocks: Sequence[Block]) -> list[Mark]:
    """Number the entries of one kind, and find the lines that they are about."""
    by_cell = {block.cell: block for block in blocks if block.cell}
    entries = folded(changes)
    marked: dict[int | None, set[int]] = {}
    for entry in entries:
        marked.setdefault(entry.cell, set()).update(entry.lines)
    marks = []
    for number, entry in enumerate(entries, start=1):
        lines = entry.lines if entry.cell in by_cell else ()
        lefts = tuple(f"n{entry.cell}-{line}" for line in lines)
        rights: dict[int, None] = {}
        if kind == "change" and entry.cell in by_cell:
            for line in lines:
                if (at := by_cell[entry.cell].row_of.get(line)) is not None:
                    rights |= dict.fromkeys(_made_of(by_cell[entry.cell].rows, at, marked[entry.cell]))
        marks.append(Mark(str(number), kind, entry, lefts, tuple(f"s{line}" for line in rights)))
    return marks


def _made_of(rows: Sequence[Row], at: int, others: Collection[int]) -> Iterator[int]:
    """Yield the script's lines that came of row ``at``, a line of a cell: it, if changed, and those put in above it.

    Where there are none, the next that are changed: a statement is named by its first line. The search ends
    at the next line that an entry is about (``others``).
    """
    start = at
    while start and rows[start - 1].left is None and rows[start - 1].changed:
        start -= 1
    found = [row.right.number for row in rows[start : at + 1] if row.right and row.changed]
    for n in range(at + 1, len(rows)):
        row = rows[n]
        if row.left is not None and (row.left.number in others or (found and not row.changed)):
            break
        if row.right is not None and row.changed:
            found.append(row.right.number)
        elif found:
            break
    if not found and (right := rows[at].right) is not None:
        found = [right.number]
    yield from found


def _views(
    notebook: Notebook,
    script: Script | None,
    blocks: Sequence[Block],
    marks: Mapping[str, Sequence[Mark]],
    hide: Callable[[str], str],
) -> list[View]:
    at: dict[str, list[Mark]] = {}
    for mark in itertools.chain.from_iterable(marks.values()):
        for place in (*mark.lefts, *mark.rights):
            at.setdefault(place, []).append(mark)
    cells = [cell for cell in notebook.cells if cell.kind == "code"]
    code = {cell.number: highlighted(hide(cell.source)) for cell in cells}
    made = highlighted(hide(script.text)) if script else []
    views = []
    for part, block in enumerate(blocks):
        own = [mark for mark in marks["change"] if mark.entry.cell == block.cell and block.cell]
        lefts = [_left(row, block, code, at, script is not None, hide) for row in block.rows]
        rights = [_right(row, made, at) for row in block.rows]
        is_changed = bool(own) or (script is not None and block.changed)
        views.append(View(_title(block, part), is_changed, lefts, rights, own))
    return views


def _title(block: Block, part: int) -> str:
    if block.cell:
        return f"Cell {block.cell}"
    if any(row.left for row in block.rows):
        return "Text below the last cell"
    return "Head of the script" if part == 0 else "Start of each process, added by nb2ddp"


def _left(
    row: Row,
    block: Block,
    code: Mapping[int, Sequence[Markup]],
    at: Mapping[str, Sequence[Mark]],
    converted: bool,
    hide: Callable[[str], str],
) -> Line | None:
    """Return a row's line of the notebook; of a notebook without a script no line is gone."""
    if row.left is None:
        return None
    if not row.left.number:
        return Line(Markup('<span class="tx">{}</span>').format(hide(row.left.text)))
    place = f"n{block.cell}-{row.left.number}"
    sign: Sign = "" if not (row.changed and converted) else "-" if row.right is None else "~"
    return Line(code[block.cell][row.left.number - 1], row.left.number, place, sign, at.get(place, ()))


def _right(row: Row, script: Sequence[Markup], at: Mapping[str, Sequence[Mark]]) -> Line | None:
    if row.right is None:
        return None
    place = f"s{row.right.number}"
    sign: Sign = "" if not row.changed else "+" if row.left is None else "~"
    return Line(script[row.right.number - 1], row.right.number, place, sign, at.get(place, ()))
