"""Give the loss of TRL's and Unsloth's Trainers its weight, and log figures of all ranks."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.autograd_collectives import _all_rows
from nb2ddp.runtime.batch_share import _share_of
from nb2ddp.runtime.batches import _take_each_sample_once, _weighted
from nb2ddp.runtime.evaluation import _WholeBatches
from nb2ddp.runtime.run_state import _run


def _keep_loss_of_trl(trainer: Any, evaluated: "list[_WholeBatches]") -> None:
    """Let a Trainer of TRL's or Unsloth's take each sample once, and log figures of the notebook's batches.

    A loss that is a sum, divided by the items of all ranks, needs no other weight. Where it is a mean, each rank's
    mean gets the weight of its share: of the labels that count, or of the rows.
    """
    compute_loss, args = trainer.compute_loss, trainer.args
    share = _share_of(args).micro_batches
    whole = share == _run.world_size
    step = _take_each_sample_once(trainer, share)
    stored = _StoredFigures(trainer, evaluated) if hasattr(trainer, "_stored_metrics") else None
    notes_own = False  # else, as with data that are streamed, TRL gathers what it notes

    def loss_of_all(model: Any, inputs: Any, *given: Any, **options: Any) -> Any:
        nonlocal notes_own
        trains = trainer.model.training
        sizes, factor = step.current() if trains else (None, 1.0)
        own = whole or not trains
        if trains:
            notes_own = whole and sizes is not None
            if stored is not None:
                stored.sizes = sizes if whole else None
        else:
            sizes = _evaluated_sizes(evaluated)
        with _figures_of_own_batch(trainer, sizes, own=own):
            if sizes is None or not trains or options.get("num_items_in_batch") is not None:
                return compute_loss(model, inputs, *given, **options)
            weight = factor * ((sizes[_run.rank] > 0) if whole else _share_of_mean(inputs, sizes, share))
            return _weighted(compute_loss(model, inputs, *given, **options), weight)

    _log_of_all_ranks(trainer, lambda: notes_own)
    loss_of_all._keeps_loss = True  # type: ignore[attr-defined]
    trainer.compute_loss = loss_of_all


def _evaluated_sizes(evaluated: "list[_WholeBatches]") -> list[int] | None:
    """Return how many rows each rank evaluates in this round; None where the ranks have no batches of their own."""
    if not evaluated or evaluated[0].round < 0 or evaluated[0].all_of_them:
        return None
    return evaluated[0].sizes[evaluated[0].round]


class _StoredFigures:
    """Let a Trainer that stores a batch's figures (TRL's ORPO and CPO, older DPO and KTO) store those of its own.

    TRL averages over the rows of all ranks' batches, however many each of them has, and may store that on rank 0
    alone. Each rank stores its own here, for `_log_of_all_ranks` to bring together.
    """

    def __init__(self, trainer: Any, evaluated: "list[_WholeBatches]") -> None:
        self.trainer, self.evaluated = trainer, evaluated
        self.sizes: list[int] | None = None  # rows of each rank's own batch in training
        self.is_stored = False
        self.compute, self.store = trainer.get_batch_loss_metrics, trainer.store_metrics
        trainer.get_batch_loss_metrics, trainer.store_metrics = self.compute_own, self.store_once

    def compute_own(self, *given: Any, **options: Any) -> Any:
        """Return the loss and the figures of a batch; store the figures if they are of this rank's own batch."""
        trains = self.trainer.model.training
        sizes = self.sizes if trains else _evaluated_sizes(self.evaluated)
        with _figures_of_own_batch(self.trainer, None if trains else sizes, own=True):
            loss, figures = self.compute(*given, **options)
        stored = self.trainer._stored_metrics["train" if trains else "eval"]
        for key, value in figures.items():  # every rank knows the names, for all to log
            stored[key] += [float(value)] if sizes and sizes[_run.rank] else []
        self.is_stored = sizes is not None
        return loss, figures

    def store_once(self, *given: Any, **options: Any) -> None:
        if not self.is_stored:
            self.store(*given, **options)


