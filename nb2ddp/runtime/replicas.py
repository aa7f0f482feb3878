"""Make the replicas of a model equal before training, and compare them after it."""

from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.digests import _ON_ONE_RANK, _digest
from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _T, _run, _say, _warn
from nb2ddp.runtime.spot_checks import _checks


def _make_equal(model: torch.nn.Module, names: list[str]) -> None:
    """Give every rank rank 0's values of parameters where they differ.

    Quantised tensors, and parameters that stay on the CPU, cannot be sent; they come from one checkpoint.

    Raises:
        RuntimeError: their shapes, types or devices differ between ranks.
    """
    parameters = dict(model.named_parameters())
    kinds = {name: (p.shape, p.dtype, p.device.type) for name, p in parameters.items() if name in names}
    own = {name: _fingerprint(parameters[name]) for name in names}
    of_ranks = from_all_ranks((own, kinds))
    for rank, (_, other) in enumerate(of_ranks):
        if other != kinds:
            what = f"rank {rank} has {model.__class__.__name__} in other shapes, types or on other devices"
            raise RuntimeError(f"{what} than rank {_run.rank}: {_ON_ONE_RANK}")
    for name in own:
        if any(other[name] != own[name] for other, _ in of_ranks):
            dist.broadcast(parameters[name].data, 0)


def _fingerprint(parameter: torch.Tensor) -> str:
    """Return a digest of up to 1024 values of a parameter; "" for a tensor subclass that cannot be read so."""
    try:
        flat = parameter.detach().reshape(-1)
        return _digest(flat[:: max(1, flat.numel() // 1024)])
    except (RuntimeError, NotImplementedError, TypeError):
        return ""


def check_replicas(model: Any = None, result: _T | None = None) -> _T | None:
    """Compare the trained parameters that each rank has whole, bit for bit, and return ``result``.

    Compared are those of ``model`` (without it, of all divided and wrapped models), of all models that were wrapped
    since the last call, and what optimizers have trained beside; of sharded ones there is nothing to compare. Where
    they differ, the script saves what rank 0 trained and ends with exit code 1. Then says how many steps of the run
    were recomputed as one process. Every rank waits for the digests of all ranks.
    """
    if _run.world_size == 1 or _run.has_rows is not None:
        return result
    _checks.run_last()
    # first: a sharded model is gathered no more after it
    others = [find(model) for find in _run.of_loops]
    named = [] if model is None else model.named_parameters()
    trained = {("", name): value for name, value in named if value.requires_grad and not value.is_meta}
    for found in others:
        trained = {**found, **trained}
    trained = {key: value for key, value in trained.items() if not torch.nn.parameter.is_lazy(value)}
    whole = {key: value for key, value in trained.items() if not hasattr(value, "full_tensor")}
    digests = {key: value if isinstance(value, str) else _digest(value) for key, value in whole.items()}
    of_ranks = from_all_ranks(digests)
    # another model than the given one may be gone on a rank already
    gone = {key: own if key[0] else None for key, own in digests.items()}
    apart = [key[1] for key in digests if any(of.get(key, gone[key]) != digests[key] for of in of_ranks)]
    most = max(_run.steps_of.values(), default=0)  # of one optimizer
    steps = f", after {most} steps" if most else ""
    if apart:
        why = f"the ranks have trained different models: {apart[0]} is not the same on all of them"
        _run.failures.append(why)
        _warn(why, "ERROR")
    elif len(digests) < len(trained):
        _say(f"{_run.world_size} ranks hold one model in shards{steps}")
    elif digests:
        _say(f"{_run.world_size} replicas equal, bit for bit{steps}")
    _run.compared_steps = _run.steps
    _run.steps_of.clear()
    _checks.say()
    return result
