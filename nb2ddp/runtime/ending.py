"""End a rank, after an error and after training, so that no other rank waits for it in vain."""

import atexit
import contextlib
import gc
import io
import logging
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch.distributed as dist

from nb2ddp.runtime.process_signs import _descendants, _stat, _state
from nb2ddp.runtime.replicas import check_replicas
from nb2ddp.runtime.run_state import _LIMIT, _PATIENCE, _run, _warn, is_main_process
from nb2ddp.runtime.script_location import _is_notebooks_own, _place
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.store import _beat_of, _end_of, _heard, _rank_ended, _report_end, _second_store, _waiting

# For the modules that Unsloth compiles: made when there are some, and removed in the end.
_TEMPORARY = os.environ.get("NB2DDP_SCRATCH") or tempfile.gettempdir()
_SCRATCH = os.path.join(_TEMPORARY, f"unsloth_compiled_cache_{secrets.token_hex(16)}")


def _end_on_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show the traceback and end this process, without a teardown: that could wait for the other ranks.

    Where the error is only that another rank has ended, end after that one: torchrun is to see its exit code first.
    An exception that came from another rank is shown by that one; here only where that one has handled it.
    """
    if os.getpid() != _run.pid:  # a process that the script has forked
        sys.__excepthook__(kind, error, trace)
        _exit(1)
    try:
        sys.stderr = sys.__stderr__  # the process group swaps it for a buffer, which would be lost here
        senders = (getattr(of, "__dict__", {}).get("_from_rank") for of in (error, error.__cause__))
        sender = next((rank for rank in senders if rank is not None), _run.rank)
        with contextlib.suppress(BaseException):
            if _second_store().check(["stop"]):
                time.sleep(3)
                return  # the watchdog has said why; this is what comes of it
        frames = [frame for frame, _ in traceback.walk_tb(trace) if _is_notebooks_own(frame)]
        place = _place(frames[-1] if frames else None)
        if sender != _run.rank and _shows_it(sender):
            _wait_until_gone(sender)
            _report_end(f"raised {type(error).__name__}", place)
            return
        error = _who_left(error, place) or error
        end: str = error.__dict__.get("_end_of_rank", "")
        own = _raised_before(error)
        if own:
            sys.__excepthook__(type(error), error, trace)
        if end:
            _wait_until_gone(error.__dict__.get("_ended_rank"))
        _report_end(f"raised {type(error).__name__}", place)
        if end.startswith("raised") and not own:  # the rank that failed first shows its traceback
            print(f"nb2ddp: ERROR: {error}", file=sys.stderr, flush=True)
        elif not own:
            sys.__excepthook__(type(error), error, trace)
        _record(error, trace)
    finally:
        if is_main_process:  # runs what is registered for the script's end, for ten seconds at most
            atexit.unregister(_leave_script)
            threading.Timer(10, _exit, (1,)).start()
            with contextlib.suppress(BaseException):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, if another rank has ended
                atexit._run_exitfuncs()
        _exit(1)


def _record(error: BaseException, trace: TracebackType | None = None) -> None:
    """Record an exception for torchrun's report of the first failure."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    with contextlib.suppress(BaseException):
        try:
            raise error.with_traceback(trace)
        except BaseException:
            error.__traceback__ = trace or error.__traceback__  # without this function's frame
            get_error_handler().record_exception(error)


def _wait_until_gone(rank: int | None) -> None:
    """Wait for the process of a rank that ends, for a minute at most: torchrun is to see its exit code first."""
    time.sleep(3)
    if rank is not None and (beat := _beat_of(rank)) and sys.platform == "linux":
        for _ in range(570):
            if _is_gone(beat):
                return
            time.sleep(0.1)


def _shows_it(sender: int) -> bool:
    """Wait for the rank that an exception came from; return whether it has ended by it, and so shows it.

    Its ``finally`` may take long. It has handled the exception where it ends otherwise, and where its watchdog
    sees it handle none any more or wait for other ranks, or has been stopped.
    """
    with contextlib.suppress(BaseException), _waiting(sender):
        first = _beat_of(sender)["beat"]
        while not (beat := _beat_of(sender))["end"]:
            goes_on = beat["beat"] > first + 1 and (beat["meets"] or not beat["error"])
            if goes_on or min(beat["silent"], time.monotonic() - _run.waits_since) > 20:
                return False
            time.sleep(0.2)
        return bool(beat["end"].startswith("raised"))
    return True  # torchrun's store is gone


def _raised_before(error: BaseException) -> bool:
    """Return whether this rank waited for one that has ended while it handled an exception of its own."""
    waited = "_end_of_rank" in error.__dict__
    while waited and (before := error.__context__) is not None:
        if not before.__dict__.keys() & {"_end_of_rank", "_from_rank"}:
            return True
        error = before
    return False


