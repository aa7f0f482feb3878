"""Follow a run by what rank 0 prints, without changing it: stage, steps and losses."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nb2ddp.monitor.charts import clock
from nb2ddp.monitor.console import Relay
from nb2ddp.monitor.progress import WORDS, Progress

_STEADY_SECONDS = 2.0  # a stage that is over sooner is not told
_SILENCE_SECONDS = 15.0  # until a stage is told again; then twice as long


class Listener:
    """An observer of `nb2ddp.launch.run.launch` that copies rank 0's output and reads it.

    It tells the stage on stderr, on a line of its own. Nothing that fails here ends the run.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.peak_memory: dict[int, int] = {}
        self.nproc = 0
        self._relay: Relay | None = None
        self._started = time.monotonic()
        self._line_ended = True
        self._told = ""
        self._stage = ("", 0.0)  # and since when
        self._silent_since = 0.0
        self._patience = _SILENCE_SECONDS
        self._ranks: set[int] = set()

    def begin(self, logs: Path, *, cpu: bool) -> tuple[int, int]:
        self._started = self._silent_since = time.monotonic()
        try:
            self._relay = Relay(self._hear, self._tick, [fd for fd in (1, 2) if os.isatty(fd)], copy=True)
        except OSError:  # then rank 0 writes to our own stdout and stderr
            return 1, 2
        self._relay.start()
        return self._relay.sinks

    def started(self, rank: int, local_rank: int, pid: int) -> None:
        self.nproc = max(self.nproc, local_rank + 1)
        if rank in self._ranks and rank == 0:  # torchrun starts all ranks again
            self.progress = Progress()
        self._ranks.add(rank)

    def ended(self, rank: int, code: int) -> None:
        pass

    def end(self, stopped: Callable[[], bool]) -> None:
        if self._relay is not None:
            self._relay.close(stopped)
        if not self._line_ended:  # a bar stands there, and what is said next has a line of its own
            with contextlib.suppress(OSError, ValueError):
                print(file=sys.stderr, flush=True)

    # The relay's thread.

    def _hear(self, text: str, ours: bool) -> None:
        self._silent_since, self._patience = time.monotonic(), _SILENCE_SECONDS
        self._line_ended = text.endswith("\n")
        with contextlib.suppress(Exception):  # the training goes on, whatever is printed
            self.progress.feed(text)

    def _tick(self) -> None:
        now = time.monotonic()
        stage = self.progress.stage
        if stage != self._stage[0]:
            self._stage = stage, now
        steady = now - self._stage[1] >= _STEADY_SECONDS
        if stage == "training" and self.progress.step >= self.progress.total:
            return  # it has ended, or is followed by what it prints alone
        again = now - self._silent_since >= self._patience
        if not self._line_ended or not steady or (stage == self._told and not again):
            return
        if again:
            self._patience *= 2
        if (said := WORDS.get(stage)) is not None:
            still = "still " if stage == self._told else ""
            if stage == "training" and self.progress.total:
                said += f": step {self.progress.step} of {self.progress.total}"
            with contextlib.suppress(OSError, ValueError):  # the terminal is gone
                print(f"nb2ddp: [{clock(now - self._started)}] {still}{said}", file=sys.stderr, flush=True)
        self._told = stage
