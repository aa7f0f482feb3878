"""Give a Trainer's loss the weight that it has in one process."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from nb2ddp.runtime.batch_share import _share_of
from nb2ddp.runtime.batches import _take_each_sample_once, _weighted
from nb2ddp.runtime.divided_calls import _Split
from nb2ddp.runtime.module_state import _without_effects
from nb2ddp.runtime.notebook_losses import _notes_figures, _takes_items
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.split_classes import _split_class, _splits


@contextlib.contextmanager
def _divides_calls(model: Any, *, divides: bool) -> Iterator[None]:
    """Let a DDP wrapper compute this rank's rows of the whole batches that it is called with in a block."""
    if not divides or not isinstance(model, DDP):
        yield
        return
    if model not in _splits:
        kind: Any = type(model)
        model.__class__ = _split_class(kind)
        _splits[model] = _Split(model, model)
    _splits[model].inside = False
    try:
        yield
    finally:
        _splits[model].inside = True


def _has_stock_loss(trainer: Any) -> bool:
    """Return whether the loss is Transformers' own or the notebook's; TRL and Unsloth see to theirs."""
    if type(trainer).compute_loss.__module__ not in ("__main__", "transformers.trainer"):
        return False
    return type(trainer).__module__ == "__main__" or type(trainer).__module__.startswith("transformers.")


