"""Which cells of a live notebook session make up its training script. Knows nothing of IPython's shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nb2ddp.source import ipython_syntax
from nb2ddp.source.marimo import names_of

RESULT_NAME = "_ddp"
"""What the magic binds its result to."""

_RUN_DDP = re.compile(r"^[ \t]*(?:(?P<name>\w+)[ \t]*=[ \t]*)?%{1,2}run_ddp\b", re.MULTILINE)
_LOAD_US = re.compile(r"^[ \t]*(?:%(?:re)?load_ext[ \t]+nb2ddp|import nb2ddp)[ \t]*$", re.MULTILINE)
_TRAINS = re.compile(r"^[^#\n]*\b\w*trainer\w*\.train\(|^[^#\n]*\bunsloth_train\(", re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """A cell that was run: ``count`` is the number that the notebook shows, as in ``[5]``.

    ``cell_id`` is None where the front end gives none. ``collected``: %%run_ddp --collect took the cell in
    place of running it.
    """

    count: int
    source: str
    ok: bool
    cell_id: str | None = None
    collected: bool = False

    @property
    def is_run_ddp(self) -> bool:
        return not self.collected and _RUN_DDP.search(self.source) is not None

    @property
    def trains(self) -> bool:
        return _TRAINS.search(self.source) is not None


@dataclass(frozen=True)
class Chosen:
    """``cells`` in the order of the script, and one sentence for each cell that was left out."""

    cells: tuple[Ran, ...]
    left_out: tuple[str, ...]


def choose(history: Iterable[Ran]) -> Chosen:
    """Return the cells that succeeded, in order, each as it last ran.

    Two runs are the same cell when their ids are equal; without ids, when their texts are. A cell that ran
    again stands where it ran last, unless a cell that ran in between needs a name that it binds: then it
    stands where it ran first. Cells that run %run_ddp are left out, and those that use its results.
    """
    left_out: list[str] = []
    first: dict[object, int] = {}
    latest: dict[object, Ran] = {}
    ours = {RESULT_NAME}
    for ran in sorted(history, key=lambda ran: ran.count):
        if ran.is_run_ddp:
            ours |= {match["name"] for match in _RUN_DDP.finditer(ran.source) if match["name"]}
            # a cell that was plain before and is a %%run_ddp cell now is no longer part of the session
            before = latest.pop(ran.cell_id, None) if ran.cell_id else None
            if before:
                left_out.append(f"[{before.count}] is a %%run_ddp cell now")
        elif not ran.source.strip() or _LOAD_US.fullmatch(ran.source.strip()):
            pass
        elif not ran.ok:
            left_out.append(f"[{ran.count}] failed")
        else:
            key = ran.cell_id or ran.source
            if key in latest:
                left_out.append(f"[{latest[key].count}] ran again as [{ran.count}]")
            first.setdefault(key, ran.count)
            latest[key] = ran
    cells = [_Names.of(ran, first[key]) for key, ran in latest.items()]
    bound = {name for cell in cells for name in cell.binds}
    for cell in [cell for cell in cells if cell.uses & (ours - bound)]:
        left_out.append(f"[{cell.ran.count}] uses a result of %run_ddp")
        cells.remove(cell)
    return Chosen(tuple(_in_order(cells)), tuple(left_out))


@dataclass(frozen=True)
class _Names:
    """A cell with the names that it binds and those that it uses."""

    ran: Ran
    first: int
    binds: frozenset[str]
    uses: frozenset[str]

    @classmethod
    def of(cls, ran: Ran, first: int) -> _Names:
        try:
            return cls(ran, first, *names_of(ipython_syntax.to_python(ran.source).text))
        except SyntaxError:  # the converter says what is wrong with it
            return cls(ran, first, frozenset(), frozenset())


def _in_order(cells: Sequence[_Names]) -> list[Ran]:
    order = sorted(cells, key=lambda cell: cell.ran.count)
    for cell in list(order):
        between = [other for other in order if cell.first < other.ran.count < cell.ran.count]
        if any(cell.binds & other.uses for other in between):
            order.remove(cell)
            order.insert(order.index(between[0]), cell)
    return [cell.ran for cell in order]


def without_first_line(source: str) -> str:
    """Return the body of a cell magic, with its line numbers kept: the magic's line is empty."""
    lines = source.split("\n")
    at = next((i for i, line in enumerate(lines) if line.lstrip().startswith("%%")), 0)
    lines[at] = ""
    return "\n".join(lines)


def collected(ran: Ran) -> Ran:
    """Return the cell that ``%%run_ddp --collect`` took, as if it had been run."""
    return replace(ran, source=without_first_line(ran.source), collected=True, ok=True)
