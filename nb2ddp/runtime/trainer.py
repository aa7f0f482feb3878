"""Make a Trainer train through one DDP wrapper."""

import contextlib
import functools
import os
import re
import sys
from typing import Any

import torch

from nb2ddp.runtime.batch_share import _share_of
from nb2ddp.runtime.batches import _take_each_sample_once
from nb2ddp.runtime.collating import _collates_whole, _draws_or_counts
from nb2ddp.runtime.evaluation import _evaluate_each_sample_once
from nb2ddp.runtime.even_batches import _DEALT, _EVEN, _even, _module
from nb2ddp.runtime.gradients import _clip_all_gradients, _fill_gradients, _leaves_out
from nb2ddp.runtime.losses import _average_last_losses, _has_own_loss, _has_stock_loss, _keep_loss
from nb2ddp.runtime.notebook_losses import _looks_at_gradients
from nb2ddp.runtime.rank_zero_logging import _log_on_one_rank
from nb2ddp.runtime.replicas import _ddp
from nb2ddp.runtime.run_state import _run, _warn, is_main_process
from nb2ddp.runtime.same_data import _check_same_data, _draws
from nb2ddp.runtime.saving import _wait_for_saves
from nb2ddp.runtime.streams import _share_stream
from nb2ddp.runtime.trl_losses import _keep_loss_of_trl
from nb2ddp.runtime.whole_loaders import _give_whole_loaders


