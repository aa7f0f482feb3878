"""What a run uses and how fast it is: looked at from the launcher, while the ranks train.

Nothing here reaches into the script. `Monitor` is an observer of `nb2ddp.launch.run.launch`: it listens to
rank 0's output on its way to the screen (`nb2ddp.monitor.console`), and looks at the ranks' processes and
GPUs once a second (`nb2ddp.monitor.samples`), in threads of its own. If one of these fails, the run goes on,
and the summary says why.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from nb2ddp.errors import MonitorError
from nb2ddp.monitor.charts import clock
from nb2ddp.monitor.console import Lines, Relay
from nb2ddp.monitor.nvml import Reader
from nb2ddp.monitor.progress import Progress
from nb2ddp.monitor.samples import Sample, Sampler, Sign, Straggler, straggler
from nb2ddp.monitor.terminal import Display, Row, Summary, plot, print_summary

PLOT, SAMPLES = "monitor.svg", "monitor.csv"
"""What is written into the log folder."""

_EVERY_SECONDS = 1.0
_MOST_MOMENTS = 3600  # then every other one is dropped, and there are half as many from then on
_RECENT_SECONDS = 30.0
_FEW = 3  # samples, too few for a judgement
_SLOW_SHARE = 0.3  # of the training, for a sentence of its own

_SIGNS: dict[Sign, str] = {
    "held back": "its GPU is held back by heat or by the hardware",
    "low clock": "its GPU runs at a lower clock",
    "idle": "its GPU is idle at times while the others' wait: its host or its data do not keep up",
    "power": "its GPU draws more power: it has more to compute",
    "computes": "it uses CPU time while the others wait",
}


@dataclass(frozen=True)
class Moment:
    """All ranks at one time, in seconds since the start."""

    seconds: float
    step: int
    loss: float | None
    samples: tuple[Sample, ...]
    straggler: Straggler | None


class Pace:
    """How fast the steps come."""

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


@dataclass
class _Peak:
    memory: int = 0
    rss: int = 0


@dataclass
class _State:
    """What the threads know. Each field has one that writes it."""

    progress: Progress = field(default_factory=Progress)
    pace: Pace = field(default_factory=Pace)
    losses: list[tuple[float, float]] = field(default_factory=list)  # by seconds
    guards: dict[int, tuple[int, int]] = field(default_factory=dict)  # of ranks that run
    codes: dict[int, int] = field(default_factory=dict)  # of ranks that have ended
    moments: list[Moment] = field(default_factory=list)
    peaks: dict[int, _Peak] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Monitor:
    """Shows a run live if there is a terminal; at its end a summary on stderr, a plot and the samples."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._state = _State()
        self._lines = Lines()
        self._logs = Path()
        self._cpu = False
        self._display: Display | None = None
        self._relay: Relay | None = None
        self._sampler: threading.Thread | None = None
        self._deaf = False

    # What launch() tells us, in its own thread.

    def begin(self, logs: Path, *, cpu: bool) -> tuple[int, int]:
        self._logs, self._cpu = logs, cpu
        self._started = time.monotonic()
        terminals = [fd for fd in (1, 2) if os.isatty(fd)] if os.environ.get("TERM") != "dumb" else []
        with self._noting("the summary of an earlier run is still there"):
            for name in (PLOT, SAMPLES):
                (logs / name).unlink(missing_ok=True)
        self._sampler = threading.Thread(target=self._watch, name="nb2ddp-monitor", daemon=True)
        self._sampler.start()
        try:
            self._relay = Relay(self._hear, self._tick, terminals)
        except OSError as error:
            self._state.notes.append(f"rank 0's output could not be followed ({error.strerror})")
            return 1, 2
        if terminals:
            with self._noting("the display failed"):
                display = Display(sys.stderr if 2 in terminals else sys.stdout)
                display.start()
                self._display = display
        self._relay.start()
        return self._relay.sinks

    def started(self, rank: int, local_rank: int, pid: int) -> None:
        self._state.codes.pop(rank, None)
        self._state.guards = {**self._state.guards, rank: (local_rank, pid)}

    def ended(self, rank: int, code: int) -> None:
        self._state.guards = {other: pids for other, pids in self._state.guards.items() if other != rank}
        self._state.codes = {**self._state.codes, rank: code}

    def end(self, stopped: Callable[[], bool]) -> None:
        self._ended.set()
        if self._relay is not None:
            self._relay.close(stopped)
        if self._display is not None:
            with self._noting("the display failed"):
                self._display.show(self._lines.take(everything=True))
            with self._noting("the display failed"):
                self._display.stop()
        if self._sampler is not None:
            self._sampler.join(2 * _EVERY_SECONDS)  # NVML may hang with its driver
        with self._noting("the summary failed"):
            print_summary(self._summary())

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Whatever fails here, the training goes on."""
        try:
            yield
        except MonitorError as error:
            self._state.notes.append(str(error))
        except Exception as error:
            self._state.notes.append(f"{what} ({type(error).__name__}: {error})")

    # The relay's thread.

    def _hear(self, text: str, ours: bool) -> None:
        state = self._state
        if ours and self._display is not None:
            self._lines.write(text)
        elif ours:  # the display failed: as it comes, then
            with contextlib.suppress(OSError):
                os.write(2 if os.isatty(2) else 1, text.encode())
        if not self._deaf:
            self._deaf = True
            with self._noting("steps and losses could not be read"):
                seconds, known = time.monotonic() - self._started, len(state.progress.records)
                state.progress.feed(text)
                losses = [record["loss"] for record in state.progress.records[known:] if "loss" in record]
                state.losses += [(seconds, loss) for loss in losses if math.isfinite(loss)]
                if state.progress.total or state.progress.steps:  # a bar at 0, or a step
                    state.pace.note(seconds, state.progress.steps)
                self._deaf = False

    def _tick(self) -> None:
        if (display := self._display) is None:
            return
        try:
            display.show(self._lines.take(), self._lines.unfinished, self._headline(), self._now())
        except Exception as error:  # the terminal is gone, or cannot show some letter
            self._display = None
            self._state.notes.append(f"the display failed ({type(error).__name__}: {error})")
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
        state, every = self._state, _EVERY_SECONDS
        while not self._ended.wait(every):
            guards = state.guards
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
            slow = straggler(samples) if not state.codes else None
            progress = state.progress
            state.moments.append(Moment(seconds, progress.steps, progress.loss, tuple(samples), slow))
            for sample in samples:
                peak = state.peaks.setdefault(sample.rank, _Peak())
                peak.rss = max(peak.rss, sample.rss)
                peak.memory = max(peak.memory, sample.gpu.used if sample.gpu else 0)
            if len(state.moments) >= _MOST_MOMENTS:
                state.moments = state.moments[::2]
                every *= 2
        if sampler.reader is not None:
            sampler.reader.close()

    # What is shown.

    def _headline(self) -> list[str]:
        """The run in a few words each."""
        progress, rate = self._state.progress, self._state.pace.recent
        step = f"step {self._state.progress.steps}"
        said = [self._title, clock(time.monotonic() - self._started)]
        said.append(f"{step} of {progress.total}" if progress.total else step)
        if progress.seconds_left is not None and progress.step < progress.total:
            said.append(f"{clock(progress.seconds_left)} left")
        if progress.loss is not None:
            said.append(f"loss {progress.loss:.4g}")
        if rate is not None:
            said.append(f"{rate:.3g} steps/s")
            if progress.batch is not None:
                said.append(f"{rate * progress.batch:.3g} samples/s")
        if progress.stage and not progress.step:
            said.append(progress.stage)
        return said

    def _now(self) -> list[Row]:
        moment = self._state.moments[-1] if self._state.moments else None
        known = {sample.rank: sample for sample in moment.samples} if moment else {}
        slow = moment.straggler if moment and moment.step else None
        rows = []
        for rank in sorted({*self._state.guards, *self._state.codes}):
            row = _row(rank, [known[rank]]) if rank in known else Row(rank)
            if slow is not None and slow.rank == rank:
                row.note = f"the others wait: {slow.why}"
            if rank in self._state.codes:
                code = self._state.codes[rank]
                row = Row(rank, note=f"ended with {code}" if code else "ended")
            rows.append(row)
        return rows

    def _summary(self) -> Summary:
        state = self._state
        training = list(self._training())
        waits = Counter(moment.straggler.rank for moment in training if moment.straggler)
        rows = []
        for rank in sorted({sample.rank for moment in state.moments for sample in moment.samples}):
            row = _row(rank, _of(rank, training) or _of(rank, state.moments))
            row.peak_memory, row.peak_rss = state.peaks[rank].memory, state.peaks[rank].rss
            row.waited = waits[rank] / len(training) if training else None
            rows.append(row)
        summary = Summary(
            self._title,
            time.monotonic() - self._started,
            rows,
            steps=state.progress.steps,
            steps_per_second=self._said("train_steps_per_second") or state.pace.overall,
            notes=[*state.notes, *self._waiting(training, waits)],
        )
        if summary.steps_per_second is not None and state.progress.batch is not None:
            summary.samples_per_second = summary.steps_per_second * state.progress.batch
        summary.samples_per_second = self._said("train_samples_per_second") or summary.samples_per_second
        if state.moments:
            summary.notes += self._write(summary)
        return summary

    def _said(self, key: str) -> float | None:
        """The Trainer's own figure."""
        return next((record[key] for record in self._state.progress.records if key in record), None)

    def _training(self) -> Iterator[Moment]:
        """The moments from the first step to the last, with all ranks there; all, if no steps are known."""
        pace, ranks = self._state.pace, self._state.peaks.keys()
        for moment in self._state.moments:
            stepping = (
                pace.first is None
                or pace.last is None
                or pace.last == pace.first
                or pace.first[0] <= moment.seconds <= pace.last[0]
            )
            if stepping and len(moment.samples) == len(ranks):
                yield moment

    def _waiting(self, training: list[Moment], waits: Counter[int]) -> Iterator[str]:
        if len(self._state.peaks) < 2:
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

    def _write(self, summary: Summary) -> list[str]:
        """The samples and the plot; returns where they are."""
        moments = self._state.moments
        curves = {"loss": {"loss": self._state.losses}}
        for moment in moments:
            for sample in moment.samples:
                for title, value in _plotted(sample):
                    points = curves.setdefault(title, {}).setdefault(f"rank {sample.rank}", [])
                    points.append((moment.seconds, value))
        training = list(self._training())
        waits = [(moment.seconds, moment.straggler.rank) for moment in training if moment.straggler]
        try:
            _replace(self._logs / SAMPLES, _as_csv(moments, training))
            _replace(self._logs / PLOT, plot(summary, curves, waits, moments[-1].seconds))
        except OSError as error:
            return [f"the samples cannot be written to {self._logs} ({error.strerror})"]
        return [f"plot: {self._logs / PLOT}; samples: {self._logs / SAMPLES}"]


