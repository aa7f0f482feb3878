"""Hold what this process knows of the run: its rank, the time limits, and what the parts below share."""

import collections
import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from nb2ddp.runtime.watchdog import _Watchdog

_T = TypeVar("_T")

is_main_process: bool = int(os.environ.get("RANK", "0")) == 0

_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE")
_GROUP_TIMEOUT = timedelta(hours=1)
_PATIENCE = float(os.environ.get("NB2DDP_PATIENCE", "45"))  # seconds
_LIMIT = _PATIENCE * 40  # seconds that a rank may compute or sleep at one place while others wait


class _Run:
    """What this process knows of the run. ``world_size`` becomes 1 when rank 0 goes on alone."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.gpu = self.local_rank  # its number among those that this process sees
        self.machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
        self.attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.one_disk = os.environ.get("NB2DDP_SHARED_FS") != "0"
        self.pid = os.getpid()
        self.meetings = collections.Counter[str]()  # how many came, by what their keys begin with
        self.alone = 0  # depth of blocks that this rank runs without the others, as `main_process_only`
        self.first: Any = None  # in a block that rank 0 runs before the others do, its _Meeting
        self.repeats = False  # whether they do there, too, what rank 0 does alone: `in_turn`
        self.steps = 0  # of all optimizers
        self.steps_of = collections.Counter[str]()  # of each optimizer, since the replicas were compared
        self.numbers = weakref.WeakKeyDictionary[Any, str]()  # of optimizers, by their first steps
        self.compared_steps = 0  # after how many steps the replicas were compared last
        # by model of a loop, what divides its calls: a _Split of divided_calls
        self.divided: weakref.WeakKeyDictionary[torch.nn.Module, Any] = weakref.WeakKeyDictionary()
        # each finds what was trained beside a model, by where it is, or digests of that
        self.of_loops: list[Callable[[Any], dict[tuple[str, str], Any]]] = []
        self.at_begin: list[Callable[[], None]] = []  # called once this rank knows the others
        self.at_finish: list[Callable[[], None]] = []  # called before rank 0 goes on alone
        self.at_wrap: list[Callable[..., None]] = []  # called with a Trainer, and whether batches stay whole
        self.at_trainer: list[Callable[[], None]] = []  # called before a Trainer trains
        self.comparing = False  # whether something is computed once more, to compare it with the training
        self.effect: str | None = None  # within a call that may have none, the one that it has
        # of a Trainer's step: the micro-batch under way, how many there are, whether its rows are divided
        self.micro_batch: tuple[int, int, bool] | None = None
        self.micro_batches = 0  # of a Trainer's step that has begun; a rehearsal sets it back
        # what the part `dropout_rows`, where it is here, has for divided micro-batches
        self.dropout: Any = None
        # what the part `gathered_rows`, where it is here, has for losses that compare a batch's rows
        self.gathering: Any = None
        self.draws: Any = None  # where a rank draws its own numbers, gives a context that draws one process's
        self.is_hidden = False  # whether libraries find no process group
        self.has_rows: bool | None = None  # in a loop's model: whether it computes this rank's rows
        self.is_one_process = False  # whether this rank makes a Trainer, or what counts for all
        self.checks: dict[str, Any] = {}  # what the spot checks have shown
        self.failures: list[str] = []  # checks that failed; the run goes on to save and ends with exit code 1
        self.watchdog: _Watchdog | None = None
        self.waits_for: int | None = None  # the rank that this one waits for in the store
        self.waits_since = 0.0
        self.began = False
        self.names: frozenset[str] = frozenset()  # of this module, where the script contains it
        self.cpu_group: Any = None  # for what is no tensor of a GPU; None: the only group

    @property
    def meets(self) -> bool:
        """Whether the other ranks come to this place too."""
        return self.alone == 0 and self.sends

    @property
    def sends(self) -> bool:
        """Whether they do, or do later: in a block that rank 0 runs first."""
        return self.world_size > 1 and self.alone == (self.first is not None) and os.getpid() == self.pid

    @property
    def writes(self) -> bool:
        """Whether this rank makes the files that other ranks of its disk read."""
        return self.rank == 0 if self.one_disk else self.local_rank == 0


_run = _Run()


def _say(text: str) -> None:
    """Print a line about the run, on rank 0: in the terminal, whatever the notebook has made of ``sys.stdout``."""
    if is_main_process:
        print(f"nb2ddp: {text}", file=sys.__stdout__, flush=True)


def _warn(text: str, kind: str = "WARNING") -> None:
    """Print a warning or an error, on rank 0, like `_say`."""
    if is_main_process:
        print(f"nb2ddp: {kind}: {text}", file=sys.__stderr__, flush=True)


_say_once, _warn_once = functools.cache(_say), functools.cache(_warn)


def _is_power_of_two(number: int) -> bool:
    """Return whether something is the 1st, 2nd, 4th, 8th and so on: what is done again is done ever more seldom."""
    return number > 0 and number & (number - 1) == 0


@contextlib.contextmanager
def _replaced(holder: Any, **attributes: Any) -> Iterator[None]:
    """Give an object other attributes within a block, one after another; the last one is the first to be put back."""
    own = {name: vars(holder)[name] for name in attributes if name in vars(holder)}
    for name, value in attributes.items():
        setattr(holder, name, value)
    try:
        yield
    finally:
        for name in reversed(attributes):
            setattr(holder, name, own[name]) if name in own else delattr(holder, name)