def _keep_loss(trainer: Any) -> None:
    """Give the Trainer's loss the weight that it has in one process.

    Transformers lets a loss be a sum, divided by the number of items on all ranks, and multiplies it by the number
    of ranks. For a model whose loss is a mean that is wrong, and a compute_loss of the notebook's own knows no ranks.
    A mean over a micro-batch that is divided over the ranks is taken from the whole micro-batch.
    """
    compute_loss, args = trainer.compute_loss, trainer.args
    counts_items = getattr(trainer, "model_accepts_loss_kwargs", False)
    is_mean: bool | None = None if counts_items and _takes_items(trainer) else True
    notes_figures, own = _notes_figures(trainer), _has_own_loss(trainer)
    share = _share_of(args).micro_batches
    step = _take_each_sample_once(trainer, share)
    if counts_items:
        args.average_tokens_across_devices = True

    def loss_of_one(model: Any, inputs: Any, items: Any, **options: Any) -> Any:
        average, args.average_tokens_across_devices = args.average_tokens_across_devices, False
        try:  # the Trainer multiplies nothing
            return compute_loss(model, inputs, num_items_in_batch=items, **options)
        finally:
            args.average_tokens_across_devices = average

    def loss_in_evaluation(model: Any, inputs: Any, items: Any, **options: Any) -> Any:
        if items is None:
            return compute_loss(model, inputs, **options)
        average, args.average_tokens_across_devices = args.average_tokens_across_devices, False
        try:  # of this rank's batch, which is the notebook's
            items = trainer._get_num_items_in_batch([inputs], args.device)
        finally:
            args.average_tokens_across_devices = average
        return loss_of_one(model, inputs, items, **options)

    def loss_of_all(
        model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        nonlocal is_mean
        items, trains = num_items_in_batch, model.training
        sizes, factor = step.current() if trains else (None, 1.0)
        if return_outputs or not torch.is_grad_enabled():  # evaluation
            return loss_in_evaluation(model, inputs, items, return_outputs=return_outputs)
        if (
            sizes is None and trains and notes_figures and share > 1
        ):  # streamed: nothing says how many rows came
            sizes = from_all_ranks(_count_rows(inputs))
        if items is not None and is_mean is None:
            with _without_effects(trainer.model, quiet=lambda _: True, trainer=trainer):
                model.training = False  # of the wrapper
                trainer.log = lambda *_, **__: None
                one, other = (loss_of_one(model, dict(inputs), n) for n in (items, 2 * items))
            model.training = trains
            is_mean = from_main_process(lambda: _is_mean(one, other))
        even = sizes is None or min(sizes) == max(sizes)
        whole = share < _run.world_size and not (even and _is_mean_over_rows(trainer, inputs))
        sums = loss_of_all._sums_items = items is not None and not is_mean  # type: ignore[attr-defined]
        adds_up = sums and not (
            whole and own
        )  # a part of the notebook's own may be a mean over the micro-batch
        if sizes is not None and share > 1 and (notes_figures or (whole and not adds_up)):
            losses = [
                compute_loss(model, batch) if items is None else loss_of_one(model, batch, items)
                for batch in _notebook_batches(model, inputs, sizes, share, trainer)
            ]
            return sum(losses) * (factor / share if items is None else 1.0)
        if adds_up:
            counts = _run.world_size * float(not own or sizes is None or sizes[_run.rank] > 0)
            return _weighted(loss_of_one(model, inputs, items), counts)
        if whole:
            inputs = _whole_batch(inputs, sizes, trainer)
        with _divides_calls(model, divides=whole):
            counts = 1.0 if whole or sizes is None else float(sizes[_run.rank] > 0)
            if sums:
                return loss_of_one(model, inputs, items)
            if items is None:
                return _weighted(compute_loss(model, inputs), factor * counts)
            return _weighted(loss_of_one(model, inputs, None), share * counts)

    loss_of_all._keeps_loss = True  # type: ignore[attr-defined]
    trainer.compute_loss = loss_of_all


def _average_last_losses(trainer: Any) -> None:
    """Let the losses since the last log be the mean of all ranks' when training ends, as those that are logged are.

    Transformers adds them to ``train_loss`` as they are on each rank. They become the mean at the end of each epoch,
    where all ranks are, in the tensor that the loop goes on with: a later mean of them is the same.
    """
    from transformers import TrainerCallback

    log_save_evaluate = trainer._maybe_log_save_evaluate
    if getattr(log_save_evaluate, "_averages_last", False):
        return
    epoch_ends = False

    class AverageLosses(TrainerCallback):
        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            nonlocal epoch_ends
            epoch_ends = True

    def log_and_average(*args: Any, **options: Any) -> None:
        nonlocal epoch_ends
        log_save_evaluate(*args, **options)
        losses = args[0] if args else options.get("tr_loss")
        if epoch_ends and _run.meets and isinstance(losses, torch.Tensor):
            dist.all_reduce(losses)
            losses /= _run.world_size
        epoch_ends = False

    log_and_average._averages_last = True  # type: ignore[attr-defined]
    trainer._maybe_log_save_evaluate = log_and_average
    trainer.callback_handler.callbacks.insert(0, AverageLosses())


def _count_rows(inputs: Any) -> int:
    """Return the number of rows of a batch."""
    counts = [len(value) for value in inputs.values() if isinstance(value, torch.Tensor) and value.ndim]
    return max(counts, default=0)


def _is_mean(one: torch.Tensor, other: torch.Tensor) -> bool | None:
    """Return whether a loss is the same for twice the items; None where no label counts, so that both are 0."""
    if not (one.isfinite() & one.ne(0)).all():
        return None
    return bool(torch.allclose(one, other, rtol=0.01))


def _notebook_batches(
    model: Any, inputs: Any, sizes: list[int], micro_batches: int, trainer: Any
) -> Iterator[Any]:
    """Yield the notebook's micro-batches that all ranks hold together; each has rows of as many ranks.

    A call of ``model`` computes this rank's part of each. A collective.
    """
    of_ranks, together = _gather_batches(inputs), _run.world_size // micro_batches
    for first in range(0, _run.world_size, together):
        ranks = slice(first, first + together)
        if any(sizes[ranks]):
            with _divides_calls(model, divides=True):
                yield _joined(inputs, of_ranks[ranks], sizes[ranks], trainer)


def _has_own_loss(trainer: Any) -> bool:
    """Return whether the notebook has written its Trainer's loss, or the last part of it."""
    own = type(trainer).compute_loss.__module__ == "__main__"
    return own or getattr(trainer, "compute_loss_func", None) is not None


def _is_mean_over_rows(trainer: Any, inputs: Any) -> bool:
    """Return whether the loss weighs rows alike, so that the mean of the ranks' losses is the batch's.

    It is so for one label a row and a loss of Transformers' own.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    labels = inputs.get("labels") if hasattr(inputs, "get") else None
    one_each = isinstance(labels, torch.Tensor) and labels.ndim == 1
    return one_each and not _has_own_loss(trainer) and type(base).__module__.startswith("transformers.")


def _whole_batch(inputs: Any, sizes: list[int] | None, trainer: Any) -> Any:
    """Return the rows of all ranks, padded to the longest as in the notebook's batch. A collective.

    ``sizes`` says how many of each rank's rows count.
    """
    return _joined(inputs, _gather_batches(inputs), sizes, trainer)


def _joined(inputs: Any, of_ranks: list[Any], sizes: list[int] | None, trainer: Any) -> Any:
    """Return the rows of some ranks' batches as one batch like ``inputs``, padded to the longest."""
    tokenizer = getattr(trainer, "processing_class", None)
    in_blocks = "Preference" in type(getattr(trainer, "data_collator", None)).__name__
    left = getattr(tokenizer, "padding_side", "right") == "left"
    fills = {"labels": -100, "input_ids": getattr(tokenizer, "pad_token_id", 0) or 0}
    whole = {}
    for name, value in inputs.items():
        parts = [of_rank[name] for of_rank in of_ranks]
        if isinstance(value, list) or (isinstance(value, torch.Tensor) and value.ndim):
            parts = _in_order(parts, sizes, in_blocks=in_blocks)
        if isinstance(value, torch.Tensor) and value.ndim:
            longest = [max(part.shape[d] for part in parts) for d in range(1, value.ndim)]
            padded = [_padded(part, longest, fills.get(name, 0), left=left) for part in parts]
            value = torch.cat(padded).to(value.device)
        elif isinstance(value, list):
            value = [item for part in parts for item in part]
        whole[name] = value
    return type(inputs)(whole)


def _in_order(parts: list[Any], sizes: list[int] | None, *, in_blocks: bool) -> list[Any]:
    """Return the rows that count of some ranks' values, in the order of one batch.

    ``in_blocks``: the batches are TRL's of preferences: the chosen answers of all rows, then the rejected ones.
    """
    if not sizes:
        return parts
    given = [max(size, 1) for size in sizes]  # a rank has a row that does not count rather than none
    blocks = {len(part) / rows for part, rows in zip(parts, given, strict=True)}
    count = int(blocks.pop()) if in_blocks and len(blocks) == 1 else 1
    return [
        part[block * rows : block * rows + size]
        for block in range(max(count, 1))
        for part, rows, size in zip(parts, given, sizes, strict=True)
    ]


def _gather_batches(inputs: Any) -> list[Any]:
    """Return the batches of all ranks, on the CPU. A collective.

    All take over rank 0's random state: what the loss draws, a mixture of rows say, is to be the same, and reading rows
    may have drawn numbers on each rank for its own.
    """
    own = {
        name: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
    of_ranks: list[Any] = [None] * _run.world_size
    dist.all_gather_object(of_ranks, (own, _random_state() if is_main_process else None))
    _set_random_state(of_ranks[0][1])
    return [batch for batch, _ in of_ranks]


def _padded(rows: torch.Tensor, sizes: list[int], fill: float, *, left: bool) -> torch.Tensor:
    """Return ``rows`` with its dimensions after the first as long as ``sizes``."""
    missing = [size - length for size, length in zip(sizes, rows.shape[1:], strict=True)]
    pads = [side for count in reversed(missing) for side in ((count, 0) if left else (0, count))]
    return torch.nn.functional.pad(rows, pads, value=fill) if any(pads) else rows
