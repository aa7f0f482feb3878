"""End a run that hangs, with a sentence that names the rank and the place; wait for a rank that is only slow."""

import collections
import contextlib
import json
import operator
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Collection, Iterator, Mapping
from types import FrameType
from typing import Any

import torch.distributed as dist

from nb2ddp.runtime.ending import _exit, _is_gone, _kill_stopped, _kill_workers, _record
from nb2ddp.runtime.process_signs import _collectives_of_gpu, _Signs, _stat, _state, _wait_of
from nb2ddp.runtime.run_state import _LIMIT, _PATIENCE, _run
from nb2ddp.runtime.script_location import _frames, _is_notebooks_own, _place
from nb2ddp.runtime.store import _beat_of, _second_store

_BEAT = 2.0  # seconds between two reports of the watchdog
_REPORT_AFTER = _PATIENCE * 4 / 3  # seconds after which a line says who waits for whom
_EXCHANGE = "torch.distributed.distributed_c10d torch.distributed.utils torch.nn.parallel.distributed".split()


class _Watchdog(threading.Thread):
    """Reports where this rank stands, and ends the run when no rank can go on.

    It looks at the main thread's stack every two seconds and tells the other ranks through torchrun's store. A rank
    *moves* when it makes steps, comes to another place, or reads and writes; it *lives* when it computes, sleeps, or
    waits for something outside the run, itself or through its threads and children. Who moves is waited for. A run in
    which nobody lives, but for ranks that wait for others, hangs. A rank whose GPU is in a collective computes, and
    waits.
    """

    def __init__(self) -> None:
        super().__init__(name="nb2ddp watchdog", daemon=True)
        self._ended = threading.Event()
        self._main = threading.main_thread()
        self._launcher = os.getppid()
        self._beats = 0
        self._steps = -1
        self._places: collections.deque[Any] = collections.deque(maxlen=12)  # stacks of the main thread
        self._moved = self._lived = self._looked = time.monotonic()
        self._signs = _Signs()
        self._doing = "computes"
        self._next_line = _REPORT_AFTER
        self._looks_left = 4  # in which a rank that hangs may still say so itself

    def stop(self) -> None:
        self._ended.set()

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._watch_launcher, name="nb2ddp launcher watch", daemon=True).start()

    def run(self) -> None:
        while not self._ended.wait(_BEAT):
            try:
                self._watch()
            except (dist.DistNetworkError, dist.DistStoreError):
                return  # torchrun has ended the store: it ends the ranks too
            except Exception:  # a stack that changes while it is read, say: the next look is another one
                continue

    def _watch_launcher(self) -> None:
        """End this rank where its launcher is gone, or stopped for long: it would keep its GPU, and nobody knows.

        In a thread of its own: calls of a store whose process is stopped do not return.
        """
        since = None
        while not self._ended.wait(_BEAT):
            if os.getppid() != self._launcher:
                self._say(f"rank {_run.rank} ends: torchrun was killed and has left it behind")
                _exit(1)
            stopped = [pid for pid in _launchers(self._launcher) if _state(pid) == "T"]
            since = (since or time.monotonic()) if stopped else None
            if since is not None and time.monotonic() - since > _PATIENCE:
                place = _where(sys._current_frames().get(self._main.ident or 0))
                what = f"torchrun (process {stopped[0]}) has been stopped by a signal; rank {_run.rank} is at {place}"
                if _run.local_rank == 0:
                    self._say(what)
                    _record(RuntimeError(f"the run was ended: {what}"))
                else:
                    time.sleep(3)
                with contextlib.suppress(OSError):
                    os.kill(stopped[0], signal.SIGCONT)  # it is to end the run
                _exit(1)

    def _say(self, sentence: str, kind: str = "ERROR") -> None:
        with contextlib.suppress(OSError, ValueError):
            print(f"nb2ddp: {kind}: {sentence}", file=sys.__stderr__, flush=True)

    def _watch(self) -> None:
        """Tell the other ranks where this one stands, and look at where they stand."""
        own = self.report()
        if _second_store().check(["stop"]):
            _kill_workers(1)
            time.sleep(2)  # the rank that saw it first says why
            _exit(1)
        own.update(silent=0.0, end="")
        of_ranks = [own if rank == _run.rank else _beat_of(rank) for rank in range(_run.world_size)]
        beats = [beat for beat in of_ranks if beat]
        if found := _trouble(own, beats):
            speaker, sentence = found
            answers = speaker["silent"] < 3 * _BEAT and not speaker["end"]
            self._looks_left -= 1
            if speaker is own or not answers or self._looks_left == 0:
                self._stop_run(sentence, beats)
        self._report_waits(beats)

    def report(self) -> dict[str, Any]:
        """Put into the store what the main thread is doing, and return it."""
        own = self._look()
        _second_store().set(f"beat {_run.rank}", json.dumps(own))
        return own

    def _look(self) -> dict[str, Any]:
        """Return what the main thread is doing, since when, and since when this process shows no sign of life."""
        frame = sys._current_frames().get(self._main.ident or 0)
        of_gpu = _collectives_of_gpu()
        waited = [begun for begun, ended in of_gpu if begun > ended]
        called = frame is not None and frame.f_globals.get("__name__") in _EXCHANGE
        spins = (called and _run.cpu_group is not None) or bool(waited)  # NCCL's waits are busy
        stack = *of_gpu, *((id(f.f_code), f.f_lasti) for f in _frames(frame))
        now = time.monotonic()
        if (unwatched := now - self._looked - _BEAT) > _BEAT:  # stopped, or without its share of the CPU
            self._moved, self._lived = self._moved + unwatched, self._lived + unwatched
        self._looked = now
        meets, ends = _run.waits_for is not None or spins or _meets(frame), False
        if stack not in self._places or _run.steps != self._steps or self._signs.work_done():
            self._steps, self._moved, self._lived = _run.steps, now, now
            self._places.append(stack)
            self._signs.woken.clear()
            self._doing = "computes"
        elif _run.waits_for is None:
            lives, ends, self._doing = self._signs.look(meets=meets, spins=spins)
            self._lived = now if lives else self._lived
        self._beats += 1
        still = now - (self._moved if _run.waits_for is None else _run.waits_since)
        # of a `finally` perhaps, which may wait for a rank that trains on; before Python 3.12 a tuple holds it
        error: Any = sys._current_exceptions().get(self._main.ident or 0)
        error = error[1] if isinstance(error, tuple) else error
        return {
            "beat": self._beats,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "rank": _run.rank,
            "who": f"rank {_run.rank} (step {_run.steps})",
            "place": _where(frame) + "".join(f", for collective {begun} of its GPU" for begun in waited),
            "meets": meets,
            "waits_for": _run.waits_for,
            "still": still,
            "lifeless": still if _run.waits_for is not None else 0.0 if ends else now - self._lived,
            "doing": self._doing,
            "error": "" if error is None else type(error).__name__,
            "trace": _trace(error) if still > 1 else "",  # no run is stopped before
        }

    def _report_waits(self, beats: Collection[dict[str, Any]]) -> None:
        """Say who waits for whom, since when, and where: after a minute, and then ever more seldom."""
        left = [beat for beat in beats if not beat["end"]]
        waits = [beat for beat in left if beat["meets"] and beat["silent"] < 10]
        late = [beat for beat in left if beat not in waits]
        longest = max(waits, key=operator.itemgetter("still"), default=None)
        since = 0.0
        if late:
            since = longest["still"] if longest else min(beat["still"] for beat in left)
        if since < _REPORT_AFTER:
            self._next_line = _REPORT_AFTER
        elif since > self._next_line and _run.rank == min(b["rank"] for b in left if b["silent"] < 10):
            self._next_line = 2 * since
            beat = max(late, key=operator.itemgetter("still"))
            who, does = beat["who"], beat["doing"]
            if longest:
                who = f"{longest['who']} waits at {longest['place']} since {since:.0f} s for {who}, which"
            if beat["silent"] > 10:
                does = f"does not answer since {beat['silent']:.0f} s, in native code perhaps; last seen"
            self._say(
                f"{who} {does} at {beat['place']}, there since {beat['still'] + beat['silent']:.0f} s. The run "
                f"goes on when it does; it ends when that rank is still there after {_LIMIT:.0f} s "
                f"({_LIMIT / _PATIENCE:.0f} times NB2DDP_PATIENCE)",
                "WAITING",
            )

    def _stop_run(self, sentence: str, beats: Collection[dict[str, Any]]) -> None:
        """Say why, once, and end this rank; torchrun ends the others.

        An exception that some ranks alone handle has parted them: it is shown too.
        """
        if _second_store().compare_set("stop", "", str(_run.rank)) not in (b"", str(_run.rank).encode()):
            time.sleep(2)  # that rank says why
            _exit(1)
        parted = len({beat["error"] for beat in beats}) > 1
        raised = [beat for beat in beats if parted and beat["error"]]
        sentence += "".join(f". Before that, rank {b['rank']} raised {b['error']}" for b in raised)
        sentence = f"{sentence}\n{''.join(beat['trace'] for beat in raised)}".rstrip()
        self._say(sentence)
        _record(RuntimeError(f"the run was ended: {sentence}"))  # torchrun's record is to hold all
        time.sleep(1)
        _kill_stopped(beats)
        _exit(1)


