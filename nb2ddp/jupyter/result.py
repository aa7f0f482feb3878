"""The result of a run from inside a notebook, or its failure with the notebook's cells and lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.launch.outputs import Outputs
from nb2ddp.monitor import charts
from nb2ddp.monitor.progress import Progress, Record
from nb2ddp.rendering import render
from nb2ddp.source.cells import Place
from nb2ddp.waiting import clock

_HEAD = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_DETAIL = " " * 8  # before what the launcher says below its sentence
_ADVICE = f"{_DETAIL}what to do: "
_QUOTES = re.compile(r"nb2ddp: (?:rank \d+ printed last|the traceback):$")
_CELL = re.compile(r"  # cell \d+(?:, line \d+)?$")  # what the launcher puts behind a frame
_SHOWN = ("steps", "loss", "ranks", "GPU memory")  # of the facts; the page has the files and the rest already
_MOST_LINES = 60  # of a traceback
_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+)(?P<rest>.*)$')


@dataclass(frozen=True, kw_only=True)
class Result(Outputs):
    """A training run that %run_ddp has made; bound to ``_ddp``, whether it succeeded or not.

    ``exit_code`` is 0, or that of the rank that failed first, or 130 after an interrupt. ``seconds`` is wall
    time. ``script`` is the text that ran, ``folder`` where it lies with ``report.json`` and ``logs``.
    ``output_files`` were written in the working folder while it ran. ``facts`` is the closing block: names
    and values.
    """

    exit_code: int
    seconds: float
    folder: Path
    records: list[Record]
    error: str | None = None
    facts: Sequence[tuple[str, str]] = ()

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def log_history(self) -> Any:
        """The training log as a pandas DataFrame; as a list of dicts where there is no pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            return self.records
        return pandas.DataFrame(self.records)

    @property
    def losses(self) -> list[tuple[float, float]]:
        """The training losses that were logged, as (step, loss)."""
        return _progress(self.records).curve()

    def plot(self, *names: str) -> Plot:
        """Return the curves of logged numbers, else of the losses: ``_ddp.plot("learning_rate")``.

        Raises:
            ValueError: a number that was not logged, or not twice.
        """
        curves = {name: _progress(self.records).curve(name) for name in names or ("loss", "eval_loss")}
        missing = [name for name in names if len(curves[name]) < 2]
        if missing:
            known = sorted({key for record in self.records for key in record} - {"step"})
            raise ValueError(f"{missing[0]} was not logged twice; there are {', '.join(known) or 'no logs'}.")
        return Plot(curves)

    def __repr__(self) -> str:
        lines = [self._headline]
        if curve := charts.sparkline(_progress(self.records).curve()):
            lines.append(f"loss {curve}")
        if self.ok:
            lines += [f"{name}: {value}" for name, value in self.facts if name not in ("time", "load it")]
        lines += filter(None, (self._where_it_is, self.how_to_load))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return render(
            "magic/result.html.j2",
            headline=self._headline,
            facts=[f"{name} {value}" for name, value in self.facts if name in _SHOWN] if self.ok else [],
            curve=charts.loss_curve(_progress(self.records)),
            where_it_is=self._where_it_is,
            how_to_load=self.how_to_load,
            files=self.output_files,
        )

    @property
    def _where_it_is(self) -> str:
        """Say that this kernel's model is not the trained one, where no line tells how to load that."""
        if not self.ok or self.how_to_load:
            return ""
        if not self.output_files:
            return "Nothing was saved, so what was trained is gone; this kernel's variables are as before the run."
        return "This kernel's variables are as before the run: load what the cell has saved."

    @property
    def _headline(self) -> str:
        if self.ok:
            return f"Trained in {clock(self.seconds)}"
        return f"Failed after {clock(self.seconds)}: {self.error}"


@dataclass(frozen=True)
class Plot:
    """Curves that a notebook shows as a picture and a terminal as text."""

    curves: dict[str, list[tuple[float, float]]]

    def _repr_html_(self) -> str:
        return charts.curve_svg(self.curves)

    def __repr__(self) -> str:
        lines = {name: charts.sparkline(points) for name, points in self.curves.items()}
        return "\n".join(f"{name} {line}" for name, line in lines.items() if line)


def _progress(records: list[Record]) -> Progress:
    return Progress(records=records)


@dataclass(frozen=True)
class Places:
    """The places in the notebook of a script's lines, from 1; ``notebook``: its file, None: this session's cells."""

    script: Path
    of: Mapping[int, Place]
    notebook: str | None = None

    def trace(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield a traceback with the notebook's cells in place of the script, without nb2ddp's frames."""
        hidden = False
        for text in lines:
            match = _FRAME.match(text)
            is_ours = match is not None and match["file"] == str(self.script.absolute())
            place = self.of.get(int(match["line"])) if match is not None and is_ours else None
            hidden = text.startswith("  ") and (is_ours and place is None if match is not None else hidden)
            if match is not None and place is not None:
                cell = f"Cell {place.cell} of {self.notebook}" if self.notebook else f"Cell In[{place.cell}]"
                rest = f"{_CELL.sub('', match['rest'])}  ({self.script.name}:{match['line']})"
                yield f"{match['indent']}{cell}, line {place.line}{rest}"
            elif not hidden:
                yield text


def failure(transcript: Iterable[str], places: Places) -> tuple[str, list[str]]:
    """Return what went wrong, in a sentence, and the traceback of the rank that failed first.

    Both are taken from what the launcher printed: the rank's traceback, or what it printed last, and then the
    sentence, with lines of its own below it.
    """
    lines = list(transcript)
    said = [i for i, line in enumerate(lines) if line.startswith("nb2ddp: ") and " failed" in line]
    said = said or [i for i, line in enumerate(lines) if line.startswith("nb2ddp: ")]
    if not said:
        return "it ended before it began", lines[-_MOST_LINES:]
    at = said[-1]
    sentence = lines[at].removeprefix("nb2ddp: ")
    advice = [line.strip() for line in lines[at + 1 :] if line.startswith(_ADVICE)]
    quoted = [i for i, line in enumerate(lines[:at]) if _QUOTES.match(line)]
    if quoted:
        text = lines[quoted[-1] + 1 : at]
    elif sentence.startswith(("rank 0 ", "the script ")):  # it printed that itself
        text = list(_last_traceback(lines[:at]))
    else:  # torchrun's output, if any
        text = [line for line in lines[at + 1 :] if not line.startswith(_DETAIL)]
    trace = list(_last_traceback(text)) or text
    return "\n".join([sentence, *advice]), list(places.trace(trace[-_MOST_LINES:]))


def _last_traceback(lines: Sequence[str]) -> Iterator[str]:
    heads = [i for i, line in enumerate(lines) if line.startswith(_HEAD)]
    if not heads:
        return
    start = heads.pop()
    while heads and any(line.startswith(_CHAINED) for line in lines[heads[-1] : start]):
        start = heads.pop()
    for line in lines[start:]:
        if line.startswith("nb2ddp: "):
            return
        yield line
