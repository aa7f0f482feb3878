"""Draw curves of a run: as SVG for pages and notebooks, as one line of text for terminals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from nb2ddp.monitor.progress import Progress
from nb2ddp.rendering import render

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 600, 170, 52, 10, 22
_COLORS = ("#f37726", "#2f7ed8", "#3cb45a", "#9b59b6", "#d9534f", "#16a2b8", "#8d6e63", "#c0a000")
_MOST_POINTS = 500
_BLOCKS = "▁▂▃▄▅▆▇█"


def loss_curve(progress: Progress) -> str:
    """Return an SVG of the training loss, and of the evaluation loss if there is any."""
    return curve_svg({key: progress.curve(key) for key in ("loss", "eval_loss")})


def legend(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return each name with the colour that `curve_svg` gives to its curve."""
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
    """Return an SVG of some curves by their names; empty while none of them has two points.

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


def sparkline(points: Points) -> str:
    """Return a curve as one line of text, with its first and last value; empty below two points."""
    values = [y for _, y in _thinned(points, 40)]
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    blocks = [_BLOCKS[int((y - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))] for y in values]
    return f"{values[0]:.4g} {''.join(blocks)} {values[-1]:.4g}"


def _thinned(points: Points, most: int = _MOST_POINTS) -> Points:
    every = math.ceil(len(points) / most)
    return [*points[:-1:every], points[-1]] if every > 1 else points
