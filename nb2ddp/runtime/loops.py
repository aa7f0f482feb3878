"""Divide the micro-batches of an accumulation step among the ranks."""

from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.run_state import _run


def takes_turn(turn: int, turns: int, ddp_model: Any) -> bool:
    """Return whether micro-batch ``turn`` of the ``turns`` of an accumulation step is this rank's.

    The backward() of a rank's last micro-batch all-reduces the gradients and waits for the other ranks. DDP averages;
    the script multiplies each loss by world_size, so the result is the sum over the accumulation step.

    Raises:
        RuntimeError: a step has fewer micro-batches than there are ranks.
    """
    if turns < _run.world_size:
        raise RuntimeError(f"a step has {turns} batches: too few for {_run.world_size} processes")
    ddp_model.require_backward_grad_sync = turn + _run.world_size >= turns
    return turn % _run.world_size == _run.rank


def sum_over_ranks(value: Any) -> Any:
    """Return the sum of a number over all ranks, as a tensor or a float as it was given. Waits for all ranks."""
    if _run.world_size == 1:
        return value
    total = torch.as_tensor(value).detach().clone()
    if torch.cuda.is_available():
        total = total.cuda()
    dist.all_reduce(total)
    return total if isinstance(value, torch.Tensor) else total.item()