def wrap_trainer(trainer: Any, batches: str = "notebook") -> Any:
    """Make a Trainer train through one DDP wrapper, and return the wrapper; ``trainer.model`` stays as it is.

    Called right before ``trainer.train()``, after the Trainer has cast or replaced parameters. Every rank waits for
    the others, and compares its training data with theirs first. The ranks take the notebook's micro-batches of each
    optimizer step in turns. With ``batches="dealt"`` these are dealt to the ranks by length, with ``batches="even"``
    the ranks take other ones, made of the step's samples so that all have equally many tokens; where that would not
    be the same run, a line says why, and they are taken in turns.

    Raises:
        RuntimeError: the Trainer does not know of all ranks; or the ranks have different training data.
    """
    prepare_trainer(trainer)
    if _run.world_size == 1:
        return trainer.model_wrapped
    _tell_of_drawn_data(trainer, _check_same_data(getattr(trainer, "train_dataset", None)))
    if batches != "notebook":
        _even.setdefault(trainer, _DEALT if batches == "dealt" else _EVEN)
        _take_each_sample_once(trainer)
        _give_whole_loaders(trainer)
    # Accelerate prepares mixed precision as always; evaluation_mode keeps it from wrapping.
    model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
    told = trainer.args.ddp_find_unused_parameters
    _allow_checkpoints(trainer)
    _leave_experts_uncompiled(model)
    _synchronise_batch_norms(trainer, model)
    _tell_of_dropout(trainer, model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    fills = told if told is not None else any(_leaves_out(name) for name in trained)
    trainer.model_wrapped = _ddp(model, find_unused=False if fills else told)
    _average_each_backward(trainer)
    if fills:
        _fill_gradients(trainer)
    _clip_all_gradients(trainer)
    return trainer.model_wrapped


def _tell_rounding(args: Any) -> None:
    """Say that a part of a micro-batch rounds otherwise in 16 bits than the whole."""
    share = _share_of(args)
    if (args.bf16 or args.fp16) and share < share.batch_size and is_main_process:
        print(
            f"nb2ddp: each rank computes {share} of the notebook's batch of {share.batch_size}: in 16 bits that rounds "
            "otherwise, so losses are near the notebook's (by about 1e-4 of the loss), not equal",
            flush=True,
        )


def _tell_padding(trainer: Any) -> None:
    """Warn where the collator pads on the left of rows whose next tokens are predicted, and a rank has some rows alone.

    The first token of a row is predicted from the padding before it, if the row has any: as long as the longest row of
    a batch, or of a rank's part of it, it has none.
    """
    share, collator = _share_of(trainer.args), trainer.data_collator
    left = getattr(getattr(collator, "tokenizer", None), "padding_side", "right") == "left"
    predicts_next = "CausalLM" in type(trainer.accelerator.unwrap_model(trainer.model)).__name__
    if left and predicts_next and share < share.batch_size and not _collates_whole(trainer):
        _warn(
            f"the tokenizer pads on the left, and each rank pads its {share} of the notebook's "
            f"{share.batch_size} rows to their own length: first tokens that are predicted from padding are fewer, so "
            'losses are near the notebook\'s, not equal. With tokenizer.padding_side = "right" they are equal'
        )


def _allow_checkpoints(trainer: Any) -> None:
    """Let the gradient checkpoints that ``train()`` is about to switch on be of the kind that DDP allows.

    Transformers 4 makes re-entrant ones: DDP finds a parameter ready twice where it searches for unused ones, or where
    a step calls the model twice. The others give the same gradients. Unsloth has checkpoints of its own.
    """
    args = trainer.args
    if getattr(args, "gradient_checkpointing", False) and "unsloth" not in sys.modules:
        options = args.gradient_checkpointing_kwargs or {}
        args.gradient_checkpointing_kwargs = {**options, "use_reentrant": False}


def _leave_experts_uncompiled(model: torch.nn.Module) -> None:
    """Switch Unsloth's compiled blocks off for a mixture of experts, and say so on GPUs, where Unsloth compiles.

    Under DDP gradient checkpoints are not re-entrant: they compare the tensors that a block saves with those that it
    saves when it is recomputed, and a compiled block with experts saves fewer then (CheckpointError; seen with Unsloth
    2026.10.9 and torch 2.11 on two H100). Unsloth reads the variable at each call of a block. One that is set stays.
    """
    with_experts = any("expert" in name for name, _ in model.named_parameters())
    if "unsloth" in sys.modules and with_experts and "UNSLOTH_BLOCK_COMPILE" not in os.environ:
        os.environ["UNSLOTH_BLOCK_COMPILE"] = "0"
        if torch.cuda.is_available() and is_main_process:
            print(
                "nb2ddp: Unsloth's compiled blocks are off, for with experts they fail on several GPUs: in 16 bits "
                "that rounds otherwise, so losses are near the notebook's (by about 1e-3 of the loss), not equal",
                flush=True,
            )


def _synchronise_batch_norms(trainer: Any, model: torch.nn.Module) -> None:
    """Let a batch norm take its statistics from a whole micro-batch that is divided; on CPUs, say that it does not."""
    if not any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in model.modules()):
        return
    divided = _share_of(trainer.args).micro_batches == 1
    if divided and torch.cuda.is_available():
        torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    else:
        part = "each rank's part of a batch" if divided else "the batches of rank 0"
        _warn(
            f"a batch norm takes its running statistics from {part}: the figures are near the "
            "single process's and not equal"
        )


def _tell_of_dropout(trainer: Any, model: torch.nn.Module) -> None:
    """Say on rank 0 that a model has dropout, whose random numbers each rank draws for its samples of a step.

    A micro-batch that the ranks divide for a loss of the notebook's own has those of one process, or says so itself.
    """
    divided = _share_of(trainer.args).micro_batches < _run.world_size
    if divided and _has_own_loss(trainer):
        return
    dropout = torch.nn.modules.dropout._DropoutNd
    parts = [name for name, part in model.named_modules() if isinstance(part, dropout) and part.p > 0]
    what = f"the model has dropout ({parts[0]})" if parts else ""
    if getattr(trainer.args, "neftune_noise_alpha", None):
        what = "NEFTune adds noise to the embeddings"
    if what:
        _warn(
            f"{what}, whose random numbers are drawn on each rank for its own samples: the losses "
            "are near the single process's and not equal"
        )


