"""Say what a command waits for: no terminal is silent for long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

FIRST_SECONDS = 2.0
"""How long a command may be silent before it says what it waits for. In a file each pause is twice the last."""

_SPINNER = "-\\|/"


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr what is waited for: a line that moves on a terminal, elsewhere a line now and then.

    Yields a function that takes the next thing to wait for.
    """
    state = _State(what)
    thread = threading.Thread(target=state.show, name="nb2ddp-waiting", daemon=True)
    thread.start()
    try:
        yield state.turn_to
    finally:
        state.ended.set()
        thread.join()


class _State:
    def __init__(self, what: str) -> None:
        self.ended = threading.Event()
        self._what, self._since = what, time.monotonic()
        self._lock = threading.Lock()
        self._drawn = False

    def turn_to(self, what: str) -> None:
        """Take the next thing to wait for. What was drawn is gone when this returns, so that results can be printed."""
        with self._lock:
            self._what, self._since = what, time.monotonic()
            self._clear()

    def show(self) -> None:
        is_terminal = sys.stderr.isatty()
        every = 0.2 if is_terminal else FIRST_SECONDS / 8
        told, patience, count = 0.0, FIRST_SECONDS, 0
        while not self.ended.wait(every):
            with self._lock:
                waited = time.monotonic() - self._since
                if told != self._since:
                    told, patience = self._since, FIRST_SECONDS
                if waited < patience:
                    continue
                count += 1
                line = f"nb2ddp: [{int(waited) // 60}:{int(waited) % 60:02}] {self._what}"
                with contextlib.suppress(OSError, ValueError):  # the terminal is gone
                    if is_terminal:
                        sys.stderr.write(f"\r\x1b[K{_SPINNER[count % 4]} {line[8:]}")
                        self._drawn = True
                    else:
                        sys.stderr.write(line + "\n")
                        patience *= 2
                    sys.stderr.flush()
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._drawn:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            self._drawn = False
