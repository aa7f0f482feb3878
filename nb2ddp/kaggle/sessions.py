"""A run that is longer than a session of Kaggle: one kernel after the other, each from the last checkpoint.

What was pushed stands in ``sessions.json`` in the converted folder, and is written before each push and after
it: the command may be stopped and started again at any time, and no session is pushed twice.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import BundleError, KernelError
from nb2ddp.kaggle import datasets
from nb2ddp.kaggle.bundle import Bundle, Wishes
from nb2ddp.kaggle.client import Client, Pushed
from nb2ddp.kaggle.fetch import fetch, output_of
from nb2ddp.kaggle.own_folder import digest_of
from nb2ddp.kaggle.run_summary import ending_of, newest_checkpoint, step_of
from nb2ddp.kaggle.watch import watch
from nb2ddp.regular_files import bytes_of

FILE = "sessions.json"

_MOST_BYTES = 1_000_000

Make = Callable[[Wishes, int], Bundle]
"""Gives the bundle of the n-th session."""
Send = Callable[[Bundle, Wishes], Pushed]
Say = Callable[[str], None]


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


def run_all(
    client: Client, folder: Path, wishes: Wishes, most: float, make: Make, send: Send, say: Say
) -> Path:
    """Push sessions until the run is done, and return the folder with the output of the last one.

    Raises:
        KernelError: a session failed by itself, made no progress, or was the last one allowed.
        KaggleError: Kaggle or the way to it failed; the same command goes on.
        BundleError: the script was edited since the first session.
    """
    run = _read(folder)
    while True:
        if run.sessions and run.sessions[-1].is_pushed:
            output, resume_from = _ended(client, run, say)
            _write(folder, run)
            if run.is_done:
                return output
            if len(run.sessions) >= most:
                raise KernelError(
                    f"the run is not done after {_count(len(run.sessions))} (step {run.sessions[-1].step}): the same "
                    "command with a larger --sessions, or auto, goes on."
                )
            wishes = replace(wishes, resume_from=resume_from)
        # an earlier call may have pushed the next session, and been stopped before it heard so
        begun = run.sessions.pop() if run.sessions and not run.sessions[-1].is_pushed else None
        if begun is not None and client.version(begun.ref) != begun.before:
            say(f"{begun.ref} was pushed before this command was stopped")
            run.sessions.append(replace(begun, is_pushed=True))
        else:
            if begun is not None:
                wishes = replace(wishes, resume_from=begun.resume_from)
            made = make(wishes, len(run.sessions) + 1)
            next_one = Session(made.ref, client.version(made.ref), resume_from=wishes.resume_from)
            run.sessions.append(next_one)
            _write(folder, run)
            pushed = send(made, wishes)
            run.sessions[-1] = replace(next_one, ref=pushed.ref, is_pushed=True)
        _write(folder, run)


def _ended(client: Client, run: Run, say: Say) -> tuple[Path, str]:
    """Wait for the last session, fetch it, and return its output and what the next one goes on from."""
    ref, number = run.sessions[-1].ref, len(run.sessions)
    state, output = watch(client, ref), output_of(ref)
    fetch(client, ref, output, say)
    ending, newest = ending_of(output), newest_checkpoint(output)
    before = max((session.step for session in run.sessions[:-1]), default=0)
    step = max(step_of(newest) if newest else 0, ending.step or 0)
    if state.name == "COMPLETE" and ending.finished:
        run.is_done = True
        say(f"the run is done after {_count(number)}; its output is in {output}")
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
    say(f"session {number} ended as {state.name} at step {step}{of}{why}; the next one goes on from there")
    if state.name == "COMPLETE" and ending.stopped:  # Kaggle attaches the output of what is complete
        return output, ref
    assert newest is not None  # only what was stopped in time, and is complete, tells a step without one
    owner, _, slug = ref.partition("/")
    name = newest.relative_to(output).as_posix()
    return output, f"datasets/{datasets.upload(client, owner, f'{slug}-{newest.name}', output, [name], say)}"


def _count(number: int) -> str:
    return f"{number} session{'s' * (number != 1)}"


# ---- sessions.json ----------------------------------------------------------------------------------


def _read(folder: Path) -> Run:
    """Return the run of this folder's script as far as it came; a new one where there is none, or it was done.

    Raises BundleError for a file of another shape, and for a script that was edited since.
    """
    path, digest = folder / FILE, digest_of(folder / SCRIPT)
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
