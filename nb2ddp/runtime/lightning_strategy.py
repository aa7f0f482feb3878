"""Let Lightning train as one process does on every rank: the ranks divide the calls of its module's parts.

A LightningModule is a loop that somebody else wrote. Each rank's Trainer goes through the notebook's batches, and
what the module's steps call is divided as in a loop written by hand; losses, `self.log`, callbacks and manual
optimization see whole batches. What this part adds is who writes, and where ranks wait.
"""

import abc
import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nb2ddp.runtime.averaged_backward import _backward
from nb2ddp.runtime.callbacks import _make_also
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.prepared_data import main_process_first
from nb2ddp.runtime.rank_zero import main_process_only
from nb2ddp.runtime.repeated_writes import _end_trial
from nb2ddp.runtime.run_state import _T, _run
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.trained_models import parallelize_trained
from nb2ddp.runtime.unseen_gradients import _reduce_unseen


def lightning_trainer(make: Callable[..., _T]) -> Callable[..., _T]:
    """Return a function that makes what ``make``, a Trainer's class of Lightning's, makes, on this rank's GPU.

    The Trainer sees one process; rank 0 alone writes its checkpoints and logs. ``fit()`` divides the calls of what
    optimizers train, as `parallelize_trained` does. Every rank passes its barriers, waits there for the others, and
    takes rank 0's decisions: to stop, or to save.

    Raises:
        ValueError: the Trainer is told to train in several processes by itself, or to shard its model, or is of a
            Lightning older than 1.6.
    """
    return make if _run.world_size == 1 else functools.partial(_made, make)


def _made(make: Callable[..., _T], *args: Any, **options: Any) -> _T:
    made = make(*args, **options | _on_one_device(options))
    trainer: Any = made
    if not hasattr(trainer, "strategy"):
        raise ValueError(
            "this Lightning is older than 1.6, the first that nb2ddp can divide: install a newer one, or run the "
            "notebook on one GPU"
        )
    if not isinstance(trainer.strategy, _OfRank):
        name = type(trainer.strategy).__name__
        if not name.startswith("SingleDevice"):
            raise ValueError(f"{name} divides the training by itself; nb2ddp converts strategy='auto'")
        _make_also(trainer.strategy, _OfRank)
    return made


def rank_zero_only(function: Callable[..., _T]) -> Callable[..., _T | None]:
    """Return a function that rank 0 alone runs, as Lightning's decorator of this name does, while the others wait.

    A model that it calls is not divided, and all ranks have rank 0's random generators afterwards.
    """

    @functools.wraps(function)
    def on_rank_0(*args: Any, **options: Any) -> _T | None:
        with main_process_only() as is_main:
            return function(*args, **options) if is_main else None

    return on_rank_0


def _on_one_device(options: dict[str, Any]) -> dict[str, Any]:
    """Return what a Trainer is given in place of devices and strategies that mean one process here."""
    devices, nodes, strategy = (options.get(name) for name in ("devices", "num_nodes", "strategy"))
    count = len(devices) if isinstance(devices, list | tuple) else devices
    if (isinstance(count, int) and count > 1) or (nodes or 1) > 1:
        raise ValueError(
            f"this Trainer trains in several processes by itself (devices={devices}, num_nodes={nodes or 1}); nb2ddp "
            "converts the training of one: give it devices=1"
        )
    late = _run.gpu and torch.cuda.is_available()  # CUDA was up before init(), which hides the other GPUs
    plain: dict[str, Any] = {"devices": [_run.gpu] if late else 1} if late or count else {}
    name = (strategy if isinstance(strategy, str) else type(strategy).__name__).lower()
    if name.startswith(("ddp", "dp", "singledevice")):
        plain["strategy"] = "auto"
    if "profiler" in options and not _run.writes:
        plain["profiler"] = None  # it writes a file
    return plain


class _OfRank(abc.ABC):  # as strategies are, or one's class could not be exchanged
    """What a strategy of one device does otherwise where it is one of several ranks."""

    lightning_module: Any

    @property
    def is_global_zero(self) -> bool:
        return _run.writes

    def connect(self, model: Any) -> None:
        """Begin a run of the Trainer: rank 0 is first to prepare data and to set up, as people download in both."""
        super().connect(model)  # type: ignore[misc]
        trainer = model.trainer
        for logger in trainer.loggers:
            if hasattr(logger, "_get_next_version"):  # the next rank would find rank 0's folder, and count on
                logger._version = self.broadcast(logger.version)
        if trainer.state.fn == "fit":
            _look_after_closures()
            _log_of_whole_batches(next(of for of in type(model).__mro__ if "log" in vars(of)))
            parallelize_trained()
        first = main_process_first()
        first.__enter__()
        self.setting_up = first

    def barrier(self, name: str | None = None, *_: Any, **__: Any) -> None:
        if self.lightning_module.trainer.state.status == "interrupted":
            return  # this rank fails, and the others are elsewhere
        if name == "post_setup":
            self._end_setup()
        from_all_ranks(None)

    def _end_setup(self, error: BaseException | None = None) -> None:
        first = vars(self).pop("setting_up", None)
        if first is not None:
            first.__exit__(None if error is None else type(error), error, None)

    def on_exception(self, exception: BaseException) -> None:
        super().on_exception(exception)  # type: ignore[misc]
        self._end_setup(exception)  # the others raise it too

    def broadcast(self, obj: _T, src: int = 0) -> _T:
        return from_main_process(lambda: obj)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return from_main_process(lambda: decision)

    def on_train_end(self) -> None:
        """Compare once more while the model is still on its GPU."""
        super().on_train_end()  # type: ignore[misc]
        _checks.run_last()


@functools.cache
def _look_after_closures() -> None:
    """Exchange gradients after the closures that compute them in an optimizer's step, not only before the step."""

    def with_exchange(optimizer: Any, args: Any, kwargs: Any) -> Any:
        closure = kwargs.get("closure")

        def compute() -> Any:
            loss = closure()
            _backward.flush()
            _reduce_unseen(optimizer)
            return loss

        return (args, {**kwargs, "closure": compute}) if closure and _run.meets else None

    register_optimizer_step_pre_hook(with_exchange)


@functools.cache
def _log_of_whole_batches(kind: Any) -> None:
    """Let calls that log figures be computed whole: figures are of all rows."""
    log: Callable[..., None] = kind.log

    @functools.wraps(log)
    def log_of_steps(module: Any, *args: Any, **options: Any) -> None:
        _end_trial("forward() logs a figure; log it in a step of the module to share the work")
        log(module, *args, **options)

    kind.log = log_of_steps


def _let_rank_0_log() -> None:
    """Tell Lightning's loggers, and what `rank_zero_only` decorates, that this is not rank 0: before they are made."""
    if _run.rank > 0 and importlib.util.find_spec("lightning_utilities"):
        from lightning_utilities.core import rank_zero

        rank_zero.rank_zero_only.rank = _run.rank


_let_rank_0_log()
