"""Share out each optimizer step's samples by their lengths, where that is the same run."""

import itertools
import math
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from nb2ddp.runtime.batch_share import _share_of, _tell_batch
from nb2ddp.runtime.even_shares import _assign, _Cost, _count_micro_batches, _Share, _share_evenly
from nb2ddp.runtime.module_state import _without_effects
from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _run

_LONG_RUN = 300  # optimizer steps


class _Steps:
    """How a Trainer's optimizer steps are shared out.

    ``samples`` are the notebook's in a step, ``micro_batches`` what each rank takes of them, ``batch_size`` the
    notebook's micro-batch. With ``whole`` each micro-batch keeps its rows, and only its rank is decided by length.
    """

    def __init__(self, trainer: Any, lengths: list[int], *, padded: bool, whole: bool) -> None:
        share = _share_of(trainer.args)
        per_rank, steps = int(share), trainer.args.gradient_accumulation_steps
        ranks = _run.world_size
        self.data, self.accumulation_steps = trainer.train_dataset, steps  # what they were made for
        self.lengths = lengths
        self.batch_size, accumulation = share.batch_size, share.accumulation_steps
        self.samples = self.batch_size * accumulation
        self.padded, self.whole = padded, whole
        self.micro_batches: int = steps
        self.rows: int = per_rank
        if per_rank * steps * ranks != self.samples:
            self.rows = self.batch_size
            self.micro_batches = _count_micro_batches(self.samples, ranks, self.batch_size)
            if whole:
                self.micro_batches = math.ceil(accumulation / ranks)
            else:
                self.rows = math.ceil(self.samples / (ranks * self.micro_batches))
        # Unsloth compiles its blocks anew for other numbers of rows, which only a long run makes up for
        compiles = "unsloth" in sys.modules and os.environ.get("UNSLOTH_BLOCK_COMPILE") != "0"
        is_long = _is_long(trainer.args, len(lengths) / self.samples)
        self.equal_counts = padded and compiles and torch.cuda.is_available() and not is_long
        self.longest = max(lengths)

    def count(self, samples: int) -> int:
        """Return how many micro-batches each rank takes of a step, an epoch's last one included."""
        if samples == self.samples:
            return self.micro_batches
        ranks = _run.world_size
        if self.whole or samples < ranks:
            return math.ceil(samples / (self.rows * ranks))
        return min(self.micro_batches, _count_micro_batches(samples, ranks, self.rows))

    def share(self, samples: Sequence[int]) -> list[_Share]:
        """Return each rank's micro-batches of a step, as rows of the data set; some ranks may have fewer."""
        lengths = [self.lengths[sample] for sample in samples]
        ranks, places = _run.world_size, range(len(samples))
        if self.whole:
            cost = _Cost(lengths, self.padded)
            batches = [list(places[start : start + self.rows]) for start in places[:: self.rows]]
            plans = [[batches[rank::ranks] for rank in range(ranks)], _assign(batches, ranks, cost)]
            best = min(plans, key=lambda plan: max(map(cost.of_share, plan)))
            shares = [sorted(share) for share in best]
        elif len(samples) < ranks:
            shares = [[[place]] for place in places] + [[]] * (ranks - len(samples))
        else:
            shares = _share_evenly(
                lengths,
                ranks,
                self.batch_size,
                micro_batches=self.count(len(samples)),
                padded=self.padded,
                equal_counts=self.equal_counts,
                longest=self.longest,
            )
        return [[[samples[place] for place in batch] for batch in share] for share in shares]


def _is_long(args: Any, steps_per_epoch: float) -> bool:
    """Return whether a run has optimizer steps enough to make up for compiling.

    That took 37 s on two H200 and made a step of 0.59 s one of 0.48 (benchmarks/gpus.py, "uneven long").
    """
    steps = args.max_steps if args.max_steps > 0 else args.num_train_epochs * steps_per_epoch
    return bool(steps >= _LONG_RUN)


class _EvenBatches:
    """The micro-batches of all ranks, in rounds of one for each, of the samples that the notebook's sampler draws.

    Where a rank has none in a round, an empty one stands for it.
    """

    def __init__(self, batches: Any, steps: _Steps) -> None:
        self.sampler = batches.sampler  # Accelerate reaches through this name to set the epoch
        self.drop_last = batches.drop_last
        self.steps = steps

    def _sizes(self) -> list[int]:
        """Return the number of samples of each optimizer step of an epoch."""
        count = len(self.sampler)
        if self.drop_last:
            count -= count % self.steps.batch_size
        full, rest = divmod(count, self.steps.samples)
        return [self.steps.samples] * full + [rest] * (rest > 0)

    def __len__(self) -> int:
        return sum(_run.world_size * self.steps.count(size) for size in self._sizes())

    def __iter__(self) -> Iterator[list[int]]:
        drawn = iter(self.sampler)
        for size in self._sizes():
            shares = self.steps.share(list(itertools.islice(drawn, size)))
            for turn in range(self.steps.count(size)):
                for share in shares:
                    yield share[turn] if turn < len(share) else []
        for _ in drawn:  # what drop_last leaves out: a sampler may count on being read to its end
            pass


