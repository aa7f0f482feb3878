"""Show the phases of a rehearsal while it runs: a line for each, and what its processes are doing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from nb2ddp.waiting import WaitingThread, waiting


class Display:
    """Take the phases of a rehearsal and show nothing. Called on its own thread; must not block."""

    def phase(self, title: str) -> None:
        """Begin a phase; the one before has ended."""

    def status(self, processes: Mapping[str, str]) -> None:
        """Take what each process is doing now: ``{"rank 0": "step 2"}``."""


class Lines(Display):
    """Say a line per phase, and while it lasts what its processes are doing."""

    def __init__(self, say: Callable[[str], None], line: WaitingThread) -> None:
        self._say, self._line, self._title = say, line, ""

    def phase(self, title: str) -> None:
        self._title = title
        self._line.turn_to(title)
        self._say(title)

    def status(self, processes: Mapping[str, str]) -> None:
        said = ", ".join(f"{process}: {state}" for process, state in processes.items())
        self._line.update(f"{self._title}: {said}")


@contextlib.contextmanager
def shown(say: Callable[[str], None]) -> Iterator[Display]:
    """Yield the display of a command; ``say`` prints a line."""
    with waiting("") as line:
        yield Lines(say, line)
