"""What a check looks at and what it returns: the notes of three runs, and a point with its faults."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Literal

from nb2ddp.rehearse.observed import Rank, Step
from nb2ddp.rehearse.runs import Run

TOLERANCE = 1e-4
"""How much (relative) a loss or the parameters may differ between one process and several."""

UNKNOWN_SAMPLES = "cannot be told: batches come without indices, or are changed on their way to the model"

ADVICE: dict[str, str] = tomllib.loads(
    files("nb2ddp.rehearse").joinpath("faults.toml").read_text(encoding="utf-8")
)
"""What to do about each fault, by its key; causes before consequences, for one fault entails others."""


@dataclass(frozen=True)
class Fault:
    """Something that is not as promised: a key for machines, a sentence for people.

    ``line`` is that of the script which it is about, ``step`` the first optimizer step that shows it; each None
    where it is not known.
    """

    key: str
    sentence: str
    line: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Point:
    """The result of one check.

    ``number`` is that of the promise (README), None for what is measured beside it. ``seen`` is False where
    there was nothing to measure: then it has not passed, and not failed either.
    """

    number: int | None
    title: str
    measured: str
    faults: tuple[Fault, ...] = ()
    seen: bool = True

    @property
    def state(self) -> Literal["passed", "failed", "unseen"]:
        return "failed" if self.faults else "passed" if self.seen else "unseen"


@dataclass(frozen=True)
class Evidence:
    """The three runs and what was noted in them.

    ``one`` is the notebook's own code, ``plain`` the script in one process, ``ranks`` the script under
    torchrun. ``other_losses`` says why one process and several compute other losses by nature; empty where
    they are to agree. ``handmade``: the script need not be a conversion of ours.
    """

    run: Run
    one: Rank
    plain: Rank
    plain_run: Run
    ranks: Sequence[Rank]
    other_losses: str = ""
    handmade: bool = False

    @cached_property
    def rows(self) -> list[tuple[float | None, float | None]]:
        """The loss of each step in one process and in several.

        That is the mean over the ranks, as DDP averages gradients; or the sum, where each micro-batch has the
        weight that it has in one process and the ranks' gradients are added.
        """
        parts = 1 if self._adds else len(self.ranks)
        losses = zip(*(rank.losses for rank in self.ranks), strict=False)
        return list(itertools.zip_longest(self.one.losses, (sum(step) / parts for step in losses)))

    @cached_property
    def _adds(self) -> bool:
        """Whether the ranks' losses add up to the notebook's, in the first step with the notebook's gradients."""
        if not self.together:
            return False
        single, steps = self.together[0]
        norms = [step.gradients[1] for step in (single, *steps) if step.gradients]
        if len(norms) <= len(steps) or any(relative(norms[0], norm) > TOLERANCE for norm in norms):
            return False
        total = sum(step.loss for step in steps)
        return relative(single.loss, total) < TOLERANCE < relative(single.loss, total / len(steps))

    @property
    def reference_error(self) -> str:
        """The error that the notebook's own code ends with too, after its training."""
        return last_line(self.one) if self.one.code else ""

    @cached_property
    def together(self) -> list[tuple[Step, list[Step]]]:
        """Each step of the notebook with those of the ranks."""
        steps = zip(self.one.steps, *(rank.steps for rank in self.ranks), strict=False)
        return [(single, list(several)) for single, *several in steps]

    @property
    def undivided(self) -> int:
        """The number of steps in which each rank computes the notebook's whole batch, not its part."""
        return sum(is_undivided(single, steps) for single, steps in self.together)


def is_undivided(single: Step, steps: Sequence[Step]) -> bool:
    """Return whether each rank computes all samples of the notebook's step: right, but no faster.

    The runtime does so where a row's output depends on the other rows, as with a batch norm on CPUs.
    """
    whole = single.rows
    return (
        whole is not None
        and len(whole) >= len(steps)
        and all(step.rows is not None and sorted(step.rows) == sorted(whole) for step in steps)
    )


def last_line(rank: Rank) -> str:
    """Return the error that ended a rank."""
    lines = [line for line in rank.errors.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return re.sub(r"^\[rank\d+\]: ", "", lines[-1]) if lines else ""


def relative(one: float, other: float) -> float:
    """Return the difference of two numbers, relative to the first."""
    return abs(other - one) / max(abs(one), 1e-12)


def some(names: Sequence[str]) -> str:
    """Return one name, and how many others there are."""
    return f"{names[0]} and {len(names) - 1} more files" if len(names) > 1 else names[0]
