"""Watch a kernel: its state, and the progress of the training, which is read from its log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from nb2ddp.errors import (
    ForbiddenError,
    KernelError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from nb2ddp.kaggle.client import Client, State
from nb2ddp.kaggle.untrusted import TerminalFilter

POLL_SECONDS = 10.0
LONG_QUEUE = 15 * 60.0  # seconds
GIVE_UP_AFTER = 30 * 60.0
"""Seconds without an answer from Kaggle after which watching ends."""

_LONGEST = 48 * 3600.0
"""The longest session in seconds, which limits the times that a log may claim."""

_HICCUPS = (UnreachableError, ServerError, TooManyRequestsError)
_NO_LOG_YET = (ForbiddenError, NotFoundError)

# A Trainer's own progress bar has no text before the percentage; the others (Map, Loading weights) have.
_BAR = re.compile(
    r"(?m)(?:^|\r)\s*\d{1,3}%\|[^|\r\n]{0,200}\| *(\d{1,9})/(\d{1,9}) "
    r"\[[^\],]{0,40}, *(\d{1,9}(?:\.\d{0,9})?) ?(it/s|s/it)",
    re.ASCII,
)
_LOSS = re.compile(
    r"""\{[^{}\r\n]{0,500}['"]loss['"]: ['"]?"""
    r"""([-+]?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf)""",
    re.ASCII,
)


@dataclass
class Progress:
    """The latest values in the log: step, steps, seconds per step, loss."""

    step: int | None = None
    steps: int | None = None
    seconds: float | None = None
    loss: float | None = None
    _rest: str = field(default="", repr=False)

    def read(self, text: str) -> None:
        """Read the next piece of the log; a line may be split over two pieces."""
        text = self._rest + text
        self._rest = re.split(r"[\r\n]", text)[-1][-1000:]
        for match in _BAR.finditer(text):
            speed = float(match[3])
            self.step, self.steps = int(match[1]), int(match[2])
            self.seconds = speed if match[4] == "s/it" else 1 / speed if speed else None
        for match in _LOSS.finditer(text):
            self.loss = float(match[1])

    def __str__(self) -> str:
        parts = []
        if self.step is not None:
            parts.append(f"step {self.step}/{self.steps}")
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.seconds is not None and self.step is not None and self.steps is not None:
            parts.append(f"{self.seconds:.2f} s/step")
            if left := (self.steps - self.step) * self.seconds:
                parts.append(f"{_duration(left)} left")
        return " · ".join(parts)


def _duration(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours}:{minutes:02}:{int(seconds) % 60:02}"


def follow(client: Client, ref: str, see: Callable[[State], None]) -> Iterator[tuple[float, str]]:
    """Yield the log of a kernel until it has ended: seconds since its start, and a piece of text, each once.

    A broken stream is opened again; the server then starts from the beginning, and text that was yielded before
    is skipped. see: called with every state, from the current one to the final one.

    Raises KaggleError; for a lost connection only after ``GIVE_UP_AFTER`` seconds without an answer.
    """
    taken, heard = 0, time.monotonic()  # characters: the next stream may split the text elsewhere
    state = client.state(ref)
    while True:
        see(state)
        pause, is_whole = POLL_SECONDS, state.name == "QUEUED"
        try:
            position = 0
            for seconds, text in () if is_whole else client.stream(ref):
                new = text[max(0, taken - position) :]
                position += len(text)
                if new:
                    taken, heard = position, time.monotonic()
                    yield seconds, new
            is_whole = True
        except _NO_LOG_YET:
            is_whole = True
        except _HICCUPS:  # mostly a load balancer that closed the connection
            if time.monotonic() - heard > GIVE_UP_AFTER:
                raise
            pause = min(POLL_SECONDS, 1.0)
        if is_whole and not state.is_active:
            return
        time.sleep(pause)
        try:
            state = client.state(ref)
            heard = time.monotonic() if state.is_active else heard
        except _HICCUPS:
            if time.monotonic() - heard > GIVE_UP_AFTER:
                raise


def printed(client: Client, ref: str, see: Callable[[State], None] | None) -> Iterator[str]:
    """Yield the log for a terminal: all of it so far, or with ``see`` until the kernel has ended."""
    safe = TerminalFilter()
    if see is None:
        yield safe(client.log(ref))
    else:
        for _, text in follow(client, ref, see):
            yield safe(text)
    yield safe.end()


class _Line:
    """The live line, which rich renders several times a second."""

    def __init__(self, ref: str) -> None:
        self.ref, self.start, self.state, self.progress = ref, time.monotonic(), "", Progress()

    def __rich__(self) -> Text:
        parts = [self.ref, self.state, _duration(time.monotonic() - self.start), str(self.progress)]
        if self.state == "QUEUED" and time.monotonic() - self.start > LONG_QUEUE:
            parts.append(
                "queued for over 15 minutes: Kaggle has no such GPUs free just now; it starts by itself"
            )
        return Text(" · ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")


def watch(client: Client, ref: str, file: TextIO) -> State:
    """Show one live line until the kernel has ended, and return its last state.

    If ``file`` is not a terminal, a line is written whenever the state changes, and the progress at the end.
    """
    line, console = _Line(ref), Console(file=file, highlight=False)
    states: list[State] = []
    told = False

    def see(state: State) -> None:
        nonlocal told
        is_long = state.name == "QUEUED" and time.monotonic() - line.start > LONG_QUEUE and not told
        if not console.is_terminal and (not states or states[-1].name != state.name or is_long):
            line.state = state.name
            console.print(line, soft_wrap=True)
        told = told or is_long
        line.state = state.name
        states.append(state)

    with Live(
        line,
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        for seconds, text in follow(client, ref, see):
            line.start = min(line.start, time.monotonic() - min(seconds, _LONGEST))
            line.progress.read(text)
    console.print(line, soft_wrap=True)
    return states[-1]


def check(ref: str, state: State) -> None:
    """Raise KernelError if the kernel has ended without success."""
    if not state.is_active and state.name != "COMPLETE":
        failure = f": {state.failure}" if state.failure else ""
        raise KernelError(
            f"{ref} ended as {state.name}{failure}. `nb2ddp logs {ref}` shows why; "
            f"`nb2ddp fetch {ref}` downloads what there is."
        )
