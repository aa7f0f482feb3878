"""Begin to divide the calls of a loop's models over the ranks."""

import weakref
from typing import Any

import torch

from nb2ddp.runtime.divided_calls import _Split
from nb2ddp.runtime.loop_patches import _patch_for_loops
from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.other_replicas import _compare_later
from nb2ddp.runtime.process_group import init_process_group
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.split_classes import _divide_what_is_compiled, _split_class, _splits
from nb2ddp.runtime.spot_checks import _checks


def parallelize(model: torch.nn.Module) -> torch.nn.Module:
    """Let each rank compute its part of every batch that ``model`` is called with, and return ``model``.

    Each rank runs the notebook's loop over the notebook's batches. Where gradients are wanted, ``model(batch)`` and
    ``model.method(batch)`` compute this rank's rows alone and return the outputs of all rows: losses, metrics and
    decisions are computed from whole batches, alike on every rank. Outputs that are one number (a loss that the model
    computes) are combined with the weights that comparisons show to be right. backward() averages the gradients over
    the ranks. Without gradients every rank computes whole batches.

    The first call of a kind, and a few later ones, are computed whole as well, as one process does, and compared.
    Where they differ, or rows cannot be told, every rank computes whole batches: right, but no faster; a warning says
    so. Waits for rank 0, whose random generators all ranks take over.
    """
    # notebooks call what is in DataParallel past it, too
    inner: Any = model.module if isinstance(model, torch.nn.DataParallel) else model
    if _run.world_size == 1 or not isinstance(inner, torch.nn.Module) or inner in _splits:
        return model
    _start_dividing()
    _divide(inner)
    return model


def _start_dividing() -> None:
    """Prepare the process group and what libraries do, and let all ranks draw rank 0's random numbers."""
    init_process_group()
    _patch_for_loops()
    _divide_what_is_compiled(_divide)
    _set_random_state(from_main_process(_random_state))


def _divide(model: Any) -> None:
    kind: Any = type(model)
    model.__class__ = _split_class(kind)
    _splits[model] = split = _Split(model)
    _compare_later(model)
    _checks.waiting.append(weakref.WeakMethod(split.check_last))