_even: "weakref.WeakKeyDictionary[Any, _Steps | str]" = weakref.WeakKeyDictionary()
_DEALT, _EVEN = "to be dealt", "to be made even"  # what is asked for, until it is decided


def _even_out(trainer: Any, loader: Any) -> bool:
    """Let a loader that Accelerate has prepared share out each step's samples by length; return whether it does.

    The first loader of a Trainer's data decides, on all ranks together, and says what was decided.
    """
    if trainer not in _even:
        return False
    decided = _even[trainer]
    if isinstance(decided, _Steps) and decided.data is not trainer.train_dataset:  # of an earlier train()
        trainer.args.gradient_accumulation_steps = decided.accumulation_steps
        _even[trainer] = _DEALT if decided.whole else _EVEN
    if _even[trainer] in (_DEALT, _EVEN):
        steps = _even[trainer] = _decide(trainer, loader, whole=_even[trainer] == _DEALT)
        _tell_batch(_share_of(trainer.args), by_length=isinstance(steps, _Steps))
        if isinstance(steps, str):
            print(f"nb2ddp: micro-batches are taken in the notebook's order: {steps}")
        else:
            what = "micro-batches are dealt" if steps.whole else "samples are shared out"
            print(
                f"nb2ddp: each step's {what} by length: {steps.samples} samples in "
                f"{_run.world_size} x {steps.micro_batches} micro-batches"
            )
    steps = _even[trainer]
    if isinstance(steps, str):
        return False
    trainer.args.gradient_accumulation_steps = steps.micro_batches
    shard = loader.batch_sampler
    shard.batch_sampler = _EvenBatches(shard.batch_sampler, steps)
    shard.batch_size, shard.drop_last = None, False  # they differ in size; every round is for all ranks
    return True


def _decide(trainer: Any, loader: Any, *, whole: bool) -> "_Steps | str":
    """Return how a Trainer's steps are shared out by length, or why they are not. A collective.

    With ``whole`` micro-batches keep their rows: in 16 bits the loss of a micro-batch depends in its 4th digit on
    the rows that share it.
    """
    reason, lengths, padded = "", [], True

    def examine() -> str:
        nonlocal lengths, padded
        padded = not getattr(getattr(trainer, "data_collator", None), "padding_free", False)
        if why := _why_in_turns(trainer, loader):
            return why
        lengths = _lengths_of(loader.dataset) or []
        if not lengths or len(lengths) != len(loader.dataset) or min(lengths) < 1:
            return "the lengths of the rows are not known without their being read"
        return "all rows have one length" if min(lengths) == max(lengths) else ""

    for trial in (examine, lambda: _why_no_sum(trainer, loader, lengths)):
        try:
            reason = trial()
        except Exception as error:
            reason = f"the trial of two rows raised {type(error).__name__}: {error}".partition("\n")[0]
        of_ranks = from_all_ranks((reason, padded))
        if reason := next((other for other, _ in of_ranks if other), ""):
            return reason
    try:
        return _Steps(trainer, lengths, padded=of_ranks[0][1], whole=whole)
    except ValueError as error:  # fewer samples than ranks
        return str(error)


