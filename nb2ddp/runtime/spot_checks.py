"""Choose the steps that a run recomputes as one process does, and keep what the comparisons have shown.

Parts that train ask `is_checked` at each step, compare, and call `record` or `failed`; `summary` tells it in the end.
"""

import os
import random
from collections.abc import Callable
from typing import Any

from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _run, _say, _warn

_CHECKS = os.environ.get("NB2DDP_CHECKS", "")  # how many of the first 300 steps, or "off"
_STRICT = os.environ.get("NB2DDP_STRICT") == "1"
_FROM_HERE_ON = "From here on every rank computes whole batches, which saves no time"
_FEW = 5  # whole batches of the first 300 that are compared where nothing is asked for


class _SpotChecks:
    """The schedule of one run: dense in the beginning, and never at an end.

    Every rank asks for the same steps in the same order, so all choose the same ones without a word. A loop plans its
    checks by the time that they take; most of them look at a few rows of the batch (`is_whole` tells which do not).
    """

    def __init__(self) -> None:
        self.is_on = _CHECKS.lower() not in ("off", "0", "no", "false")
        self.is_asked = _CHECKS.isdecimal() and int(_CHECKS) > 0  # for so many, whatever they cost
        self.wanted = int(_CHECKS) if self.is_asked else _FEW
        self.current, self.next_check = -1, 0  # the latest step that is checked, and the next one
        self.is_whole, self.next_whole = True, 0  # whether the latest is compared whole, and the next that is
        self.steps = self.begun = 0  # that were asked for; those before the Trainer that trains
        self.expects_steps = False  # a Trainer is to be divided
        self.last_good = [-1, -1]  # the latest two steps in which a comparison was good
        self.gap: Callable[[int], int] = self.rare_gap  # after how many steps the next check comes
        self.random = random.Random("nb2ddp")  # the notebook's generators stay as they are
        self.waiting: list[Any] = []  # what is to run before the summary: a last comparison
        _run.checks = {"checked": 0, "steps": 0, "difference": 0.0, "gradients": None, "failed": []}

    def is_checked(self, step: int, *, must: bool = False) -> bool:
        """Return whether a step is recomputed; steps count from 0, and one may be asked for several times."""
        if not self.is_on or not _run.meets:
            return False
        self.steps = max(self.steps, step + 1)
        if step != self.current and (must or step >= self.next_check):
            self.current, self.next_check = step, step + self.gap(step)
            self.is_whole = step >= self.next_whole
            if self.is_whole:
                self.next_whole = step + self.rare_gap(step)
        return step == self.current

    def rare_gap(self, step: int) -> int:
        """Return after how many steps the next check comes: the later the rarer, up to a limit."""
        usual = max(1.0, min(4.0 * step * _FEW / self.wanted, max(1.0, 1000 / self.wanted))) if step else 2.0
        return max(1, round(usual * self.random.uniform(0.6, 1.4)))

    def record(self, difference: float, gradients: float | None = None) -> None:
        """Keep what a good check of the latest step has shown: the largest relative difference."""
        of, step = _run.checks, self.steps - 1
        if step != self.last_good[1] or not of["checked"]:
            of["checked"] += 1
            self.last_good = [self.last_good[1], step]
        of["difference"] = max(of["difference"], difference)
        if gradients is not None:
            of["gradients"] = max(of["gradients"] or 0.0, gradients)

    def failed(self, sentence: str, since: str = "") -> None:
        """Say on rank 0 what differs, and since when; with NB2DDP_STRICT=1 the run ends with exit code 1.

        ``sentence`` ends with what follows from it: "from here on every rank computes whole batches", say. ``since``:
        what may be wrong, if these checks do not know.
        """
        good = self.last_good[self.last_good[1] < self.steps - 1]  # of an earlier step
        if self.begun <= good < self.steps - 1 and not since:
            since = f" The last good check was at step {good + 1 - self.begun}."
            if _run.checks["checked"] < self.steps - 1:
                since += " A check vouches for its own step: the others before this one may differ from one process."
        text = f"a check failed at step {self.steps - self.begun}: {sentence}.{since}"
        _run.checks["failed"].append(text)
        if _STRICT:
            _run.failures.append(text)
        _warn(text)

    def summary(self) -> str:
        """Return the line for the end of the run; "" where nothing was asked for."""
        of = _run.checks
        # an evaluation after the last step is none
        steps = of["steps"] = max(_run.steps or self.steps, of["checked"])
        if not of["checked"]:
            asked = self.steps or self.expects_steps
            return f"checked: none of {steps} steps, every rank computed whole batches" if asked else ""
        gradients = "" if of["gradients"] is None else f" (gradients {of['gradients']:.0e})"
        failed = f"; {len(of['failed'])} failed" if of["failed"] else ""
        largest = f"largest difference {of['difference']:.0e}{gradients}{failed}"
        return f"checked: {of['checked']} of {steps} steps recomputed as one process, {largest}"

    def run_last(self) -> None:
        """Compare once more, at the end of a training, what is ``waiting`` and lives on all ranks. A collective."""
        found = [reference() for reference in self.waiting]
        for compare, *lives in zip(found, *from_all_ranks([of is not None for of in found]), strict=True):
            if compare is not None and all(lives):
                compare()

    def say(self) -> None:
        """Print the summary on rank 0, once for what was recorded since the last time."""
        text = self.summary()
        if text and text != _run.checks.get("said"):
            _run.checks["said"] = text
            _say(text)


_checks = _SpotChecks()
