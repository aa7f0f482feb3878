"""What the monitor saw: the curves as an SVG plot in the log folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nb2ddp.monitor.charts import curve_svg, legend
from nb2ddp.monitor.nvml import GIB
from nb2ddp.monitor.samples import Sample, Straggler
from nb2ddp.rendering import render

PLOT = "monitor.svg"

_MEMORY, _POWER = "GPU memory, GiB", "GPU power, W"
_BUSY = "GPU utilisation, % (a rank that waits in NCCL counts as busy)"
_CPU, _RESIDENT = "CPU, % of a core", "resident memory, GiB"
_PANEL, _TOP, _FOOT = 200, 64, 44
_LEFT, _RIGHT = 52, 592  # as the curves have it


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
    headline: str,
    moments: Sequence[Moment],
    training: Sequence[Moment],
    losses: Sequence[tuple[float, float]],
) -> str:
    """Write a panel for each kind of curve, over time, and below them when others waited for a rank.

    training: the moments between the first step and the last. losses: (seconds, loss).

    Returns a sentence about where the plot is.
    """
    curves = {"loss": {"loss": list(losses)}}
    ranks: set[int] = set()
    for moment in moments:
        for sample in moment.samples:
            ranks.add(sample.rank)
            values = {_CPU: sample.cpu, _RESIDENT: sample.rss / GIB}
            if gpu := sample.gpu:
                values = {_MEMORY: gpu.used / GIB, _BUSY: gpu.percent, _POWER: gpu.power, **values}
            for title, value in values.items():
                if value is not None:
                    points = curves.setdefault(title, {}).setdefault(f"rank {sample.rank}", [])
                    points.append((moment.seconds, value))
    seconds = moments[-1].seconds
    panels: list[dict[str, object]] = []
    for title, lines in curves.items():
        high = 100.0 if "%" in title else None
        low = None if title == "loss" else 0.0
        picture = curve_svg(lines, by="second", across=(0, seconds), low=low, high=high, labels=False)
        if picture:
            panels.append({"title": title, "picture": picture, "y": _TOP + _PANEL * len(panels)})
    colors = dict(legend(f"rank {rank}" for rank in sorted(ranks)))
    scale = (_RIGHT - _LEFT) / seconds
    width = round(max(scale, 1.0), 1)  # a sample is of the second before it
    waits = [
        {
            "x": round(_LEFT + moment.seconds * scale - width, 1),
            "width": width,
            "color": colors[f"rank {moment.straggler.rank}"],
        }
        for moment in training
        if moment.straggler
    ]
    foot = _TOP + _PANEL * len(panels)
    picture = render(
        "monitor/plot.svg.j2",
        title=headline,
        width=600,
        height=foot + (_FOOT if waits else 0),
        legend=colors.items(),
        panels=panels,
        waits=waits,
        waits_y=foot,
    )
    try:
        (logs / PLOT).write_text(picture, encoding="utf-8")
    except OSError as error:
        return f"the plot cannot be written to {logs} ({error.strerror})"
    return f"plot: {logs / PLOT}"