def _of(rank: int, moments: Iterable[Moment]) -> list[Sample]:
    return [sample for moment in moments for sample in moment.samples if sample.rank == rank]


def _row(rank: int, samples: list[Sample]) -> Row:
    """Means of these samples of one rank."""
    gpus = [sample.gpu for sample in samples if sample.gpu is not None]
    return Row(
        rank,
        device=f"{gpus[0].index} {gpus[0].name}" if gpus else "CPU",
        memory=_mean(gpu.used for gpu in gpus),
        total=gpus[0].total if gpus else None,
        percent=_mean(gpu.percent for gpu in gpus),
        clock=_mean(gpu.clock for gpu in gpus),
        power=_mean(gpu.power for gpu in gpus),
        cpu=_mean(sample.cpu for sample in samples),
        rss=_mean(sample.rss for sample in samples),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _plotted(sample: Sample) -> Iterator[tuple[str, float]]:
    if sample.gpu is not None:
        yield "GPU memory, GiB", sample.gpu.used / 2**30
        if sample.gpu.percent is not None:
            yield "GPU utilisation, % (a rank that waits in NCCL counts as busy)", sample.gpu.percent
        if sample.gpu.power is not None:
            yield "GPU power, W", sample.gpu.power
    if sample.cpu is not None:
        yield "CPU, % of a core", sample.cpu
    yield "resident memory, GiB", sample.rss / 2**30


_COLUMNS = (
    "seconds step loss rank cpu_percent cpu_starved_percent rss_bytes swapped_bytes gpu_index gpu "
    "gpu_used_bytes gpu_total_bytes gpu_percent gpu_clock_mhz gpu_power_watts gpu_slowdowns straggler sign"
).split()


def _as_csv(moments: Iterable[Moment], training: Collection[Moment]) -> str:
    """One line for each rank and moment, with a straggler if it is of the training."""
    judged = {moment.seconds for moment in training}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for moment in moments:
        found = moment.straggler if moment.seconds in judged else None
        slow = (found.rank, found.sign) if found else ("", "")
        for s in moment.samples:
            gpu = [""] * 8
            if (load := s.gpu) is not None:
                slowdowns = "; ".join(load.slowdowns)
                figures = (load.used, load.total, load.percent, load.clock, load.power)
                known = (load.index, load.name, *figures, slowdowns)
                gpu = ["" if value is None else str(value) for value in known]
            host = [s.rank, _rounded(s.cpu), _rounded(s.starved), s.rss, s.swapped]
            writer.writerow([f"{moment.seconds:.2f}", moment.step, moment.loss, *host, *gpu, *slow])
    return text.getvalue()


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
