"""Show the phases of a rehearsal while it runs: live on a terminal, elsewhere one line for each."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TextIO

from nb2ddp.waiting import WaitingThread, is_terminal, waiting


class Display(Protocol):
    """Callbacks for a rehearsal. Called on its own thread; must not block."""

    def phase(self, title: str) -> None:
        """Begin a phase; the one before has ended."""

    def status(self, processes: Mapping[str, str]) -> None:
        """Take what each process is doing now: ``{"rank 0": "step 2"}``."""


class Silent:
    """Show nothing."""

    def phase(self, title: str) -> None:
        pass

    def status(self, processes: Mapping[str, str]) -> None:
        pass


class Lines:
    """Say a line per phase, and while it lasts what its processes are doing."""

    def __init__(self, say: Callable[[str], None], line: WaitingThread) -> None:
        self._say, self._line, self._title = say, line, ""

    def phase(self, title: str) -> None:
        self._title = title
        self._line.turn_to(title)
        self._say(title)

    def status(self, processes: Mapping[str, str]) -> None:
        self._line.update(f"{self._title}: {_said(processes)}")


_BESIDE = len("- " + " 0:00:00 ")
"""Columns of a line beside the title and the status: the sign that it goes on, and the clock."""


class Live:
    """Keep a line per phase on a terminal: its title, its clock and what its processes are doing."""

    def __init__(self, terminal: TextIO) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn("line", finished_text=" "),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=Console(file=terminal, force_terminal=True, highlight=False),
            refresh_per_second=4,
        )
        self._task: TaskID | None = None
        self._title, self._widest = "", 0

    def __enter__(self) -> Live:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end_phase()
        self._progress.stop()

    def phase(self, title: str) -> None:
        self._end_phase()
        self._title = title
        self._widest = max(self._widest, len(title))
        self._task = self._progress.add_task(title, total=None, status="")

    def status(self, processes: Mapping[str, str]) -> None:
        if self._task is not None:
            said = _said(processes)
            # lines share their columns: one that is too wide takes the clocks of all
            if self._widest + len(said) + _BESIDE <= self._progress.console.width:
                self._progress.update(self._task, description=self._title, status=said)
            else:
                self._progress.update(self._task, description=f"{self._title}\n  {said}", status="")

    def _end_phase(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=self._title, total=1, completed=1)
            self._task = None


def _said(processes: Mapping[str, str]) -> str:
    return ", ".join(f"{process}: {state}" for process, state in processes.items())


@contextlib.contextmanager
def shown(say: Callable[[str], None]) -> Iterator[Display]:
    """Yield the display that suits stderr; ``say`` prints a line where that is no terminal."""
    if is_terminal():
        with Live(sys.stderr) as display:
            yield display
    else:
        with waiting("") as line:
            yield Lines(say, line)
