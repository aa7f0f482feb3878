"""Find out from /proc whether a process can still go on: it computes, sleeps, or waits for something outside it."""

import contextlib
import json
import multiprocessing
import os
import platform
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch

from nb2ddp.runtime.script_location import _script_frames

# Linux's system calls in which a thread waits: what it does then, which argument bounds the wait (-1: none), and the
# numbers on x86-64 and on 64-bit ARM.
_WAITS: tuple[tuple[str, int, set[int], set[int]], ...] = (
    ("sleeps", -1, {35, 230}, {101, 115}),
    ("waits for a lock", 3, {202, 449}, {98, 449}),
    ("poll", 2, {7, 271}, {73}),
    ("epoll", 3, {232, 281}, {22}),
    ("file", -1, {0, 1, 19, 20, 43, 44, 45, 46, 47, 288}, {63, 64, 65, 66, 202, 206, 207, 211, 212, 242}),
    ("waits for a process that it has started", -1, {61, 247}, {95, 260}),
    ("waits for the lock of a file", -1, {72, 73}, {25, 32}),
    ("waits for a signal", -1, {34, 130}, {133}),
    ("waits for a signal", 2, {128}, {137}),
)
_CALLS = {
    number: (what, bound)
    for what, bound, *of_machines in _WAITS
    for machine, numbers in zip(("x86_64", "aarch64"), of_machines, strict=True)
    if machine == platform.machine()
    for number in numbers
}
_STATES = {
    "T": "has been stopped by a signal",
    "t": "is held by a debugger",
    "D": "reads or writes a disk",
    "Z": "has ended",
    "X": "has ended",
}
_ENDLESS = (0, 2**32 - 1, 2**64 - 1)  # no timeout
_FAR, _NEAR = "waits for the network, a person or a device", "waits for a server on this machine"
_LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
_BUSY = 0.02  # share of a CPU: who uses less waits


class _Wait(NamedTuple):
    """What a thread does. ``goes_on``: by itself; ``bounded``: only because a timeout ends the wait."""

    what: str
    goes_on: bool
    bounded: bool = False


def _wait_of(pid: int, thread: int) -> _Wait:
    """Return what a thread does.

    Raises:
        OSError: it has ended, or this is not Linux.
    """
    state, *_ = _stat(f"{pid}/task/{thread}")
    if state != "S":
        return _Wait(_STATES.get(state, "computes"), state not in "TZX")
    try:
        number, *given = _proc(f"{pid}/task/{thread}/syscall").split()
        what, bound = _CALLS[int(number)]
    except (OSError, ValueError, KeyError):
        # "running", a call that seldom waits, or one that may not be seen
        return _Wait("waits for something outside", True)
    values = [int(value, 16) for value in given]
    goes_on = bounded = bound > 0 and values[bound] not in _ENDLESS
    if what == "waits for the lock of a file":
        goes_on = not _has_locked(pid, values[0])
    elif what == "waits for a signal":
        goes_on = bounded or (pid == os.getpid() and signal.getitimer(signal.ITIMER_REAL)[0] > 0)
    elif what in ("poll", "epoll", "file"):
        outside = {_outside(pid, number) for number in _waited_files(pid, what, values)}
        if outside & {_FAR, _NEAR}:
            return _Wait(_FAR if _FAR in outside else _NEAR, True)
        what = "waits for another process or thread"
    return _Wait(what, goes_on or what == "sleeps", bounded)


def _proc(path: str) -> str:
    """Return what stands in a file below /proc."""
    with open(f"/proc/{path}", encoding="ascii", errors="replace") as file:
        return file.read()


def _stat(process: int | str) -> list[str]:
    """Return the fields of a process's or a thread's ``stat`` file, from the state on."""
    return _proc(f"{process}/stat").rpartition(")")[2].split()


def _state(pid: int) -> str:
    """Return a process's state: T (stopped), t (held by a debugger), Z ...; "" for one that is gone."""
    with contextlib.suppress(OSError):
        return _stat(pid)[0]
    return "" if sys.platform == "linux" else "S"


