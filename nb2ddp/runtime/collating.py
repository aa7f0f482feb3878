"""Give a data collator that draws random numbers or counts the notebook's micro-batches, whole, on every rank."""

import dis
import functools
import inspect
import sys
from typing import Any

import torch

from nb2ddp.runtime.notebook_losses import _followed
from nb2ddp.runtime.run_state import is_main_process

_DRAWS_BY = frozenset(
    "random rand randn randint randrange randperm rand_like randn_like bernoulli multinomial normal uniform choice "
    "choices shuffle permutation permuted integers standard_normal".split()
)


def _draws_or_counts(collator: Any) -> bool:
    """Return whether a collator masks tokens at random, or is the notebook's own and draws, or keeps what it sees.

    Its code says so. To try it would draw and count.
    """
    if getattr(collator, "mlm", False):
        return True
    function = collator.func if isinstance(collator, functools.partial) else collator
    owner = type(getattr(function, "__self__", function))
    if inspect.isfunction(function) or inspect.ismethod(function):
        functions = [inspect.unwrap(getattr(function, "__func__", function))]
    else:
        functions = list(vars(owner).values())
    if getattr(functions[0] if inspect.isfunction(function) else owner, "__module__", "") != "__main__":
        return False
    codes = [
        code for code in _followed(functions, owner) if code.co_name not in ("__init__", "__post_init__")
    ]
    stores = {step.opname for code in codes for step in dis.get_instructions(code)}
    return bool(stores & {"STORE_ATTR", "STORE_GLOBAL"}) or any(_DRAWS_BY & {*of.co_names} for of in codes)


def _collates_whole(trainer: Any) -> bool:
    """Return whether a Trainer's collator is given whole micro-batches in training.

    In worker processes it counts for itself in the notebook, too, and a stream gives each rank other rows.
    """
    own_order = not isinstance(getattr(trainer, "train_dataset", None), torch.utils.data.IterableDataset)
    alone = getattr(trainer.args, "dataloader_num_workers", 0) == 0
    return own_order and alone and _draws_or_counts(getattr(trainer, "data_collator", None))


class _WholeCollator:
    """Collate each micro-batch that the ranks hold together, and take this rank's rows of its own.

    All ranks collate the same rows in the same order: what is drawn and counted is what one process draws and counts.
    ``batches``: the rank's batch sampler, which gives the rows of all ranks.
    """

    def __init__(self, collate: Any, batches: Any) -> None:
        self.collate, self.batches = collate, batches

    def __call__(self, rows: list[Any]) -> Any:
        sizes, own, start, end = self.batches.of_rank
        if not self.batches.all_rows:
            return self.collate(rows)
        first, made = 0, None
        for number, size in enumerate(sizes):
            whole = self.collate(rows[first : first + size])
            made = whole if number == own else made
            first += size
        part = _rows_of(made, sizes[own], start, end)
        if part is not None:
            return part
        self.batches.all_rows = False  # from the next batch on
        if is_main_process:
            print(
                "nb2ddp: WARNING: the data collator draws random numbers or counts, on each rank for its own samples: "
                "the rows of its batches cannot be told apart. Losses and counts are not the single process's",
                file=sys.stderr,
                flush=True,
            )
        before = sum(sizes[:own])
        return self.collate(rows[before + start : before + end])


def _rows_of(batch: Any, count: int, start: int, end: int) -> Any:
    """Return some rows of a batch of ``count`` rows; None where a value has another number of rows."""
    if not hasattr(batch, "keys"):
        return None
    part = {}
    for name in batch:
        value = batch[name]
        if isinstance(value, list | tuple) or (isinstance(value, torch.Tensor) and value.ndim):
            if len(value) != count:
                return None
            value = value[start:end]
        part[name] = value
    return type(batch)(part)
