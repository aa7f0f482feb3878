"""Let rank 0 decide for all ranks what a Trainer's callbacks decide, to stop or to save, and let it write alone."""

from typing import Any

from nb2ddp.runtime.object_collectives import _take_from_rank_0
from nb2ddp.runtime.run_state import _run

_DECIDING = "train_begin epoch_begin step_begin step_end epoch_end log evaluate save".split()  # on_...


class _OneDecision:
    """A CallbackHandler that gives every rank rank 0's decisions after each event.

    A callback may look at the clock, the disk or a file, and the ranks do not look at the same moment: one would stop
    and the others wait for it, or take another learning rate. A broadcast of some bytes per event.
    """

    def call_event(self, event: str, args: Any, state: Any, control: Any, **options: Any) -> Any:
        control = super().call_event(event, args, state, control, **options)  # type: ignore[misc]
        if event.removeprefix("on_") in _DECIDING and _run.meets:
            _take_from_rank_0([vars(control), *getattr(self.optimizer, "param_groups", ())])  # type: ignore[attr-defined]
        return control


def _leave_writing_to_rank_0(trainer: Any) -> None:
    """Let a Trainer, Accelerate and TRL know that this rank is not the main process: it saves, logs and shows nothing.

    Nothing else about the rank is told: random seeds of worker processes, say, are those of process 0. Accelerate is
    not told while another Trainer is made, which may write what it then reads, nor of micro-batches that count for all.
    """
    from accelerate.state import PartialState
    from transformers import Trainer

    def made(kind: Any, *_: Any, **__: Any) -> Any:
        _run.is_one_process = True
        return object.__new__(kind)

    Trainer.__new__, _run.is_one_process = staticmethod(made), False
    PartialState.is_main_process = property(lambda _: _run.rank == 0 or _run.is_one_process)
    PartialState.is_local_main_process = property(lambda _: _run.local_rank == 0 or _run.is_one_process)
    kind = type(trainer.args)
    if not _run.writes and "_of_rank" not in vars(kind):
        members: dict[str, Any] = {"_of_rank": _run.rank, "__module__": kind.__module__}
        members |= dict.fromkeys(("should_save", "should_log"), property(lambda _: False))
        trainer.args.__class__ = type(kind.__name__, (kind,), members)


def _make_also(trainer: Any, part: type) -> None:
    """Give a Trainer a class that begins with ``part``; methods that were set on it alone come after that."""
    kind = type(trainer)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    own = {name: staticmethod(vars(trainer).pop(name)) for name in vars(part) if name in vars(trainer)}
    base = type(kind.__name__, (kind,), {**names, **own}) if own else kind
    trainer.__class__ = type(kind.__name__, (part, base), names)