def _trace(error: BaseException | None) -> str:
    """Return an exception's traceback, or "": its class may be one that cannot be shown."""
    with contextlib.suppress(Exception):
        return "" if error is None else "".join(traceback.format_exception(error))[-20_000:]
    return ""


def _meets(frame: FrameType | None) -> bool:
    """Return whether a thread is where PyTorch, or a function of this file, waits for other ranks."""
    for f in _frames(frame):
        module = f.f_globals.get("__name__", "")
        if f.f_globals is globals() or module.startswith(
            ("torch.distributed", "torch.nn.parallel.distributed", "torch.autograd.graph")
        ):
            return True
        if module.partition(".")[0] not in ("torch", "contextlib", "functools"):
            return False
    return False


def _where(frame: FrameType | None) -> str:
    """Return the notebook's line, its function or callback, and the library's function that it has called."""
    place = _place(frame)
    below = [f for f in _frames(frame) if f.f_globals is not globals()]
    for number, f in enumerate(below):
        name = getattr(f.f_code, "co_qualname", f.f_code.co_name)
        if _is_notebooks_own(f):
            return place if name == "<module>" else f"{place}, in {name}()"
        if f.f_globals.get("__name__", "").partition(".")[0] not in {*sys.stdlib_module_names, "torch"}:
            called = f"{name}() ({os.path.basename(f.f_code.co_filename)}, line {f.f_lineno})"
            own = any(_is_notebooks_own(above) for above in below[number:])
            return f"{place}, in {called}" if own else place
    return place


