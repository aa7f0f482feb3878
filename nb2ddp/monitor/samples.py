"""What each rank uses of the machine at one moment, and which rank the others wait for.

In DDP all ranks step together: the fast ones wait in the all-reduce for the slow one. What a waiting rank
looks like from outside:

- On GPUs (NCCL) it runs a kernel that polls. The driver counts that as 100 % utilisation, and the host thread
  spins at 100 % CPU, so neither tells a rank that works from one that waits. But polling draws little power.
  So the slow rank is one whose GPU is held back by heat or by the hardware; or *idles* while the others' are
  "busy" (its host, its data, does not keep up); or draws clearly more power (it has more to compute); or has
  a lower clock. The signs are looked for in this order: of an idle GPU and one that polls, the latter draws
  more power, and a GPU at its power limit has a lower clock because it computes.
- On CPUs (gloo) it sleeps. The slow rank is the one that uses clearly more CPU time.

What this cannot show: a rank that is slow in a few steps only, or by less than the thresholds below; on CPUs,
one that itself sleeps, waiting for a disk or the network; a slow link between the ranks, which keeps all of
them waiting. Power and clocks are comparable only between GPUs of one kind.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import psutil

from nb2ddp.monitor.nvml import Load, Reader

Sign = Literal["held back", "low clock", "idle", "power", "computes"]

_CLOCK_SHARE = 0.9  # of the others' clock
_IDLE_POINTS = 20.0  # of utilisation, below the others
_POWER_SHARE, _POWER_OF_LIMIT = 1.2, 0.1  # of the others' power, and of the limit above it
_CPU_SHARE, _CPU_POINTS = 1.5, 20.0  # of the others' CPU time, and percent of a core above it


@dataclass(frozen=True)
class Sample:
    """One rank now: its script and all processes that this has started.

    cpu: CPU time since the last sample, in percent of one core. None at first.
    rss: resident memory in bytes; what processes share is counted in each.
    swapped: bytes of the script's own memory that are swapped out.
    starved: percent of the time in which the script was ready to run and no core was free; None if not known.
    gpu: the rank's GPU, with all that runs on it.
    """

    rank: int
    cpu: float | None
    rss: int
    swapped: int = 0
    starved: float | None = None
    gpu: Load | None = None


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for at one moment, by which sign, and the figures."""

    rank: int
    sign: Sign
    why: str


def straggler(samples: Sequence[Sample]) -> Straggler | None:
    """Return the rank that the others wait for; None when no rank stands out, or there is one rank only."""
    if len(samples) < 2:
        return None
    have_gpu = [sample.gpu is not None for sample in samples]
    if any(have_gpu) != all(have_gpu):
        return None
    looks = (_held_back, _idle, _power, _low_clock) if all(have_gpu) else (_by_cpu,)
    return next(filter(None, (look(samples) for look in looks)), None)


def _held_back(samples: Sequence[Sample]) -> Straggler | None:
    slowed = [sample for sample in samples if sample.gpu and sample.gpu.slowdowns]
    if len(slowed) != 1 or slowed[0].gpu is None:
        return None
    words = ", ".join(slowed[0].gpu.slowdowns)
    return Straggler(slowed[0].rank, "held back", f"its GPU is held back: {words}")


def _idle(samples: Sequence[Sample]) -> Straggler | None:
    rank, percent, others = _lowest({s.rank: s.gpu.percent for s in samples if s.gpu})
    if percent > others - _IDLE_POINTS:
        return None
    why = f"its GPU is {percent:.0f} % busy, the others' {others:.0f} %: its host does not keep up"
    host = next(sample for sample in samples if sample.rank == rank)
    if host.starved is not None and host.starved >= _IDLE_POINTS:
        why += f"; for {host.starved:.0f} % of the time no CPU core was free for it"
    if host.swapped:
        why += f"; {host.swapped / 2**20:.0f} MiB of its memory are swapped out"
    return Straggler(rank, "idle", why)


def _power(samples: Sequence[Sample]) -> Straggler | None:
    limits = [sample.gpu.power_limit for sample in samples if sample.gpu and sample.gpu.power_limit]
    rank, power, others = _highest({s.rank: s.gpu.power or None for s in samples if s.gpu})
    if power < max(_POWER_SHARE * others, others + _POWER_OF_LIMIT * max(limits, default=0.0)):
        return None
    return Straggler(rank, "power", f"its GPU draws {power:.0f} W, the others' {others:.0f}")


