"""Begin to divide the calls of a loop's models over the ranks."""

import functools
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from nb2ddp.runtime.autograd_patches import _average_asked_gradients, _show_whole_gradients
from nb2ddp.runtime.averaged_backward import _backward, _share_errors
from nb2ddp.runtime.divided_calls import _LOSES, _Split
from nb2ddp.runtime.module_state import _is_compiled, _is_in_own_code, _optimizers
from nb2ddp.runtime.object_collectives import _take_from_rank_0, from_main_process
from nb2ddp.runtime.other_replicas import _compare_later
from nb2ddp.runtime.process_group import init_process_group
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.repeated_writes import _end_trial
from nb2ddp.runtime.run_state import _replaced, _run, _warn_once
from nb2ddp.runtime.split_classes import (
    _calls,
    _divide_no_more,
    _divide_what_is_compiled,
    _is_to_divide,
    _split_class,
    _splits,
)
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.unseen_gradients import _reduce_unseen, _reduced


def parallelize(model: torch.nn.Module) -> torch.nn.Module:
    """Let each rank compute its part of every batch that ``model`` is called with, and return ``model``.

    Each rank runs the notebook's loop. ``model(batch)`` and ``model.method(batch)`` compute this rank's rows and return
    the outputs of all rows, so that losses, metrics and decisions are alike on every rank; numbers are combined with
    weights that comparisons show to be right. backward() averages the gradients. Calls without gradients, also those of
    models that the loop calls beside this one, are divided where that is worth its exchange.

    The first call of a kind, and a few later ones, are compared with the same computed whole, as one process does. If
    they differ, or rows cannot be told, every rank computes whole batches, which a warning says, and the calls of the
    model's parts are divided in the same way. Waits for rank 0, whose random generators all ranks take over.
    """
    # notebooks call what is in DataParallel past it, too
    inner: Any = model.module if isinstance(model, torch.nn.DataParallel) else model
    if _run.world_size == 1 or not isinstance(inner, torch.nn.Module) or inner in _splits:
        return model
    _start_dividing()
    _compare_later(_divide(inner))
    return model


def _start_dividing() -> None:
    """Prepare the process group and what libraries do, and let all ranks draw rank 0's random numbers."""
    init_process_group()
    _patch_for_loops()
    _set_random_state(from_main_process(_random_state))


@functools.cache
def _patch_for_loops() -> None:
    """Change what libraries do where a loop's model is divided; a Trainer's script changes none of it."""
    _average_asked_gradients()
    _show_whole_gradients()
    _share_errors()
    _divide_what_is_compiled(parallelize)
    _see_calls()
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(lambda *_: _divide_parts())


def _before_step(optimizer: Any, *_: Any) -> None:
    """Exchange gradients, and take rank 0's numbers: a learning rate may follow the clock."""
    if optimizer in _optimizers:
        _end_trial("forward() lets an optimizer step")
    if _run.effect is None:  # else a model fits something to its rows
        _backward.flush()
        _reduce_unseen(optimizer)
        if _run.meets and _reduced:
            _take_from_rank_0(optimizer.param_groups)


def _divide(model: Any, whole: Any = None) -> Any:
    """Divide the calls of a model, or of a part of one that is computed ``whole``."""
    kind: Any = type(model)
    object.__setattr__(model, "__class__", _split_class(kind))  # a traced model would hand it on
    _splits[model] = split = _Split(model, whole)
    _checks.waiting.append(weakref.WeakMethod(split.check_last))
    return model


@functools.cache
def _see_calls() -> None:
    """See calls of modules outside of divided ones: one may be a model that trains, or one that is used beside it."""
    plain: Any = torch.nn.Module.__call__

    @functools.wraps(plain)
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        trains = torch.is_grad_enabled()
        if _calls.are_inside or (trains and not _calls.search) or not _is_to_divide():
            return plain(model, *args, **kwargs)
        if _calls.search(model) if trains and _calls.search else _is_used_beside(model):
            return (parallelize if trains else _divide)(model)(*args, **kwargs)
        with _replaced(_calls, are_inside=not trains):
            return plain(model, *args, **kwargs)

    torch.nn.Module.__call__ = call


def _is_used_beside(model: torch.nn.Module) -> bool:
    """Return whether this is the third call without gradients of a model beside divided ones, and no part of them."""
    calls = _counts[model] = _counts.get(model, 0) + bool(_splits)
    if calls != 3 or next(model.parameters(), None) is None:
        return False
    parts = {part for of in list(_splits) for part in of.modules()}
    return model not in parts and not any(part in _splits for part in model.modules())


def _is_whole(split: _Split) -> bool:
    """Return whether all calls with gradients are computed whole, for what is not perhaps in the parts, too."""
    kinds = {kind for kind in {*split.kinds, *split.whole} - split.other_places if kind[2][1]}
    if not kinds or not kinds <= split.whole.keys():
        return False
    of_parts = any(norm.training for norm in split.batch_norms) or _is_compiled(split.model.modules())
    of_gradients = any(why.startswith("the gradient") for why in split.whole.values())
    return not (of_parts or of_gradients or _is_in_own_code(r"autograd\.Function"))


def _divide_parts() -> None:
    """Divide the parts of models that every rank computes whole, or that nobody calls; in other processes nothing."""
    for model, split in list(_splits.items()) if _run.meets and _run.has_rows is None else ():
        split.steps += 1
        is_idle = split.steps == 4 and not split.calls and any(p.grad is not None for p in model.parameters())
        if split.by_parts or not (is_idle or _is_whole(split)):
            continue
        if split.whole_model and _LOSES in split.whole.values():
            _divide_no_more(model)
            continue
        split.by_parts, split.last = True, None
        if is_idle and not split.whole_model:
            _warn_once(
                f"{type(model).__name__} trains without being called: the calls of its parts are divided"
            )
        for part in model.children():
            if part not in _splits and not hasattr(part, "parametrizations") and [*part.parameters()]:
                _divide(part, split.whole_model() if split.whole_model else model)


_counts: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
