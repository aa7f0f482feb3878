"""Split the notebook's batch over the ranks."""

import math
from typing import Any

from nb2ddp.runtime.run_state import _run


def share_batch(
    batch_size: int,
    accumulation_steps: int,
    num_generations: int | None = None,
    least: int = 1,
    by_length: bool = False,
) -> tuple[int, int]:
    """Split the notebook's batch over the ranks: its accumulation steps first, then its per-device batch.

    Returns this rank's micro-batch size and number of accumulation steps; their product with ``world_size`` is the
    notebook's effective batch, or a warning says what it is. ``num_generations`` keeps GRPO's groups whole; a rank
    gets at least ``least`` rows at a time, as KTO wants. With ``by_length`` a Trainer will be asked to share out the
    steps' samples by length, which keeps batches that do not divide: what a step takes is then told when that is
    decided.
    Every rank computes the same; none waits.
    """
    if num_generations and batch_size * accumulation_steps % num_generations:
        batch_size = num_generations  # Unsloth does this in the notebook: a step takes whole groups
    shared = math.gcd(accumulation_steps, _run.world_size)
    steps, parts = accumulation_steps // shared, _run.world_size // shared
    per_rank = max(batch_size // parts, 1)
    while num_generations and per_rank * steps * _run.world_size % num_generations:
        per_rank += 1
    micro_batches = accumulation_steps // steps
    if per_rank < min(least, batch_size):
        per_rank = min(least, batch_size)
        steps = max(round(batch_size * accumulation_steps / (per_rank * _run.world_size)), 1)
        micro_batches = _run.world_size if per_rank == batch_size else 1
    share = _RankBatch(per_rank).noting(batch_size, accumulation_steps, micro_batches)
    _run.shares[per_rank, steps] = share
    _run.untold.append((share, steps))
    if not by_length or per_rank * steps * _run.world_size == batch_size * accumulation_steps:
        _tell_batch(share)
    return share, steps


def share_arguments(args: Any) -> Any:
    """Give training arguments this rank's share of the batch that they were made with, and return them.

    The batch may come from a file or a function that the conversion cannot read. Every rank computes the same; none
    waits.

    Raises:
        ValueError: each rank would look for another batch size.
    """
    batch, steps = args.per_device_train_batch_size, args.gradient_accumulation_steps
    if isinstance(batch, _RankBatch):  # made from others that have their share
        return args
    if getattr(args, "auto_find_batch_size", False):
        raise ValueError(
            "auto_find_batch_size would find another batch on each rank; give one that fits instead"
        )
    kinds = [kind.__name__ for kind in type(args).__mro__]
    pairs = "KTOConfig" in kinds and getattr(args, "loss_type", "") != "apo_zero_unpaired"
    shares = share_batch(batch, steps, least=2 if pairs else 1)
    args.per_device_train_batch_size, args.gradient_accumulation_steps = shares
    return args


def _tell_batch(share: "_RankBatch | None" = None, *, by_length: bool = False) -> None:
    """Print how many samples a step takes, once for each share (or for all), and warn of another number.

    Steps that are shared out ``by_length`` take the notebook's number of samples, in batches of many sizes.
    """
    processes = f"{_run.world_size} process{'es' * (_run.world_size > 1)}"
    for told, steps in [entry for entry in _run.untold if share is None or entry[0] is share]:
        _run.untold.remove((told, steps))
        total, wanted = told * steps * _run.world_size, told.batch_size * told.accumulation_steps
        if by_length:
            batch = f"{told.batch_size} x {told.accumulation_steps}"
            print(f"nb2ddp: batch {batch}, by length over {processes} = {wanted} per step")
            continue
        print(f"nb2ddp: batch {told} x {steps} accumulation steps x {processes} = {total} per step")
        if total != wanted:
            print(
                f"nb2ddp: WARNING: the notebook's batch of {wanted} does not divide: a step takes {total} samples"
            )


class _RankBatch(int):
    """This rank's micro-batch size, which knows the notebook's batch that it is a share of.

    Training arguments keep the number that they are given: two batches whose shares are equal, 4 x 1 and 2 x 2 on
    two ranks, stay apart. Copied with its arguments it stays what it is; saved, it is a plain number.
    """

    batch_size: int  # the notebook's
    accumulation_steps: int
    micro_batches: int  # of the notebook, that all ranks together compute in one round

    def noting(self, batch_size: int, accumulation_steps: int, micro_batches: int) -> "_RankBatch":
        self.batch_size, self.accumulation_steps = batch_size, accumulation_steps
        self.micro_batches = micro_batches
        return self

    def __reduce__(self) -> Any:
        return int, (int(self),)

    def __copy__(self) -> "_RankBatch":
        return self

    def __deepcopy__(self, memo: Any) -> "_RankBatch":
        return self


def _share_of(args: Any) -> _RankBatch:
    """Return this rank's share of the notebook's batch; where none was made, the ranks' batches are the notebook's.

    The arguments hold a plain number from here on: what logs them looks at its type.
    """
    batch, steps = args.per_device_train_batch_size, args.gradient_accumulation_steps
    kept = getattr(args, "_rank_batch", None)
    if isinstance(batch, _RankBatch):
        args._rank_batch, args.per_device_train_batch_size = batch, int(batch)
        return batch
    if isinstance(kept, _RankBatch) and kept == batch:
        return kept
    if (batch, steps) in _run.shares:  # the number was written down and read again
        return _run.shares[batch, steps]
    return _RankBatch(batch).noting(batch, steps * _run.world_size, 1)
