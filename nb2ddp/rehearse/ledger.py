"""The row of one notebook in a ledger: what one process and several ranks have been measured to do alike."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from nb2ddp import __version__, output_file
from nb2ddp.errors import OutputError
from nb2ddp.rehearse.evidence import TOLERANCE, relative
from nb2ddp.rehearse.rehearsal import Rehearsal

VerdictKind = Literal["same", "said", "declined", "different", "failed"]


@dataclass
class Row:
    """What was measured of a notebook on a stack and a number of ranks.

    Differences are relative to the notebook's own code in one process; seconds are wall time. None and "" stand
    for what was not measured.
    """

    notebook: str
    stack: str
    ranks: int
    verdict: VerdictKind = "same"
    reason: str = ""
    losses: list[float] = field(default_factory=list)  # of the notebook in one process
    losses_ranks: list[float] = field(default_factory=list)  # of its script on the ranks
    loss_difference: float | None = None
    first_step: int | None = None  # the first whose loss differs by more than the tolerance
    parameter_difference: float | None = None
    replicas_equal: bool | None = None
    samples_once: bool | None = None  # each sample of a step is computed by one rank
    files_same: bool | None = None
    prints_same: bool | None = None
    written_by_others: list[str] = field(default_factory=list)  # by ranks other than rank 0
    seconds_one: float | None = None
    seconds_ranks: float | None = None
    floor: float | None = None  # the loss difference of a second run in one process
    as_it_is: str = ""  # what the notebook's own code does under torchrun
    as_it_is_losses: list[float] = field(default_factory=list)
    as_it_is_difference: float | None = None
    as_it_is_seconds: float | None = None
    notes: dict[str, str] = field(default_factory=dict)  # by column: what is not as promised
    date: str = ""
    load: float | None = None  # of the machine when the runs began: processes that wanted a core
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.notebook} {self.stack} {self.ranks}"


def row_of(rehearsal: Rehearsal, command: str = "", stack: str = "") -> Row:
    """Return the row of a rehearsal; ``stack`` names the versions that it ran with."""
    both = [(a, b) for a, b in rehearsal.losses if a is not None and b is not None]
    differences = [relative(a, b) for a, b in both]
    row = Row(rehearsal.name, stack, rehearsal.nproc, *_verdict(rehearsal))
    row.losses, row.losses_ranks = [a for a, _ in both], [b for _, b in both]
    row.loss_difference = max(differences, default=None)
    row.first_step = next((n for n, off in enumerate(differences, 1) if not off <= TOLERANCE), None)
    distance = rehearsal.parameter_difference
    row.parameter_difference = None if distance is None or math.isnan(distance) else distance
    row.replicas_equal = _holds(rehearsal, "replicas", "replicas-differ", "not-synchronised")
    row.samples_once = _holds(rehearsal, "samples", "same-samples", "missing-samples")
    row.files_same = _holds(rehearsal, "files", "all-ranks-save", "other-files")
    row.prints_same = _holds(rehearsal, "prints", "printed-twice")
    row.notes = {fault.key: fault.sentence for fault in rehearsal.faults}
    row.date = f"{rehearsal.date:%Y-%m-%d}"
    row.command, row.versions = command, {"nb2ddp": __version__, **rehearsal.versions}
    return row


def _verdict(rehearsal: Rehearsal) -> tuple[VerdictKind, str]:
    """Return the verdict and its reason; losses that differ by nature are said before the run."""
    ends = ("failed", "hang", "early-exit")
    if failures := [fault.sentence for fault in rehearsal.faults if fault.key in ends]:
        return "failed", failures[0]
    if rehearsal.faults:
        return "different", rehearsal.faults[0].sentence
    if rehearsal.other_losses:
        return "said", rehearsal.other_losses
    return "same", " ".join(rehearsal.notes)


def _holds(rehearsal: Rehearsal, title: str, *keys: str) -> bool | None:
    """Return whether none of the faults ``keys`` was found; None where the check had nothing to look at."""
    (point,) = (point for point in rehearsal.points if point.title == title)
    if any(fault.key in keys for fault in rehearsal.faults):
        return False
    return True if point.seen else None


def unwritable(file: Path) -> str:
    """Return why no row can be appended to a file; empty where one can. What the file holds stays as it is.

    A row goes into an empty file, a new one or one that begins with a row: another file of the user's stays whole.
    """
    return output_file.unwritable(file, _is_row, "what it holds are no rows; name another file")


def _is_row(line: bytes) -> bool:
    try:
        held = json.loads(line)
    except ValueError:
        return False
    return isinstance(held, dict) and {"notebook", "ranks", "verdict"} <= held.keys()


def append(row: Row, file: Path) -> None:
    """Append a row to a file of JSON lines.

    Raises:
        OutputError: the file cannot be written.
    """
    line = json.dumps(asdict(row))
    try:
        with file.open("a+b") as held:
            held.seek(max(held.seek(0, os.SEEK_END) - 1, 0))
            cut = held.read(1) not in (b"", b"\n")  # the last line has no end
            held.write(("\n" * cut + line + "\n").encode())
    except OSError as error:
        raise OutputError(f"The row cannot be appended to {file}: {error.strerror or error}.") from error