def _trouble(own: dict[str, Any], beats: Collection[dict[str, Any]]) -> tuple[dict[str, Any], str] | None:
    """Return which rank is to say that the ranks can no longer meet, and why; None while they may."""
    waits = f"{own['who']} waits at {own['place']}"
    left = [beat for beat in beats if beat["end"] != "has finished"]
    for beat in left:
        if beat is own or own["waits_for"] not in (None, beat["rank"]) or own["still"] < 10:
            continue
        if beat["end"] and own["meets"] and (_is_gone(beat) or own["still"] > _PATIENCE):
            return beat, f"{beat['who']} {beat['end']}, while {waits}"
        if beat["silent"] > _silence_allowed(beat):
            silent = f"does not answer since {beat['silent']:.0f} s; it was at {beat['place']}"
            return beat, f"{beat['who']} {silent}, while {waits}"
    if len(beats) < _run.world_size or any(b["end"] or b["silent"] > 10 for b in left):
        return None
    more = f". If it only needs longer, set NB2DDP_PATIENCE to more seconds than {_PATIENCE:.0f}"
    hangs = [beat for beat in left if not beat["meets"] and beat["lifeless"] > _PATIENCE]
    late = [beat for beat in left if not beat["meets"] and beat["still"] > _LIMIT]
    if (hangs or late) and all(beat["still"] > _PATIENCE for beat in left):
        beat = max(hangs or late, key=operator.itemgetter("lifeless" if hangs else "still"))
        others = "".join(f"; {_stands(other)}" for other in beats if other is not beat)
        why = ", and nothing in its processes goes on" if hangs else ": perhaps an endless loop"
        return beat, f"{_stands(beat)} since {beat['still']:.0f} s; it {beat['doing']}{why}{others}{more}"
    if all(beat["meets"] and beat["lifeless"] > _PATIENCE / 1.5 for beat in left):
        others = "; ".join(_stands(other) for other in beats if other is not own)
        since = min(beat["still"] for beat in left)
        parted = len({beat["place"] for beat in left}) > 1
        what = "the ranks went different ways" if parted else "the ranks wait for one another in vain"
        return own, f"{what}: {others}, while {waits} since {since:.0f} s{more}"
    return None


def _stands(beat: Mapping[str, Any]) -> str:
    return f"{beat['who']} {beat['end'] or ('waits' if beat['meets'] else 'is') + ' at ' + beat['place']}"


def _silence_allowed(beat: dict[str, Any]) -> float:
    """Return how many seconds a rank may be silent: code that holds Python's lock keeps its watchdog waiting."""
    if beat["host"] != socket.gethostname() or sys.platform != "linux":
        return max(120.0, _PATIENCE)
    with contextlib.suppress(OSError):
        return _LIMIT if _wait_of(beat["pid"], beat["pid"]).goes_on else _PATIENCE
    return 5.0


def _launchers(parent: int) -> Iterator[int]:
    """Yield the processes that run this rank: torchrun, and the guard of ``nb2ddp run`` between."""
    yield parent
    if "/" in os.environ.get("NB2DDP_RUN_ID", ""):
        with contextlib.suppress(OSError):
            yield int(_stat(parent)[1])
