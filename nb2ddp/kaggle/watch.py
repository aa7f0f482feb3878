"""Watch a kernel: its state, and the progress of the training, which is read from its log."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from nb2ddp import errors
from nb2ddp.kaggle.client import Client, State
from nb2ddp.kaggle.untrusted import TerminalFilter, shown
from nb2ddp.monitor import progress
from nb2ddp.monitor.closing import facts
from nb2ddp.waiting import clock, waiting

POLL_SECONDS = 10.0
LONG_QUEUE = 15 * 60.0  # seconds
GIVE_UP_AFTER = 30 * 60.0
"""Seconds without an answer from Kaggle after which watching ends."""

_LONGEST = 48 * 3600.0
"""The longest session in seconds, which limits the times that a log may claim."""

_HICCUPS = (errors.UnreachableError, errors.ServerError, errors.TooManyRequestsError)
_NO_LOG_YET = (errors.ForbiddenError, errors.NotFoundError)

_LONGEST_LINE = 1000  # characters of a line that are read
_FAILED = re.compile(r"(?m)^nb2ddp: (\w{1,20} failed: [^\r\n]{1,300})")


@dataclass
class Progress(progress.Progress):
    """The latest values in the log, and how the run has ended."""

    failure: str = ""

    def read(self, text: str) -> None:
        """Read the next piece of the log; a line may be split over two pieces."""
        for line in text.splitlines(keepends=True):
            with suppress(ValueError, OverflowError):  # a number of thousands of digits
                for match in _FAILED.finditer(self.feed(line[-_LONGEST_LINE:])):
                    self.failure = shown(match[1])
            self._rest = self._rest[-_LONGEST_LINE:]

    def said(self, *, running: bool = True) -> str:
        """Return what is known, in a line; a bar may have any label."""
        return shown(" · ".join(facts(self, running=running)))


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
        with waiting(f"waiting for the log of {ref}") as line:
            for _, text in follow(client, ref, see):
                line.turn_to("")
                yield safe(text)
                line.turn_to(f"waiting for the log of {ref}" if text.endswith("\n") else "")
    yield safe.end()


def watch(client: Client, ref: str) -> State:
    """Show on stderr how a kernel is going until it has ended, and return its last state."""
    read, began, states = Progress(), time.monotonic(), list[State]()

    def see(state: State) -> None:
        if not states or states[-1].name != state.name:
            line.turn_to("")
            if state.is_active:
                print(f"{ref} · {state.name}", file=sys.stderr, flush=True)
        states.append(state)
        show()

    def show() -> None:
        since, said = time.monotonic() - began, "" if read.stage == "starting" else read.said()
        if states[-1].name == "QUEUED":
            said = "waits for free GPUs, starts by itself" if since > LONG_QUEUE else ""
        line.update(f"{ref} · {states[-1].name}: {said}" if said else f"{ref} · {states[-1].name}")

    with waiting("") as line:
        for seconds, text in follow(client, ref, see):
            began = min(began, time.monotonic() - min(seconds, _LONGEST))
            read.read(text)
            show()
    ended = [ref, states[-1].name, clock(time.monotonic() - began), read.said(running=False)]
    print(" · ".join(filter(None, ended)), file=sys.stderr, flush=True)
    return replace(states[-1], failure=states[-1].failure or read.failure)


def check(ref: str, state: State) -> None:
    """Raise KernelError if the kernel has ended without success."""
    if not state.is_active and state.name != "COMPLETE":
        failure = f": {state.failure}" if state.failure else ""
        raise errors.KernelError(
            f"{ref} ended as {state.name}{failure}. `nb2ddp logs {ref}` shows why; "
            f"`nb2ddp fetch {ref}` downloads what there is."
        )