def _low_clock(samples: Sequence[Sample]) -> Straggler | None:
    rank, clock, others = _lowest({s.rank: s.gpu.clock or None for s in samples if s.gpu})
    if clock >= _CLOCK_SHARE * others:
        return None
    return Straggler(rank, "low clock", f"its GPU runs at {clock:.0f} MHz, the others' at {others:.0f}")


def _by_cpu(samples: Sequence[Sample]) -> Straggler | None:
    """Find the rank that computes. On a busy machine it waits for a core as well: both are time it needs."""
    rank, percent, others = _highest(
        {s.rank: None if s.cpu is None else s.cpu + (s.starved or 0.0) for s in samples}
    )
    if percent < max(_CPU_SHARE * others, others + _CPU_POINTS):
        return None
    why = f"it takes {percent:.0f} % of a core, the others {others:.0f} %"
    starved = next(sample.starved for sample in samples if sample.rank == rank)
    if starved is not None and starved >= _CPU_POINTS:
        why += f"; for {starved:.0f} % of the time no core was free for it"
    return Straggler(rank, "computes", why)


def _highest(values: Mapping[int, float | None]) -> tuple[int, float, float]:
    """Return the rank with the highest value, the value, and the median of the others'.

    Where a value is not known, nobody's is the highest.
    """
    known = {rank: value for rank, value in values.items() if value is not None}
    if len(known) < len(values):
        return -1, -math.inf, 0.0
    rank = max(known, key=lambda rank: known[rank])
    return rank, known[rank], median(value for other, value in known.items() if other != rank)


def _lowest(values: Mapping[int, float | None]) -> tuple[int, float, float]:
    rank, value, others = _highest({rank: value and -value for rank, value in values.items()})
    return rank, -value, -others


class Sampler:
    """Read the load of the ranks' processes (psutil) and GPUs (NVML)."""

    def __init__(self, reader: Reader | None) -> None:
        """``reader``: None: GPUs are left out."""
        self.reader = reader
        self._before: dict[psutil.Process, float] = {}  # CPU seconds
        self._waited: dict[psutil.Process, float] = {}  # seconds ready to run, without a core
        self._at = time.monotonic()

    def sample(self, guards: Mapping[int, tuple[int, int]]) -> list[Sample]:
        """Return a sample for each rank. ``guards``: local rank and id of the script's parent, by rank.

        Takes milliseconds, more on a machine with thousands of processes.

        Raises:
            MonitorError: the GPUs cannot be read any more.
        """
        loads = self.reader.loads() if self.reader is not None else []
        now = time.monotonic()
        seconds, self._at = now - self._at, now
        before, self._before = self._before, {}
        waited, self._waited = self._waited, {}
        samples = []
        for rank, (local_rank, guard) in sorted(guards.items()):
            cpu, rss, starved, swapped = 0.0, 0, None, 0
            known = False
            below = _descendants(guard)
            for process in below:
                with contextlib.suppress(psutil.Error), process.oneshot():
                    times, rss = process.cpu_times(), rss + process.memory_info().rss
                    self._before[process] = times.user + times.system
                    cpu += self._before[process] - before.get(process, 0.0)
                    known = known or process in before
            for script in below[:1]:
                swapped, wait = _of_linux(script.pid)
                if wait is not None:
                    self._waited[script] = wait
                    if script in waited:
                        starved = 100 * (wait - waited[script]) / seconds
            share = 100 * cpu / seconds if known else None
            gpu = loads[local_rank] if local_rank < len(loads) else None
            samples.append(Sample(rank, share, rss, swapped, starved, gpu))
        return samples


def _descendants(pid: int) -> list[psutil.Process]:
    """Return the processes below one, its own children first."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).children(recursive=True)
    return found


def _of_linux(pid: int) -> tuple[int, float | None]:
    """Return a process's bytes in swap, and the seconds that its main thread was ready to run without a core.

    0 and None where the kernel does not tell. The second number of /proc/<pid>/schedstat is "time spent
    waiting on a runqueue" in nanoseconds (Documentation/scheduler/sched-stats.rst).
    """
    folder, swapped, waited = Path("/proc", str(pid)), 0, None
    with contextlib.suppress(OSError, LookupError, ValueError):
        waited = int((folder / "schedstat").read_text().split()[1]) / 1e9
    with contextlib.suppress(OSError, LookupError, ValueError):
        status = (folder / "status").read_text()
        swapped = int(status.partition("VmSwap:")[2].split()[0]) * 1024
    return swapped, waited
