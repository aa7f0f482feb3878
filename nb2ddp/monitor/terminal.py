"""Print a run: the live table below rank 0's output, the summary, and the closing block."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TextIO

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nb2ddp.monitor.nvml import GIB
from nb2ddp.monitor.samples import Sample
from nb2ddp.plain_text import terminal_safe

_WIDE = 120  # columns, where no terminal says how many
_MOST_UNFINISHED = 6
_HEADINGS = (
    "rank",
    "device",
    "memory GiB",
    "peak",
    "busy",
    "MHz",
    "W",
    "CPU",
    "RSS GiB",
    "peak",
    "others waited",
    "",
)

Row = Sequence[str]
"""What the table says of a rank, below its headings."""


def row_of(
    rank: int,
    samples: Sequence[Sample],
    peaks: tuple[int, int] = (0, 0),
    waited: float | None = None,
    note: str = "",
) -> Row:
    """Return the means of a rank's samples; empty where something is not known, or not there.

    peaks: GPU and resident memory in bytes. waited: the share of the training in which the others waited for this rank.
    """
    gpus = [sample.gpu for sample in samples if sample.gpu is not None]
    return (
        str(rank),
        f"{gpus[0].index} {gpus[0].name}" if gpus else "CPU" if samples else "",
        _gib(gpu.used for gpu in gpus) + (f" / {gpus[0].total / GIB:.0f}" if gpus else ""),
        _gib([peaks[0] or None]),
        _mean((gpu.percent for gpu in gpus), " %"),
        _mean(gpu.clock for gpu in gpus),
        _mean(gpu.power for gpu in gpus),
        _mean((sample.cpu for sample in samples), " %"),
        _gib(sample.rss for sample in samples),
        _gib([peaks[1] or None]),
        "" if waited is None else f"{100 * waited:.0f} %",
        note,
    )


def _gib(sizes: Iterable[float | None]) -> str:
    size = _known_mean(sizes)
    return "" if size is None else f"{size / GIB:.1f}" if size >= GIB else f"{size / GIB:.2f}"


def _mean(values: Iterable[float | None], unit: str = "") -> str:
    value = _known_mean(values)
    return "" if value is None else f"{value:.0f}{unit}"


def _known_mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


class Display:
    """A table that stays below the output; gone when it is stopped."""

    def __init__(self, terminal: TextIO) -> None:
        self._console = Console(file=terminal, force_terminal=True, highlight=False)
        # Our own stdout and stderr (the launcher's sentences) go above the table too.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def show(
        self,
        lines: Sequence[str],
        unfinished: Sequence[str] = (),
        headline: Sequence[str] = (),
        rows: Sequence[Row] = (),
    ) -> None:
        """Print finished lines above, and renew the rest: the lines that still change, and the table."""
        if headline:
            changing = [
                Text.from_ansi(line, no_wrap=True, overflow="crop") for line in unfinished[-_MOST_UNFINISHED:]
            ]
            self._live.update(Group(*changing, Text(" · ".join(headline), style="bold"), _table(rows)))
        if lines:
            self._console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
        self._live.refresh()


def print_summary(headline: str, rows: Sequence[Row], notes: Iterable[str]) -> None:
    """Print the summary of a run on stderr, as wide as its terminal."""
    console = Console(file=sys.stderr, highlight=False, width=None if sys.stderr.isatty() else _WIDE)
    console.print(Text(terminal_safe(f"nb2ddp: {headline}")), soft_wrap=True)
    if rows:
        console.print(_table(rows))
    for note in notes:
        console.print(Text(terminal_safe(f"nb2ddp: {note}")), soft_wrap=True)


def print_closing(facts: Sequence[tuple[str, str]]) -> None:
    """Print the closing block on stderr: as a table on a terminal, else as plain lines."""
    facts = [(name, terminal_safe(value)) for name, value in facts]
    print(file=sys.stderr)  # a bar may stand there without an end of its line
    if not sys.stderr.isatty():
        print("nb2ddp: the run succeeded", file=sys.stderr)
        for name, value in facts:
            print(f"        {name + ':':<11} {value}", file=sys.stderr)
        return
    console = Console(file=sys.stderr, highlight=False)
    console.print(Text("nb2ddp: the run succeeded", style="bold green"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    to_copy = "load it"
    for name, value in facts:
        if name != to_copy:
            table.add_row(name, Text(value))
    console.print(table)
    for name, value in facts:
        if name == to_copy:  # one line, however long, so that it can be copied
            console.print(Text(name, style="dim"))
            console.print(Text(value), soft_wrap=True)


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of the ranks, without columns that have no value: on CPUs, those of the GPUs."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in _HEADINGS:
        left = heading in ("rank", "device", "")
        table.add_column(heading, justify="left" if left else "right", no_wrap=bool(heading))
    for row in rows:
        table.add_row(*row)
    table.columns = [column for column in table.columns if any(column.cells)]
    return table
