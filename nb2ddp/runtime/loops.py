"""Divide the turns of a loop, or the micro-batches of an accumulation step, among the ranks."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _T, _run


def share_loop(items: Iterable[_T], *results: list[Any]) -> Iterator[_T]:
    """Give this rank every world_size-th item of a loop; then ``results`` hold what all ranks appended.

    They hold it on every rank and in the order of the items, as one process fills them. Waits for the slowest.

    Raises:
        RuntimeError: the ranks went through different items.
    """
    if not _run.meets:
        yield from items
        return
    parts = []
    with torch.random.fork_rng([_run.local_rank] if torch.cuda.is_available() else []):
        if _run.rank > 0:
            torch.manual_seed(torch.initial_seed() + _run.rank)  # a model that samples must not draw the same
        for item in itertools.islice(items, _run.rank, None, _run.world_size):
            yield item
            parts.append([result.copy() for result in results])
            for result in results:
                result.clear()
    of_ranks = from_all_ranks(parts)
    taken = [len(of_rank) for of_rank in of_ranks]
    if taken != [len(range(start, sum(taken), _run.world_size)) for start in range(_run.world_size)]:
        raise RuntimeError(f"the ranks went through different items: {taken} of them")
    for turn in itertools.zip_longest(*of_ranks, fillvalue=()):
        for part in turn:
            for result, values in zip(results, part, strict=False):
                result.extend(values)


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