def _why_in_turns(trainer: Any, loader: Any) -> str:
    """Return why a Trainer's steps are not shared out by length, as far as it and its data say; "" if they may be."""
    args, kind = trainer.args, type(trainer)
    shard: Any = getattr(loader, "batch_sampler", None)
    kinds = {part.__name__.removeprefix("_").removeprefix("Unsloth") for part in kind.__mro__}
    own = [name for name in ("compute_loss", "training_step", "get_batch_samples") if _is_own(trainer, name)]
    base = trainer.accelerator.unwrap_model(trainer.model)
    configs = [getattr(base, "config", None), getattr(getattr(base, "config", None), "text_config", None)]
    collator = getattr(trainer, "data_collator", None)
    sampler = getattr(getattr(shard, "batch_sampler", None), "sampler", None)
    told = {
        f"{', '.join(own)} of the notebook's own": own,
        f"{kind.__name__} is not known to take a mean over the tokens of a step": (
            "SFTTrainer" not in kinds
            and kind.compute_loss is not sys.modules["transformers"].Trainer.compute_loss
        ),
        "auto_find_batch_size looks for a batch that fits": getattr(args, "auto_find_batch_size", False),
        "packed rows are full": getattr(args, "packing", False),
        "the loss is the notebook's own": getattr(trainer, "compute_loss_func", None),
        "label smoothing is a mean over each micro-batch": getattr(args, "label_smoothing_factor", 0),
        "the loss is a mean over each micro-batch": (
            not getattr(trainer, "model_accepts_loss_kwargs", False)
            or not getattr(args, "average_tokens_across_devices", False)
            or getattr(args, "loss_type", None) not in (None, "nll", "chunked_nll")
        ),
        "Liger's loss is not known": getattr(args, "use_liger_kernel", False),
        "the balance of the experts is a mean over each micro-batch": (
            getattr(trainer, "aux_loss_enabled", False)
            or any(getattr(config, "output_router_logits", False) for config in configs)
        ),
        "a batch norm looks at each micro-batch": any(
            getattr(part, "track_running_stats", False) for part in base.modules()
        ),
        "the data are streamed, or handed out by Accelerate": (
            type(shard).__name__ != "BatchSamplerShard" or shard.split_batches
        ),
        f"{type(sampler).__name__} puts rows together": (
            type(sampler).__name__ not in ("RandomSampler", "SequentialSampler", "SeedableRandomSampler")
        ),
        "the collator draws random numbers": getattr(collator, "mlm", False),
        "the collator is not known": not _module(collator).startswith(
            ("transformers", "trl", "unsloth", "Unsloth")
        ),
        "the rows are made while they are read": "custom" in str(getattr(loader.dataset, "format", "")),
    }
    return next((reason for reason, holds in told.items() if holds), "")


def _module(function: Any) -> str:
    """Return the module of a function, or of an object's class."""
    return str((function if hasattr(function, "__code__") else type(function)).__module__)


def _is_own(trainer: Any, name: str) -> bool:
    """Return whether a method of a Trainer is the notebook's, not a library's or of this module."""
    methods = (vars(trainer).get(name), getattr(type(trainer), name, None))
    return any(getattr(method, "__module__", "") == "__main__" for method in methods)


def _why_no_sum(trainer: Any, loader: Any, lengths: list[int]) -> str:
    """Return why the loss of a step is not a sum over its rows, divided by its items; "" if it is.

    Asked of the two shortest rows. Where Transformers' own loss is computed, it is tried; for TRL and Unsloth the
    number of items says it.
    """
    shortest = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))[:2]
    rows = [loader.dataset[row] for row in shortest]

    def batch(part: list[Any]) -> Any:
        return trainer._prepare_inputs(loader.collate_fn([dict(row) for row in part]))

    items = type(trainer).get_batch_samples(trainer, iter([batch(rows)]), 1, trainer.args.device)[1]
    if items is None:
        return "the loss is a mean over each micro-batch"
    if type(trainer).compute_loss.__module__ != "transformers.trainer":
        return ""
    losses = []
    with _without_effects(trainer.model, quiet=lambda _: True):
        for part in (rows, rows[:1], rows[1:]):
            loss = type(trainer).compute_loss(trainer, trainer.model, batch(part), num_items_in_batch=items)
            losses.append(float(loss))
    both, one, other = losses
    adds_up = math.isclose(both, one + other, rel_tol=0.01, abs_tol=1e-6)
    return "" if adds_up else "the loss of rows together is not the sum of their losses"


def _lengths_of(dataset: Any) -> list[int] | None:
    """Return the tokens of each row of a tokenised data set, None where they are not known.

    A row with several texts (a prompt, the chosen and the rejected answer) counts them all. Arrow tables say
    the lengths without the tokens being read.
    """
    names = list(getattr(dataset, "column_names", None) or [])
    tokens = [name for name in names if name == "input_ids" or name.endswith(("_input_ids", "_ids"))]
    tokens = [name for name in tokens if name not in ("position_ids", "token_type_ids")]
    if "input_ids" in tokens:
        tokens = ["input_ids"]
    if tokens and hasattr(dataset, "with_format"):
        import pyarrow.compute as pc

        totals: list[int] = []
        try:
            for table in dataset.select_columns(tokens).with_format("arrow").iter(batch_size=10_000):
                counted = [pc.list_value_length(table[name]).to_pylist() for name in tokens]
                totals += [sum(length or 0 for length in row) for row in zip(*counted, strict=True)]
        except NotImplementedError:  # one number a row: doc_ids, say
            return None
        return totals
    rows = dataset if isinstance(dataset, list) else []
    known = bool(rows) and all(isinstance(row, dict) and "input_ids" in row for row in rows)
    return [len(row["input_ids"]) for row in rows] if known else None
