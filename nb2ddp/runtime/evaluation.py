"""Evaluate each sample once over all ranks."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils import _pytree as pytree

from nb2ddp.runtime.batches import _Filler
from nb2ddp.runtime.collating import _collates_whole
from nb2ddp.runtime.metrics import _counting_metrics_once
from nb2ddp.runtime.notebook_losses import _notes_figures
from nb2ddp.runtime.run_state import _run


class _WholeBatches:
    """A rank's evaluation batches: batch ``k * world_size + rank`` of the notebook's, in round ``k``.

    In an incomplete last round a rank without a batch gets one row that `gather` leaves out. Accelerate would
    repeat rows of the first batch there, and count them. With ``all_of_them`` each rank takes every batch, and gathers
    nothing: what the notebook's own loss or metric notes of each batch is the same on all ranks.
    """

    def __init__(self, batches: Any, *, all_of_them: bool) -> None:
        self.batches, self.all_of_them = batches, all_of_them
        self.sizes: list[list[int]] = []  # rows that count, by round and rank
        self.round = -1  # the round whose outputs are being gathered
        self.as_given = False  # a value may have more rows than its batch: all of them count

    def __len__(self) -> int:
        return len(self.batches) if self.all_of_them else math.ceil(len(self.batches) / _run.world_size)

    def __getattr__(self, name: str) -> Any:
        if "batches" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes, self.round = [], -1
        if self.all_of_them:
            for batch in self.batches:
                self.sizes.append([len(batch)] * _run.world_size)
                yield batch
            return
        every = list(self.batches)
        for start in range(0, len(every), _run.world_size):
            batches = every[start : start + _run.world_size]
            self.sizes.append([len(batch) for batch in batches] + [0] * (_run.world_size - len(batches)))
            yield batches[_run.rank] if _run.rank < len(batches) else _Filler(every[0][:1])

    def gather(self, value: Any) -> Any:
        """Return the rows of all ranks in the notebook's order, without those that only fill up a round.

        Of a figure of a batch (a tensor without dimensions) each rank that has a batch gives one. Every rank gets
        them: all compute the metrics, which decide on the best model and on stopping. So each holds the logits of
        the whole evaluation set, as one process does, and for a round those of all ranks beside (ranks x rows x
        tokens x vocabulary). ``preprocess_logits_for_metrics`` comes before, and makes both as small as its result;
        ``eval_accumulation_steps`` moves what is held to the CPU, as in one process.
        """
        if not isinstance(value, torch.Tensor):
            return value
        sizes = self.sizes[self.round]
        rows = value
        if value.ndim == 0:
            rows, sizes = value.reshape(1), [min(size, 1) for size in sizes]
        if self.all_of_them:
            return rows if self.as_given else rows[: sizes[0]]
        if self.as_given:
            given = rows.new_empty(_run.world_size, dtype=torch.long)
            dist.all_gather_into_tensor(given, given.new_tensor([len(rows)]))
            sizes = [own if size else 0 for own, size in zip(given.tolist(), sizes, strict=True)]
        missing = max(sizes) - len(rows)
        if missing > 0:
            rows = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
        whole = rows.new_empty(_run.world_size * len(rows), *rows.shape[1:])
        dist.all_gather_into_tensor(whole, rows.contiguous())
        if all(size == len(rows) for size in sizes):
            return whole  # no second copy of what may be large
        of_ranks = whole.split(len(rows))
        return torch.cat([of_rank[:size] for of_rank, size in zip(of_ranks, sizes, strict=True)])


def _rows_of_stream(trainer: Any, data: Any) -> list[Any] | None:
    """Return all rows of an evaluation set that is streamed, else None: an evaluation reads them to the end.

    Of a stream Accelerate gives ranks other files or rows twice, and counts them.
    """
    if data is None or isinstance(data, str):
        data = trainer.eval_dataset[data] if data else trainer.eval_dataset
    is_stream = isinstance(data, torch.utils.data.IterableDataset) and not hasattr(data, "__len__")
    return list(data) if is_stream else None


def _shows_batches(trainer: Any) -> bool:
    """Return whether an evaluation's metrics or predictions are of one batch each: they may not be of a round."""
    args = trainer.args
    if getattr(args, "batch_eval_metrics", False) and trainer.compute_metrics is not None:
        return True
    return not getattr(args, "eval_do_concat_batches", True)


def _evaluate_each_sample_once(trainer: Any) -> "list[_WholeBatches]":
    """Let evaluation count each sample once, in the notebook's batches, where rows do not divide by the ranks.

    Returns a list that holds the batches of the evaluation under way.
    """
    accelerator = trainer.accelerator
    current: list[_WholeBatches] = []
    if getattr(accelerator.gather_for_metrics, "_counts_once", False):
        return current
    gather, prediction_step = accelerator.gather_for_metrics, trainer.prediction_step
    evaluation_loop = trainer.evaluation_loop
    # a collator that draws or counts does so in evaluations too: all of it on each rank, as in one process
    notes_figures = _notes_figures(trainer) or _collates_whole(trainer)

    def whole_batches(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(*args: Any, **options: Any) -> Any:
            given = next(iter((*args, *options.values())), None)
            loader = make(rows) if (rows := _rows_of_stream(trainer, given)) else make(*args, **options)
            shard: Any = getattr(loader, "batch_sampler", None)
            current.clear()
            if type(shard).__name__ == "BatchSamplerShard" and not shard.split_batches:
                all_of_them = notes_figures or _shows_batches(trainer)
                shard = _WholeBatches(shard.batch_sampler, all_of_them=all_of_them)
                for owner in (loader, getattr(loader, "base_dataloader", loader)):
                    object.__setattr__(owner, "batch_sampler", shard)
            if isinstance(shard, _WholeBatches):
                current.append(shard)
            return loader

        return made

    def gather_once(value: Any, *args: Any, **options: Any) -> Any:
        alone = _run.world_size == 1  # the other ranks have left
        if (
            alone or trainer.model.training or not current or current[0].round < 0
        ):  # TRL gathers in training too
            return gather(value, *args, **options)
        return pytree.tree_map(current[0].gather, value)

    def count_round(*args: Any, **options: Any) -> Any:
        if current:
            current[0].round += 1
        return prediction_step(*args, **options)

    def loop(*args: Any, **options: Any) -> Any:
        if _run.world_size == 1:  # the other ranks have left
            return evaluation_loop(*args, **options)
        if current:  # Seq2SeqTrainer has put this there: it counts the loss of a short batch as of a full one
            current[0].as_given = trainer.gather_function == accelerator.gather
        trainer.gather_function = gather_once
        # wrap_trainer() has prepared the model: Transformers would do so again, and log how long it takes
        if isinstance(trainer.model_wrapped, DDP) and not accelerator._models:
            accelerator._models.append(trainer.model)
        with _counting_metrics_once():
            return evaluation_loop(*args, **options)

    gather_once._counts_once = True  # type: ignore[attr-defined]
    accelerator.gather_for_metrics = gather_once
    trainer.evaluation_loop = loop
    trainer.prediction_step = count_round
    for name in ("get_eval_dataloader", "get_test_dataloader"):
        setattr(trainer, name, whole_batches(getattr(trainer, name)))
    return current