def _waited_files(pid: int, kind: str, values: list[int]) -> Iterator[int]:
    """Yield the file descriptors that a thread waits for."""
    if kind == "file":
        yield values[0]
    elif kind == "epoll":
        yield from map(int, re.findall(r"^tfd:\s*(\d+)", _proc(f"{pid}/fdinfo/{values[0]}"), re.MULTILINE))
    else:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(values[0])
            polled = memory.read(8 * min(values[1], 1024))
        yield from (number for number, _, _ in struct.iter_unpack("ihh", polled))


def _outside(pid: int, number: int) -> str:
    """Return what a descriptor leads to outside this run: a person, a device, a server; "" for its own processes.

    Nobody sits at a standard input that is a pipe; whoever reads the output through one may be slow.
    """
    try:
        target = os.readlink(f"/proc/{pid}/fd/{number}")
        outputs = {os.readlink(f"/proc/self/fd/{own}") for own in (1, 2)}
        if target in outputs or not target.startswith(("pipe:", "anon_inode:", "socket:")):
            return _FAR
        inode = target.partition("[")[2].rstrip("]")
        for table in ("tcp", "tcp6", "udp", "udp6") if target.startswith("socket:") else ():
            for row in map(str.split, _proc(f"{pid}/net/{table}").splitlines()):
                if row[9] == inode and row[3] != "0A":  # 0A: it listens, as servers do
                    if not row[2].startswith(_LOOPBACK):
                        return _FAR
                    return "" if table.startswith("tcp") and _is_served_here(pid, row) else _NEAR
    except OSError:
        return _FAR
    return ""


def _is_served_here(pid: int, row: list[str]) -> bool:
    """Return whether the other end of a connection on this machine is this process's, or one's below it.

    ``row``: its line of /proc/net/tcp. An address ends alike whether it is written for IPv4 or for IPv6. Who has not
    accepted yet only listens.
    """
    ends, found, listen = (row[2][-13:], row[1][-13:]), [], []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in _proc(f"{pid}/net/{table}").splitlines()]
        found += [other[9] for other in rows if (other[1][-13:], other[2][-13:]) == ends and other[9] != "0"]
        listen += [other[9] for other in rows if other[3] == "0A" and other[1][-5:] == row[2][-5:]]
    return any(_holds(f"socket:[{inode}]") for inode in found or listen)


def _holds(target: str) -> bool:
    """Return whether this process, or one below it, has a file open."""
    for process in (os.getpid(), *dict(_descendants(os.getpid()))):
        with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as files:
            if any(os.path.realpath(file.path).endswith(target) for file in files):
                return True
    return False


def _has_locked(pid: int, number: int) -> bool:
    """Return whether this process and those below it alone hold the lock of a file that a process waits for."""
    inode, own = os.stat(f"/proc/{pid}/fd/{number}").st_ino, {os.getpid(), *dict(_descendants(os.getpid()))}
    locks = _proc("locks").splitlines()
    held = [line.split() for line in locks if f":{inode} " in line and "->" not in line]
    return bool(held) and all(int(lock[4]) in own for lock in held)


