"""Wrap a model with DistributedDataParallel, and compare its replicas after training."""

import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _T, _run, is_main_process
from nb2ddp.runtime.same_data import _digest
from nb2ddp.runtime.spot_checks import _checks


def _make_equal(model: torch.nn.Module, names: list[str]) -> None:
    """Give every rank rank 0's values of parameters where they differ: DDP sends those alone that it averages.

    Quantised tensors, and parameters that stay on the CPU, cannot be sent; they come from one checkpoint.
    """
    parameters = dict(model.named_parameters())
    own = {name: _fingerprint(parameters[name]) for name in names}
    of_ranks = from_all_ranks(own)
    for name, parameter in parameters.items():
        if name not in own:
            continue
        if any(other.get(name) != own[name] for other in of_ranks):
            with torch.no_grad():
                dist.broadcast(parameter.data, 0)


def _fingerprint(parameter: torch.Tensor) -> str:
    """Return a digest of up to 1024 values of a parameter; "" for a tensor subclass that cannot be read so."""
    try:
        flat = parameter.detach().reshape(-1)
        return _digest(flat[:: max(1, flat.numel() // 1024)])
    except (RuntimeError, NotImplementedError, TypeError):
        return ""


def check_replicas(model: Any = None, result: _T | None = None) -> _T | None:
    """Compare the trained parameters that each rank has whole, bit for bit, and return ``result``.

    Compared are those of ``model``, of all models that were wrapped since the last call, and what optimizers have
    trained beside. Without ``model`` they are those of all divided and wrapped models. Of those that are sharded every
    number is on one rank: there is nothing to compare. A difference does not end the run: what rank 0 trained is saved
    first, then the script ends with exit code 1. Then says how many steps of the run were recomputed as one process.
    Every rank waits for the digests of all ranks.
    """
    if _run.world_size == 1:
        return result
    _checks.run_last()
    models = {} if model is None else {"": model}
    for of in models.values():
        _reshard(of)
    models |= _take_uncompared(model)
    trained = {
        (number, name): value
        for number, each in models.items()
        for name, value in each.named_parameters()
        if value.requires_grad and not value.is_meta
    }
    trained |= _trained_beside({id(value) for value in trained.values()})
    digests = {key: _digest(value) for key, value in trained.items() if not hasattr(value, "full_tensor")}
    digests |= _gone
    _gone.clear()
    of_ranks = from_all_ranks(digests)
    apart = [
        name
        for (number, name), own in digests.items()
        # another model than the given one may be gone on a rank already
        if any(other.get((number, name), own if number else None) != own for other in of_ranks)
    ]
    steps = f", after {_run.most_steps} steps" if _run.most_steps else ""
    if apart:
        _run.failures.append(
            f"the ranks have trained different models: {apart[0]} is not the same on all of them"
        )
        if is_main_process:
            print(f"nb2ddp: ERROR: {_run.failures[-1]}", file=sys.stderr, flush=True)
    elif len(digests) < len(trained):
        print(f"nb2ddp: {_run.world_size} ranks hold one model in shards{steps}")
    elif digests:
        print(f"nb2ddp: {_run.world_size} replicas equal, bit for bit{steps}")
    _run.compared_steps = _run.steps
    _checks.say()
    return result


_gone: dict[tuple[str, str], str] = {}  # digests of models that are gone since the last comparison


def _compare_later(model: torch.nn.Module) -> None:
    """Compare a model at the next comparison: where it is gone by then, as it was in the end."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    weakref.finalize(model, _keep_digests, f"gone {len(_run.uncompared)}", trained).atexit = False
    _run.uncompared.append(weakref.ref(model))


def _keep_digests(number: str, trained: dict[str, torch.Tensor]) -> None:
    """Keep what is to be compared of a model that is gone, if it was trained since the last comparison."""
    if _run.meets and _run.steps > _run.compared_steps:
        kept = {name: value for name, value in trained.items() if not hasattr(value, "full_tensor")}
        _gone.update({(number, name): _digest(value) for name, value in kept.items() if not value.is_meta})


def _check_rest() -> None:
    """Compare what was trained since the last comparison: a model that a class keeps, for example."""
    if _run.meets and (_run.divided or _gone) and _run.steps > _run.compared_steps:
        check_replicas()
    _checks.say()


def _trained_beside(known: set[int]) -> dict[tuple[str, str], Any]:
    """Return what the optimizers of loops train that have taken a step, but for what is known."""
    found = {}
    for optimizer, number in list(_run.numbers.items()) if _run.divided else ():
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for place, value in enumerate(parameters):
            if id(value) not in known and isinstance(value, torch.Tensor) and not value.is_meta:
                found[f"optimizer {number}", f"parameter {place} of an optimizer"] = value
    return found


def _take_uncompared(model: Any) -> dict[str, Any]:
    """Return the other models that were wrapped since the last call, by the number that they have on every rank.

    Those of a loop may train on: they are compared again.
    """
    found: dict[str, Any] = {}
    known = {id(model), id(getattr(model, "module", None))}
    for number, wrapped in enumerate(_run.uncompared):
        other = wrapped()
        if other is not None and id(other) not in known:
            known.add(id(other))
            found[str(number)] = other
    if model is not None:
        _run.uncompared.clear()
    return found


def _reshard(model: Any) -> None:
    """Reshard FSDP modules: after an evaluation they still hold gathered parameters, which look whole."""
    for part in model.modules():
        reshard = getattr(part, "reshard", None)
        if reshard is not None and hasattr(part, "unshard"):
            reshard()
