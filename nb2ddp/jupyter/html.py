"""Show a run and its script in a notebook: HTML for front ends that render it, text for all others."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import quote

from nb2ddp.conversion.script import Script
from nb2ddp.monitor.charts import loss_curve
from nb2ddp.monitor.closing import facts
from nb2ddp.monitor.nvml import GIB, Load
from nb2ddp.monitor.progress import Progress
from nb2ddp.rendering import render
from nb2ddp.waiting import clock

_RUNNING, _DONE, _FAILED = "#f37726", "#3cb45a", "#d9534f"
_GREEN = "background:rgba(60,180,90,.18)"
_LONG = 20  # lines
# JupyterLab's own: it runs them one after the other when somebody clicks what names them.
_ON_CLICK = (
    "docmanager:save",
    "notebook:insert-cell-below",
    "notebook:replace-selection",
    "notebook:run-cell",
)


def live_html(
    progress: Progress,
    *,
    title: str,
    seconds: float,
    loads: Iterable[Load],
    logs: Mapping[str, str],
    state: str,
) -> str:
    """Return the display of a run as HTML. ``state``: running, done or failed; ``logs``: links by labels."""
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
        logs=[
            {"label": label, "href": quote(path, errors="surrogateescape")} for label, path in logs.items()
        ],
    )


def live_text(
    progress: Progress, *, title: str, seconds: float, loads: Iterable[Load] = (), state: str = "running"
) -> str:
    """Return the display of a run as one line of text."""
    gpus = [f"rank {load.rank} {load.used / GIB:.1f}/{load.total / GIB:.0f} GiB" for load in loads]
    bar = "#" * round(20 * (1.0 if state == "done" else progress.fraction))
    said = facts(progress, running=state == "running")
    return "  ".join([f"{title} {clock(seconds)} [{bar:<20}]", *said, *gpus])


def button(line: str) -> dict[str, str]:
    """Return a button that saves the notebook and runs a line in a new cell below; as text, what to do without it."""
    clicked = json.dumps({"commands": _ON_CLICK, "args": {"text": line}})
    html = render("magic/button.html.j2", line=line, clicked=clicked)
    return {"text/plain": f"The button needs JupyterLab. Without it, run: {line}", "text/html": html}


def script_html(
    script: Script, changes: Sequence[str], left_out: Sequence[str], mask: Callable[[str], str] = str
) -> str:
    """Return a script as HTML: lines that nb2ddp added are green, and folded where they are many.

    ``mask`` takes the secrets out of a line.
    """
    old = {number: set(cell.python.text.split("\n")) for number, cell in script.cells.items()}
    lines = [
        (line.cell == 0, line.text, bool(line.text) and line.text not in old.get(line.cell, ()), number)
        for number, line in enumerate(script.lines, start=1)
    ]
    parts = []
    for ours, group in itertools.groupby(lines, key=lambda line: line[0]):
        members = [{"text": mask(text), "new": new, "number": number} for _, text, new, number in group]
        parts.append({"folded": ours and len(members) > _LONG, "lines": members})
    return render("magic/script.html.j2", changes=changes, left_out=left_out, parts=parts, green=_GREEN)
