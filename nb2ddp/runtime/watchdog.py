"""End a run whose ranks can no longer meet, with a sentence that names the rank and the place."""

import contextlib
import dis
import json
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch.distributed as dist

from nb2ddp.runtime.ending import _exit, _kill_stopped, _process_state
from nb2ddp.runtime.run_state import _GROUP_TIMEOUT, _LONG_PATIENCE, _PATIENCE, _run
from nb2ddp.runtime.script_location import _place, _script_frames
from nb2ddp.runtime.store import _end_of, _second_store

_BEAT = 2.0  # seconds between two reports of the watchdog


class _Watchdog(threading.Thread):
    """Reports where this rank stands, and ends the run when the ranks can no longer meet.

    It looks at the main thread's stack every two seconds, which costs well below 0.1 % of a step, and exchanges
    what it sees with the other ranks through a connection of its own to torchrun's store.
    """

    def __init__(self) -> None:
        super().__init__(name="nb2ddp watchdog", daemon=True)
        self.waits_for: int | None = None
        self.waits_since = 0.0
        self._ended = threading.Event()
        self._connection: Any = None
        self._main = threading.main_thread().ident or 0
        self._launcher = os.getppid()
        self._beats = 0
        self._stack: tuple[Any, ...] = ()
        self._since = time.monotonic()  # when the main thread's stack last changed
        self._heard: dict[int, tuple[int, float]] = {}  # by rank: its last beat, and when it came

    def store(self) -> Any:
        if self._connection is None:
            self._connection = _second_store()
        return self._connection

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(_BEAT):
            try:
                self._watch()
            except (dist.DistNetworkError, dist.DistStoreError):
                self._end_without_launcher()
                return  # torchrun has ended the store: it ends the ranks too
            except Exception:  # a stack that changes while it is read, say: the next look is another one
                continue

    def _end_without_launcher(self) -> None:
        """End this rank where its launcher is gone and its store with it: it would hold its GPU, and nobody knows."""
        for _ in range(50):  # a killed process closes its connections before its children have another parent
            if os.getppid() != self._launcher:
                said = f"nb2ddp: ERROR: rank {_run.rank} ends: torchrun was killed and has left it behind"
                with contextlib.suppress(OSError):
                    print(said, file=sys.__stderr__, flush=True)
                _exit(1)
            time.sleep(0.1)

    def _watch(self) -> None:
        """Tell the other ranks where this one stands, and look at where they stand."""
        own = self.report()
        if self.store().check(["stop"]):
            time.sleep(2)  # the rank that saw it first says why
            _exit(1)
        peers = {rank: self._peer(rank) for rank in range(_run.world_size) if rank != _run.rank}
        known = {rank: peer for rank, peer in peers.items() if peer}
        if sentence := _trouble(own, known):
            self._stop_run(sentence, own, known)

    def report(self) -> dict[str, Any]:
        """Put into the store what the main thread is doing, and return it."""
        own = self._look()
        self.store().set(f"beat {_run.rank}", json.dumps(own))
        return own

    def _look(self) -> dict[str, Any]:
        """Return what the main thread is doing."""
        frame = sys._current_frames().get(self._main)
        stack = tuple(_frames(frame))
        now = time.monotonic()
        if [(f.f_code, f.f_lasti) for f in stack] != list(self._stack):
            self._stack = tuple((f.f_code, f.f_lasti) for f in stack)
            self._since = now
        lines = tuple(f.f_lineno for f in _script_frames(frame))
        still = now - (self._since if self.waits_for is None else self.waits_since)
        self._beats += 1
        error = self._error()
        return {
            "beat": self._beats,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "step": _run.steps,
            "place": _place(frame),
            "lines": lines,
            "kind": "waiting" if self.waits_for is not None else _kind(stack),
            "waits_for": self.waits_for,
            "may_take_long": _run.may_take_long > 0,
            "still": still,
            "error": "" if error is None else type(error).__name__,
            "trace": _trace(error) if still > 1 else "",  # no run is stopped before
        }

    def _error(self) -> BaseException | None:
        """Return the exception that the main thread handles: a ``finally`` may wait for a rank that trains on."""
        error: Any = sys._current_exceptions().get(self._main)
        if isinstance(error, tuple):  # before Python 3.12
            error = error[1]
        return error if isinstance(error, BaseException) else None

    def _peer(self, rank: int) -> dict[str, Any] | None:
        """Return a peer's last report, with how long it is silent; None before its first."""
        if not self.store().check([f"beat {rank}"]):
            return None
        peer: dict[str, Any] = json.loads(self.store().get(f"beat {rank}"))
        now = time.monotonic()
        last, when = self._heard.get(rank, (-1, now))
        if peer["beat"] != last:
            self._heard[rank] = peer["beat"], now
            when = now
        peer["silent"], peer["end"] = now - when, _end_of(rank, self.store())
        return peer

    def _stop_run(self, sentence: str, own: dict[str, Any], peers: Mapping[int, dict[str, Any]]) -> None:
        """Say why, once, and end this rank; torchrun ends the others.

        An exception that some ranks alone handle has parted them: it is shown too.
        """
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        first = self.store().compare_set("stop", "", str(_run.rank))
        if first not in (b"", str(_run.rank).encode()):
            time.sleep(2)  # that rank says why
            _exit(1)
        seen = {**peers, _run.rank: own}
        parted = len({beat["error"] for beat in seen.values()}) > 1
        raised = {rank: beat for rank, beat in sorted(seen.items()) if parted and beat["error"]}
        sentence += "".join(
            f". Before that, rank {rank} raised {beat['error']}" for rank, beat in raised.items()
        )
        traces = "".join(beat["trace"] for beat in raised.values())
        print(f"nb2ddp: ERROR: {sentence}\n{traces}", end="", file=sys.__stderr__, flush=True)
        with contextlib.suppress(BaseException):
            try:
                raise RuntimeError(f"{sentence}\n{traces}".rstrip())  # torchrun's record is to hold all
            except RuntimeError as error:
                get_error_handler().record_exception(error)
        time.sleep(1)
        _kill_stopped(peers.values())
        _exit(1)


