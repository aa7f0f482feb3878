"""The display of one run in a notebook: one output that is updated in place, and rank 0's text below it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from nb2ddp.jupyter import html as pictures
from nb2ddp.jupyter.run_process import Training
from nb2ddp.monitor import nvml
from nb2ddp.monitor.progress import Progress

_State = Literal["running", "done", "failed", "stopped"]

_TITLES: dict[_State, str] = {
    "running": "Training",
    "done": "Trained",
    "failed": "Failed",
    "stopped": "Stopped",
}
_UPDATE_SECONDS = 0.5
_LINE_SECONDS = 10.0  # between two lines about the progress, where a line cannot be overwritten
_HELD_SECONDS = 5.0  # of a traceback after which rank 0 prints on; one that ends the run is its last word
_MOST_HELD_SECONDS = 60.0
_LAST_WORDS = (
    "Traceback (most recent call last)",
    "nb2ddp: rank ",
    "nb2ddp: the script failed",
    "nb2ddp: the run cannot start",
    "nb2ddp: the traceback",
)


class Live:
    """The display of one run: one output that is updated in place, and rank 0's text below it."""

    def __init__(
        self,
        progress: Progress,
        training: Training,
        logs: Path,
        base: Path,
        monitor: nvml.Watch,
        *,
        show: Callable[..., Any] | None,
    ) -> None:
        """``base``: the folder that links are relative to; ``show``: IPython's display, if HTML is shown."""
        self._progress, self._training, self._monitor = progress, training, monitor
        self._logs, self._base = logs, base
        self._display = show
        self._handle: Any = None
        self._shown = 0.0
        self._line = ""
        self._held: list[str] = []
        self._held_since = 0.0
        self._prints_on = False  # rank 0, after the traceback that is held

    def follow(self) -> int:
        """Show the run until it has ended; return how often the kernel was interrupted meanwhile."""
        interrupts = 0
        self._show("running")
        while True:
            try:
                text = self._training.read(0.1)
                if text is None:
                    self._take(self._progress.finish())
                    return interrupts
                if text:
                    with (self._logs / "output.log").open("a", encoding="utf-8") as file:
                        file.write(text)
                    self._take(self._progress.feed(text))
                held = time.monotonic() - self._held_since
                if self._held and held > (_HELD_SECONDS if self._prints_on else _MOST_HELD_SECONDS):
                    self._release()
                if time.monotonic() - self._shown >= self._every:
                    self._show("running")
            except KeyboardInterrupt:
                interrupts += 1
                self._training.interrupt()

    def end(self, state: _State) -> None:
        if state == "done":
            self._release()
        self._show(state)
        if self._line:
            print()

    @property
    def _in_place(self) -> bool:
        return self._display is not None or sys.stdout.isatty()

    @property
    def _every(self) -> float:
        return _UPDATE_SECONDS if self._in_place else _LINE_SECONDS

    def _take(self, text: str) -> None:
        """Print rank 0's text. A traceback waits: at the end of the run it is shown in our own way."""
        for line in text.splitlines():
            if not self._held and line.startswith(_LAST_WORDS):
                self._held_since = time.monotonic()
            elif not self._held:
                self._print(line)
                continue
            if line.startswith(_LAST_WORDS[1:]):  # the launcher's, and what it quotes
                self._prints_on = False
                self._held_since = time.monotonic()
            elif time.monotonic() - self._held_since > 1:
                self._prints_on = True
            self._held.append(line)

    def _release(self) -> None:
        held, self._held, self._prints_on = self._held, [], False
        for line in held:
            self._print(line)

    def _print(self, line: str) -> None:
        if self._line:
            print("\r\x1b[K", end="")
            self._line = ""
        print(line, flush=True)

    def _show(self, state: _State) -> None:
        self._shown = time.monotonic()
        loads = self._monitor.loads()
        seconds = self._training.seconds
        title = _TITLES[state]
        text = pictures.live_text(self._progress, title=title, seconds=seconds, loads=loads, state=state)
        if self._display is not None:
            html = pictures.live_html(
                self._progress,
                title=title,
                seconds=seconds,
                loads=loads,
                logs=self._links(),
                state=state,
            )
            bundle = {"text/plain": text, "text/html": html}
            if self._handle is None:
                self._handle = self._display(bundle, raw=True, display_id=True)
            else:
                self._handle.update(bundle, raw=True)
        elif self._in_place:
            self._line = text
            print(f"\r\x1b[K{text}", end="", flush=True)
        else:
            print(text, flush=True)

    def _links(self) -> dict[str, str]:
        files = {"rank 0": self._logs / "output.log"}
        files |= {f"rank {path.stem[4:]}": path for path in sorted(self._logs.glob("rank*.log"))}
        return {label: os.path.relpath(path, self._base) for label, path in files.items() if path.exists()}
