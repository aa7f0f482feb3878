"""From lines of a converted script back to the cells of its notebook.

The lines are known from the source map in ``report.json`` beside the script. When the script was edited
since, the cell is known from the script's own rulers (``# ---- cell 3 ----``).
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nb2ddp.ddp_folder import REPORT
from nb2ddp.regular_files import bytes_of, json_object

_RULER = re.compile(r"# ---- cell (?P<cell>\d+)\b")
_FRAME = re.compile(r'^(?:\[rank\d+\]:)?\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True)
class CellPlace:
    """A place in the notebook; ``line`` (from 1) is None where only the cell is known."""

    cell: int
    line: int | None = None

    def __str__(self) -> str:
        return f"cell {self.cell}" if self.line is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class CellMap:
    """The places of one script's lines; empty for a script that nb2ddp did not make.

    runs: lines that follow one another: (first line of the script, how many, cell, first line in the cell).
    rulers: (line of the script, cell).
    """

    script: Path
    runs: Sequence[tuple[int, int, int, int]] = ()
    rulers: Sequence[tuple[int, int]] = field(default=())

    def place(self, line: int) -> CellPlace | None:
        """Return the place that a line (from 1) of the script comes from; None for a line of nb2ddp."""
        for first, count, cell, start in self.runs:
            if first <= line < first + count:
                return CellPlace(cell, start + line - first)
        at = bisect.bisect_right([number for number, _ in self.rulers], line) - 1
        return CellPlace(self.rulers[at][1]) if at >= 0 and not self.runs else None

    def annotate(self, trace: Iterable[str]) -> Iterator[str]:
        """Yield a traceback's lines, with the cell behind each frame that is in the script."""
        for text in trace:
            place = self._of_frame(text)
            yield text if place is None else f"{text}  # {place[1]}"

    def last(self, trace: Iterable[str]) -> tuple[int, CellPlace] | None:
        """Return the innermost frame of a traceback that a cell has: line of the script, and place.

        What a worker of a pool has raised, multiprocessing shows above the line that asked for it, in quotes.
        """
        whole = "\n".join(trace)
        of_worker = whole.rpartition('\n"""\n')[0] if "RemoteTraceback" in whole else ""
        frames = (map(self._of_frame, part.splitlines()) for part in (of_worker, whole))
        found = (place for part in frames for place in [*part][::-1] if place is not None)
        return next(found, None)

    def _of_frame(self, text: str) -> tuple[int, CellPlace] | None:
        match = _FRAME.match(text)
        if match is None or Path(match["file"]).name != self.script.name:
            return None
        with contextlib.suppress(OSError):
            if not Path(match["file"]).samefile(self.script):
                return None
        place = self.place(int(match["line"]))
        return None if place is None else (int(match["line"]), place)


def read_cell_map(script: Path) -> CellMap:
    """Return the map of a script; an empty one when neither its report nor its rulers can be read."""
    try:
        data = bytes_of(script)
    except OSError:
        return CellMap(script)
    report = json_object(script.with_name(REPORT))
    try:
        if report["files"][script.name] == hashlib.sha256(data).hexdigest():
            runs = [tuple(int(number) for number in run) for run in report["source_map"]]
            return CellMap(script, runs=[(a, b, c, d) for a, b, c, d in runs])
    except (LookupError, TypeError, ValueError):
        pass
    lines = data.decode("utf-8", errors="replace").split("\n")
    rulers = [
        (number, int(match["cell"]))
        for number, line in enumerate(lines, start=1)
        if (match := _RULER.match(line))
    ]
    return CellMap(script, rulers=rulers)