def _average_each_backward(trainer: Any) -> None:
    """Average gradients in each backward(), not in a step's last one alone, where a training step looks at them.

    They are the notebook's where the ranks divide its micro-batches; where these are taken in turns, rank 0 says that
    they are not. Alike on all ranks, they change weights alike (adversarial training).
    """
    share, steps = _share_of(trainer.args), trainer.args.gradient_accumulation_steps
    if (share.micro_batches == 1 and steps == 1) or not _looks_at_gradients(trainer):
        return
    trainer.model_wrapped.no_sync = contextlib.nullcontext
    if share.micro_batches > 1:
        _warn(
            "the notebook's training_step() looks at gradients, which are of several micro-batches here: one of each "
            "rank. The losses are near the single process's and not equal; with gradient_accumulation_steps=1 in the "
            "notebook they are equal"
        )


def _tell_of_drawn_data(trainer: Any, rows: list[Any] | None) -> None:
    """Say on rank 0 that training data are drawn while they are read, on each rank for its samples of a step.

    A library's collator says itself that it masks tokens, the notebook's own says it in its code, or is tried on two
    ``rows``; a stream has none to try. Where ``rows`` is None, reading one draws already.
    """
    collator = getattr(trainer, "data_collator", None)
    near = "for masks or augmentation say, on each rank for its own samples: the losses are near the single process's"
    if rows is None:
        _warn(f"reading a training row draws random numbers, {near} and not equal")
        return
    if getattr(trainer.compute_loss, "_keeps_loss", False) and _collates_whole(trainer):
        return
    if getattr(collator, "mlm", False):
        _warn(f"{type(collator).__name__} draws random numbers, {near} and not equal")
    elif _draws_or_counts(collator) or (rows and _module(collator) == "__main__" and _draws(collator, rows)):
        _warn(
            "the data collator draws random numbers or counts, on each rank for its own samples: losses and counts are "
            "not the single process's"
        )


def prepare_trainer(trainer: Any) -> None:
    """Give a Trainer's loss the weight that it has in one process, in training and in evaluation. No rank waits.

    Raises:
        RuntimeError: the Trainer was made where it did not know of the other ranks.
    """
    if trainer.args.world_size != _run.world_size > 1:
        raise RuntimeError(f"the Trainer knows of {trainer.args.world_size} of {_run.world_size} processes")
    if _run.world_size > 1:
        _wait_for_saves(trainer)
        _share_stream(trainer)
        evaluated = _evaluate_each_sample_once(trainer)
        _average_last_losses(trainer)
        _group_by_length(trainer)
        if not getattr(trainer.compute_loss, "_keeps_loss", False):
            _prepare_loss(trainer, evaluated)
        _give_whole_loaders(trainer)


def _group_by_length(trainer: Any) -> None:
    """Let rows be grouped by length within the notebook's portions: Transformers takes 50 of a rank's steps for one."""
    get = getattr(trainer, "_get_train_sampler", None)
    if get is None or hasattr(get, "_groups_whole"):
        return

    @functools.wraps(get)
    def sampler(*args: Any, **options: Any) -> Any:
        made = get(*args, **options)
        if type(made).__name__ == "LengthGroupedSampler":
            share = _share_of(trainer.args)
            made.batch_size = share.batch_size * share.accumulation_steps
        return made

    sampler._groups_whole = True  # type: ignore[attr-defined]
    trainer._get_train_sampler = sampler


def _prepare_loss(trainer: Any, evaluated: Any) -> None:
    """Weigh a Trainer's loss as one process does, where its class is known. ``evaluated``: its evaluation's batches."""
    if _has_stock_loss(trainer):
        _keep_loss(trainer)
        _tell_rounding(trainer.args)
        _tell_padding(trainer)
    else:
        # ORPO's and CPO's loss is a mean over tokens and one over rows: a part of a batch has no one weight
        whole = _share_of(trainer.args).micro_batches == _run.world_size
        weighed = "(SFT|DPO|Reward|KTO|ORPO|CPO)Trainer$" if whole else "(SFT|DPO|Reward|KTO)Trainer$"
        if any(re.search(weighed, kind.__name__) for kind in type(trainer).__mro__):
            _keep_loss_of_trl(trainer, evaluated)
            _tell_rounding(trainer.args)
    _log_on_one_rank(trainer)
