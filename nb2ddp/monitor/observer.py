"""Monitor a run from the launcher: memory and load of each rank, speed, stragglers.

Nothing here reaches into the script. `Monitor` is an observer of `nb2ddp.launch.run.launch`: it listens to
rank 0's output on its way to the screen (`nb2ddp.monitor.console`), and looks at the ranks' processes and
GPUs once a second (`nb2ddp.monitor.samples`), in threads of its own. If one of these fails, the run goes on,
and the summary says why.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

from nb2ddp.errors import MonitorError
from nb2ddp.monitor.console import Lines, Relay
from nb2ddp.monitor.listener import Listener
from nb2ddp.monitor.nvml import Reader
from nb2ddp.monitor.recording import PLOT, Moment, of_rank, record, row_of
from nb2ddp.monitor.samples import Sample, Sampler, Sign, straggler
from nb2ddp.monitor.terminal import Display, Row, Summary, print_summary
from nb2ddp.waiting import clock

_EVERY_SECONDS = 1.0
_MOST_MOMENTS = 3600  # then every other one is dropped, and there are half as many from then on
_FEW = 3  # samples, too few for a judgement
_RECENT_SECONDS = 30.0
_SLOW_SHARE = 0.3  # of the training, for a sentence of its own

_SIGNS: dict[Sign, str] = {
    "held back": "its GPU is held back by heat or by the hardware",
    "low clock": "its GPU runs at a lower clock",
    "idle": "its GPU is idle at times while the others' wait: its host or its data do not keep up",
    "power": "its GPU draws more power: it has more to compute",
    "computes": "it uses CPU time while the others wait",
}


class Pace:
    """Steps per second, from (seconds, step) as they are noted."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, int]] = deque()  # the first, and the recent ones
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] | None = None

    def note(self, seconds: float, step: int) -> None:
        if self.last is not None and step < self.last[1]:  # that was another bar, or the run starts again
            self.first = self.last = None
            self._known.clear()
        if self.last is None or step > self.last[1]:
            self.last = (seconds, step)
            self.first = self.first or self.last
            self._known.append(self.last)
        while len(self._known) > 2 and self._known[0][0] < seconds - _RECENT_SECONDS:
            self._known.popleft()

    @property
    def overall(self) -> float | None:
        """Steps per second from the first step seen to the last."""
        return _rate(self.first, self.last)

    @property
    def recent(self) -> float | None:
        """The same for the last half minute."""
        return _rate(self._known[0], self._known[-1]) if self._known else None


def _rate(first: tuple[float, int] | None, last: tuple[float, int] | None) -> float | None:
    if first is None or last is None or last[0] <= first[0]:
        return None
    return (last[1] - first[1]) / (last[0] - first[0])