class _Signs:
    """The signs of life of this process: CPU time, what its threads wait for, and both of the processes below it."""

    def __init__(self) -> None:
        self._main = os.getpid()  # the main thread's number too
        self.woken: dict[tuple[int, int], int] = {}  # by thread: how often, when it was first seen
        self._used = 0.0
        self._of_children: dict[int, int] = {}
        self._looked = time.monotonic()
        self._files = self._memory = 0

    def work_done(self) -> bool:
        """Return whether a megabyte was read or written since the last time, or 16 MB of memory were taken or freed."""
        files = memory = 0
        with contextlib.suppress(OSError):
            files = _io(f"self/task/{self._main}")["rchar"] + _io("self")["wchar"]
            memory = int(_proc("self/statm").split()[1]) * 4096
        done = files - self._files > 2**20 or abs(memory - self._memory) > 2**24
        if done:
            self._files, self._memory = files, memory
        return done

    def look(self, *, meets: bool, spins: bool) -> tuple[bool, bool, str]:
        """Return whether this process can go on without another rank, and what its main thread does.

        ``meets``: it waits for other ranks, so only its CPU time counts; with ``spins``, for a GPU, not even that. The
        second value: only a timeout will let it go on; where the wait begins again after it, nothing had come.
        """
        now, used = time.monotonic(), time.process_time() - time.thread_time()
        since, self._looked = max(now - self._looked, 0.01), now
        busy, self._used = used - self._used > _BUSY * since, used
        try:
            wait = _wait_of(self._main, self._main)
        except OSError:
            return True, False, "computes"  # not Linux: nothing more is known
        if busy or meets:
            lives = not spins and (busy or wait.what == "computes")
            return lives, False, wait.what if meets else "computes"
        seen, frames = [self._judged(self._main, self._main, serves=False)], sys._current_frames()
        for thread in threading.enumerate():
            number = thread.native_id or self._main
            if number != self._main and not thread.name.startswith("nb2ddp "):
                own = next(_script_frames(frames.get(thread.ident or 0)), None)  # the notebook's own code
                with contextlib.suppress(OSError):
                    seen.append(self._judged(self._main, number, serves=thread.daemon and not own))
        what = self._children(wait, since, seen)
        bounded = [found.bounded for found in seen if found.goes_on]
        return not all(bounded), bool(bounded), what

    def _judged(self, pid: int, thread: int, *, serves: bool) -> _Wait:
        """Return a thread's wait; it does not go on where its timeout has ended several times for nothing.

        ``serves``: a thread of a library, in the background; its repeated sleeps and its servers do not count.
        """
        wait = _wait_of(pid, thread)
        status = _proc(f"{pid}/task/{thread}/status")
        woken = int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
        renewed = woken - self.woken.setdefault((pid, thread), woken) > 1
        idles = serves and (wait.what == _NEAR or (renewed and wait.what != _FAR))
        return wait._replace(goes_on=wait.goes_on and not idles and not (renewed and wait.bounded))

    def _children(self, wait: _Wait, since: float, seen: list[_Wait]) -> str:
        """Add what the processes below this one do, as far as it waits for them; return what the main thread does."""
        workers = {child.pid for child in list(multiprocessing.process._children)}  # type: ignore[attr-defined]
        before, self._of_children, what = self._of_children, {}, wait.what
        for child, above in _descendants(self._main):
            serves = wait.what == "waits for a lock" and not workers & {child, *above}
            with contextlib.suppress(OSError):
                stat = _stat(child)
                self._of_children[child] = cpu = int(stat[11]) + int(stat[12])
                if cpu - before.get(child, cpu) > _BUSY * since * os.sysconf("SC_CLK_TCK"):
                    seen.append(_Wait("computes", True))
                for thread in map(int, os.listdir(f"/proc/{child}/task")):
                    seen.append(found := self._judged(child, thread, serves=serves or thread != child))
                    if thread == child and child in workers:
                        what = f"waits for its process {child}, which {found.what}"
        return what


def _descendants(pid: int) -> Iterator[tuple[int, set[int]]]:
    """Yield the processes below one, each with those between."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(_stat(name)[1])
    for child in parents:
        above, at = set(), parents[child]
        while at not in (0, pid) and at not in above:
            above.add(at)
            at = parents.get(at, 0)
        if at == pid:
            yield child, above


def _io(process: str) -> dict[str, int]:
    lines = _proc(f"{process}/io").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def _collectives_of_gpu() -> list[tuple[int, int]]:
    """Return which collectives this rank's GPU has begun and ended last, of each group; see init()'s environment."""
    with contextlib.suppress(Exception):
        state = json.loads(torch._C._distributed_c10d._dump_nccl_trace_json(False, False))["pg_status"]
        begun, ended = "last_started_collective", "last_completed_collective"
        return [(int(group[begun]), int(group[ended])) for group in state.values()]
    return []
