"""Show the phases of a rehearsal while it runs: a line for each, and what its processes are doing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from nb2ddp.waiting import WaitingThread, waiting


class Display:
    """Say a line per phase, and while it lasts what its processes are doing. Called on its own thread."""

    def __init__(
        self, say: Callable[[str], None] = lambda title: None, line: WaitingThread | None = None
    ) -> None:
        """``say`` prints a line; without ``line`` nothing is shown meanwhile."""
        self._say, self._line, self._title = say, line, ""

    def phase(self, title: str) -> None:
        """Begin a phase; the one before has ended."""
        self._title = title
        if self._line is not None:
            self._line.turn_to(title)
        self._say(title)

    def status(self, processes: Mapping[str, str]) -> None:
        """Take what each process is doing now: ``{"rank 0": "step 2"}``."""
        said = ", ".join(f"{process}: {state}" for process, state in processes.items())
        if self._line is not None:
            self._line.update(f"{self._title}: {said}")


@contextlib.contextmanager
def shown(say: Callable[[str], None]) -> Iterator[Display]:
    """Yield the display of a command; ``say`` prints a line."""
    with waiting("") as line:
        yield Display(say, line)
