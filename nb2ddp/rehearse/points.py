"""The list of what a rehearsal checks: the promises of the README, by number, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable

from nb2ddp.rehearse.checks.data import batch, samples
from nb2ddp.rehearse.checks.model import gradients, loads, losses, replicas
from nb2ddp.rehearse.checks.run import arguments, ends, files, plain, prints
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
