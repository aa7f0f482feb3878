"""Give a data collator that draws random numbers or counts the notebook's micro-batches, whole, on every rank."""

import collections
import copy
import dis
import functools
import inspect
import sys
from typing import Any

import torch

from nb2ddp.runtime.notebook_losses import _followed
from nb2ddp.runtime.run_state import _run, _warn

_DRAWS_BY = frozenset(
    "random rand randn randint randrange randperm rand_like randn_like bernoulli multinomial normal uniform choice "
    "choices shuffle permutation permuted integers standard_normal sample gauss beta betavariate exponential poisson "
    "uniform_ normal_ bernoulli_ random_ exponential_".split()
)
_FILLS = frozenset("append appendleft extend update add insert setdefault".split())
_IS_FILLED = (dict, list, set, collections.deque)


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
        functions = [
            of for kind in owner.__mro__ if kind.__module__ == "__main__" for of in vars(kind).values()
        ]
    if not any(getattr(of, "__module__", "") == "__main__" for of in functions):
        return False
    held: dict[str, Any] = {**sys.modules["__main__"].__dict__, **getattr(function, "__dict__", {})}
    for code in _followed(functions, owner):
        if code.co_name in ("__init__", "__post_init__"):
            continue
        names, steps = {*code.co_names}, list(dis.get_instructions(code))
        stores = {step.opname for step in steps}
        if names & _DRAWS_BY or stores & {"STORE_ATTR", "STORE_GLOBAL"}:
            return True
        if any(step.opname == "STORE_DEREF" and step.argval in code.co_freevars for step in steps):
            return True
        if _fills(steps, held):
            return True
    return False


def _fills(steps: list[dis.Instruction], held: dict[str, Any]) -> bool:
    """Return whether code puts something into a container that it does not make: ``seen.append(n)``, ``n[k] += 1``."""
    for place, step in enumerate(steps[:-2]):
        if step.opname.startswith("LOAD") and isinstance(held.get(str(step.argval)), _IS_FILLED):
            method, then = steps[place + 1], steps[place + 2].opname
            if method.opname in ("LOAD_ATTR", "LOAD_METHOD") and method.argval in _FILLS:
                return True
            if then in ("STORE_SUBSCR", "COPY", "DUP_TOP_TWO"):
                return True
    return False


def _collates_whole(trainer: Any) -> bool:
    """Return whether a Trainer's collator is given whole micro-batches.

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
        self.collate, self.batches, self.tried = collate, batches, False

    def __call__(self, rows: list[Any]) -> Any:
        sizes, own, start, end = self.batches.of_rank
        if not self.batches.all_rows:
            return self.collate(rows)
        again = (
            rows if self.tried else [copy.copy(row) for row in rows]
        )  # a collator may take labels out of them
        self.tried = True
        first, made = 0, []
        for size in sizes:
            made.append(self.collate(rows[first : first + size]))
            first += size
        if self.batches.micro_batches == _run.world_size:  # a rank has one of its own
            return made[own]
        # alike on all ranks, which have made the same
        parts = [_rows_of(whole, size, 0, size) for whole, size in zip(made, sizes, strict=True)]
        if all(part is not None for part in parts):
            return _rows_of(made[own], sizes[own], start, end)
        self.batches.all_rows = False  # from the next batch on
        _warn(
            "the data collator draws random numbers or counts, on each rank for its own samples: "
            "the rows of its batches cannot be told apart. Losses and counts are not the single process's"
        )
        before = sum(sizes[:own])
        return self.collate(again[before + start : before + end])


def _rows_of(batch: Any, count: int, start: int, end: int) -> Any:
    """Return some rows of a batch of ``count`` rows; None where they cannot be told in a value."""
    if not hasattr(batch, "keys"):
        return None
    part = {}
    for name in batch:
        value = batch[name]
        if hasattr(value, "keys"):
            value = _rows_of(value, count, start, end)
            if value is None:
                return None
        elif isinstance(value, torch.Tensor) and value.layout != torch.strided:
            return None
        elif isinstance(value, list | tuple) or bool(getattr(value, "ndim", False)):  # of PyTorch or NumPy
            if len(value) != count:
                return None
            value = value[start:end]
        elif not (value is None or isinstance(value, int | float | str) or hasattr(value, "ndim")):
            return None
        part[name] = value
    return type(batch)(part)