def _trace(error: BaseException | None) -> str:
    """Return an exception's traceback, or "": its class may be one that cannot be shown."""
    with contextlib.suppress(Exception):
        return "" if error is None else "".join(traceback.format_exception(error))[-20_000:]
    return ""


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _kind(stack: tuple[FrameType, ...]) -> str:
    """Return what a thread does: in a "collective", in "slow" library code, in the "script" itself, or "other"."""
    for frame in stack[:12]:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if f"torch{os.sep}distributed" in path or name in ("_engine_run_backward", "_pre_forward"):
            return "collective"
    if any(
        _SLOW.search(frame.f_code.co_name) or _SLOW_MODULES.search(str(frame.f_globals.get("__name__")))
        for frame in stack
    ):
        return "slow"
    if stack and stack[0].f_globals.get("__name__") == "__main__":
        return "script" if not _calls(stack[0]) or stack[0].f_lasti < 0 else "script call"
    return "other"


_SLOW = re.compile("save|load_checkpoint|push|upload|download|export|merge|gguf|evaluat|predict|generate")
_SLOW_MODULES = re.compile(
    r"(?:^|\.)(?:datasets|huggingface_hub|safetensors|_inductor|_dynamo|triton|subprocess)(?:\.|$)"
)


def _calls(frame: FrameType) -> bool:
    """Return whether a frame is inside a call that Python does not see, rather than computing itself."""
    code, last = frame.f_code.co_code, frame.f_lasti
    return 0 <= last < len(code) and dis.opname[code[last]].startswith(
        ("CALL", "PRECALL", "LOAD_ATTR", "SEND")
    )


def _trouble(own: dict[str, Any], peers: dict[int, dict[str, Any]]) -> str | None:
    """Return why the ranks can no longer meet, as a sentence; None while they may."""
    blocked = own["still"] if own["kind"] in ("collective", "waiting", "script call", "other") else 0.0
    here = f"rank {_run.rank} (step {own['step']}) waits at {own['place']}"
    for rank, peer in peers.items():
        there = f"rank {rank} (step {peer['step']})"
        awaited = own["kind"] != "waiting" or own["waits_for"] == rank
        if not awaited or peer["end"] == "has finished":
            continue
        if peer["end"] and blocked > 10:
            return f"{there} {peer['end']}, while {here}"
        if peer["silent"] > _silence_allowed(peer) and blocked > 10:
            return f"{there} does not answer since {peer['silent']:.0f} s; it was at {peer['place']}, while {here}"
        if peer["kind"] in ("collective", "waiting"):
            if own["kind"] == "waiting":
                apart = peer["kind"] == "collective" or peer["waits_for"] == _run.rank  # for one another
            else:
                apart = own["kind"] == "collective" and (
                    peer["kind"] == "waiting" or peer["lines"] != own["lines"]
                )
            stuck = apart and min(peer["still"], blocked) > _PATIENCE / 1.5
        elif own["kind"] not in ("collective", "waiting") or peer["may_take_long"]:
            continue
        elif peer["kind"].startswith("script"):  # its lines may change: in a loop that never ends
            stuck = blocked > _PATIENCE
        else:
            long = peer["kind"] == "slow" or own["kind"] == "waiting"
            stuck = blocked > (_GROUP_TIMEOUT.total_seconds() if long else _LONG_PATIENCE)
        if stuck:
            return (
                f"the ranks went different ways: {there} is at {peer['place']}, while {here} since "
                f"{blocked:.0f} s. If it only needs longer, set NB2DDP_PATIENCE to more seconds than {_PATIENCE:.0f}"
            )
    return None


def _silence_allowed(peer: dict[str, Any]) -> float:
    """Return how many seconds a rank may be silent: code that holds Python's lock keeps its watchdog waiting."""
    if peer["host"] != socket.gethostname():
        return 120.0
    try:
        state, _ = _process_state(peer)
    except OSError:
        return 120.0 if sys.platform != "linux" else 5.0
    return {"T": 10.0, "t": 10.0, "Z": 5.0, "X": 5.0}.get(state, 600.0 if state == "R" else 120.0)
