"""Print a run: the live table below rank 0's output, the summary, the closing block, and the plot."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nb2ddp.monitor.charts import curve_svg, legend
from nb2ddp.monitor.nvml import GIB
from nb2ddp.plain_text import terminal_safe
from nb2ddp.rendering import render

Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Points (seconds, value) by panel and by rank."""

_WIDE = 120  # columns, where no terminal says how many
_MOST_UNFINISHED = 6
_PANEL, _TOP, _FOOT = 200, 64, 44
_LEFT, _RIGHT = 52, 592  # as the curves have it


@dataclass
class Row:
    """One rank: what it uses now, or (means) what it used. None: not known, or not there.

    memory, total, rss and the peaks in bytes; percent of utilisation; clock in MHz; power in watts; cpu in
    percent of a core; waited: the share of the training in which the others waited for this rank.
    """

    rank: int
    device: str = ""
    memory: float | None = None
    total: int | None = None
    percent: float | None = None
    clock: float | None = None
    power: float | None = None
    cpu: float | None = None
    rss: float | None = None
    peak_memory: int | None = None
    peak_rss: int | None = None
    waited: float | None = None
    note: str = ""


@dataclass
class Summary:
    """A run that has ended."""

    title: str
    seconds: float
    rows: list[Row]
    steps: int = 0
    steps_per_second: float | None = None
    samples_per_second: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def headline(self) -> str:
        said = [self.title, f"{self.seconds:.0f} s", f"{self.steps} steps"]
        if self.steps_per_second is not None:
            said.append(f"{self.steps_per_second:.3g} steps/s")
        if self.samples_per_second is not None:
            said.append(f"{self.samples_per_second:.3g} samples/s")
        return ", ".join(said)


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


def print_summary(summary: Summary) -> None:
    """Print the summary on stderr, as wide as its terminal."""
    console = Console(file=sys.stderr, highlight=False, width=None if sys.stderr.isatty() else _WIDE)
    console.print(Text(terminal_safe(f"nb2ddp: {summary.headline}")), soft_wrap=True)
    if summary.rows:
        console.print(_table(summary.rows))
    for note in summary.notes:
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
    for heading in (
        *("rank", "device", "memory GiB", "peak", "busy", "MHz", "W", "CPU", "RSS GiB", "peak"),
        *("others waited", ""),
    ):
        left = heading in ("rank", "device", "")
        table.add_column(heading, justify="left" if left else "right", no_wrap=bool(heading))
    for row in rows:
        memory = _gib(row.memory) + (f" / {row.total / GIB:.0f}" if row.total else "")
        load = [_figure(row.percent, " %"), _figure(row.clock), _figure(row.power), _figure(row.cpu, " %")]
        waited = "" if row.waited is None or len(rows) == 1 else f"{100 * row.waited:.0f} %"
        sizes = [_gib(row.rss), _gib(row.peak_rss)]
        peak = _gib(row.peak_memory or None)
        table.add_row(str(row.rank), row.device, memory, peak, *load, *sizes, waited, row.note)
    table.columns = [column for column in table.columns if any(column.cells)]
    return table


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / GIB:.1f}" if size >= GIB else f"{size / GIB:.2f}"


def _figure(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def plot(summary: Summary, curves: Curves, waits: Iterable[tuple[float, int]], seconds: float) -> str:
    """Return an SVG: a panel for each kind of curve, over time; below it, when others waited for a rank.

    waits: (seconds, rank) of the samples with a straggler; seconds: when the last sample was taken.
    """
    names = [f"rank {row.rank}" for row in summary.rows]
    colors = dict(legend(names))
    panels: list[dict[str, object]] = []
    for title, lines in curves.items():
        high = 100.0 if "%" in title else None
        low = None if title == "loss" else 0.0
        picture = curve_svg(lines, by="second", across=(0, seconds), low=low, high=high, labels=False)
        if picture:
            panels.append({"title": title, "picture": picture, "y": _TOP + _PANEL * len(panels)})
    scale = (_RIGHT - _LEFT) / seconds
    width = round(max(scale, 1.0), 1)  # a sample is of the second before it
    bars = [
        {"x": round(_LEFT + at * scale - width, 1), "width": width, "color": colors[f"rank {rank}"]}
        for at, rank in waits
    ]
    return render(
        "monitor/plot.svg.j2",
        title=summary.headline,
        width=600,
        height=_TOP + _PANEL * len(panels) + (_FOOT if bars else 0),
        legend=colors.items(),
        panels=panels,
        waits=bars,
        waits_y=_TOP + _PANEL * len(panels),
    )
