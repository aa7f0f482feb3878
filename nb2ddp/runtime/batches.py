"""Let a Trainer take each sample of an epoch once, in the notebook's micro-batches."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.collating import _collates_whole, _WholeCollator
from nb2ddp.runtime.even_batches import _even_out
from nb2ddp.runtime.run_state import _run


class _DividedBatches:
    """Batch sampler of one rank: in each round the ranks take ``micro_batches`` of the notebook's micro-batches.

    Each of these is divided over as many ranks, or is one rank's, where there are as many as ranks.
    A rank without a row of the last one gets a row that does not count. Accelerate would repeat rows of the first
    batch there, and train on them.
    """

    def __init__(self, shard: Any, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.batches, self.drop_last = shard.batch_sampler, shard.drop_last
        self.batch_size = shard.batch_size
        self.sizes: list[list[int]] = []  # rows that count, by batch and rank; of this epoch
        self.taken = -1  # the batch that the Trainer took last
        self.all_rows = False  # a collator is given the rows of all ranks, and takes
        self.of_rank = (
            [0],
            0,
            0,
            0,
        )  # of these micro-batches, by their sizes, in that one from here to there

    def __len__(self) -> int:
        return math.ceil(self.whole(len(self.batches)) / _run.world_size)

    def whole(self, count: int) -> int:
        """Return how many of ``count`` batches are taken: with ``drop_last`` those of whole micro-batches."""
        together = _run.world_size // self.micro_batches
        return count // together * together if self.drop_last else count

    def __getattr__(self, name: str) -> Any:
        if "batches" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes, self.taken = [], -1
        parts = iter(self.batches)
        filler: list[int] = []
        while own := list(itertools.islice(parts, _run.world_size)):
            own = own[: self.whole(len(own))]
            if not own:
                return
            rows = [row for part in own for row in part]
            filler = filler or rows[:1]
            together = _run.world_size // self.micro_batches
            bounds = [0]
            for first in range(0, _run.world_size, together):
                start, count = bounds[-1], sum(map(len, own[first : first + together]))
                bounds += [start - (-count * number // together) for number in range(1, together + 1)]
            self.sizes.append([end - start for start, end in itertools.pairwise(bounds)])
            if self.all_rows:
                self._note_own(bounds[::together], bounds[_run.rank], bounds[_run.rank + 1])
                yield rows
                continue
            yield rows[bounds[_run.rank] : bounds[_run.rank + 1]] or _Filler(filler)

    def _note_own(self, firsts: list[int], start: int, end: int) -> None:
        """Note which rows are this rank's, by the first rows of the round's micro-batches and of those after them.

        A rank without a row gets one that does not count.
        """
        sizes = [after - first for first, after in itertools.pairwise(firsts) if after > first]
        own = min(_run.rank * self.micro_batches // _run.world_size, len(sizes) - 1)
        first, size = firsts[own], sizes[own]
        start, end = start - first, end - first
        if start == end:
            start, end = min(start, size - 1), min(start, size - 1) + 1
        self.of_rank = (sizes, own, start, end)


class _Filler(list[int]):
    """A row that a rank without one takes, so that it comes to the collectives; it does not count."""


def _weighted(loss: torch.Tensor, weight: float) -> torch.Tensor:
    """Return a rank's loss times its weight: 0 for a row that does not count, whose mean over no items is NaN.

    Transformers logs the mean of the losses before in place of a NaN.
    """
    return loss * weight if weight else torch.nan_to_num(loss, 0.0, 0.0, 0.0) * 0.0


class _Rounds(list[tuple[list[int], float]]):
    """The rounds of an accumulation step that are to be trained on: rows of each rank, and a factor for the loss."""

    is_trained = False  # the first of them, in a training_step(), which may compute several losses from it

    def current(self) -> tuple[list[int] | None, float]:
        if not self:
            return None, 1.0
        return self[0] if self.is_trained else self.pop(0)


def _take_each_sample_once(trainer: Any, micro_batches: int = 0) -> _Rounds:
    """Let training take each sample of an epoch once, in the notebook's batches or in those shared out by length.

    In each round all ranks take so many of the notebook's ``micro_batches``. With 0, only batches that are shared out
    by length are taken so; all others stay as Accelerate makes them. Return a list with one entry per round of the
    current accumulation step: how many rows of each rank count, and the factor for the mean of the ranks' losses.
    """
    step = _Rounds()
    if hasattr(trainer.get_train_dataloader, "_takes_once") or not hasattr(trainer, "get_batch_samples"):
        return step
    get_loader, get_samples = trainer.get_train_dataloader, trainer.get_batch_samples
    training_step = trainer.training_step
    current: list[_DividedBatches] = []

    def divided_loader(*args: Any, **options: Any) -> Any:
        loader = get_loader(*args, **options)
        shard: Any = getattr(loader, "batch_sampler", None)
        current.clear()
        even = _even_out(trainer, loader)
        divides = type(shard).__name__ == "BatchSamplerShard" and not shard.split_batches
        if divides and (even or micro_batches):
            current.append(_DividedBatches(shard, _run.world_size if even else micro_batches))
            in_workers = getattr(loader, "num_workers", 0) > 0
            current[0].all_rows = not even and not in_workers and _collates_whole(trainer)
            for owner in (loader, getattr(loader, "base_dataloader", loader)):
                object.__setattr__(owner, "batch_sampler", current[0])
                if current[0].all_rows and not isinstance(owner.collate_fn, _WholeCollator):
                    owner.collate_fn = _WholeCollator(owner.collate_fn, current[0])
        return loader

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if current:
                own = current[0]
                if own.taken < 0 and not trainer.args.ignore_data_skip:  # a run that is resumed skips batches
                    updates = math.ceil(len(own) / trainer.args.gradient_accumulation_steps)
                    own.taken += (
                        trainer.state.global_step % updates * trainer.args.gradient_accumulation_steps
                    )
                own.taken += 1
                if own.sizes[own.taken][_run.rank] == 0 and "labels" in batch:
                    batch["labels"] = torch.full_like(batch["labels"], -100)  # no item of the loss
                step.append((own.sizes[own.taken], 1.0))
            yield batch

    def samples(batches: Iterator[Any], *args: Any, **options: Any) -> Any:
        step.clear()
        taken = get_samples(counted(batches), *args, **options)
        if micro_batches > 1 and step:
            together = _run.world_size // micro_batches
            firsts = range(0, _run.world_size, together)
            with_rows = sum(any(sizes[first : first + together]) for sizes, _ in step for first in firsts)
            step[:] = [(sizes, micro_batches * len(step) / with_rows) for sizes, _ in step]
        return taken

    @functools.wraps(training_step)
    def step_of_round(*args: Any, **options: Any) -> Any:
        step.is_trained = True
        try:
            return training_step(*args, **options)
        finally:
            step.is_trained = False
            del step[:1]

    divided_loader._takes_once = True  # type: ignore[attr-defined]
    trainer.get_train_dataloader, trainer.get_batch_samples = divided_loader, samples
    trainer.training_step = step_of_round
    if micro_batches == _run.world_size:
        _count_epochs_in_batches(trainer, current)
    return step


def _count_epochs_in_batches(trainer: Any, current: list[_DividedBatches]) -> None:
    """Let ``state.epoch`` grow with the notebook's batches: those of a rank are a part of them, rounded up."""
    from transformers import TrainerCallback

    class CountBatches(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if current and state.epoch is not None:
                taken, count = (current[0].taken + 1) * _run.world_size, len(current[0].batches)
                state.epoch = math.ceil(state.epoch - 1e-9) - 1 + min(taken, count) / count

    trainer.callback_handler.callbacks.insert(0, CountBatches())
