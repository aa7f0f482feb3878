"""Say what a command waits for: no terminal is silent for long."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

FIRST_SECONDS = 2.0
"""How long a command may be silent before it says what it waits for."""

_AGAIN_SECONDS, _LONGEST_SECONDS = 15.0, 300.0
_LONGEST_START = 10.0
_SPINNER = "-\\|/"


def clock(seconds: float) -> str:
    """Return seconds as 1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Waiting:
    """One line on stderr: on a terminal it moves and goes again, elsewhere it is told once for each stage.

    It is repeated after 15 seconds of silence, then after twice as many, and so on up to 5 minutes.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr  # as it is now: Kaggle's client is called with another one
        self._moves = is_terminal()
        self._next = self._silence = FIRST_SECONDS
        self._count, self._drawn, self._stage = 0, "", ""

    def show(self, what: str, elapsed: float, silent: float) -> None:
        """Say ``what`` with the clock at ``elapsed``, if nothing else was shown for ``silent`` seconds.

        What stands before a colon in ``what`` is the stage; a new one is said soon.
        """
        if (stage := what.partition(":")[0]) != self._stage:
            self._stage = stage
            self._next = self._silence = FIRST_SECONDS
        if silent < self._next:
            return
        line = f"nb2ddp: [{clock(elapsed)}] {what}"
        if self._moves:
            self._count += 1
            before = len(self._drawn)
            self._drawn = f"{_SPINNER[self._count % 4]} {line}"[: _columns(self._stream) - 1]
            # spaces and no "erase line", which the output of a notebook's cell does not know
            self._write(f"\r{self._drawn.ljust(before)}")
        else:
            self._silence = min(max(2 * self._silence, _AGAIN_SECONDS), _LONGEST_SECONDS)
            self._next = silent + self._silence
            self._write(f"{line}\n")

    def clear(self) -> None:
        """Take the line away: something else is printed."""
        self._next = self._silence
        if self._drawn:
            self._write(f"\r{' ' * len(self._drawn)}\r")
            self._drawn = ""

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            self._stream.write(text)
            self._stream.flush()


def is_terminal() -> bool:
    """Return whether stderr is a terminal on which a line can be overwritten."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


_threads: list[WaitingThread] = []  # the one that runs, if any


@contextlib.contextmanager
def waiting(what: str, *, keep: bool = False) -> Iterator[WaitingThread]:
    """Show on stderr what is waited for, from a thread, until this ends.

    Within another one its words change, unless ``keep`` is set.
    """
    if _threads:
        outer, before = _threads[-1], _threads[-1]._what
        outer.update(before if keep else what)
        try:
            yield outer
        finally:
            outer.update(before)
        return
    thread = WaitingThread(what)
    _threads.append(thread)
    thread.start()
    try:
        yield thread
    finally:
        thread.ended.set()
        thread.join()
        _threads.remove(thread)


def _starting_took() -> float:
    """Return for how many seconds a command has started and imported: on a loaded machine, some of the silence."""
    import psutil

    seconds = time.time() - psutil.Process().create_time()
    return seconds if 0 < seconds < _LONGEST_START else 0.0  # an older process is a kernel, and no command


class WaitingThread(threading.Thread):
    """Shows the line of `waiting`."""

    def __init__(self, what: str) -> None:
        super().__init__(name="nb2ddp-waiting", daemon=True)
        self.ended = threading.Event()
        self._what, self._since = what, time.monotonic()
        self._silent_before = _starting_took()
        self._lock = threading.Lock()
        self._line = Waiting()

    def turn_to(self, what: str) -> None:
        """Take the next thing to wait for. What was drawn is gone when this returns, so that results can be printed."""
        with self._lock:
            self._what, self._since, self._silent_before = what, time.monotonic(), 0.0
            self._line.clear()

    def update(self, what: str) -> None:
        """Say the same thing in other words."""
        self._what = what

    def run(self) -> None:
        while not self.ended.wait(0.2):
            with self._lock:
                waited = time.monotonic() - self._since
                if self._what:
                    self._line.show(self._what, waited, waited + self._silent_before)
        with self._lock:
            self._line.clear()