def _share_of_mean(inputs: Any, sizes: list[int], micro_batches: int) -> float:
    """Return this rank's share of a mean over a divided micro-batch, times the ranks that it is divided over.

    All ranks hold so many of the notebook's ``micro_batches``. A collective where labels are counted.
    """
    together = _run.world_size // micro_batches
    first = _run.rank - _run.rank % together
    counts: Any = sizes
    labels = inputs.get("labels")
    if isinstance(labels, torch.Tensor) and labels.ndim > 1:
        counts = torch.zeros(_run.world_size, dtype=torch.long, device=labels.device)
        if sizes[_run.rank]:
            counts[_run.rank] = labels[..., 1:].ne(-100).sum()
        dist.all_reduce(counts)
        counts = counts.tolist()
    return float(counts[_run.rank]) * together / max(float(sum(counts[first : first + together])), 1.0)


@contextlib.contextmanager
def _figures_of_own_batch(trainer: Any, sizes: list[int] | None, *, own: bool) -> Iterator[None]:
    """Let ``compute_loss`` note figures of one of the notebook's batches in a block.

    A rank that has a batch of its own notes its own figures, for `_log_of_all_ranks` to bring together; of a batch
    that is divided, every rank notes the figures of all rows, however many each rank has. So does a Trainer that
    keeps no lists of figures. Accelerate itself would cut what it gathers in the last step of an epoch: it has read
    all batches of the step by then, and takes each for the incomplete last one.
    """
    accelerator = trainer.accelerator
    kept = {name: accelerator.__dict__.get(name) for name in ("gather", "gather_for_metrics")}
    notes = getattr(trainer, "_metrics", {}).get("train" if trainer.model.training else "eval")
    own = own and (notes is not None or hasattr(trainer, "_stored_metrics"))
    if sizes is None or (not own and not trainer.model.training and min(sizes) == max(sizes)):
        yield
        return
    counts = {key: len(values) for key, values in (notes or {}).items()}
    tokens = getattr(trainer, "_total_train_tokens", None)
    gathered = (
        (lambda value, *_, **__: value) if own else functools.partial(_gather_uneven, sizes[_run.rank] > 0)
    )
    for name in kept:
        setattr(accelerator, name, gathered)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                delattr(accelerator, name)
            else:
                setattr(accelerator, name, value)
    if notes is not None and own and sizes[_run.rank] == 0:  # a row that only fills up a round
        for key, values in notes.items():
            del values[counts.get(key, 0) :]
        if tokens is not None:
            trainer._total_train_tokens = tokens


def _gather_uneven(counts: bool, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Return the rows of all ranks whose rows count; each may have another number of them. A collective."""
    rows = (value.reshape(1) if value.ndim == 0 else value)[: None if counts else 0]
    sizes = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(_run.world_size)]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
    return _all_rows(rows, [int(size) for size in sizes])


def _log_of_all_ranks(trainer: Any, notes_own: Callable[[], bool]) -> None:
    """Bring the figures of all ranks' batches together when TRL logs their mean. ``log()`` becomes a collective.

    ``notes_own`` says whether a rank counts the tokens of its own batches alone.
    """
    log, noted = trainer.log, getattr(trainer, "_metrics", None)
    notes = getattr(trainer, "_stored_metrics", None) if noted is None else noted
    if notes is None:
        return
    logged = getattr(trainer, "_total_train_tokens", 0)  # of all ranks

    def log_of_all(*args: Any, **options: Any) -> Any:
        nonlocal logged
        logs = args[0] if args else options.get("logs", {})
        trains = trainer.model.training if noted is not None else "loss" in logs
        of_mode = notes["train" if trains else "eval"]
        if of_mode and _run.meets:
            tokens = getattr(trainer, "_total_train_tokens", 0)
            of_ranks: list[Any] = [None] * _run.world_size
            dist.all_gather_object(of_ranks, (dict(of_mode), tokens - logged))
            for key in dict.fromkeys(key for figures, _ in of_ranks for key in figures):
                of_mode[key] = [value for figures, _ in of_ranks for value in figures.get(key, [])]
                if not of_mode[key]:  # of a row that fills up a round
                    del of_mode[key]
            if "num_tokens" in of_mode:
                logged = logged + sum(own for _, own in of_ranks) if notes_own() else tokens
                trainer._total_train_tokens = logged
                of_mode["num_tokens"] = [logged]
        return log(*args, **options)

    trainer.log = log_of_all
