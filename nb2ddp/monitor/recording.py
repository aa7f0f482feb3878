"""What the monitor saw, kept in the log folder: every sample as CSV, the curves as an SVG plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from nb2ddp.monitor.samples import Sample, Straggler
from nb2ddp.monitor.terminal import Row, Summary, plot

PLOT, SAMPLES = "monitor.svg", "monitor.csv"
"""The names of the files."""


@dataclass(frozen=True)
class Moment:
    """All ranks at one time, in seconds since the start."""

    seconds: float
    step: int
    loss: float | None
    samples: tuple[Sample, ...]
    straggler: Straggler | None


def record(
    logs: Path,
    summary: Summary,
    moments: Sequence[Moment],
    training: Sequence[Moment],
    losses: Sequence[tuple[float, float]],
) -> list[str]:
    """Write the samples and the plot; return sentences about where they are.

    training: the moments between the first step and the last. losses: (seconds, loss).
    """
    curves = {"loss": {"loss": list(losses)}}
    for moment in moments:
        for sample in moment.samples:
            gpu = sample.gpu
            for title, value in (
                ("GPU memory, GiB", gpu.used / 2**30 if gpu else None),
                (
                    "GPU utilisation, % (a rank that waits in NCCL counts as busy)",
                    gpu.percent if gpu else None,
                ),
                ("GPU power, W", gpu.power if gpu else None),
                ("CPU, % of a core", sample.cpu),
                ("resident memory, GiB", sample.rss / 2**30),
            ):
                if value is not None:
                    points = curves.setdefault(title, {}).setdefault(f"rank {sample.rank}", [])
                    points.append((moment.seconds, value))
    waits = [(moment.seconds, moment.straggler.rank) for moment in training if moment.straggler]
    try:
        (logs / SAMPLES).write_text(_as_csv(moments, training), encoding="utf-8")
        (logs / PLOT).write_text(plot(summary, curves, waits, moments[-1].seconds), encoding="utf-8")
    except OSError as error:
        return [f"the samples cannot be written to {logs} ({error.strerror})"]
    return [f"plot: {logs / PLOT}; samples: {logs / SAMPLES}"]


def of_rank(rank: int, moments: Iterable[Moment]) -> list[Sample]:
    return [sample for moment in moments for sample in moment.samples if sample.rank == rank]


def row_of(rank: int, samples: list[Sample]) -> Row:
    """Return the means of these samples of one rank."""
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


_COLUMNS = (
    "seconds step loss rank cpu_percent cpu_starved_percent rss_bytes swapped_bytes gpu_index gpu "
    "gpu_used_bytes gpu_total_bytes gpu_percent gpu_clock_mhz gpu_power_watts gpu_slowdowns straggler sign"
).split()


def _as_csv(moments: Iterable[Moment], training: Collection[Moment]) -> str:
    """Return one line for each rank and moment, with the straggler if it is of the training."""
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
