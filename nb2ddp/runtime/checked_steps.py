"""Hold what a rank computes of a step that is compared: rank 0 as the notebook does, the others each part alone."""

from typing import Any

from nb2ddp.runtime.figure_rules import _Note
from nb2ddp.runtime.figures import _Values
from nb2ddp.runtime.held_tensors import _Held
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.step_plans import _Division, _Unit
from nb2ddp.runtime.summed_gradients import _add_gradients, _cpu_copies, _take_gradients


class _CheckedStep:
    """A step of which every rank computes all; what ranks above 0 change is undone, for rank 0's notes."""

    def __init__(self, held: _Held, base: _Values, parameters: list[Any], count: int, tried: int) -> None:
        rank, size = _run.rank, _run.world_size
        self.held, self.is_undone = held, rank > 0
        self.tried = tried  # the micro-batch that is divided too, or -1
        self.plan = [_Unit(i, None, i * size // count) for i in range(count)]
        self.way: _Division | None = None  # how ranks above 0 divide an only micro-batch meanwhile
        self.parts: Any = ({}, "")  # what this rank gives of it
        # this rank's micro-batches
        self.own = range(-(-rank * count // size), -(-(rank + 1) * count // size))
        self.made: dict[Any, _Note] = {}  # by micro-batch and part
        self.own_values = base  # figures after this rank's micro-batches so far
        # gradients on the CPU: of the steps before; of other ranks' micro-batches before this rank's
        self.earlier_gradients, self.others_gradients = _cpu_copies(parameters), [None] * len(parameters)
        # and of this rank's, of all, and of the one that is divided too
        self.own_gradients = self.others_gradients if self.is_undone else self.earlier_gradients
        self.all_gradients = self.tried_gradients = self.earlier_gradients

    def mark(self, i: int, parameters: list[Any]) -> None:
        """Copy gradients that begin or end with a micro-batch; at the end ``i`` is one more than the last."""
        if i == self.tried + 1:
            self.tried_gradients = _cpu_copies(parameters, self.tried_gradients)
        if self.own and i == self.own.stop:
            self.own_gradients = _cpu_copies(parameters, self.own_gradients)
            _add_gradients(parameters, self.others_gradients)
        if self.own and i == self.own.start and self.is_undone:
            self.others_gradients = _take_gradients(parameters)
        if i == self.tried:
            self.tried_gradients = _cpu_copies(parameters)
        if i == len(self.plan):
            self.all_gradients = _cpu_copies(parameters, self.earlier_gradients)
