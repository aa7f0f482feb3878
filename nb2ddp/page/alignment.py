"""Align a notebook with its script: blocks of rows, each with a line of the notebook, of the script, or both."""

from __future__ import annotations

import difflib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from nb2ddp.conversion.script import Script
from nb2ddp.source.line_matcher import LineMatcher
from nb2ddp.source.notebook import Cell, Notebook

_MOST_PAIRS = 400
"""Lines of one place times lines that replace them, up to which the likest are paired; else by order."""


_LONG = 200
"""Characters of lines that are likened by their first words alone: its time grows with their square."""


@dataclass(frozen=True)
class Left:
    """A line of the notebook; ``number`` counts the lines of its cell from 1, and is 0 in a text cell."""

    text: str
    number: int = 0


@dataclass(frozen=True)
class Right:
    """A line of the script, which is counted from 1."""

    text: str
    number: int


@dataclass(frozen=True)
class Row:
    """Two lines that stand for each other; None where the other side has none.

    ``is_ruler``: the line that names the cell in the script.
    """

    left: Left | None
    right: Right | None
    is_ruler: bool = False

    @property
    def changed(self) -> bool:
        """Whether the line is another one in the script; indentation alone does not count."""
        if self.is_ruler:
            return False
        if self.left is None or self.right is None:
            return bool((self.left or self.right or Left("")).text.strip())
        if not self.left.number:
            return False  # a text cell becomes a comment
        return self.left.text.strip() != self.right.text.strip()


@dataclass(frozen=True)
class Block:
    """A code cell with the text cells above it; cell 0: lines of nb2ddp, or the text below the last cell."""

    cell: int
    rows: Sequence[Row]

    @cached_property
    def row_of(self) -> Mapping[int, int]:
        """The row (from 0) of each line of the cell (from 1)."""
        return {row.left.number: n for n, row in enumerate(self.rows) if row.left and row.left.number}

    @property
    def changed(self) -> bool:
        return any(row.changed and (row.left is None or row.left.number) for row in self.rows)


def aligned(notebook: Notebook, script: Script | None) -> list[Block]:
    """Return the blocks in the order of the notebook; of a notebook without a script, its own lines alone."""
    parts = dict(_parts(notebook.cells))
    blocks: list[Block] = []
    left_out = deque(sorted(parts.keys() - {0}))
    for cell, lines in _runs(script):
        while left_out and left_out[0] <= cell:
            if (number := left_out.popleft()) < cell:
                blocks.append(_block(number, parts[number], []))
        blocks.append(_block(cell, parts[cell] if cell else [], lines))
    blocks += [_block(number, parts[number], []) for number in left_out]
    return _with_last_text(blocks, [left for left in parts.get(0, []) if left.text.strip()])


def _with_last_text(blocks: list[Block], last: list[Left]) -> list[Block]:
    """Put the text below the last cell beside the comments that it became."""
    if not last:
        return blocks
    final = blocks[-1] if blocks else None
    if final is None or final.cell or len(blocks) == 1:
        return [*blocks, _block(0, last, [])]
    return [*blocks[:-1], _block(0, last, [row.right for row in final.rows if row.right])]


def _parts(cells: Iterable[Cell]) -> Iterator[tuple[int, list[Left]]]:
    """Yield each code cell's number and lines, with the text cells above it; 0 for the text that is left."""
    text: list[Left] = []
    for cell in cells:
        if cell.kind == "code":
            yield (
                cell.number,
                [*text, *(Left(line, number) for number, line in enumerate(cell.source.split("\n"), 1))],
            )
            text = []
        elif cell.source.strip():
            text += [Left(line) for line in cell.source.splitlines()]
    yield 0, text


def _runs(script: Script | None) -> Iterator[tuple[int, list[Right]]]:
    """Yield the lines of the script by the cell that they came from; 0 for those that nb2ddp put in.

    What is put in between two lines of one cell belongs to that cell, and so do blank lines below it.
    """
    if script is None:
        return
    runs: list[tuple[int, list[Right]]] = []
    for number, line in enumerate(script.text.removesuffix("\n").split("\n"), start=1):
        origin = script.lines[number - 1]
        cell = origin.cell or origin.heads
        if runs and (cell == runs[-1][0] or not line.strip()):
            runs[-1][1].append(Right(line, number))
        elif len(runs) > 1 and not runs[-1][0] and cell == runs[-2][0]:
            _, inserted = runs.pop()
            runs[-1][1].extend([*inserted, Right(line, number)])
        else:
            runs.append((cell, [Right(line, number)]))
    yield from runs


def _block(cell: int, left: list[Left], right: list[Right]) -> Block:
    texts = [line for line in left if not line.number]
    code = left[len(texts) :]
    if not right:
        return Block(cell, [Row(line, None) for line in left])
    ruler = right[:1] if cell else []  # `# ---- cell 3 ----`
    comments = right[len(ruler) :][: len(texts)]
    rest = right[len(ruler) + len(comments) :]
    rows = [Row(None, line, True) for line in ruler]
    rows += [Row(*pair) for pair in itertools.zip_longest(texts, comments)]
    return Block(cell, [*rows, *_rows(code, rest)])


def _rows(left: Sequence[Left], right: Sequence[Right]) -> Iterator[Row]:
    before, after = ([line.text.strip() for line in side] for side in (left, right))
    for tag, a, b, c, d in LineMatcher(before, after).get_opcodes():
        if tag == "equal":
            yield from map(Row, left[a:b], right[c:d])
        else:
            yield from _replaced(left[a:b], right[c:d])


def _replaced(left: Sequence[Left], right: Sequence[Right]) -> Iterator[Row]:
    """Pair the lines of one place with those that stand there now: each with the likest that is left."""
    at = 0
    for number, line in enumerate(left):
        spare = len(right) - at - (len(left) - number - 1)  # so that the lines below find one too
        if spare <= 0:
            yield Row(line, None)
            continue
        best = at
        if len(left) * len(right) <= _MOST_PAIRS:
            best = max(range(at, at + spare), key=lambda n: (_likeness(line.text, right[n].text), -n))
        yield from (Row(None, other) for other in right[at:best])
        yield Row(line, right[best])
        at = best + 1
    yield from (Row(None, other) for other in right[at:])


def _likeness(one: str, other: str) -> float:
    if len(one) > _LONG or len(other) > _LONG:
        return float(one.split()[:1] == other.split()[:1])
    return difflib.SequenceMatcher(None, one.strip(), other.strip(), autojunk=False).ratio()