def _who_left(error: BaseException, place: str) -> RuntimeError | None:
    """Return an error that names the rank that has ended, where this one is only that its connection is closed."""
    with contextlib.suppress(BaseException):
        lost = re.search(r"[Cc]onnection (closed|reset)|Broken pipe", str(error))
        if isinstance(error, RuntimeError) and lost:
            for rank in range(_run.world_size):
                if rank != _run.rank and (end := _end_of(rank)):
                    found = _rank_ended(rank, end, place)
                    found.__context__ = error.__context__
                    return found
    return None


def _exit(code: int) -> None:
    """End this process at once, without the interpreter's teardown; what was written to files is kept."""

    def flush() -> None:
        for thing in gc.get_objects():
            if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
                with contextlib.suppress(BaseException):
                    thing.flush()
        if os.getpid() == _run.pid:
            shutil.rmtree(_SCRATCH, ignore_errors=True)

    flusher = threading.Thread(target=flush, daemon=True)  # the main thread may hold a file's lock
    with contextlib.suppress(BaseException):
        flusher.start()
        flusher.join(2)
        _kill_workers(code)
    os._exit(code)


def _kill_workers(code: int) -> None:
    """Kill daemonic children, such as a DataLoader's workers, which would outlive the run; in a failure, end all."""
    with contextlib.suppress(OSError):
        for child in multiprocessing.active_children():
            if child.daemon:
                child.kill()
        for number, _ in _descendants(os.getpid()) if code else ():
            os.kill(number, signal.SIGTERM)


def _leave_script() -> None:
    """Leave in order at the interpreter's end, after ``sys.exit()`` too."""
    if os.getpid() != _run.pid:
        return
    if _run.world_size > 1:
        _checks.say()
        _report_end("left the script")
        _leave_group()
    if _run.failures:
        why = _run.failures[0].removesuffix(".")
        print(f"nb2ddp: ERROR: {why}. What was saved is rank 0's.", file=sys.stderr, flush=True)
        logging.shutdown()
        _exit(1)


def _leave_group() -> None:
    """Leave the process group, and let gloo's threads drop their last tensors.

    They need the interpreter for that: in its teardown they abort the process, or hang it.
    """
    if _run.watchdog is not None:
        _run.watchdog.stop()
    if dist.distributed_c10d.is_initialized():
        dist.destroy_process_group()
        time.sleep(0.2)


def finish() -> None:
    """Leave the process group and go on with rank 0 alone: nothing below needs another rank.

    What was trained since the last `check_replicas` is compared first. Ranks above 0 end here with exit code 0. On
    several machines the first rank of each waits for rank 0's end, because torchrun ends a run soon after the first
    machine has left it.
    """
    if _run.world_size == 1:
        return
    if _run.meets and _run.of_loops and _run.steps > _run.compared_steps:  # a class keeps a model, say
        check_replicas()
    _checks.say()
    for leave in _run.at_finish:
        leave()
    _leave_group()
    if not is_main_process:
        if _run.machines > 1 and _run.local_rank == 0:
            with contextlib.suppress(dist.DistNetworkError):
                while not _end_of(0):
                    time.sleep(2)
        _report_end("has finished")
        _exit(0)  # no interpreter teardown: if it crashed, torchrun would kill rank 0 while it saves
    if _run.machines > 1:
        atexit.register(_report_end, "has finished")
    else:
        atexit.register(_check_that_all_have_left, _run.world_size)
    _run.world_size = 1


def _check_that_all_have_left(world_size: int) -> None:
    """End with exit code 1 where another rank hangs before it leaves: torchrun would wait for it for ever."""
    with contextlib.suppress(dist.DistNetworkError, dist.DistStoreError):
        first: dict[int, int] = {}  # what a rank has told before: it may have waited for this one
        _heard.clear()  # what is heard from here on counts
        while left := [rank for rank in range(1, world_size) if not _end_of(rank)]:
            beats = [beat for rank in left if (beat := _beat_of(rank))]
            for beat in beats:
                told = beat["beat"] > first.setdefault(beat["rank"], beat["beat"])
                hangs = told and (beat["lifeless"] > _PATIENCE or beat["still"] > _LIMIT)
                if hangs or beat["silent"] > _PATIENCE:
                    where = f"it was at {beat['place']}. What rank 0 has saved is whole."
                    _warn(f"rank {beat['rank']} has not left the training; {where}", "ERROR")
                    logging.shutdown()
                    _kill_stopped(beats)
                    _exit(1)
            time.sleep(0.05)


def _kill_stopped(peers: Iterable[dict[str, Any]]) -> None:
    """Kill ranks of this torchrun that a signal has stopped: they take no SIGTERM, and torchrun waits 30 s for it."""
    for peer in peers:
        with contextlib.suppress(OSError):
            stopped = peer["host"] == socket.gethostname() and _stat(peer["pid"])[:2]
            if stopped == ["T", str(os.getppid())]:
                os.kill(peer["pid"], signal.SIGKILL)


def _is_gone(beat: dict[str, Any]) -> bool:
    """Return whether the process of a rank that has said its end is gone too; its exit code is to be seen first."""
    return beat["host"] != socket.gethostname() or _state(beat["pid"]) in ("", "Z", "X")
