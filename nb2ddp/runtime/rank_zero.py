"""Let rank 0 do for all ranks what must be done once: write, run a command, fill a cache."""

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from nb2ddp.runtime.object_collectives import _Meeting, from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _LAUNCH_VARIABLES, _RANK_VARIABLES, _T, _run, is_main_process


class main_process_only:
    """Let rank 0 alone run a block when all ranks have come to it; the others wait until it is through. Use as::

        with ddp.main_process_only() as is_main:
            if is_main:
                model.save_pretrained("folder")

    What rank 0 raises in the block, every rank raises; ``break``, ``continue`` and ``return`` release the others.
    Afterwards all ranks have rank 0's random generators. Machines without a shared disk (NB2DDP_SHARED_FS=0)
    run the block once each. Waits however long rank 0 takes, and notices when it has ended.
    """

    # Classes, for a generator cannot raise the StopIteration that rank 0 has raised.

    def __enter__(self) -> bool:
        self.meeting = _Meeting(per_machine=True) if _run.meets else None
        if self.meeting is None:
            return _run.writes or _run.world_size == 1 or _run.alone > 0
        _all_come(self.meeting)
        _run.alone += _run.writes
        return _run.writes

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        if _run.writes:
            _run.alone -= 1
            self.meeting.tell(None if error else _random_state(), error)
        elif error is None:
            _set_random_state(self.meeting.hear(_writer()))


class main_process_first:
    """Let rank 0 run a block first; then the others run it and find what it left in a cache or a folder.

    Rank 0 begins when all ranks have come: none still reads what it may write. What rank 0 raises, the others raise
    without running the block. Waits however long rank 0 takes.
    """

    def __enter__(self) -> None:
        self.meeting = _Meeting(per_machine=True) if _run.meets else None
        if self.meeting is not None:
            _all_come(self.meeting)
            self.state: Any = None if _run.writes else self.meeting.hear(_writer())
            _run.alone += 1

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _run.alone -= 1
        if _run.writes:
            self.meeting.tell(None if error else _random_state(), error)
        else:
            _set_random_state(self.state)  # rank 0 may have drawn numbers where the others read its cache


def _all_come(meeting: _Meeting) -> None:
    """Let the rank that writes wait for those that may still read what it is about to change: a folder, say.

    Where one of them does not come, the rank that writes tells the others, which wait for it.
    """
    if not _run.writes:
        meeting.tell(None)
        return
    size = _run.world_size if _run.one_disk else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        for rank in range(_run.rank + 1, _run.rank + size):
            meeting.hear(rank)
    except BaseException as error:
        meeting.tell(None, error)
        raise


def _writer() -> int:
    """Return the rank that makes the files of this rank's disk."""
    return 0 if _run.one_disk else _run.rank - _run.local_rank


class in_turn:
    """Let the ranks run a block one after another; each waits for its turn, and then for the last rank.

    Rank 0 begins when all ranks have come. What a rank raises in its turn, every rank raises; those after it do not
    run the block.
    """

    def __enter__(self) -> None:
        from_all_ranks(None)  # none still reads what rank 0 may write
        self.meeting = _Meeting() if _run.meets else None
        if self.meeting is None:
            return
        if _run.rank > 0:
            try:
                self.meeting.hear(_run.rank - 1)
            except BaseException as error:
                self.meeting.tell(None, error)  # the next rank waits for this one
                raise
        _run.alone += 1

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _run.alone -= 1
        self.meeting.tell(None, error)
        if error is None:
            self.meeting.hear(_run.world_size - 1)


