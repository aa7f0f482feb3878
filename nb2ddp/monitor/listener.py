"""Follow a run by what rank 0 prints, without changing it: stage, steps and losses."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nb2ddp.monitor.console import Relay
from nb2ddp.monitor.progress import WORDS, Progress
from nb2ddp.waiting import Waiting


class Listener:
    """An observer of `nb2ddp.launch.run.launch` that copies rank 0's output and reads it.

    While rank 0 prints nothing, a line on stderr says the stage. Nothing that fails here ends the run.
    """

    def __init__(self, said: str = "", *, quiet: bool = False) -> None:
        """Follow a training; or what is waited for is ``said``. ``quiet``: add no line of our own."""
        self._said, self._quiet = said, quiet
        self.progress = Progress()
        self.peak_memory: dict[int, int] = {}
        self.nproc = 0
        self._relay: Relay | None = None
        self._started = self._silent_since = time.monotonic()
        self._line_ended = True
        self._waiting = Waiting()
        self._begun = False  # rank 0 has
        self._guards: dict[int, tuple[int, int]] = {}  # of ranks that run
        self._codes: dict[int, int] = {}  # of ranks that have ended

    def begin(self, logs: Path, *, cpu: bool, stopped: Callable[[], bool]) -> tuple[int, int]:
        self._started = self._silent_since = time.monotonic()
        terminals = [fd for fd in (1, 2) if os.isatty(fd)]
        try:
            self._relay = Relay(self._hear, self._tick, stopped, terminals, before_copy=self._waiting.clear)
        except OSError:  # then rank 0 writes to our own stdout and stderr
            return 1, 2
        self._relay.start()
        return self._relay.sinks

    def install(self) -> contextlib.AbstractContextManager[tuple[int, int]]:
        return contextlib.nullcontext((1, 2)) if self._quiet else installing()

    def started(self, rank: int, local_rank: int, pid: int) -> None:
        self.nproc = max(self.nproc, local_rank + 1)
        if rank == 0 and self._begun:
            self._begin_again()
        self._begun = self._begun or rank == 0
        self._codes = {other: code for other, code in self._codes.items() if other != rank}
        self._guards = {**self._guards, rank: (local_rank, pid)}

    def _begin_again(self) -> None:
        """Forget the steps: torchrun starts all ranks again."""
        self.progress = Progress()

    def ended(self, rank: int, code: int) -> None:
        self._guards = {other: pids for other, pids in self._guards.items() if other != rank}
        self._codes = {**self._codes, rank: code}

    def end(self) -> None:
        if self._relay is not None:
            self._relay.close()
        self._waiting.clear()
        # where a bar stands, what follows has a line of its own
        if not (self._line_ended or self._quiet):
            with contextlib.suppress(OSError, ValueError):
                print(file=sys.stderr, flush=True)

    # The relay's thread.

    def _hear(self, text: str, ours: bool) -> None:
        self._silent_since = time.monotonic()
        self._line_ended = text.endswith("\n")
        with contextlib.suppress(Exception):  # the training goes on, whatever is printed
            self.progress.feed(text)

    def _tick(self) -> None:
        now = time.monotonic()
        stage, total = self.progress.stage, self.progress.total
        said = self._said or WORDS.get(stage, f"at {stage}")
        if 0 in self._codes:
            said = "ending: rank 0 has ended, and the other processes end"
        elif stage == "training" and total:
            said += f": step {self.progress.step} of {total}"
        if self._line_ended and not self._quiet:
            self._waiting.show(said, now - self._started, now - self._silent_since)


@contextlib.contextmanager
def installing() -> Iterator[tuple[int, int]]:
    """Give the file descriptors for the install step's stdout and stderr; pip says nothing for minutes."""
    listener = Listener("installing the notebook's packages")
    try:
        yield listener.begin(Path(), cpu=False, stopped=lambda: False)
    finally:
        listener.end()
