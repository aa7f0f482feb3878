"""Find the models that a loop trains, where the script does not name them."""

import functools
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from nb2ddp.runtime.divided_models import _see_calls, _start_dividing
from nb2ddp.runtime.run_state import _run, _warn
from nb2ddp.runtime.split_classes import _calls, _splits
from nb2ddp.runtime.unseen_gradients import _reduced


def parallelize_trained() -> None:
    """Let each rank compute its part of every batch of all models that the optimizers made from here on train.

    A model is what the loop calls with gradients, and what holds parameters that an optimizer was given; it is divided
    from its first call on, as by `parallelize`. Where no optimizer of PyTorch's is made, that is the first model with
    parameters to train. An optimizer's first step ends the search for its parameters: what trains them without being
    called, every rank computes whole, and a warning says so. As an optimizer is made, waits for rank 0, whose random
    generators all ranks take over. What a Trainer trains is its own: `wrap_trainer` ends the search.
    """
    if _run.world_size > 1:
        _watch_optimizers()
        _search.begin()


@functools.cache
def _watch_optimizers() -> None:
    """Let the search see each optimizer that is made, and each step."""
    add: Any = torch.optim.Optimizer.add_param_group

    @functools.wraps(add)
    def add_and_search(optimizer: Any, *args: Any, **options: Any) -> None:
        add(optimizer, *args, **options)
        if _run.meets and _search.is_open and not _calls.are_inside:
            _start_dividing()
            _search.has_optimizers = True
            _search.begin(optimizer.param_groups[-1]["params"])

    torch.optim.Optimizer.add_param_group = add_and_search
    register_optimizer_step_post_hook(_search.end)
    _run.at_finish.append(_search.close)
    _run.at_trainer.append(_search.close)


class _Search:
    """Parameters that optimizers were given, and that no divided model holds yet: what is called with them is a model.

    Calls of modules are looked at as long as there are some.
    """

    def __init__(self) -> None:
        self.is_open = False  # whether optimizers that are made add to it
        self.waiting: dict[int, weakref.ref[Any]] = {}  # parameters, by id
        self.has_optimizers = False

    def begin(self, parameters: Iterable[Any] = ()) -> None:
        """Look for the model of parameters among the modules that are called."""
        self.is_open = True
        self.waiting |= {id(p): weakref.ref(p) for p in parameters}
        _see_calls()
        _calls.search = self.finds

    def end(self, optimizer: Any, *_: Any) -> None:
        """Look no more for the model of what has taken a step."""
        if not self.waiting or not _run.meets:
            return
        self._leave_out_divided()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        missed = [self.waiting.pop(id(p), None) for p in parameters]
        if parameters and all(missed):
            _warn(
                "an optimizer trains parameters of no model that was called: every rank computes all that leads to "
                "them, which saves no time. Call the model, model(batch), to divide its batches"
            )
        if not self.waiting:
            _calls.search = None

    def close(self) -> None:
        """Look for no more models."""
        self.is_open = False
        self.waiting.clear()
        _calls.search = None

    def finds(self, model: torch.nn.Module) -> bool:
        """Return whether a model holds parameters that wait; without optimizers, any that train."""
        self._leave_out_divided()
        if not self.has_optimizers:
            return not _splits and any(p.requires_grad for p in model.parameters())
        return any(id(p) in self.waiting and self.waiting[id(p)]() is p for p in model.parameters())

    def _leave_out_divided(self) -> None:
        averaged = [number for number, found in _reduced.items() if found() is not None]
        for number in [id(p) for model in list(_splits) for p in model.parameters()] + averaged:
            self.waiting.pop(number, None)


_search = _Search()
