"""What a run from inside a notebook leaves: its result, or its failure in the notebook's own terms."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nb2ddp.conversion.script import Script
from nb2ddp.monitor import charts
from nb2ddp.monitor.progress import Progress, Record
from nb2ddp.rendering import render
from nb2ddp.source import ipython_syntax
from nb2ddp.source.cells import Place

_HEAD = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_ABOVE = (" " * 8 + "its traceback is above", " " * 8 + "what it printed is above")
_MOST_LINES = 60  # of a traceback
_SEARCH_SECONDS = 3.0  # for files that a run has written, in a folder of any size
_CACHES = {"__pycache__", "unsloth_compiled_cache", "huggingface_tokenizers_cache"}
_LOADER = re.compile(r"\b(Fast\w+)\.from_pretrained\(")
_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+)(?P<rest>.*)$')
# peft's class for each task type in an adapter's configuration
_AUTO_PEFT = {
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
}


@dataclass(frozen=True)
class Result:
    """A training run that %run_ddp has made; bound to ``_ddp``, whether it succeeded or not.

    ``exit_code`` is 0, or that of the rank that failed first, or 130 after an interrupt. ``seconds`` is wall
    time. ``script`` is the text that ran, ``folder`` where it lies with ``report.json`` and ``logs``.
    ``output_files`` were written in the working folder while it ran.
    """

    exit_code: int
    seconds: float
    folder: Path
    script: str
    records: list[Record] = field(repr=False)
    output_files: list[Path] = field(repr=False)
    error: str | None = None

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
    def adapter(self) -> Path | None:
        """The folder with the adapter (or else the whole model) that was saved last, checkpoints aside."""
        for name in ("adapter_config.json", "config.json"):
            folders = [file.parent for file in self.output_files if file.name == name and file.exists()]
            folders.sort(key=lambda folder: (not _is_checkpoint(folder), (folder / name).stat().st_mtime))
            if folders:
                return folders[-1]
        return None

    @property
    def checkpoint(self) -> Path | None:
        """The last checkpoint of a Trainer."""
        states = [f for f in self.output_files if f.name == "trainer_state.json" and f.exists()]
        return max(states, key=lambda file: file.stat().st_mtime).parent if states else None

    @property
    def how_to_load(self) -> str:
        """One line that loads what was trained; empty when nothing was saved."""
        folder = self.adapter
        if folder is None:
            return ""
        if match := _LOADER.search(self.script):
            name = match[1]
            return f'from unsloth import {name}; model, tokenizer = {name}.from_pretrained("{folder}")'
        configuration = folder / "adapter_config.json"
        if configuration.exists():
            task = json.loads(configuration.read_text(encoding="utf-8")).get("task_type")
            name = _AUTO_PEFT.get(task or "", "AutoPeftModel")
            return f'from peft import {name}; model = {name}.from_pretrained("{folder}")'
        name = "AutoModelForCausalLM"
        return f'from transformers import {name}; model = {name}.from_pretrained("{folder}")'

    def plot(self, *names: str) -> Plot:
        """The curves of logged numbers; of the losses when none is named: ``_ddp.plot("learning_rate")``.

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
        if self.how_to_load:
            lines.append(self.how_to_load)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return render(
            "magic/result.html.j2",
            headline=self._headline,
            facts=[],
            curve=charts.loss_curve(_progress(self.records)),
            how_to_load=self.how_to_load,
            files=self.output_files,
        )

    @property
    def _headline(self) -> str:
        if self.ok:
            return f"Trained in {charts.clock(self.seconds)}"
        return f"Failed after {charts.clock(self.seconds)}: {self.error}"


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


def _is_checkpoint(folder: Path) -> bool:
    return folder.name.startswith("checkpoint-")


def files_written(folder: Path, since: float, *, without: Path) -> list[Path]:
    """Files below ``folder`` that changed after ``since`` (seconds since the epoch), caches left out.

    Relative to ``folder`` when that is the current one. Gives what it finds in 3 seconds.
    """
    deadline = time.monotonic() + _SEARCH_SECONDS
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _CACHES and Path(root, name) != without
        ]
        for name in names:
            path = Path(root, name)
            try:
                if path.stat().st_mtime >= since:
                    found.append(path)
            except OSError:
                continue
        if time.monotonic() > deadline:
            break
    here = Path.cwd()
    return sorted(path.relative_to(here) if path.is_relative_to(here) else path for path in found)


class Places:
    """From lines of a script back to the notebook's cells."""

    def __init__(self, path: Path, script: Script, *, notebook: str | None) -> None:
        """``notebook``: the file that the cells are in; None: this session."""
        self._path, self._script, self._notebook = str(path.absolute()), script, notebook

    def of(self, line: int) -> Place | None:
        """The place that a line of the script (from 1) came from; None for what nb2ddp put in."""
        if not 1 <= line <= len(self._script.lines):
            return None
        origin = self._script.lines[line - 1]
        if not origin.cell or origin.text.startswith("# ---- cell "):
            return None
        cell = self._script.cells[origin.cell]
        new = self._script.rewritten[origin.cell].split("\n")
        old = ipython_syntax.align(cell.python.text.split("\n"), new)
        return Place(origin.cell, cell.python.notebook_line(old[min(origin.number, len(old) - 1)]))

    def trace(self, lines: Iterable[str]) -> Iterator[str]:
        """A traceback, with the notebook's cells in place of the script; what nb2ddp put in is not shown."""
        hidden = False
        for text in lines:
            match = _FRAME.match(text)
            if match is not None:
                hidden = match["file"] == self._path and self.of(int(match["line"])) is None
            hidden = hidden and text.startswith("  ")
            if not hidden:
                yield self._frame(match) if match is not None and match["file"] == self._path else text

    def _frame(self, match: re.Match[str]) -> str:
        place = self.of(int(match["line"]))
        assert place is not None
        cell = f"Cell {place.cell} of {self._notebook}" if self._notebook else f"Cell In[{place.cell}]"
        script = f"{Path(self._path).name}:{match['line']}"
        return f"{match['indent']}{cell}, line {place.line}{match['rest']}  ({script})"


def failure(transcript: Iterable[str], places: Places) -> tuple[str, list[str]]:
    """What went wrong, in a sentence, and the traceback of the rank that failed first.

    Taken from what the launcher says: what the rank recorded follows its sentence. The traceback of a rank 0
    that recorded nothing stands above it.
    """
    lines = list(transcript)
    said = [i for i, line in enumerate(lines) if line.startswith("nb2ddp: ") and " failed" in line]
    said = said or [i for i, line in enumerate(lines) if line.startswith("nb2ddp: ")]
    if not said:
        return "it ended before it began", lines[-_MOST_LINES:]
    at = said[-1]
    sentence = lines[at].removeprefix("nb2ddp: ").partition("; all it printed is in ")[0]
    below = [line for line in lines[at + 1 :] if not line.startswith(_ABOVE)]
    trace = list(_last_traceback(below)) or below or list(_last_traceback(lines[:at]))
    return sentence, list(places.trace(trace[-_MOST_LINES:]))


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
