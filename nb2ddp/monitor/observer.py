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
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from nb2ddp.errors import MonitorError
from nb2ddp.monitor.closing import facts
from nb2ddp.monitor.console import Lines, Relay
from nb2ddp.monitor.listener import Listener
from nb2ddp.monitor.nvml import Reader
from nb2ddp.monitor.recording import PLOT, Moment, record
from nb2ddp.monitor.samples import Sample, Sampler, Sign, straggler
from nb2ddp.monitor.terminal import Display, Row, print_summary, row_of
from nb2ddp.waiting import clock

_EVERY_SECONDS = 1.0
_MOST_MOMENTS = 3600  # then every other one is dropped, and there are half as many from then on
_FEW = 3  # samples, too few for a judgement
_SLOW_SHARE = 0.3  # of the training, for a sentence of its own

_SIGNS: dict[Sign, str] = {
    "held back": "its GPU is held back by heat or by the hardware",
    "low clock": "its GPU runs at a lower clock",
    "idle": "its GPU is idle at times while the others' wait: its host or its data do not keep up",
    "power": "its GPU draws more power: it has more to compute",
    "computes": "it uses CPU time while the others wait",
}


class Pace:
    """The first step that was seen, and the last: each with the seconds since the start."""

    def __init__(self) -> None:
        self.first = self.last = (0.0, -1)

    def note(self, seconds: float, step: int) -> None:
        if self.last[1] < 0 or step < self.last[1]:  # that was another bar, or the run starts again
            self.first = self.last = (seconds, step)
        elif step > self.last[1]:
            self.last = (seconds, step)

    @property
    def overall(self) -> float | None:
        """Steps per second; None where no time has passed between the two."""
        seconds = self.last[0] - self.first[0]
        return (self.last[1] - self.first[1]) / seconds if seconds else None


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
            self.peak_memory = {rank: memory for rank, (memory, _) in sorted(self._peaks.items()) if memory}
            self._print_summary()

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
        said = [self._title, clock(time.monotonic() - self._started), *facts(self.progress)]
        if self.progress.steps_per_second is None and (rate := self._pace.overall):  # there is no bar
            said.append(f"{rate:.3g} steps/s")
        return said

    def _now(self) -> list[Row]:
        moment = self._moments[-1] if self._moments else None
        known = {sample.rank: sample for sample in moment.samples} if moment else {}
        slow = moment.straggler if moment and (moment.step or moment.loss is not None) else None
        rows = []
        for rank in sorted({*self._guards, *self._codes}):
            samples = [known[rank]] if rank in known else []
            note = f"the others wait: {slow.why}" if slow and slow.rank == rank else ""
            if rank in self._codes:
                code = self._codes[rank]
                samples, note = [], f"ended with {code}" if code else "ended"
            rows.append(row_of(rank, samples, note=note))
        return rows

    def _print_summary(self) -> None:
        """Print what the run was, with the means of each rank, and write the plot."""
        training = self._training()
        waits = Counter(moment.straggler.rank for moment in training if moment.straggler)
        rows = []
        for rank, peaks in sorted(self._peaks.items()):
            sampled = (moment.samples for moment in training or self._moments)
            own = [sample for samples in sampled for sample in samples if sample.rank == rank]
            waited = waits[rank] / len(training) if training and len(self._peaks) > 1 else None
            rows.append(row_of(rank, own, peaks, waited))
        said = [self._title, f"{time.monotonic() - self._started:.0f} s", f"{self.progress.steps} steps"]
        speed = self._logged("train_steps_per_second") or self._pace.overall
        samples = self._logged("train_samples_per_second") or (speed or 0) * (self.progress.batch or 0)
        said += [f"{rate:.3g} {unit}/s" for rate, unit in ((speed, "steps"), (samples, "samples")) if rate]
        headline, notes = ", ".join(said), [*self._notes, *self._waited_for(training, waits)]
        if self._moments:
            notes.append(record(self._logs, headline, self._moments, training, self._losses))
        print_summary(headline, rows, notes)

    def _logged(self, key: str) -> float | None:
        """Return a figure that the Trainer has logged."""
        return next((record[key] for record in self.progress.records if key in record), None)

    def _training(self) -> list[Moment]:
        """Return the moments from the first step to the last, with all ranks there; else all of them."""
        (begin, first), (end, last) = self._pace.first, self._pace.last
        if first == last:
            begin, end = 0.0, math.inf
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
