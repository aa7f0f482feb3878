"""A run that is longer than a session of Kaggle: one kernel after the other, each from the last checkpoint.

What was pushed stands in ``sessions.json`` in the converted folder, and is written before each push and after
it: the command may be stopped and started again at any time, and no session is pushed twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import BundleError, KernelError
from nb2ddp.kaggle.bundle import Bundle, Wishes
from nb2ddp.kaggle.client import Client, Pushed, State
from nb2ddp.kaggle.run_summary import ending_of, newest_step
from nb2ddp.regular_files import bytes_of

FILE = "sessions.json"

_MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class Session:
    """One kernel of the run.

    before: the kernel's latest version before the push. is_pushed: whether the push is known to have been taken.
    resume_from: what it goes on from. step: of the newest checkpoint that it has left.
    """

    ref: str
    before: int | None = None
    is_pushed: bool = False
    resume_from: str | None = None
    step: int = 0


@dataclass
class Run:
    """The sessions so far of one script."""

    script: str
    sessions: list[Session] = field(default_factory=list)
    is_done: bool = False


class Steps(Protocol):
    """What a session needs of the commands: make its bundle, send it, watch it, fetch it, and keep a checkpoint.

    make: the bundle of the n-th session. send: push it. watch: wait until a kernel has ended. fetch: bring its output,
    and return the folder. keep: make a dataset of a folder's checkpoints, and return its name.
    """

    def make(self, wishes: Wishes, number: int) -> Bundle: ...
    def send(self, made: Bundle, wishes: Wishes) -> Pushed: ...
    def watch(self, ref: str) -> State: ...
    def fetch(self, ref: str) -> Path: ...
    def keep(self, ref: str, output: Path) -> str: ...
    def say(self, text: str) -> None: ...


def most_sessions(text: str) -> float:
    """Return the most sessions that a run may take: a number, or infinity for ``auto``.

    Raises BundleError for anything else.
    """
    if text == "auto":
        return math.inf
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise BundleError(
            f"--sessions {text}: give the most sessions that the run may take, such as 3, or auto."
        )
    return int(text)


def run_all(client: Client, folder: Path, wishes: Wishes, most: float, steps: Steps) -> Path:
    """Push sessions until the run is done, and return the folder with the output of the last one.

    Raises:
        KernelError: a session failed by itself, made no progress, or was the last one allowed.
        KaggleError: Kaggle or the way to it failed; the same command goes on.
        BundleError: the script was edited since the first session.
    """
    run = _read(folder)
    while True:
        if run.sessions and run.sessions[-1].is_pushed:
            output, resume_from = _ended(run, steps)
            _write(folder, run)
            if run.is_done:
                return output
            if len(run.sessions) >= most:
                raise KernelError(
                    f"the run is not done after {_count(len(run.sessions))} (step {run.sessions[-1].step}): the same "
                    "command with a larger --sessions, or auto, goes on."
                )
            wishes = replace(wishes, resume_from=resume_from)
        _push(client, folder, run, wishes, steps)


def _push(client: Client, folder: Path, run: Run, wishes: Wishes, steps: Steps) -> None:
    """Push the next session, unless an earlier call has pushed it and was stopped before it heard so."""
    begun = run.sessions.pop() if run.sessions and not run.sessions[-1].is_pushed else None
    if begun is not None and client.version(begun.ref) != begun.before:
        steps.say(f"{begun.ref} was pushed before this command was stopped")
        run.sessions.append(replace(begun, is_pushed=True))
        return _write(folder, run)
    if begun is not None:
        wishes = replace(wishes, resume_from=begun.resume_from)
    made = steps.make(wishes, len(run.sessions) + 1)
    run.sessions.append(Session(made.ref, before=client.version(made.ref), resume_from=wishes.resume_from))
    _write(folder, run)
    pushed = steps.send(made, wishes)
    run.sessions[-1] = replace(run.sessions[-1], ref=pushed.ref, is_pushed=True)
    return _write(folder, run)


def _ended(run: Run, steps: Steps) -> tuple[Path, str]:
    """Wait for the last session, fetch it, and return its output and what the next one goes on from."""
    ref, number = run.sessions[-1].ref, len(run.sessions)
    state = steps.watch(ref)
    output = steps.fetch(ref)
    ending = ending_of(output)
    before = max((session.step for session in run.sessions[:-1]), default=0)
    step = max(newest_step(output), ending.step or 0)
    if state.name == "COMPLETE" and ending.finished:
        run.is_done = True
        steps.say(f"the run is done after {_count(number)}; its output is in {output}")
        return output, ""
    if ending.error:
        raise KernelError(
            f"session {number} ({ref}) failed, and would fail again: {ending.error}. Change the notebook and "
            f"convert it again; delete {FILE} in the converted folder, and the same command begins a new run."
        )
    if step <= before:
        raise KernelError(
            f"session {number} ({ref}) ended as {state.name} without a checkpoint after step {before}"
            f"{': ' + state.failure if state.failure else ''}. `nb2ddp logs {ref}` shows why; save more often "
            "(save_steps) if a session is too short for the steps between two checkpoints."
        )
    run.sessions[-1] = replace(run.sessions[-1], step=step)
    of = f" of {ending.steps}" if ending.steps else ""
    why = f" ({state.failure})" if state.failure else ""
    steps.say(
        f"session {number} ended as {state.name} at step {step}{of}{why}; the next one goes on from there"
    )
    if state.name == "COMPLETE" and ending.stopped:  # Kaggle attaches the output of what is complete
        return output, ref
    return output, f"datasets/{steps.keep(ref, output)}"


def _count(number: int) -> str:
    return f"{number} session{'s' * (number != 1)}"


# ---- sessions.json ----------------------------------------------------------------------------------


def _digest(folder: Path) -> str:
    return hashlib.sha256(bytes_of(folder / SCRIPT)).hexdigest()


def _read(folder: Path) -> Run:
    """Return the run of this folder's script as far as it came; a new one where there is none, or it was done.

    Raises BundleError for a file of another shape, and for a script that was edited since.
    """
    path, digest = folder / FILE, _digest(folder)
    if not path.exists():
        return Run(digest)
    again = f"remove {path} to begin a new run"
    try:
        found = json.loads(bytes_of(path, _MOST_BYTES))
        run = Run(**{**found, "sessions": [Session(**each) for each in found["sessions"]]})
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read ({error}); {again}.") from None
    if run.is_done:
        raise BundleError(f"this run is done, after {_count(len(run.sessions))}; {again}.")
    if run.script != digest:
        raise BundleError(f"{folder / SCRIPT} was edited since the first session; undo that, or {again}.")
    return run


def _write(folder: Path, run: Run) -> None:
    """Replace sessions.json as a whole: whoever stops us leaves the old one or the new one."""
    part = folder / f"{FILE}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(asdict(run), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / FILE)