def as_one_process(make: Callable[[], _T]) -> _T:
    """Return what ``make`` makes where it sees one process: an Accelerator that leaves the batches alone.

    ``parallelize`` divides the work instead, so that what the loop computes is computed from whole batches.
    Each rank calls ``make``, waits for no other, and raises what it raises. The Accelerator saves on rank 0 alone,
    while the others wait, and logs there.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name in _LAUNCH_VARIABLES}
    try:
        made = make()
    finally:
        os.environ.update(hidden)
    accelerator: Any = made
    if _run.world_size > 1 and hasattr(accelerator, "init_trackers"):
        for name in ("save", "save_model", "save_state"):
            setattr(accelerator, name, _once(getattr(accelerator, name)))
        # end_training() would destroy the process group, which is not the Accelerator's, before a further loop
        accelerator.state.destroy_process_group = lambda *_, **__: None
        if _run.rank > 0:
            from accelerate.tracking import GeneralTracker

            accelerator.init_trackers = lambda *_, **__: None
            accelerator.get_tracker = lambda *_, **__: GeneralTracker(_blank=True)
    return made


def _once(save: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function: all ranks meet, rank 0 alone calls it, and all get its result."""

    @functools.wraps(save)
    def on_rank_0(*args: Any, **options: Any) -> Any:
        made: list[Any] = []
        with main_process_only() as is_main:
            if is_main:
                made.append(save(*args, **options))
        return from_main_process(lambda: made[0])

    return on_rank_0


def shell(command: str) -> None:
    """Run a ``!`` line once, on rank 0; the others wait. Like the notebook, go on when it fails."""
    with main_process_only() as is_main:
        if is_main:
            sys.stdout.flush()
            subprocess.run(command, shell=True, executable="/bin/bash", env=environment_without_ranks())


def shell_output(command: str) -> list[str]:
    """Run ``x = !command`` on rank 0; the others wait. Return its output as a list of lines, on every rank."""

    def run() -> list[str]:
        env = environment_without_ranks()
        done = subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, env=env)
        return done.stdout.splitlines()

    return from_main_process(run)


def environment_without_ranks() -> dict[str, str]:
    """Return the environment for a process that is no rank of this run. Waits for no rank."""
    return {name: value for name, value in os.environ.items() if name not in _RANK_VARIABLES}


def write_file(path: str, text: str, mode: str = "w") -> None:
    """Write a file once, on rank 0; the others wait until it is there."""
    with main_process_only() as is_main:
        if is_main:
            with open(path, mode, encoding="utf-8") as file:
                file.write(text)


_plot_numbers = itertools.count(1)


def save_plots() -> None:
    """Save the figures that a notebook would show, on rank 0, as plot_1.png and so on. No rank waits."""
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        if is_main_process:
            pyplot.figure(number).savefig(f"plot_{next(_plot_numbers)}.png")
    pyplot.close("all")


def on_main_process(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` on rank 0; on the other ranks one that does nothing with its arguments. No rank waits."""
    return function if is_main_process else _write_nothing


def tracking_uri(uri: Any) -> Any:
    """Return the address of an MLflow store on rank 0; on the other ranks that of an empty one, removed at the end.

    MLflow cannot be disabled, and each rank would start a run of its own in a store that all share. Waits for no
    rank.
    """
    return uri if is_main_process else os.environ["MLFLOW_TRACKING_URI"]


def event_writer(kind: Any) -> Any:
    """Return a SummaryWriter class on rank 0; on the other ranks one like it that writes no event files.

    A writer of each rank would leave its own file, and TensorBoard would show every curve several times. Waits for
    no rank.
    """
    if is_main_process:
        return kind
    writing = [name for name in dir(kind) if name.startswith(("add_", "export_"))]
    members = {"_get_file_writer": _no_file_writer, **dict.fromkeys(writing, _write_nothing)}
    return type(kind.__name__, (kind,), members)


class _NoFileWriter:
    """Stands for what writes to an event file: each of its methods does nothing."""

    def __getattr__(self, name: str) -> Any:
        return _write_nothing


def _no_file_writer(writer: Any) -> _NoFileWriter:
    writer.file_writer = made = _NoFileWriter()
    return made


def _write_nothing(*args: Any, **options: Any) -> None:
    pass
