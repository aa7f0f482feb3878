"""Let the ranks divide the steps of one process's Trainer, by micro-batches or rows."""

import os
from typing import Any

from nb2ddp.runtime.callbacks import _leave_writing_to_rank_0, _make_also, _OneDecision
from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run, _say
from nb2ddp.runtime.saving import _wait_for_save, _WholeCheckpoints
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.turns import _Turns


def wrap_trainer(trainer: Any, batch: str = "preserve", whole: bool = False) -> Any:
    """Let the ranks divide a Trainer's steps, by micro-batches or rows, and return its model.

    Called right before ``trainer.train()``; every rank waits for the others. The Trainer stays one process's on each
    rank. With ``batch="scale"`` a step has as many times its micro-batches as there are ranks; with ``whole`` every
    rank computes all of them: they write where only one process may, or read what earlier ones of the step have left.
    """
    prepare_trainer(trainer, whole)
    for prepare in _run.at_trainer:
        prepare()
    _checks.expects_steps = _checks.is_on and _run.meets
    if _run.meets:
        if batch == "scale":
            trainer.args.gradient_accumulation_steps *= _run.world_size
        trainer.args.output_dir = from_main_process(lambda: trainer.args.output_dir)  # a temporary one, say
        size, steps = trainer.args.train_batch_size, trainer.args.gradient_accumulation_steps
        how = "whole on each of" if whole else "divided over"
        _say(f"batch {size} x {steps}, {how} {_run.world_size} processes = {size * steps} per step")
        _set_random_state(from_main_process(_random_state))
    return trainer.model


def prepare_trainer(trainer: Any, whole: bool = False) -> None:
    """Let the ranks divide what a Trainer evaluates and predicts, not if ``whole``, and rank 0 write. No rank waits."""
    if _run.world_size == 1 or isinstance(trainer, _InTurns):
        return
    trainer._turns = _Turns(trainer)
    for divide in _run.at_wrap:  # what its script evaluates, where that part is here
        divide(trainer, whole)
    if whole:
        trainer._turns.whole = "the script says so"
    _make_also(trainer, _InTurns)
    trainer.args._n_gpu = min(trainer.args.n_gpu, 1)
    _leave_writing_to_rank_0(trainer)
    _make_also(trainer.callback_handler, _OneDecision)


class _InTurns(_WholeCheckpoints):
    """What a Trainer does otherwise on several ranks."""

    _turns: _Turns

    def train(self, *args: Any, **options: Any) -> Any:
        result = super().train(*args, **options)  # type: ignore[misc]
        self._turns.release()
        return result

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        samples, items = super().get_batch_samples(*args, **options)  # type: ignore[misc]
        self._turns.begin(samples)
        return samples, items

    def training_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        step = super().training_step  # type: ignore[misc]
        if not _run.meets:
            return step(model, inputs, *args, **options)
        if not self._turns.expects(inputs):  # from a loop of the notebook's own
            self._turns.begin([inputs])
        return self._turns.take(lambda batch: step(model, batch, *args, **options))

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        note = self._turns.figures.current_note
        if note is not None:  # a micro-batch logs: when its turn comes, on every rank
            note.events.append(("log", (dict(logs), args, options)))
        else:
            super().log(logs, *args, **options)  # type: ignore[misc]

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        save = super()._save_checkpoint
        if not _run.meets or _run.writes:
            save(*args, **options)
        _wait_for_save("checkpoint")
        if _run.meets and not _run.writes:  # notes the best one; it writes nothing
            save(*args, **options)

    def _save_rng_state(self, *args: Any, **options: Any) -> None:
        if _run.writes:
            super()._save_rng_state(*args, **options)  # type: ignore[misc]

    def save_model(self, output_dir: Any = None, *args: Any, **options: Any) -> None:
        super().save_model(output_dir, *args, **options)  # type: ignore[misc]
        if not (options.get("_internal_call") or (args and args[0])):
            _wait_for_save(os.path.abspath(output_dir or self.args.output_dir))

    def is_world_process_zero(self) -> bool:
        return _run.rank == 0

    def is_local_process_zero(self) -> bool:
        return _run.local_rank == 0