class Monitor(Listener):
    """Show a run live if there is a terminal; at its end a summary on stderr, and a plot.

    What the threads know is in attributes, each of which one of them writes.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._over = threading.Event()
        self._pace = Pace()
        self._losses: list[tuple[float, float]] = []  # by seconds
        self._moments: list[Moment] = []
        self._peaks: dict[int, tuple[int, int]] = {}  # of each rank: GPU memory, resident memory
        self._notes: list[str] = []
        self._lines = Lines()
        self._logs = Path()
        self._cpu = False
        self._display: Display | None = None
        self._sampler: threading.Thread | None = None
        self._deaf = False

    # What launch() tells us, on its own thread.

    def begin(self, logs: Path, *, cpu: bool, stopped: Callable[[], bool]) -> tuple[int, int]:
        self._logs, self._cpu = logs, cpu
        self._started = time.monotonic()
        terminals = [fd for fd in (1, 2) if os.isatty(fd)] if os.environ.get("TERM") != "dumb" else []
        with self._noting("the summary of an earlier run is still there"):
            (logs / PLOT).unlink(missing_ok=True)
        self._sampler = threading.Thread(target=self._watch, name="nb2ddp-monitor", daemon=True)
        self._sampler.start()
        try:
            self._relay = Relay(self._hear, self._tick, stopped, terminals)
        except OSError as error:
            self._notes.append(f"rank 0's output could not be followed ({error.strerror})")
            return 1, 2
        if terminals:
            with self._noting("the display failed"):
                display = Display(sys.stderr if 2 in terminals else sys.stdout)
                display.start()
                self._display = display
        self._relay.start()
        return self._relay.sinks

    def _begin_again(self) -> None:
        super()._begin_again()
        self._pace = Pace()

    def end(self) -> None:
        self._over.set()
        if self._relay is not None:
            self._relay.close()
        if self._display is not None:
            with self._noting("the display failed"):
                self._display.show(self._lines.take(everything=True))
            with self._noting("the display failed"):
                self._display.stop()
        if self._sampler is not None:
            self._sampler.join(2 * _EVERY_SECONDS)  # NVML may hang with its driver
        with self._noting("the summary failed"):
            summary = self._summary()
            self.peak_memory = {row.rank: row.peak_memory for row in summary.rows if row.peak_memory}
            print_summary(summary)

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Turn an error into a note of the summary: the training goes on."""
        try:
            yield
        except MonitorError as error:
            self._notes.append(str(error))
        except Exception as error:
            self._notes.append(f"{what} ({type(error).__name__}: {error})")

    # The relay's thread.

    def _hear(self, text: str, ours: bool) -> None:
        if ours and self._display is not None:
            self._lines.write(text)
        elif ours:  # the display failed: as it comes, then
            with contextlib.suppress(OSError):
                os.write(2 if os.isatty(2) else 1, text.encode())
        if not self._deaf:
            self._deaf = True
            with self._noting("steps and losses could not be read"):
                seconds, known = time.monotonic() - self._started, len(self.progress.records)
                self.progress.feed(text)
                losses = [record["loss"] for record in self.progress.records[known:] if "loss" in record]
                self._losses += [(seconds, loss) for loss in losses if math.isfinite(loss)]
                if self.progress.total or self.progress.steps:  # a bar at 0, or a step
                    self._pace.note(seconds, self.progress.steps)
                self._deaf = False

    def _tick(self) -> None:
        if (display := self._display) is None:
            return
        try:
            display.show(self._lines.take(), self._lines.unfinished, self._headline(), self._now())
        except Exception as error:  # the terminal is gone, or cannot show some letter
            self._display = None
            self._notes.append(f"the display failed ({type(error).__name__}: {error})")
            with contextlib.suppress(Exception):
                display.stop()

    # The sampler's thread.

    def _watch(self) -> None:
        reader = None
        if not self._cpu:
            with self._noting("the GPUs' load is not known"):
                reader = Reader(os.environ.get("CUDA_VISIBLE_DEVICES"))
        with self._noting("the ranks could not be looked at"):
            self._sample(Sampler(reader))

    def _sample(self, sampler: Sampler) -> None:
        every = _EVERY_SECONDS
        while not self._over.wait(every):
            guards = self._guards
            if not guards:
                continue
            samples: list[Sample] = []
            with self._noting("the GPUs' load cannot be read any more"):
                samples = sampler.sample(guards)
            if not samples and sampler.reader is None:
                return
            if not samples:
                sampler.reader = None
                continue
            seconds = time.monotonic() - self._started
            slow = straggler(samples) if not self._codes else None
            progress = self.progress
            self._moments.append(Moment(seconds, progress.steps, progress.loss, tuple(samples), slow))
            for sample in samples:
                memory, rss = self._peaks.get(sample.rank, (0, 0))
                used = sample.gpu.used if sample.gpu else 0
                self._peaks[sample.rank] = max(memory, used), max(rss, sample.rss)
            if len(self._moments) >= _MOST_MOMENTS:
                self._moments = self._moments[::2]
                every *= 2
        if sampler.reader is not None:
            sampler.reader.close()

    # What is shown.

    def _headline(self) -> list[str]:
        """Return the state of the run, in a few words each."""
        progress, rate = self.progress, self._pace.recent
        said = [self._title, clock(time.monotonic() - self._started)]
        if progress.total:
            said.append(f"step {progress.step} of {progress.total}")
        elif progress.steps:
            said.append(f"step {progress.steps}")
        if progress.seconds_left is not None and progress.step < progress.total:
            said.append(f"{clock(progress.seconds_left)} left")
        if progress.loss is not None:
            said.append(f"loss {progress.loss:.4g}")
        if rate is not None:
            said.append(f"{rate:.3g} steps/s")
            if progress.batch is not None:
                said.append(f"{rate * progress.batch:.3g} samples/s")
        if progress.doing:
            said.append(progress.doing)
        return said

    def _now(self) -> list[Row]:
        moment = self._moments[-1] if self._moments else None
        known = {sample.rank: sample for sample in moment.samples} if moment else {}
        slow = moment.straggler if moment and moment.step else None
        rows = []
        for rank in sorted({*self._guards, *self._codes}):
            row = row_of(rank, [known[rank]]) if rank in known else Row(rank)
            if slow is not None and slow.rank == rank:
                row.note = f"the others wait: {slow.why}"
            if rank in self._codes:
                code = self._codes[rank]
                row = Row(rank, note=f"ended with {code}" if code else "ended")
            rows.append(row)
        return rows

    def _summary(self) -> Summary:
        training = self._training()
        waits = Counter(moment.straggler.rank for moment in training if moment.straggler)
        rows = []
        for rank in sorted({sample.rank for moment in self._moments for sample in moment.samples}):
            row = row_of(rank, of_rank(rank, training) or of_rank(rank, self._moments))
            row.peak_memory, row.peak_rss = self._peaks[rank]
            row.waited = waits[rank] / len(training) if training else None
            rows.append(row)
        summary = Summary(
            self._title,
            time.monotonic() - self._started,
            rows,
            steps=self.progress.steps,
            steps_per_second=self._logged("train_steps_per_second") or self._pace.overall,
            notes=[*self._notes, *self._waited_for(training, waits)],
        )
        if summary.steps_per_second is not None and self.progress.batch is not None:
            summary.samples_per_second = summary.steps_per_second * self.progress.batch
        summary.samples_per_second = self._logged("train_samples_per_second") or summary.samples_per_second
        if self._moments:
            summary.notes += record(self._logs, summary, self._moments, training, self._losses)
        return summary

    def _logged(self, key: str) -> float | None:
        """Return a figure that the Trainer has logged."""
        return next((record[key] for record in self.progress.records if key in record), None)

    def _training(self) -> list[Moment]:
        """Return the moments from the first step to the last, with all ranks there; else all of them."""
        first, last = self._pace.first, self._pace.last
        begin, end = (first[0], last[0]) if first and last and first != last else (0.0, math.inf)
        whole = (moment for moment in self._moments if len(moment.samples) == len(self._peaks))
        return [moment for moment in whole if begin <= moment.seconds <= end]

    def _waited_for(self, training: list[Moment], waits: Counter[int]) -> Iterator[str]:
        if len(self._peaks) < 2:
            return
        if len(training) < _FEW:
            yield "the training was too short to tell which rank the others wait for"
            return
        rank, count = waits.most_common(1)[0] if waits else (0, 0)
        if count < _SLOW_SHARE * len(training):
            yield "no rank stands out as the one that the others wait for"
            return
        found = [m.straggler for m in training if m.straggler and m.straggler.rank == rank]
        sign = Counter(straggler.sign for straggler in found).most_common(1)[0][0]
        last = next(straggler.why for straggler in reversed(found) if straggler.sign == sign)
        yield (
            f"the others waited for rank {rank} in {count} of {len(training)} samples: {_SIGNS[sign]} "
            f"(last: {last})"
        )
