"""How a run looks in a notebook: HTML for the front ends that show it, text for all others. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from nb2ddp.nvml import GIB, Load
from nb2ddp.progress import Progress
from nb2ddp.rendering import render

if TYPE_CHECKING:
    from nb2ddp.assemble import Script  # what shows a run has no need of the converter

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 600, 170, 52, 10, 22
_COLORS = ("#f37726", "#2f7ed8", "#3cb45a", "#9b59b6", "#d9534f", "#16a2b8", "#8d6e63", "#c0a000")
_RUNNING, _DONE, _FAILED = "#f37726", "#3cb45a", "#d9534f"
_MOST_POINTS = 500
_GREEN = "background:rgba(60,180,90,.18)"
_LONG = 20  # lines
_BLOCKS = "▁▂▃▄▅▆▇█"


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def facts(progress: Progress, *, running: bool = True) -> list[str]:
    """What is known of a run, in a few words each."""
    said = []
    if progress.total:
        said.append(f"step {progress.step} of {progress.total}")
    if running and progress.seconds_left is not None and progress.step < progress.total:
        said.append(f"{clock(progress.seconds_left)} left")
    if progress.loss is not None:
        said.append(f"loss {progress.loss:.4g}")
    if progress.samples_per_second is not None:
        said.append(f"{progress.samples_per_second:.3g} samples/s")
    elif progress.steps_per_second is not None:
        said.append(f"{progress.steps_per_second:.3g} steps/s")
    if progress.stage and progress.step == 0:
        said.append(progress.stage)
    return said


def live_html(
    progress: Progress,
    *,
    title: str,
    seconds: float,
    loads: Iterable[Load],
    logs: Mapping[str, str],
    state: str,
) -> str:
    """The display of a run. ``state``: "running", "done" or "failed"; ``logs``: links by labels."""
    gpus = [
        {
            "rank": load.rank,
            "memory": f"{load.used / GIB:.1f} of {load.total / GIB:.0f} GiB",
            "busy": "" if load.percent is None else f"{load.percent} % busy",
        }
        for load in loads
    ]
    return render(
        "magic/live.html.j2",
        title=title,
        clock=clock(seconds),
        fraction=1.0 if state == "done" else progress.fraction,
        color={"running": _RUNNING, "done": _DONE}.get(state, _FAILED),
        facts=facts(progress, running=state == "running"),
        gpus=gpus,
        curve="" if state == "done" else loss_curve(progress),
        logs=[{"label": label, "href": quote(path)} for label, path in logs.items()],
    )


def live_text(progress: Progress, *, title: str, seconds: float, loads: Iterable[Load] = ()) -> str:
    """The same in one line."""
    gpus = [f"rank {load.rank} {load.used / GIB:.1f}/{load.total / GIB:.0f} GiB" for load in loads]
    bar = "#" * round(20 * progress.fraction)
    return "  ".join([f"{title} {clock(seconds)} [{bar:<20}]", *facts(progress), *gpus])


def loss_curve(progress: Progress) -> str:
    """SVG of the training loss, and of the evaluation loss if there is any."""
    return curve_svg({key: progress.curve(key) for key in ("loss", "eval_loss")})


def legend(names: Iterable[str]) -> list[tuple[str, str]]:
    """The colours that `curve_svg` gives to so many curves."""
    return list(zip(names, itertools.cycle(_COLORS), strict=False))


def curve_svg(
    curves: Mapping[str, Points],
    *,
    by: str = "step",
    across: tuple[float, float] | None = None,
    low: float | None = None,
    high: float | None = None,
    labels: bool = True,
) -> str:
    """One picture of some curves by their names; empty while none of them has two points.

    by: what the x axis counts. across: its ends, if not the points' own. low, high: what the y axis shows at
        least. labels: write the names beside the curves.
    """
    curves = {name: _thinned(points) for name, points in curves.items() if len(points) > 1}
    if not curves:
        return ""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    ends = [y for y in (low, high) if y is not None]
    x0, x1 = across or (min(xs), max(xs))
    y0, y1 = min(ys + ends), max(ys + ends)
    right, bottom = _WIDTH - 8, _HEIGHT - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / ((x1 - x0) or 1)
        up = (y - y0) / (y1 - y0) if y1 > y0 else 0.5
        return round(_LEFT + across * (right - _LEFT), 1), round(bottom - up * (bottom - _TOP), 1)

    colored = legend(curves)
    lines = [
        {
            "label": name if labels else "",
            "color": color,
            "points": " ".join(f"{a},{b}" for a, b in (place(x, y) for x, y in points)),
            "end": place(*points[-1]),
        }
        for (name, points), (_, color) in zip(curves.items(), colored, strict=True)
    ]
    rows = [y0, (y0 + y1) / 2, y1] if y1 > y0 else [y0]
    columns = sorted({round(x0), round((x0 + x1) / 2), round(x1)})
    return render(
        "magic/curve.svg.j2",
        title=f"{', '.join(curves)} by {by}",
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=right,
        rows=[(f"{y:.4g}", place(x0, y)[1]) for y in rows],
        columns=[(str(x), place(x, y0)[0]) for x in columns],
        lines=lines,
    )


def script_html(script: Script, changes: Sequence[str], left_out: Sequence[str]) -> str:
    """A script with its changes; what no cell says is green, and folded where it is long."""
    old = {number: set(cell.python.text.split("\n")) for number, cell in script.cells.items()}
    lines = [
        (line.cell == 0, line.text, bool(line.text) and line.text not in old.get(line.cell, ()), number)
        for number, line in enumerate(script.lines, start=1)
    ]
    parts = []
    for ours, group in itertools.groupby(lines, key=lambda line: line[0]):
        members = [{"text": text, "new": new, "number": number} for _, text, new, number in group]
        parts.append({"folded": ours and len(members) > _LONG, "lines": members})
    return render("magic/script.html.j2", changes=changes, left_out=left_out, parts=parts, green=_GREEN)


def sparkline(points: Points) -> str:
    """A curve as one line of text, with its first and last value; empty below two points."""
    values = [y for _, y in _thinned(points, 40)]
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    blocks = [_BLOCKS[int((y - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))] for y in values]
    return f"{values[0]:.4g} {''.join(blocks)} {values[-1]:.4g}"


def _thinned(points: Points, most: int = _MOST_POINTS) -> Points:
    every = math.ceil(len(points) / most)
    return [*points[:-1:every], points[-1]] if every > 1 else points
