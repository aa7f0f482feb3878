"""What the monitor saw: means of each rank, and the curves as an SVG plot in the log folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from nb2ddp.monitor.samples import Sample, Straggler
from nb2ddp.monitor.terminal import Row, Summary, plot

PLOT = "monitor.svg"


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
    """Write the plot; return sentences about where it is.

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
        (logs / PLOT).write_text(plot(summary, curves, waits, moments[-1].seconds), encoding="utf-8")
    except OSError as error:
        return [f"the plot cannot be written to {logs} ({error.strerror})"]
    return [f"plot: {logs / PLOT}"]


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
