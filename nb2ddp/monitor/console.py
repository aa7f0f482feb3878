"""Rank 0's output on its way to the screen: it is read, and a display may stand below it."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import selectors
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

if sys.platform != "win32":
    import pty
    import termios
    import tty

_EVERY_SECONDS = 0.2
_PATIENCE_SECONDS = 2.0  # with a reader that takes nothing of what we write, after Ctrl-C
_MOVES = re.compile(r"(\r|\n|\x1b\[\d*A|\x1b\[\d*K)")
_TRACEBACK = b"Traceback (most recent call last):"
_CHAINED = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)


class Lines:
    """Text as a terminal shows it while programs write over their own last lines, as tqdm does.

    Carriage returns, line feeds, cursor up and "erase line" are followed. What comes after a carriage return
    replaces the line.
    """

    def __init__(self) -> None:
        self._rows = [""]
        self._row = 0
        self._highest = 0  # where the cursor was since the last `take`
        self._replace = False

    def write(self, text: str) -> None:
        for part in _MOVES.split(text):
            if part == "\r":
                self._replace = True
            elif part == "\n":
                self._row += 1
                self._rows += [""] * (self._row + 1 - len(self._rows))
                self._replace = True
            elif part.startswith("\x1b[") and part.endswith("A"):
                self._row = max(0, self._row - int(part[2:-1] or 1))
                self._highest = min(self._highest, self._row)
            elif part.startswith("\x1b[") and part.endswith("K"):
                if self._replace:
                    self._rows[self._row] = ""
            elif part:
                self._rows[self._row] = part if self._replace else self._rows[self._row] + part
                self._replace = False

    def take(self, *, everything: bool = False) -> list[str]:
        """Remove and return the lines that the cursor has been below since the last call; or all, at the end.

        A bar below another one is drawn by going down, writing, and going up again: a call may come between.
        """
        count = len(self._rows) if everything else self._highest
        done, self._rows = self._rows[:count], self._rows[count:] or [""]
        self._row = self._highest = max(0, self._row - count)
        while everything and done and not done[-1].strip():
            done.pop()
        return done

    @property
    def unfinished(self) -> list[str]:
        return [row for row in self._rows if row.strip()]


class Interruption:
    """What rank 0 prints after Ctrl-C, less the traceback of KeyboardInterrupt, also of one raised while another error
    was handled: a connection that breaks, say. What is to be read is the command that goes on.
    """

    def __init__(self) -> None:
        self._line, self._trace = b"", b""

    def passed(self, data: bytes = b"", *, everything: bool = False) -> bytes:
        """Take a piece of the output; return what can be shown of it by now. ``everything``: no more comes."""
        shown = b""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            before, start, rest = line.partition(_TRACEBACK)
            if start and not before and self._trace.rstrip().endswith(_CHAINED):
                self._trace += line + b"\n"
            elif start:  # a bar may stand before it
                shown, self._trace = shown + self._trace + before, start + rest + b"\n"
            elif self._trace.endswith(b"\n") and line.startswith(b"KeyboardInterrupt"):
                self._trace = b""
            elif self._trace and (line.startswith((b" ", *_CHAINED)) or not line or self._in_frames()):
                self._trace += line + b"\n"
            else:
                shown, self._trace = shown + self._trace + line + b"\n", b""
        if everything:
            shown, self._line, self._trace = shown + self._trace + self._line, b"", b""
        return shown

    def _in_frames(self) -> bool:
        """Return whether the exception is still to come."""
        return self._trace.splitlines()[-1].startswith(b" ")


@dataclass
class _Channel:
    """source: where we read what rank 0 writes to ``sink``; target: where it goes, None: the listener."""

    source: int
    sink: int
    target: int | None
    interruption: Interruption = field(default_factory=Interruption)
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )


class Relay(threading.Thread):
    """Copy, in a thread of its own, what rank 0 writes to stdout and stderr.

    In place of a terminal rank 0 gets a pseudo-terminal of the same width. What it writes there goes to the
    listener alone where the terminal holds a display. All else is copied byte for byte.
    """

    def __init__(
        self,
        hear: Callable[[str, bool], None],
        tick: Callable[[], None],
        stopped: Callable[[], bool],
        terminals: Collection[int] = (),
        *,
        before_copy: Callable[[], None] | None = None,
    ) -> None:
        """Open the channels.

        hear: gets every piece of text, and whether it is the listener's to show.
        tick: is called about 5 times a second.
        stopped: says whether the run was stopped. From then on the traceback of KeyboardInterrupt is left out, and a
            reader that takes nothing is not waited for.
        terminals: which of our file descriptors 1 and 2 are terminals.
        before_copy: is called before anything is copied to a terminal. None: the terminals hold a display, and the
            listener shows there what rank 0 writes.

        Raises:
            OSError: the system gives no pipe or no terminal.
        """
        super().__init__(name="nb2ddp-relay", daemon=True)
        self._hear, self._tick, self._stopped = hear, tick, stopped
        self._before_copy = before_copy or (lambda: None)
        self._ended = threading.Event()
        self._size_of = next(iter(terminals), None)
        self._channels: dict[int, _Channel] = {}
        for target in (1, 2):
            if target in terminals and self._size_of in self._channels:
                self._channels[target] = self._channels[self._size_of]
            elif target in terminals:
                source, sink = pty.openpty()
                tty.setraw(sink)  # a line feed stays a line feed
                self._channels[target] = _Channel(source, sink, target if before_copy else None)
            elif target == 2 and not terminals and _is_one_file():  # `2>&1`: the lines keep their order
                self._channels[target] = self._channels[1]
            else:
                self._channels[target] = _Channel(*os.pipe(), target)
        self._resize()

    @property
    def sinks(self) -> tuple[int, int]:
        """The file descriptors for rank 0's stdout and stderr."""
        return self._channels[1].sink, self._channels[2].sink

    def close(self) -> None:
        """Copy what is left, after rank 0 has ended."""
        self._ended.set()
        for sink in {*self.sinks}:
            os.close(sink)
        patience = _PATIENCE_SECONDS
        while self.is_alive() and patience > 0:
            self.join(0.1)
            patience -= 0.1 * self._stopped()

    def run(self) -> None:
        channels = {channel.source: channel for channel in self._channels.values()}.values()
        self._copy(channels)
        for channel in channels:
            with contextlib.suppress(OSError):
                self._show(channel, channel.interruption.passed(everything=True))

    def _copy(self, channels: Iterable[_Channel]) -> None:
        ticked = 0.0
        with selectors.DefaultSelector() as selector:
            for channel in channels:
                selector.register(channel.source, selectors.EVENT_READ, channel)
            while selector.get_map():
                events = selector.select(_EVERY_SECONDS)
                for key, _ in events:
                    if not self._pass_on(key.data):
                        selector.unregister(key.fd)
                        os.close(key.fd)  # rank 0 is told as if it wrote there itself
                if time.monotonic() - ticked >= _EVERY_SECONDS:
                    ticked = time.monotonic()
                    self._resize()
                    self._tick()
                if self._ended.is_set() and not events:
                    return

    def _pass_on(self, channel: _Channel) -> bool:
        """Copy one chunk. Return False at EOF or when the reader is gone."""
        try:
            data = os.read(channel.source, 1 << 16)
            self._show(channel, channel.interruption.passed(data) if self._stopped() else data)
        except OSError:  # a terminal whose other end is closed says EIO
            return False
        return bool(data)

    def _show(self, channel: _Channel, data: bytes) -> None:
        left = data if channel.target is not None else b""
        if left:
            self._before_copy()
        while left:
            left = left[os.write(channel.target or 0, left) :]
        if data:
            self._hear(channel.decoder.decode(data), channel.target is None)

    def _resize(self) -> None:
        if self._size_of is not None:
            with contextlib.suppress(OSError, termios.error):
                columns, rows = os.get_terminal_size(self._size_of)
                termios.tcsetwinsize(self._channels[self._size_of].source, (rows, columns))


def _is_one_file() -> bool:
    with contextlib.suppress(OSError):
        return os.path.sameopenfile(1, 2)
    return False
