"""The list of what a rehearsal checks: the promises of the README, by number, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable

from nb2ddp.rehearse.checks.data import batch, samples
from nb2ddp.rehearse.checks.figures import figures
from nb2ddp.rehearse.checks.model import gradients, loads, losses, replicas
from nb2ddp.rehearse.checks.run import arguments, ends, files, group, plain, prints
from nb2ddp.rehearse.evidence import Evidence, Point

POINTS: tuple[Callable[[Evidence], Point], ...] = (
    loads,
    replicas,
    losses,
    samples,
    files,
    ends,
    plain,
    gradients,
    batch,
    arguments,
    prints,
)

HANDMADE: tuple[Callable[[Evidence], Point], ...] = (
    group,
    *POINTS[:3],
    figures,
    *POINTS[3:],
)
"""What is checked of a script that need not be a conversion of ours."""
