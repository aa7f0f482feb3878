"""Hold what a rank computes of a step that is compared: rank 0 as the notebook does, the others each part alone."""

from typing import Any

from nb2ddp.runtime.figure_rules import _Note
from nb2ddp.runtime.figures import _Values
from nb2ddp.runtime.held_tensors import _Held
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.step_plans import _Unit
from nb2ddp.runtime.summed_gradients import _add_gradients, _aside, _taken


class _CheckedStep:
    """A step of which every rank computes all; what ranks above 0 change is taken back, for rank 0's notes."""

    def __init__(self, held: _Held, base: _Values, parameters: list[Any], count: int, tried: int) -> None:
        rank, size = _run.rank, _run.world_size
        self.held, self.tried, self.is_apart = held, tried, rank > 0
        self.plan = [_Unit(turn, None, turn * size // count) for turn in range(count)]
        self.way: Any = None  # how ranks above 0 divide an only micro-batch meanwhile
        self.parts: Any = ({}, "")  # what this rank gives of it
        self.own = range(-(-rank * count // size), -(-(rank + 1) * count // size))
        self.made: dict[Any, _Note] = {}  # by micro-batch and part
        self.alone = base  # values after this rank's micro-batches so far
        # gradients: of the steps before, of other ranks, of this one, of all, of the micro-batch to be divided
        self.before, self.others = _aside(parameters), [None] * len(parameters)
        self.mine = self.others if self.is_apart else self.before
        self.whole = self.of_tried = self.before

    def mark(self, turn: int, parameters: list[Any]) -> None:
        """Tell gradients apart before a micro-batch, or at the end."""
        if turn == self.tried + 1:
            self.of_tried = _aside(parameters, self.of_tried)
        if self.own and turn == self.own.stop:
            self.mine = _aside(parameters, self.mine)
            _add_gradients(parameters, self.others)
        if self.own and turn == self.own.start and self.is_apart:
            self.others = _taken(parameters)
        if turn == self.tried:
            self.of_tried = _aside(parameters)
        if turn == len(self.plan):
            self.whole = _aside(parameters, self.before)
