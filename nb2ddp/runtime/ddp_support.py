"""DDP support for a training script that nb2ddp generated: one process (rank) per GPU, started by torchrun.

The script imports this module as ``ddp`` and needs nothing else of nb2ddp. Under plain ``python`` (one process)
every function does what the notebook did, and waits for nothing.

How the ranks work together:

- Before the process group exists, and for whatever may take longer than a collective may, ranks meet through
  torchrun's key-value store: `main_process_only`, `main_process_first`, `from_main_process` and the like. All
  ranks pass the same meetings in the same order; an exception that rank 0 raises in one is raised on all ranks.
- While they train, gradients are averaged by DistributedDataParallel: `wrap_trainer`, `parallelize`.
- A watchdog thread in each rank reports where the rank stands. When ranks can no longer meet (one has left,
  stopped, or waits at another place), it ends the run with a sentence that names the rank and the place.

Environment variables:

NB2DDP_SHARED_FS=0  several machines, each with a disk of its own: local rank 0 of each writes its files
NB2DDP_PATIENCE     seconds that ranks wait in a collective for a rank that is busy elsewhere (default 45)
"""

import atexit
import contextlib
import copyreg
import dis
import functools
import gc
import hashlib
import inspect
import io
import itertools
import json
import logging
import math
import os
import pickle
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

_T = TypeVar("_T")

is_main_process: bool = int(os.environ.get("RANK", "0")) == 0
show = sys.displayhook  # prints the last value of a cell, as a notebook does
has_bf16: bool = not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] >= 8  # not on a T4

_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_LAUNCH_VARIABLES = (*_RANK_VARIABLES, "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ACCELERATE_USE_CPU")
_GROUP_TIMEOUT = timedelta(hours=1)
_PATIENCE = float(os.environ.get("NB2DDP_PATIENCE", "45"))  # seconds
_LONG_PATIENCE = max(600.0, _PATIENCE)  # for library code that may be slow on one rank: saving, compiling
_BEAT = 2.0  # seconds between two reports of the watchdog
_CHUNK = 2**22  # bytes; the store takes no value above 8 MiB


class _Run:
    """What this process knows of the run. ``world_size`` becomes 1 when rank 0 goes on alone."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.machine = os.environ.get("GROUP_RANK", "0")
        self.machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
        self.attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.one_disk = os.environ.get("NB2DDP_SHARED_FS") != "0"
        self.pid = os.getpid()
        self.meetings = 0  # how many this rank has come to
        self.alone = 0  # depth of blocks that this rank runs without the others
        self.may_take_long = 0  # depth of blocks that the others wait for, however long this rank takes
        self.steps = 0  # optimizer steps
        self.shares: dict[
            tuple[int, int], _RankBatch
        ] = {}  # the latest, by micro-batch and accumulation steps
        self.reduced: dict[int, weakref.ref[Any]] = {}  # by id: parameters whose gradients DDP averages
        self.untold: list[tuple[_RankBatch, int]] = []  # shares whose samples a step no line has said yet
        self.failures: list[str] = []  # checks that failed; the run goes on to save and ends with exit code 1
        self.watchdog: _Watchdog | None = None
        self.began = False

    @property
    def meets(self) -> bool:
        """Whether the other ranks come to this place too."""
        return self.world_size > 1 and self.alone == 0 and os.getpid() == self.pid

    @property
    def writes(self) -> bool:
        """Whether this rank makes the files that other ranks of its disk read."""
        return self.rank == 0 if self.one_disk else self.local_rank == 0


_run = _Run()


# ---- start ---------------------------------------------------------------------------------------------------


def init(seed: int | None = None, strategy: str = "ddp", loads_share: bool = False) -> tuple[int, int, int]:
    """Prepare this process and return ``(rank, local_rank, world_size)``.

    Each rank: selects GPU ``cuda:<local_rank>``; only rank 0 prints; an uncaught exception prints its traceback
    and ends the rank at once. ``seed`` seeds random, numpy and torch alike on every rank, for a notebook that
    draws random numbers without a seed; without it, ranks take over the state of rank 0's generators.
    ``strategy="fsdp"`` asks Unsloth to shard the model over the ranks; with ``loads_share`` each rank reads only
    its share of a 16-bit checkpoint. Waits for no other rank.

    Raises:
        SystemExit: the environment asks Unsloth for another strategy, or this Unsloth cannot shard; the sentence
            names the variable to unset, or what to install.
    """
    if _run.began:
        return _run.rank, _run.local_rank, _run.world_size
    _run.began = True
    if seed is not None:
        _seed_all(seed)
    if _run.world_size == 1:
        return _run.rank, _run.local_rank, _run.world_size
    _ask_unsloth_for(strategy, loads_share)
    if torch.cuda.is_available():
        torch.cuda.set_device(_run.local_rank)  # from here on, "cuda" means this process's own GPU
    else:
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")  # else each Trainer takes itself for the only one
    os.environ.setdefault("UNSLOTH_DDP_TIMEOUT", "3600")  # seconds: Unsloth joins the process group for vLLM
    if _run.rank > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- errors still reach stderr
        os.environ["WANDB_MODE"] = "disabled"  # one run, rank 0's
        # Unsloth writes the modules that it compiles; two ranks in one folder would read half-written ones.
        folder = tempfile.mkdtemp(prefix="unsloth_compiled_cache_")  # private to this user
        os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sys.excepthook = _end_on_error
    atexit.register(_leave_script)
    register_optimizer_step_pre_hook(_reduce_unseen)
    register_optimizer_step_post_hook(_count_step)
    _save_whole_files()
    _store()  # without torchrun's own, rank 0 opens it here; the watchdog's connection would wait for it
    _run.watchdog = _Watchdog()
    _run.watchdog.report()  # at once: a rank that ends without a word is missed from here on
    _run.watchdog.start()
    if seed is None:
        _set_random_state(from_main_process(_random_state))
    return _run.rank, _run.local_rank, _run.world_size


def init_process_group() -> None:
    """Join the process group. Called once the model is loaded: Unsloth compiles while it loads.

    Waits until every rank has come here, and notices one that has ended instead. Gradients go through NCCL on
    GPUs, gloo on CPUs.

    Raises:
        RuntimeError: a rank has ended; or an older unsloth_zoo made a group for each rank alone, for vLLM.
    """
    if _run.world_size == 1:
        return
    if not dist.is_initialized():
        from_all_ranks(None)  # a rank that has ended is noticed here; init_process_group() would wait an hour
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        store = dist.PrefixStore("process_group", _store())
        dist.init_process_group(
            backend, timeout=_GROUP_TIMEOUT, store=store, rank=_run.rank, world_size=_run.world_size
        )
    if dist.get_world_size() != _run.world_size:
        raise RuntimeError("vLLM keeps the ranks apart: update unsloth and unsloth_zoo to 2026.10.9 or newer")


def _save_whole_files() -> None:
    """Let a file of weights appear under its name once it is whole: one that dies while it saves leaves no half."""

    def whole(save: Callable[..., Any], parameter: str) -> Callable[..., Any]:
        @functools.wraps(save)
        def save_whole(value: Any, *args: Any, **options: Any) -> Any:
            path = args[0] if args else options.get(parameter)
            if not isinstance(path, str | os.PathLike) or (os.path.exists(path) and not os.path.isfile(path)):
                return save(value, *args, **options)
            final = os.path.realpath(path)
            folder = tempfile.mkdtemp(prefix=".unfinished-", dir=os.path.dirname(final))
            try:
                part = os.path.join(
                    folder, os.path.basename(final)
                )  # torch.save() writes the name into the file
                result = save(value, part, *args[1:], **{k: v for k, v in options.items() if k != parameter})
                os.replace(part, final)
                return result
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        return save_whole

    torch.save = whole(torch.save, "f")
    if _installed("safetensors"):
        import safetensors.torch

        safetensors.torch.save_file = whole(safetensors.torch.save_file, "filename")


def _seed_all(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules or _installed("numpy"):
        import numpy

        numpy.random.seed(seed)


def _installed(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def _random_state() -> tuple[Any, ...]:
    """Return the states of the generators that notebooks draw from: random, numpy, torch on the CPU."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy.random.get_state() if numpy else None, torch.get_rng_state()


def _set_random_state(state: tuple[Any, ...]) -> None:
    python, numpy_state, torch_state = state
    random.setstate(python)
    torch.set_rng_state(torch_state)
    if numpy_state is not None and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(numpy_state)


def _end_on_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show the traceback and end this process at once: a teardown could wait for the other ranks."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    try:
        sys.stderr = sys.__stderr__  # the process group swaps it for a buffer, which would be lost here
        if _came_from_another_rank(error):
            time.sleep(3)  # that rank shows it, and is the one that failed first
        else:
            frames = [frame for frame, _ in traceback.walk_tb(trace)]
            if left := _who_left(error, frames[-1] if frames else None):
                error = RuntimeError(left)
                kind = RuntimeError
            _report_end(f"raised {kind.__name__}", _place(frames[-1] if frames else None))
            sys.__excepthook__(kind, error, trace)
            with contextlib.suppress(BaseException):
                try:
                    raise error.with_traceback(trace)
                except BaseException:
                    error.__traceback__ = trace  # without this function's frame
                    get_error_handler().record_exception(error)  # for torchrun's report of the first failure
    finally:
        _exit(1)


def _who_left(error: BaseException, frame: FrameType | None) -> str:
    """Return which rank has ended, where an error is only that its connection is closed; else ""."""
    if not isinstance(error, RuntimeError) or not re.search(
        r"[Cc]onnection (closed|reset)|Broken pipe", str(error)
    ):
        return ""
    with contextlib.suppress(BaseException):
        for rank in range(_run.world_size):
            if rank != _run.rank and _run.watchdog and (end := _end_of(rank, _run.watchdog.store())):
                return f"rank {rank} {end}, while rank {_run.rank} waits for it at {_place(frame)}"
    return ""


def _exit(code: int) -> None:
    """End this process at once, without the interpreter's teardown; what was written to files is kept."""

    def flush() -> None:
        for thing in gc.get_objects():
            if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
                with contextlib.suppress(BaseException):
                    thing.flush()

    flusher = threading.Thread(target=flush, daemon=True)  # the main thread may hold a file's lock
    with contextlib.suppress(BaseException):
        flusher.start()
        flusher.join(2)
    os._exit(code)


def _leave_script() -> None:
    """Leave in order at the interpreter's end, after ``sys.exit()`` too."""
    if os.getpid() != _run.pid:
        return
    if _run.world_size > 1:
        _report_end("left the script")
        _leave_group()
    if _run.failures:
        print(f"nb2ddp: ERROR: {_run.failures[0]}. What was saved is rank 0's.", file=sys.stderr, flush=True)
        logging.shutdown()
        _exit(1)


def _leave_group() -> None:
    """Leave the process group, and let gloo's threads drop their last tensors.

    They need the interpreter for that: in its teardown they abort the process, or hang it.
    """
    if _run.watchdog is not None:
        _run.watchdog.stop()
    if dist.is_initialized():
        dist.destroy_process_group()
        time.sleep(0.2)


# ---- meetings: what ranks tell one another through torchrun's store ---------------------------------------------


@functools.cache
def _store() -> Any:
    """Return torchrun's key-value store, with keys of this attempt: torchrun keeps it when it restarts ranks."""
    return dist.PrefixStore(_prefix(), next(iter(dist.rendezvous("env://")))[0])


def _prefix() -> str:
    """Return what this attempt's keys begin with.

    A store that torchrun's agent keeps outlives a restart. One that rank 0 opens is new for every round, and on
    several machines the agents count restarts each for itself.
    """
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return f"nb2ddp/{_run.attempt}" if kept else "nb2ddp"


def _second_store() -> Any:
    """Return another connection to the same store: a connection answers one call at a time."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
    return dist.PrefixStore(_prefix(), store)


class _Meeting:
    """One place at which ranks meet: the same number, and the same lines of the script, on each of them."""

    def __init__(self, *, per_machine: bool = False) -> None:
        _run.meetings += 1
        self.lines = tuple(frame.f_lineno for frame in _script_frames())
        self.place = _place()
        apart = per_machine and not _run.one_disk
        self.key = f"{_run.meetings}" + (f" on machine {_run.machine}" if apart else "")

    def tell(self, value: Any, error: BaseException | None = None) -> None:
        """Give the others ``value``, or the exception that they are to raise too."""
        key = f"{self.key} {_run.rank}" if self.key else ""
        body = _pack((self.lines, self.place, value, None if error is None else _as_sent(error)))
        for start in range(0, len(body), _CHUNK):
            _store().set(f"{key} {start}", body[start : start + _CHUNK])
        _store().set(key, str(len(body)))

    def hear(self, rank: int) -> Any:
        """Return what ``rank`` tells, as soon as it does.

        Raises:
            RuntimeError: that rank has ended, or came to another place of the script.
            BaseException: what that rank raised.
        """
        body = _wait_for_key(f"{self.key} {rank}", rank, self.place)
        lines, place, value, error = _unpack(body)
        if lines != self.lines:
            raise RuntimeError(
                f"the ranks went different ways: rank {rank} is at {place}, rank {_run.rank} at {self.place}"
            )
        if error is not None:
            raise _as_raised(error, rank, place)
        return value


def _wait_for_key(key: str, rank: int, place: str) -> bytes:
    """Return what ``rank`` puts into the store under a key, as soon as it does.

    Raises:
        RuntimeError: that rank, or torchrun, has ended.
    """
    store = _store()
    try:
        with _waiting(rank):
            for tries in itertools.count():  # store.wait() prints a warning for each second that it waits
                if store.check([key]):
                    break
                if tries % 50 == 49 and (end := _end_of(rank, store)) and not store.check([key]):
                    raise RuntimeError(f"rank {rank} {end}, while rank {_run.rank} waits for it at {place}")
                time.sleep(0.001 if tries < 100 else 0.02)
        size = int(store.get(key) or 0)  # waits no longer, however long many bytes take
        return b"".join(store.get(f"{key} {start}") for start in range(0, size, _CHUNK))
    except dist.DistNetworkError:
        raise RuntimeError(
            f"torchrun's store is gone, while rank {_run.rank} waits for rank {rank} at {place}"
        ) from None


@contextlib.contextmanager
def _waiting(rank: int) -> Iterator[None]:
    """Let the watchdog know that this rank waits in the store, for a rank that may take long."""
    watchdog = _run.watchdog
    if watchdog is not None:
        watchdog.waits_for, watchdog.waits_since = rank, time.monotonic()
    try:
        yield
    finally:
        if watchdog is not None:
            watchdog.waits_for = None


def _pack(value: Any) -> bytes:
    packed = io.BytesIO()
    torch.save(value, packed)
    return packed.getvalue()


def _unpack(body: bytes) -> Any:
    own_gpu = {f"cuda:{number}": f"cuda:{_run.local_rank}" for number in range(torch.cuda.device_count())}
    return torch.load(io.BytesIO(body), map_location=own_gpu or None, weights_only=False)


def _as_sent(error: BaseException) -> bytes:
    """Return an exception as bytes; what cannot be pickled is sent as its class and its text."""
    for candidate in (error, (type(error), str(error)), (RuntimeError, f"{type(error).__name__}: {error}")):
        with contextlib.suppress(Exception):
            body = pickle.dumps(candidate)
            pickle.loads(body)
            return body
    return pickle.dumps((RuntimeError, "rank 0 raised an exception"))


def _as_raised(body: bytes, rank: int, place: str) -> BaseException:
    error = pickle.loads(body)
    if isinstance(error, tuple):
        kind, text = error
        error = kind.__new__(kind, text)
        error.args = (text,)
    assert isinstance(error, BaseException)
    error.add_note(f"raised on rank {rank}, at {place}")
    error.__dict__["_from_rank"] = rank
    return error


def _came_from_another_rank(error: BaseException | None) -> bool:
    return getattr(error, "_from_rank", None) is not None


def _report_end(how: str, place: str = "") -> None:
    """Note in the store how this rank has ended, and where, for those that wait for it."""
    with contextlib.suppress(BaseException):
        store = _run.watchdog.store() if _run.watchdog is not None else _store()
        store.set(f"end {_run.rank}", f"{how} at {place}" if place else how)


def _end_of(rank: int, store: Any) -> str:
    return store.get(f"end {rank}").decode() if store.check([f"end {rank}"]) else ""


def _script_frames(innermost: FrameType | None = None) -> Iterator[FrameType]:
    """Yield the script's own frames, innermost first."""
    frame: FrameType | None = innermost or sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__":
            yield frame
        frame = frame.f_back


def _place(frame: FrameType | None = None) -> str:
    """Return where in the script a thread is: ``train_ddp.py, line 35 (cell 4)``."""
    own = next(_script_frames(frame), None)
    if own is None:
        return "the end of the script"
    path, line = own.f_code.co_filename, own.f_lineno
    return f"{os.path.basename(path)}, line {line}{_cell(path, line)}"


@functools.lru_cache(maxsize=256)
def _cell(path: str, line: int) -> str:
    """Return the notebook's cell that a line of the script comes from, by the rulers in the script."""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        found = [m[1] for text in itertools.islice(file, line) if (m := re.match(r"# -+ cell (\d+)", text))]
        return f" (cell {found[-1]})" if found else ""
    return ""


# ---- what one rank does for all ---------------------------------------------------------------------------------


class main_process_only:
    """Let rank 0 alone run a block; the others wait until it is through. Use as::

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
        _run.alone += _run.writes
        _run.may_take_long += _run.writes
        return _run.writes

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        if _run.writes:
            _run.alone -= 1
            _run.may_take_long -= 1
            self.meeting.tell(None if error else _random_state(), error)
        elif error is None:
            _set_random_state(self.meeting.hear(_writer()))


class main_process_first:
    """Let rank 0 run a block first; then the others run it and find what it left in a cache or a folder.

    What rank 0 raises, the others raise without running the block. Waits however long rank 0 takes.
    """

    def __enter__(self) -> None:
        self.meeting = _Meeting(per_machine=True) if _run.meets else None
        if self.meeting is not None:
            self.state: Any = None if _run.writes else self.meeting.hear(_writer())
            _run.alone += 1
            _run.may_take_long += _run.writes

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _run.alone -= 1
        _run.may_take_long -= _run.writes
        if _run.writes:
            self.meeting.tell(None if error else _random_state(), error)
        else:
            _set_random_state(self.state)  # rank 0 may have drawn numbers where the others read its cache


def _writer() -> int:
    """Return the rank that makes the files of this rank's disk."""
    return 0 if _run.one_disk else _run.rank - _run.local_rank


def as_one_process(make: Callable[[], _T]) -> _T:
    """Return what ``make`` makes where it sees one process: an Accelerator that leaves the batches alone.

    ``parallelize`` divides the work instead, so that what the loop computes is computed from whole batches.
    Each rank calls ``make``, waits for no other, and raises what it raises.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name in _LAUNCH_VARIABLES}
    try:
        return make()
    finally:
        os.environ.update(hidden)


class in_turn:
    """Let the ranks run a block one after another; each waits for its turn, and then for the last rank.

    What a rank raises in its turn, every rank raises; those after it do not run the block.
    """

    def __enter__(self) -> None:
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
        _run.may_take_long += 1

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _run.alone -= 1
        _run.may_take_long -= 1
        self.meeting.tell(None, error)
        if error is None:
            self.meeting.hear(_run.world_size - 1)


def from_main_process(make: Callable[[], _T]) -> _T:
    """Return on every rank what ``make`` returns on rank 0; the other ranks wait for it and do not call it.

    What ``make`` raises, every rank raises.
    """
    if not _run.meets:
        return make()
    meeting = _Meeting()
    if _run.rank > 0:
        value: _T = meeting.hear(0)
        return value
    _run.alone += 1
    _run.may_take_long += 1
    try:
        value = make()
    except BaseException as error:
        meeting.tell(None, error)
        raise
    finally:
        _run.alone -= 1
        _run.may_take_long -= 1
    meeting.tell(value)
    return value


def from_all_ranks(value: _T) -> list[_T]:
    """Return the values of all ranks, in the order of ranks, on every rank. Waits for the slowest.

    Raises:
        RuntimeError: a rank has ended, or came to another place of the script.
    """
    if not _run.meets:
        return [value]
    meeting = _Meeting()
    meeting.tell(value)
    return [value if rank == _run.rank else meeting.hear(rank) for rank in range(_run.world_size)]


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


def share_loop(items: Iterable[_T], *results: list[Any]) -> Iterator[_T]:
    """Give this rank every world_size-th item of a loop; then ``results`` hold what all ranks appended.

    They hold it on every rank and in the order of the items, as one process fills them. Waits for the slowest.

    Raises:
        RuntimeError: the ranks went through different items.
    """
    if not _run.meets:
        yield from items
        return
    parts = []
    with torch.random.fork_rng([_run.local_rank] if torch.cuda.is_available() else []):
        if _run.rank > 0:
            torch.manual_seed(torch.initial_seed() + _run.rank)  # a model that samples must not draw the same
        for item in itertools.islice(items, _run.rank, None, _run.world_size):
            yield item
            parts.append([result.copy() for result in results])
            for result in results:
                result.clear()
    of_ranks = from_all_ranks(parts)
    taken = [len(of_rank) for of_rank in of_ranks]
    if taken != [len(range(start, sum(taken), _run.world_size)) for start in range(_run.world_size)]:
        raise RuntimeError(f"the ranks went through different items: {taken} of them")
    for turn in itertools.zip_longest(*of_ranks, fillvalue=()):
        for part in turn:
            for result, values in zip(results, part, strict=False):
                result.extend(values)


# ---- training with a Trainer ------------------------------------------------------------------------------------


def share_batch(
    batch_size: int, accumulation_steps: int, num_generations: int | None = None
) -> tuple[int, int]:
    """Split the notebook's batch over the ranks: its accumulation steps first, then its per-device batch.

    Returns this rank's micro-batch size and number of accumulation steps; their product with ``world_size`` is the
    notebook's effective batch, or a warning says what it is before training. ``num_generations`` keeps GRPO's
    groups whole.
    Every rank computes the same; none waits.
    """
    if num_generations and batch_size * accumulation_steps % num_generations:
        batch_size = num_generations  # Unsloth does this in the notebook: a step takes whole groups
    shared = math.gcd(accumulation_steps, _run.world_size)
    steps, parts = accumulation_steps // shared, _run.world_size // shared
    per_rank = max(batch_size // parts, 1)
    while num_generations and per_rank * steps * _run.world_size % num_generations:
        per_rank += 1
    share = _RankBatch(per_rank).noting(batch_size, accumulation_steps, accumulation_steps // steps)
    _run.shares[per_rank, steps] = share
    _run.untold.append((share, steps))
    if per_rank * steps * _run.world_size == batch_size * accumulation_steps:
        _tell_batch(share)
    return share, steps


def _tell_batch(share: "_RankBatch | None" = None, *, by_length: bool = False) -> None:
    """Print how many samples a step takes, once for each share (or for all), and warn of another number.

    Where a batch does not divide, that is known when the Trainer is wrapped: ``by_length``, its steps take the
    notebook's number of samples, which another line says.
    """
    for told, steps in [entry for entry in _run.untold if share is None or entry[0] is share]:
        _run.untold.remove((told, steps))
        total, wanted = told * steps * _run.world_size, told.batch_size * told.accumulation_steps
        if by_length:
            continue
        print(
            f"nb2ddp: batch {told} x {steps} accumulation steps x {_run.world_size} processes = {total} per step"
        )
        if total != wanted:
            print(
                f"nb2ddp: WARNING: the notebook's batch of {wanted} does not divide: a step takes {total} samples"
            )


class _RankBatch(int):
    """This rank's micro-batch size, which knows the notebook's batch that it is a share of.

    Training arguments keep the number that they are given: two batches whose shares are equal, 4 x 1 and 2 x 2 on
    two ranks, stay apart. Copied with its arguments it stays what it is; saved, it is a plain number.
    """

    batch_size: int  # the notebook's
    accumulation_steps: int
    micro_batches: int  # of the notebook's in one of all ranks together

    def noting(self, batch_size: int, accumulation_steps: int, micro_batches: int) -> "_RankBatch":
        self.batch_size, self.accumulation_steps = batch_size, accumulation_steps
        self.micro_batches = micro_batches
        return self

    def __reduce__(self) -> Any:
        return int, (int(self),)

    def __copy__(self) -> "_RankBatch":
        return self

    def __deepcopy__(self, memo: Any) -> "_RankBatch":
        return self


def _share_of(args: Any) -> _RankBatch:
    """Return this rank's share of the notebook's batch; where none was made, the ranks' batches are the notebook's.

    The arguments hold a plain number from here on: what logs them looks at its type.
    """
    batch, steps = args.per_device_train_batch_size, args.gradient_accumulation_steps
    kept = getattr(args, "_rank_batch", None)
    if isinstance(batch, _RankBatch):
        args._rank_batch, args.per_device_train_batch_size = batch, int(batch)
        return batch
    if isinstance(kept, _RankBatch) and kept == batch:
        return kept
    if (batch, steps) in _run.shares:  # the number was written down and read again
        return _run.shares[batch, steps]
    return _RankBatch(batch).noting(batch, steps * _run.world_size, 1)


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
    _check_same_data(getattr(trainer, "train_dataset", None))
    if batches == "notebook":
        _tell_batch(_share_of(trainer.args))
    else:
        _even.setdefault(trainer, _DEALT if batches == "dealt" else _EVEN)
        _take_each_sample_once(trainer)
    # Accelerate prepares mixed precision as always; evaluation_mode keeps it from wrapping.
    model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
    told = trainer.args.ddp_find_unused_parameters
    _synchronise_batch_norms(trainer, model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    fills = told if told is not None else any(_leaves_out(name) for name in trained)
    trainer.model_wrapped = _ddp(model, find_unused=False if fills else told)
    if fills:
        _fill_gradients(trainer)
    _clip_all_gradients(trainer)
    return trainer.model_wrapped


def _synchronise_batch_norms(trainer: Any, model: torch.nn.Module) -> None:
    """Let a batch norm take its statistics from a whole micro-batch that is divided; on CPUs, say that it does not."""
    if not any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in model.modules()):
        return
    divided = _share_of(trainer.args).micro_batches == 1
    if divided and torch.cuda.is_available():
        torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    elif is_main_process:
        part = "each rank's part of a batch" if divided else "the batches of rank 0"
        print(
            f"nb2ddp: WARNING: a batch norm takes its running statistics from {part}: the figures are near the "
            "single process's and not equal",
            file=sys.stderr,
            flush=True,
        )


def prepare_trainer(trainer: Any) -> None:
    """Give a Trainer's loss the weight that it has in one process, in training and in evaluation. No rank waits.

    Raises:
        RuntimeError: the Trainer was made where it did not know of the other ranks.
    """
    if trainer.args.world_size != _run.world_size:
        raise RuntimeError(f"the Trainer knows of {trainer.args.world_size} of {_run.world_size} processes")
    if _run.world_size > 1:
        _wait_for_saves(trainer)
        evaluated = _evaluate_each_sample_once(trainer)
        if getattr(trainer.compute_loss, "_keeps_loss", False):
            return
        if _has_stock_loss(trainer):
            _keep_loss(trainer)
        elif any(re.search("(SFT|DPO|Reward)Trainer$", kind.__name__) for kind in type(trainer).__mro__):
            _keep_loss_of_trl(trainer, evaluated)


def _wait_for_saves(trainer: Any) -> None:
    """Let the other ranks find in a folder what rank 0 saves there: the best checkpoint, or a model to load again.

    Rank 0 waits for none of them: a notebook may call save_model() on the main process alone.
    """
    save_model = trainer.save_model
    if getattr(save_model, "_waits", False) or not _run.one_disk:
        return
    saves: dict[str, int] = {}

    def save_and_wait(output_dir: Any = None, *args: Any, **options: Any) -> None:
        save_model(output_dir, *args, **options)
        if not _run.meets:
            return
        folder = os.path.abspath(output_dir or trainer.args.output_dir)
        saves[folder] = saves.get(folder, 0) + 1
        key = f"saved {_digest(folder)} {saves[folder]}"
        if is_main_process:
            _store().set(key, "")
        else:
            _wait_for_key(key, 0, _place())

    save_and_wait._waits = True  # type: ignore[attr-defined]
    trainer.save_model = save_and_wait


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
    notes_figures = _notes_figures(trainer)
    share = _share_of(args).micro_batches
    step = _take_each_sample_once(trainer, share)
    if counts_items:
        args.average_tokens_across_devices = True

    def loss_of_one(model: Any, inputs: Any, items: Any) -> Any:
        average, args.average_tokens_across_devices = args.average_tokens_across_devices, False
        try:  # the Trainer multiplies nothing
            return compute_loss(model, inputs, num_items_in_batch=items)
        finally:
            args.average_tokens_across_devices = average

    def loss_of_all(
        model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        nonlocal is_mean
        items, trains = num_items_in_batch, model.training
        sizes, factor = step.pop(0) if step and trains else (None, 1.0)
        if return_outputs or not torch.is_grad_enabled():  # evaluation
            return compute_loss(model, inputs, return_outputs=return_outputs)
        if items is not None and is_mean is None:
            model.eval()
            with torch.no_grad(), _without_notes(trainer):
                one, other = (loss_of_one(model, dict(inputs), n) for n in (items, 2 * items))
            model.train(trains)
            is_mean = from_main_process(lambda: _is_mean(one, other))
        even = sizes is None or min(sizes) == max(sizes)
        whole = share < _run.world_size and not (even and _is_mean_over_rows(trainer, inputs))
        sums = items is not None and not is_mean
        if sizes is not None and share > 1 and (notes_figures or (whole and not sums)):
            tokenizer = getattr(trainer, "processing_class", None)
            losses = [
                compute_loss(model, batch) if items is None else loss_of_one(model, batch, items)
                for batch in _notebook_batches(model, inputs, sizes, share, tokenizer)
            ]
            return sum(losses) * (factor / share if items is None else 1.0)
        if sums:
            return loss_of_one(model, inputs, items) * _run.world_size
        if whole:
            inputs = _whole_batch(inputs, sizes, getattr(trainer, "processing_class", None))
        with _divides_calls(model, divides=whole):
            counts = 1.0 if whole or sizes is None else float(sizes[_run.rank] > 0)
            if items is None:
                return compute_loss(model, inputs) * (factor * counts)
            return loss_of_one(model, inputs, None) * (share * counts)

    loss_of_all._keeps_loss = True  # type: ignore[attr-defined]
    trainer.compute_loss = loss_of_all


def _is_mean(one: torch.Tensor, other: torch.Tensor) -> bool | None:
    """Return whether a loss is the same for twice the items; None where no label counts, so that both are 0."""
    if not (one.isfinite() & one.ne(0)).all():
        return None
    return bool(torch.allclose(one, other, rtol=0.01))


def _notebook_batches(
    model: Any, inputs: Any, sizes: list[int], micro_batches: int, tokenizer: Any
) -> Iterator[Any]:
    """Yield the notebook's micro-batches that all ranks hold together; each has rows of as many ranks.

    A call of ``model`` computes this rank's part of each. A collective.
    """
    of_ranks, together = _gather_batches(inputs), _run.world_size // micro_batches
    for first in range(0, _run.world_size, together):
        ranks = slice(first, first + together)
        if any(sizes[ranks]):
            with _divides_calls(model, divides=True):
                yield _joined(inputs, of_ranks[ranks], sizes[ranks], tokenizer)


def _own_code(trainer: Any) -> Iterator[CodeType]:
    """Yield the code of what the notebook has written of its Trainer's loss, with the functions inside it."""
    methods = [getattr(type(trainer), name) for name in ("compute_loss", "prediction_step", "training_step")]
    for function in (*methods, getattr(trainer, "compute_loss_func", None)):
        code = getattr(inspect.unwrap(function) if function is not None else None, "__code__", None)
        if code is not None and getattr(function, "__module__", "") == "__main__":
            codes = [code]
            for code in codes:
                codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
            yield from codes


def _notes_figures(trainer: Any) -> bool:
    """Return whether a loss of the notebook's own notes what it computes: it logs, prints or sets an attribute."""
    return any(
        _NOTING & {*code.co_names} or any(step.opname == "STORE_ATTR" for step in dis.get_instructions(code))
        for code in _own_code(trainer)
    )


_NOTING = frozenset(
    "log log_metrics log_dict print append extend update write writerow add_scalar add info item".split()
)


def _takes_items(trainer: Any) -> bool:
    """Return whether a loss may be divided by the number of items: the notebook's own may not look at it."""
    codes = list(_own_code(trainer))
    if not codes or type(trainer).compute_loss.__module__ != "__main__":
        return True
    loaded: set[Any] = set()
    for code in codes:
        for step in dis.get_instructions(code):
            if step.opname.startswith("LOAD"):
                loaded.update(step.argval if isinstance(step.argval, tuple) else [step.argval])
    options = {
        parameter.name
        for parameter in inspect.signature(type(trainer).compute_loss).parameters.values()
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    return bool(loaded & {"num_items_in_batch", *options})


@contextlib.contextmanager
def _without_notes(trainer: Any) -> Iterator[None]:
    """Undo what a loss notes in a block: its logs and prints, the attributes that it sets, the lists that grow."""
    before = dict(trainer.__dict__)
    own = [kind for kind in type(trainer).__mro__ if kind.__module__ == "__main__"]
    places = (before, *map(vars, own), vars(sys.modules["__main__"]))
    lists = {id(value): value for place in places for value in place.values() if isinstance(value, list)}
    lengths = {number: len(value) for number, value in lists.items()}
    trainer.log = lambda *_, **__: None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        trainer.__dict__.clear()
        trainer.__dict__.update(before)
        for number, length in lengths.items():
            del lists[number][length:]


def _keep_loss_of_trl(trainer: Any, evaluated: "list[_WholeBatches]") -> None:
    """Let a Trainer of TRL's or Unsloth's take each sample once, and log figures of the notebook's batches.

    Where its loss is a sum, divided by the items of all ranks, nothing else is wanted. Where it is a mean, each rank's
    mean gets the weight of its share: of the labels that count, or of the rows.
    """
    compute_loss, args = trainer.compute_loss, trainer.args
    share = _share_of(args).micro_batches
    whole = share == _run.world_size
    step = _take_each_sample_once(trainer, share)
    notes_own = False  # else, as with data that are streamed, TRL gathers what it notes

    def loss_of_all(model: Any, inputs: Any, *given: Any, **options: Any) -> Any:
        nonlocal notes_own
        trains = trainer.model.training
        sizes, factor = step.pop(0) if step and trains else (None, 1.0)
        if trains:
            notes_own = whole and sizes is not None
        if not trains and evaluated and evaluated[0].round >= 0 and not evaluated[0].all_of_them:
            sizes = evaluated[0].sizes[evaluated[0].round]
        own = whole or not trains
        with _figures_of_own_batch(trainer, sizes, own=own):
            if sizes is None or not trains or options.get("num_items_in_batch") is not None:
                return compute_loss(model, inputs, *given, **options)
            weight = factor * ((sizes[_run.rank] > 0) if whole else _share_of_mean(inputs, sizes, share))
            return compute_loss(model, inputs, *given, **options) * weight

    _log_of_all_ranks(trainer, lambda: notes_own)
    loss_of_all._keeps_loss = True  # type: ignore[attr-defined]
    trainer.compute_loss = loss_of_all


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
    that is divided, every rank notes the figures of all rows, however many each rank has.
    """
    accelerator = trainer.accelerator
    kept = {name: accelerator.__dict__.get(name) for name in ("gather", "gather_for_metrics")}
    notes = getattr(trainer, "_metrics", {}).get("train" if trainer.model.training else "eval")
    if sizes is None or notes is None or (not own and min(sizes) == max(sizes)):
        yield
        return
    counts = {key: len(values) for key, values in notes.items()}
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
    if own and sizes[_run.rank] == 0:  # a row that only fills up a round
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
    log, notes = trainer.log, getattr(trainer, "_metrics", None)
    if notes is None:
        return
    logged = getattr(trainer, "_total_train_tokens", 0)  # of all ranks

    def log_of_all(*args: Any, **options: Any) -> Any:
        nonlocal logged
        of_mode = notes["train" if trainer.model.training else "eval"]
        if of_mode and _run.meets:
            tokens = getattr(trainer, "_total_train_tokens", 0)
            of_ranks: list[Any] = [None] * _run.world_size
            dist.all_gather_object(of_ranks, (dict(of_mode), tokens - logged))
            for key in of_mode:
                of_mode[key] = [value for figures, _ in of_ranks for value in figures.get(key, [])]
            if "num_tokens" in of_mode:
                logged = logged + sum(own for _, own in of_ranks) if notes_own() else tokens
                trainer._total_train_tokens = logged
                of_mode["num_tokens"] = [logged]
        return log(*args, **options)

    trainer.log = log_of_all


def _is_mean_over_rows(trainer: Any, inputs: Any) -> bool:
    """Return whether the loss weighs rows alike, so that the mean of the ranks' losses is the batch's.

    It is so for one label a row and a loss of Transformers' own.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    own = type(trainer).compute_loss.__module__ == "__main__" or getattr(trainer, "compute_loss_func", None)
    labels = inputs.get("labels") if hasattr(inputs, "get") else None
    one_each = isinstance(labels, torch.Tensor) and labels.ndim == 1
    return one_each and not own and type(base).__module__.startswith("transformers.")


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


def _whole_batch(inputs: Any, sizes: list[int] | None, tokenizer: Any) -> Any:
    """Return the rows of all ranks, padded to the longest as in the notebook's batch. A collective.

    ``sizes`` says how many of each rank's rows count.
    """
    return _joined(inputs, _gather_batches(inputs), sizes, tokenizer)


def _joined(inputs: Any, of_ranks: list[Any], sizes: list[int] | None, tokenizer: Any) -> Any:
    """Return the rows of some ranks' batches as one batch like ``inputs``, padded to the longest."""
    left = getattr(tokenizer, "padding_side", "right") == "left"
    fills = {"labels": -100, "input_ids": getattr(tokenizer, "pad_token_id", 0) or 0}
    whole = {}
    for name, value in inputs.items():
        parts = [of_rank[name] for of_rank in of_ranks]
        if sizes and (isinstance(value, list) or (isinstance(value, torch.Tensor) and value.ndim)):
            parts = [part[:size] for part, size in zip(parts, sizes, strict=True)]
        if isinstance(value, torch.Tensor) and value.ndim:
            longest = [max(part.shape[d] for part in parts) for d in range(1, value.ndim)]
            padded = [_padded(part, longest, fills.get(name, 0), left=left) for part in parts]
            value = torch.cat(padded).to(value.device)
        elif isinstance(value, list):
            value = [item for part in parts for item in part]
        whole[name] = value
    return type(inputs)(whole)


def _gather_batches(inputs: Any) -> list[Any]:
    """Return the batches of all ranks, on the CPU. A collective."""
    own = {
        name: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
    of_ranks: list[Any] = [None] * _run.world_size
    dist.all_gather_object(of_ranks, own)
    return of_ranks


def _padded(rows: torch.Tensor, sizes: list[int], fill: float, *, left: bool) -> torch.Tensor:
    """Return ``rows`` with its dimensions after the first as long as ``sizes``."""
    missing = [size - length for size, length in zip(sizes, rows.shape[1:], strict=True)]
    pads = [side for count in reversed(missing) for side in ((count, 0) if left else (0, count))]
    return torch.nn.functional.pad(rows, pads, value=fill) if any(pads) else rows


def _leaves_out(name: str) -> bool:
    """Return whether a step may leave a parameter of this name without a gradient: experts, towers."""
    return any(part in name for part in ("expert", "vision", "visual", "image", "audio"))


def _fill_gradients(trainer: Any) -> None:
    """Give what a step leaves out, an expert or a tower for images or sound, a gradient of zero.

    DDP waits for the gradients of all trained parameters. Its own search for those left out does not see through
    the re-entrant checkpointing that Unsloth uses.
    """
    backward = trainer.accelerator.backward
    if backward.__name__ == "backward_and_fill":  # a second train()
        return
    trained = {name: value for name, value in trainer.model_wrapped.named_parameters() if value.requires_grad}
    reached: set[str] = set()  # in this backward()
    used: set[str] = set()  # since the last step
    for name, parameter in trained.items():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: reached.add(name))

    def backward_and_fill(loss: torch.Tensor, **options: Any) -> None:
        reached.clear()
        backward(loss, **options)
        used.update(reached)
        if not trainer.model_wrapped.require_backward_grad_sync:  # the step goes on accumulating
            return
        left_out = [parameter for name, parameter in trained.items() if name not in reached]
        if left_out:
            torch.autograd.backward(left_out, [torch.zeros_like(parameter) for parameter in left_out])
        ranks_that_used = torch.tensor(
            [name in used for name in trained], dtype=torch.int, device=loss.device
        )
        dist.all_reduce(ranks_that_used)
        for parameter, count in zip(trained.values(), ranks_that_used.tolist(), strict=True):
            if count == 0:
                parameter.grad = None  # as in one process: the optimizer leaves the parameter alone
        used.clear()

    trainer.accelerator.backward = backward_and_fill


class _DividedBatches:
    """A rank's training batches: in each round all ranks together take so many of the notebook's ``micro_batches``.

    Each of these is divided over as many ranks, or is one rank's, where there are as many as ranks.
    A rank without a row of the last one gets a row that does not count. Accelerate would repeat rows of the first
    batch there, and train on them.
    """

    def __init__(self, shard: Any, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.batches, self.drop_last = shard.batch_sampler, shard.drop_last
        self.batch_size = shard.batch_size
        self.sizes: list[list[int]] = []  # rows that count, by batch and rank; of this epoch
        self.taken = -1  # the batch that the Trainer took last

    def __len__(self) -> int:
        count: int = len(self.batches)
        return count // _run.world_size if self.drop_last else math.ceil(count / _run.world_size)

    def __getattr__(self, name: str) -> Any:
        if "batches" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes, self.taken = [], -1
        parts = iter(self.batches)
        filler: list[int] = []
        while own := list(itertools.islice(parts, _run.world_size)):
            if self.drop_last and len(own) < _run.world_size:
                return
            rows = [row for part in own for row in part]
            filler = filler or rows[:1]
            together = _run.world_size // self.micro_batches
            bounds = [0]
            for first in range(0, _run.world_size, together):
                start, count = bounds[-1], sum(map(len, own[first : first + together]))
                bounds += [start - (-count * number // together) for number in range(1, together + 1)]
            self.sizes.append([end - start for start, end in itertools.pairwise(bounds)])
            yield rows[bounds[_run.rank] : bounds[_run.rank + 1]] or _Filler(filler)


class _Filler(list[int]):
    """A row that a rank without one takes, so that it comes to the collectives; it does not count."""


def _take_each_sample_once(trainer: Any, micro_batches: int = 0) -> list[tuple[list[int], float]]:
    """Let training take each sample of an epoch once, in the notebook's batches or in those shared out by length.

    In each round all ranks take so many of the notebook's ``micro_batches``; with 0, those shared out by length
    alone are taken so: others stay Accelerate's. Returns a list that holds, for each batch of the optimizer step,
    the rows of each rank that count, and what a mean of all ranks' means over the step is to be multiplied by.
    """
    step: list[tuple[list[int], float]] = []
    if hasattr(trainer.get_train_dataloader, "_takes_once") or not hasattr(trainer, "get_batch_samples"):
        return step
    get_loader, get_samples = trainer.get_train_dataloader, trainer.get_batch_samples
    current: list[_DividedBatches] = []

    def divided_loader(*args: Any, **options: Any) -> Any:
        loader = get_loader(*args, **options)
        shard: Any = getattr(loader, "batch_sampler", None)
        current.clear()
        even = _even_out(trainer, loader)
        divides = type(shard).__name__ == "BatchSamplerShard" and not shard.split_batches
        if divides and (even or micro_batches):
            current.append(_DividedBatches(shard, _run.world_size if even else micro_batches))
            for owner in (loader, getattr(loader, "base_dataloader", loader)):
                object.__setattr__(owner, "batch_sampler", current[0])
        return loader

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if current:
                own = current[0]
                if own.taken < 0 and not trainer.args.ignore_data_skip:  # a run that is resumed skips batches
                    updates = math.ceil(len(own) / trainer.args.gradient_accumulation_steps)
                    own.taken += (
                        trainer.state.global_step % updates * trainer.args.gradient_accumulation_steps
                    )
                own.taken += 1
                if own.sizes[own.taken][_run.rank] == 0 and "labels" in batch:
                    batch["labels"] = torch.full_like(batch["labels"], -100)  # no item of the loss
                step.append((own.sizes[own.taken], 1.0))
            yield batch

    def samples(batches: Iterator[Any], *args: Any, **options: Any) -> Any:
        step.clear()
        taken = get_samples(counted(batches), *args, **options)
        if micro_batches > 1 and step:
            together = _run.world_size // micro_batches
            firsts = range(0, _run.world_size, together)
            with_rows = sum(any(sizes[first : first + together]) for sizes, _ in step for first in firsts)
            step[:] = [(sizes, micro_batches * len(step) / with_rows) for sizes, _ in step]
        return taken

    divided_loader._takes_once = True  # type: ignore[attr-defined]
    trainer.get_train_dataloader, trainer.get_batch_samples = divided_loader, samples
    if micro_batches == _run.world_size:
        _count_epochs_in_batches(trainer, current)
    return step


def _count_epochs_in_batches(trainer: Any, current: list[_DividedBatches]) -> None:
    """Let ``state.epoch`` grow with the notebook's batches: those of a rank are a part of them, rounded up."""
    from transformers import TrainerCallback

    class CountBatches(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if current and state.epoch is not None:
                taken, count = (current[0].taken + 1) * _run.world_size, len(current[0].batches)
                if current[0].drop_last:
                    return
                state.epoch = math.ceil(state.epoch - 1e-9) - 1 + min(taken, count) / count

    trainer.callback_handler.callbacks.insert(0, CountBatches())


def _clip_all_gradients(trainer: Any) -> None:
    """Average what DDP does not average before gradients are clipped, too: each rank would clip otherwise."""
    clip = trainer.accelerator.clip_grad_norm_
    if getattr(clip, "_averages", False):
        return

    def average_and_clip(parameters: Any, *args: Any, **options: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        _average_unseen(parameters)
        return clip(parameters, *args, **options)

    average_and_clip._averages = True  # type: ignore[attr-defined]
    trainer.accelerator.clip_grad_norm_ = average_and_clip


class _WholeBatches:
    """A rank's evaluation batches: batch ``k * world_size + rank`` of the notebook's, in round ``k``.

    In an incomplete last round a rank without a batch gets one row that `gather` leaves out. Accelerate would
    repeat rows of the first batch there, and count them. With ``all_of_them`` each rank takes every batch: what the
    notebook's own loss notes of each is the same on all ranks.
    """

    def __init__(self, batches: Any, *, all_of_them: bool) -> None:
        self.batches, self.all_of_them = batches, all_of_them
        self.sizes: list[list[int]] = []  # rows that count, by round and rank
        self.round = -1  # the round whose outputs are being gathered

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
        """Return the rows of all ranks in the notebook's order, without those that only fill up a round."""
        if not isinstance(value, torch.Tensor):
            return value
        sizes = self.sizes[self.round]
        rows = value.reshape(1) if value.ndim == 0 else value
        if self.all_of_them:
            return rows[: sizes[0]]
        missing = max(sizes) - len(rows)
        if missing > 0:
            rows = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
        of_ranks = [torch.empty_like(rows) for _ in range(_run.world_size)]
        dist.all_gather(of_ranks, rows.contiguous())
        return torch.cat([of_rank[:size] for of_rank, size in zip(of_ranks, sizes, strict=True)])


def _evaluate_each_sample_once(trainer: Any) -> "list[_WholeBatches]":
    """Let evaluation count each sample once, in the notebook's batches, where rows do not divide by the ranks.

    Returns a list that holds the batches of the evaluation under way.
    """
    accelerator = trainer.accelerator
    current: list[_WholeBatches] = []
    if getattr(accelerator.gather_for_metrics, "_counts_once", False):
        return current
    gather, prediction_step = accelerator.gather_for_metrics, trainer.prediction_step
    notes_figures = _notes_figures(trainer)

    def whole_batches(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(*args: Any, **options: Any) -> Any:
            loader = make(*args, **options)
            shard: Any = getattr(loader, "batch_sampler", None)
            current.clear()
            if type(shard).__name__ == "BatchSamplerShard" and not shard.split_batches:
                shard = _WholeBatches(shard.batch_sampler, all_of_them=notes_figures)
                for owner in (loader, getattr(loader, "base_dataloader", loader)):
                    object.__setattr__(owner, "batch_sampler", shard)
            if isinstance(shard, _WholeBatches):
                current.append(shard)
            return loader

        return made

    def gather_once(value: Any, *args: Any, **options: Any) -> Any:
        if trainer.model.training or not current or current[0].round < 0:  # TRL gathers in training too
            return gather(value, *args, **options)
        return pytree.tree_map(current[0].gather, value)

    def count_round(*args: Any, **options: Any) -> Any:
        if current:
            current[0].round += 1
        return prediction_step(*args, **options)

    gather_once._counts_once = True  # type: ignore[attr-defined]
    accelerator.gather_for_metrics = gather_once
    trainer.gather_function = gather_once
    trainer.prediction_step = count_round
    for name in ("get_eval_dataloader", "get_test_dataloader"):
        setattr(trainer, name, whole_batches(getattr(trainer, name)))
    return current


def _check_same_data(dataset: Any) -> None:
    """Compare the training data of all ranks: its length, and the content of some of its rows.

    Raises:
        RuntimeError: they differ, with the row and what to do.
    """
    if isinstance(dataset, torch.utils.data.IterableDataset):  # no row by its number, even with a length
        return
    try:
        length = len(dataset)
    except TypeError:  # no data set at all
        return
    places = sorted({round(n * (length - 1) / 15) for n in range(16)}) if length else []
    state = from_main_process(_random_state)
    rows = []
    for _ in range(2):  # a row that draws its content with a generator of its own differs from itself
        _set_random_state(state)
        rows.append([_digest(dataset[place]) for place in places])
    _set_random_state(state)
    own = [first if first == second else "" for first, second in zip(*rows, strict=True)]
    for rank, (other_length, other) in enumerate(from_all_ranks((length, own))):
        if other_length != length:
            raise RuntimeError(
                f"rank {rank} has {other_length} training rows, rank {_run.rank} {length}. {_SEED}"
            )
        for place, here, there in zip(places, own, other, strict=True):
            if here and there and here != there:
                raise RuntimeError(
                    f"training row {place} is not the same on ranks {rank} and {_run.rank}. {_SEED}"
                )


_SEED = (
    "Every rank must make the same data: seed what draws it (random.seed, numpy.random.seed, torch.manual_seed, "
    "seed= or random_state=), sort what comes from a set or a folder, and start again"
)


def _digest(value: Any) -> str:
    """Return a digest of a row or a batch by its content."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(dict(value) if hasattr(value, "keys") else value):
        if isinstance(leaf, torch.Tensor):
            digest.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif hasattr(leaf, "tobytes"):
            digest.update(leaf.tobytes())
        elif isinstance(leaf, str | int | float | bool | bytes | None):
            digest.update(repr(leaf).encode())
        else:
            digest.update(type(leaf).__name__.encode())
    return digest.hexdigest()


# ---- even batches: each optimizer step's samples, shared out by their lengths ---------------------------------
#
# DDP waits in every step for the rank with the most work. Where rows differ in length, the notebook's order gives
# one rank more tokens than the others, and two GPUs come to 1.5 to 1.7 times the speed of one. Here the set of
# samples of each optimizer step stays the notebook's. Length decides which rank takes a micro-batch of the
# notebook's (batches="dealt"), or which rank takes a sample, and in which micro-batch (batches="even"). A loss that
# is a mean over the step's tokens is the same as in one process.
#
# A padded micro-batch costs its rows times its longest row: rows of like lengths go together. A padding-free one
# costs its tokens and leaves nothing to save: the tokens are spread evenly over the micro-batches too, for short
# ones would cost the GPU's launches all the same. Shares are a pure function of the lengths, so every rank finds
# the same ones without asking the others.

_Share = list[list[int]]  # one rank's micro-batches of a step: positions in the step's samples


def _count_micro_batches(samples: int, world_size: int, batch_size: int) -> int:
    """Return how many micro-batches each rank takes of a step with so many samples.

    As few as the batch size allows, yet no more than leave a sample for each: with 8 samples in batches of
    1 on 3 ranks these are 2, of which some hold two rows.
    """
    if samples < world_size:
        raise ValueError(f"{samples} samples cannot be shared among {world_size} ranks")
    return min(math.ceil(samples / (world_size * batch_size)), samples // world_size)


def _share_evenly(
    lengths: Sequence[int],
    world_size: int,
    batch_size: int,
    *,
    micro_batches: int = 0,
    padded: bool = True,
    equal_counts: bool = True,
    longest: int = 0,
) -> list[_Share]:
    """Return each rank's micro-batches of one optimizer step, as positions in ``lengths``.

    Every rank gets the same number of micro-batches (``micro_batches``, or as few as ``batch_size`` allows) and
    none is empty; together they hold each sample once. With ``equal_counts`` they hold as many rows as one another
    (or differ by one, where the samples do not divide). Without it a micro-batch may hold more rows than
    ``batch_size`` if they are short: never more tokens, padding included, than ``batch_size`` rows of ``longest``.
    The slowest rank never has more to do than with the notebook's own micro-batches taken in turns, and where
    nothing is gained, as with rows of equal length, these are what comes back. Otherwise each rank's most
    expensive micro-batch comes first.
    """
    micro_batches = micro_batches or _count_micro_batches(len(lengths), world_size, batch_size)
    cost = _Cost(lengths, padded)
    order = sorted(range(len(lengths)), key=lambda sample: (-lengths[sample], sample))
    room = batch_size * max(longest, lengths[order[0]])
    in_turns = _in_turns(len(lengths), world_size, micro_batches)
    plans = [*in_turns]
    if not equal_counts:
        if padded:
            plans += _like_lengths(order, world_size, micro_batches, cost, room)
        else:
            plans += _spread(order, world_size, micro_batches, cost, len(order), room)
    even = _spread(order, world_size, micro_batches, cost, math.ceil(len(order) / world_size), None)
    plans += _in_rows(order, even, world_size, micro_batches, cost) if padded else even
    best = min(plans, key=lambda plan: max(map(cost.of_share, plan)))
    if best in in_turns:
        return best
    return [
        [sorted(batch) for batch in sorted(share, key=lambda batch: (-cost.of_batch(batch), min(batch)))]
        for share in best
    ]


class _Cost:
    """What a micro-batch costs in time and memory: its tokens, padding included."""

    def __init__(self, lengths: Sequence[int], padded: bool) -> None:
        self.lengths = lengths
        self.padded = padded

    def of_batch(self, batch: Sequence[int]) -> int:
        rows = [self.lengths[sample] for sample in batch]
        return len(rows) * max(rows) if self.padded else sum(rows)

    def of_share(self, share: _Share) -> int:
        return sum(map(self.of_batch, share))


def _in_turns(samples: int, ranks: int, micro_batches: int) -> list[list[_Share]]:
    """Return micro-batches in the notebook's order, taken in turns by the ranks; [] where they do not divide."""
    size, rest = divmod(samples, ranks * micro_batches)
    if rest:
        return []
    batches = [list(range(start, start + size)) for start in range(0, samples, size)]
    return [[batches[rank::ranks] for rank in range(ranks)]]


def _lightest_first(
    samples: Iterable[int], bins: int, cost: _Cost, fewest: int, most: int
) -> list[list[int]]:
    """Hand out samples, longest first, each to the bin with the least work, ``fewest`` to ``most`` a bin."""
    samples = list(samples)
    filled: list[list[int]] = [[] for _ in range(bins)]
    loads = [0] * bins
    for place, sample in enumerate(samples):
        missing = sum(max(fewest - len(held), 0) for held in filled)
        spare = len(samples) - place > missing
        free = [
            number for number, held in enumerate(filled) if len(held) < most and (spare or len(held) < fewest)
        ]
        lightest = min(free, key=lambda number: (loads[number], number))
        filled[lightest].append(sample)
        loads[lightest] += cost.lengths[sample]
    return filled


def _spread(
    order: Sequence[int], ranks: int, micro_batches: int, cost: _Cost, most: int, room: int | None
) -> list[list[_Share]]:
    """Spread the tokens over the ranks, then each rank's over its micro-batches; [] if they do not fit."""
    fewest = micro_batches if room else len(order) // ranks
    plan = []
    for held in _lightest_first(order, ranks, cost, fewest, most):
        rows = math.ceil(len(held) / micro_batches)
        limits = (1, len(held)) if room else (len(held) // micro_batches, rows)
        plan.append(_lightest_first(held, micro_batches, cost, *limits))
    if room and any(cost.of_batch(batch) > room for share in plan for batch in share):
        return []
    return [plan]


def _in_rows(
    order: Sequence[int], even: list[list[_Share]], ranks: int, micro_batches: int, cost: _Cost
) -> list[list[_Share]]:
    """Cut rows sorted by length into padded micro-batches: the whole step's, and each rank's own."""
    sorted_shares = []
    for share in even[0]:
        held = sorted((sample for batch in share for sample in batch), key=lambda s: (-cost.lengths[s], s))
        sorted_shares.append(_cut(held, micro_batches))
    return [_assign(_cut(order, ranks * micro_batches), ranks, cost), sorted_shares]


def _cut(samples: Sequence[int], pieces: int) -> list[list[int]]:
    """Cut samples into pieces of one size; where they do not divide, the last ones hold one more."""
    size, longer = divmod(len(samples), pieces)
    bounds = [number * size + max(number - (pieces - longer), 0) for number in range(pieces + 1)]
    return [list(samples[start:end]) for start, end in itertools.pairwise(bounds)]


def _assign(batches: list[list[int]], ranks: int, cost: _Cost) -> list[_Share]:
    """Assign micro-batches to ranks, the most expensive first; to each as many, or one fewer at the end."""
    most = math.ceil(len(batches) / ranks)
    shares: list[_Share] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for batch in sorted(batches, key=lambda batch: (-cost.of_batch(batch), batch[0])):
        free = [number for number, share in enumerate(shares) if len(share) < most]
        lightest = min(free, key=lambda number: (loads[number], number))
        shares[lightest].append(batch)
        loads[lightest] += cost.of_batch(batch)
    return shares


def _like_lengths(
    order: Sequence[int], ranks: int, micro_batches: int, cost: _Cost, room: int
) -> list[list[_Share]]:
    """Cut the sorted rows where the padding is least, or the most expensive micro-batch is cheapest."""
    plans = []
    for power in (1, 2, 4):
        cut = _cheapest_cut(order, ranks * micro_batches, cost, power, room)
        if cut is not None:
            plans.append(_assign(cut, ranks, cost))
    return plans


def _cheapest_cut(
    order: Sequence[int], pieces: int, cost: _Cost, power: int, room: int
) -> list[list[int]] | None:
    """Cut sorted rows into pieces with the least sum of (rows x longest) ** power; None where none fits.

    Many rows are cut in groups of a few, for the time that it takes grows with their square.
    """
    group = max(1, len(order) // max(96, 2 * pieces))
    bounds = [*range(0, len(order), group), len(order)]
    longest = [cost.lengths[order[bound]] for bound in bounds[:-1]]
    count = len(bounds) - 1
    # least[end]: the cheapest way to cut order[: bounds[end]] into the pieces so far; its last piece's begin
    least: list[float] = [0.0] + [math.inf] * count
    begins: list[list[int]] = []
    for piece in range(1, pieces + 1):
        following, begin = [math.inf] * (count + 1), [0] * (count + 1)
        for start in range(piece - 1, count - (pieces - piece)):
            if least[start] == math.inf:
                continue
            for end in range(start + 1, count - (pieces - piece) + 1):
                tokens = (bounds[end] - bounds[start]) * longest[start]
                if tokens > room:
                    break
                total = least[start] + tokens**power
                if total < following[end]:
                    following[end], begin[end] = total, start
        least = following
        begins.append(begin)
    if least[count] == math.inf:
        return None
    cut, end = [], count
    for begin in reversed(begins):
        cut.append(list(order[bounds[begin[end]] : bounds[end]]))
        end = begin[end]
    return cut[::-1]


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
        # Unsloth compiles its blocks anew for each number of rows
        compiles = "unsloth" in sys.modules and os.environ.get("UNSLOTH_BLOCK_COMPILE") != "0"
        self.equal_counts = padded and compiles and torch.cuda.is_available()
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
    with _without_effects(trainer.model, dropout=False):
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


# ---- training with a loop ---------------------------------------------------------------------------------------


def parallelize(model: torch.nn.Module) -> torch.nn.Module:
    """Let each rank compute its part of every batch that ``model`` is called with, and return ``model``.

    Each rank runs the notebook's loop over the notebook's batches. Where gradients are wanted, ``model(batch)``
    computes this rank's rows alone, through DDP, and returns the outputs of all rows: losses, metrics and decisions
    are computed from whole batches, alike on every rank. Outputs that are one number (a loss that the model
    computes) are combined with the weights that the first batches show to be right. Without gradients every rank
    computes whole batches.

    Where a model's output for a row depends on the batch's other rows, or its rows cannot be told, every rank
    computes whole batches: right, but no faster; a warning says so. Waits for rank 0, whose random generators
    all ranks take over.
    """
    if _run.world_size == 1 or model in _splits:
        return model
    init_process_group()
    _set_random_state(from_main_process(_random_state))
    kind: Any = type(model)
    model.__class__ = _split_class(kind)
    _splits[model] = _Split(model)
    return model


_splits: "weakref.WeakKeyDictionary[torch.nn.Module, _Split]" = weakref.WeakKeyDictionary()


@functools.cache
def _split_class(kind: Any) -> type:
    """Return a subclass whose instances compute their part of a batch when called; pickled as ``kind``."""

    called: Callable[..., Any] = kind.__call__
    reduced: Callable[..., Any] = kind.__reduce_ex__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        split = _splits.get(self)
        if split is None or split.inside or not _run.meets or not torch.is_grad_enabled():
            return called(self, *args, **kwargs)
        return split.forward(args, kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        function, arguments, *rest = reduced(self, protocol)
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            function, arguments = copyreg._reconstructor, (kind, object, None)  # type: ignore[attr-defined]
        return (function, arguments, *rest)

    members = {"__call__": call, "__reduce_ex__": reduce, "__module__": kind.__module__}
    made = type(kind.__name__, (kind,), members)
    made.__qualname__ = kind.__qualname__
    return made


class _Parts:
    """How the arguments of a call are divided: the leaves with a row for each sample, and the rows of each rank."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_list_of_values)
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor) and leaf.ndim]
        self.rows = len(tensors[0]) if tensors else 0
        self.divided = [
            self.rows > 0
            and ((isinstance(leaf, torch.Tensor) and leaf.ndim > 0) or isinstance(leaf, list))
            and len(leaf) == self.rows
            for leaf in self.leaves
        ]
        bounds = [self.rows * rank // _run.world_size for rank in range(_run.world_size + 1)]
        self.ranges = list(itertools.pairwise(bounds))
        self.sizes = [end - start for start, end in self.ranges]

    @property
    def known(self) -> bool:
        """Whether nothing is passed whose rows cannot be told."""
        plain = (torch.Tensor, list, str, int, float, bool, type(None), torch.dtype, torch.device)
        return min(self.sizes) > 0 and all(isinstance(leaf, plain) for leaf in self.leaves)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What calls of one kind have in common."""
        kinds = tuple(leaf.ndim if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in self.leaves)
        return (kinds, tuple(self.divided), str(self.spec))

    def of(self, rank: int, *, differentiable: bool = False) -> tuple[Any, Any]:
        """Return the arguments for one rank's rows."""
        start, end = self.ranges[rank]

        def part(leaf: Any) -> Any:
            if differentiable and isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                return _TakeRows.apply(leaf, self.sizes, _run.rank)
            return leaf[start:end]

        taken = [part(leaf) if own else leaf for leaf, own in zip(self.leaves, self.divided, strict=True)]
        args, kwargs = pytree.tree_unflatten(taken, self.spec)
        return args, kwargs

    def weights(self, ways: Iterable[Any] | None = None) -> dict[Any, list[float]]:
        """Return, for each way to combine a number (or each of ``ways``), the weight of each rank's.

        A mean may run over rows, or over the positions of an integer argument (labels, a mask) that do not hold
        one value; "shifted" ones are compared with the position before them.
        """
        found: dict[Any, list[float]] = {
            "mean over rows": [float(size) for size in self.sizes],
            "sum": [self.rows / _run.world_size] * _run.world_size,
        }
        counts = {}
        for number, (leaf, own) in enumerate(zip(self.leaves, self.divided, strict=True)):
            if not own or not isinstance(leaf, torch.Tensor) or leaf.is_floating_point() or leaf.is_complex():
                continue
            for ignored, shifted in itertools.product((-100, -1, 0), (False, True)):
                way = (number, ignored, shifted)
                if (ways is None or way in ways) and not (shifted and leaf.ndim < 2):
                    counts[way] = (leaf[:, 1:] if shifted else leaf).ne(ignored).reshape(self.rows, -1).sum(1)
        if counts:
            for way, of_rows in zip(counts, torch.stack(list(counts.values())).tolist(), strict=True):
                found[way] = [float(sum(of_rows[start:end])) for start, end in self.ranges]
        shares = {way: [w / sum(weights) for w in weights] for way, weights in found.items() if sum(weights)}
        shares["sum"] = [1.0] * _run.world_size
        return shares if ways is None else {way: shares[way] for way in ways if way in shares}


def _is_list_of_values(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(v, torch.Tensor) for v in value)


class _TakeRows(torch.autograd.Function):
    """This rank's rows of a tensor that every rank has; backward gives every rank the gradient of all rows."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        start = sum(sizes[:rank])
        return whole[start : start + sizes[rank]].clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _GatherGradient.apply(grad, ctx.sizes, _run.rank), None, None


class _GatherRows(torch.autograd.Function):
    """The rows of all ranks; backward gives each rank the gradient of its own, for DDP to average."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        return _all_rows(own, sizes)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _TakeGradient.apply(grad, ctx.sizes, _run.rank), None, None


class _SumOverRanks(torch.autograd.Function):
    """A number summed over the ranks with their weights; backward as for `_GatherRows`."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        total = own.detach() * weight if weight else torch.zeros_like(own)  # a mean of nothing is no number
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _WeighGradient.apply(grad, ctx.weight), None


# The gradient of one of this rank's rows is world_size times the row's, for DDP to average. Where a gradient is
# itself differentiated (a penalty on its norm), these go back from one kind to the other.


class _TakeGradient(torch.autograd.Function):
    """Of the gradient of all rows, that of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.sizes = sizes
        start = sum(sizes[:rank])
        return whole[start : start + sizes[rank]] * _run.world_size

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _all_rows(grad, ctx.sizes), None, None


class _GatherGradient(torch.autograd.Function):
    """The gradient of all rows from those of each rank's rows."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: list[int], rank: int) -> torch.Tensor:
        ctx.start, ctx.size = sum(sizes[:rank]), sizes[rank]
        return _all_rows(own / _run.world_size, sizes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad[ctx.start : ctx.start + ctx.size].clone(), None, None


class _WeighGradient(torch.autograd.Function):
    """Of the gradient of a number, that of this rank's part of it."""

    @staticmethod
    def forward(ctx: Any, grad: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        return grad * (weight * _run.world_size)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        total = grad * ctx.weight
        dist.all_reduce(total)
        return total, None


def _all_rows(own: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    most = max(sizes)
    rows = own.detach()
    if len(rows) < most:
        rows = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
    of_ranks = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in sizes]
    dist.all_gather(of_ranks, rows.contiguous())
    return torch.cat([of_rank[:size] for of_rank, size in zip(of_ranks, sizes, strict=True)])


class _Split:
    """Divides a model's calls over the ranks."""

    checked_calls = 3  # of one kind, before the way to combine its outputs is settled
    most_rechecks = 16

    def __init__(self, model: torch.nn.Module, ddp: DDP | None = None) -> None:
        self.model: Any = weakref.proxy(model)
        self.inside = False  # a call of ours is under way: the model computes what it is given
        self.ddp = ddp
        self.trained: list[
            tuple[Any, bool]
        ] = []  # parameters, and whether they were trained when it was made
        self.calls = 0
        self.seen: dict[Any, int] = {}  # kinds of calls, and how often each was checked
        self.said: set[str] = set()
        self.batch_norm = False  # one that cannot be synchronised: on CPUs
        self.errors: dict[Any, dict[Any, float]] = {}  # by kind of call and leaf: how far off each way is
        self.rechecks: dict[Any, int] = {}  # by kind of call: batches that had to tell ways apart
        self.whole: dict[Any, str] = {}  # kinds of calls for which every rank computes whole batches, and why

    def forward(self, args: Any, kwargs: Any) -> Any:
        parts = _Parts(args, kwargs)
        kind = (parts.shape, self.model.training)
        self.calls += 1
        if self.calls & (self.calls - 1) == 0:  # the first, second, fourth, eighth ...
            self._check_same_batch(parts)
        if self.ddp is None or any(p.requires_grad is not trained for p, trained in self.trained):
            self._wrap(args, kwargs)
        if not parts.known:
            why = "it holds fewer rows than there are ranks" if parts.rows else "its rows cannot be told"
            self._warn(f"a batch is computed by every rank: {why}")
        elif self.batch_norm and self.model.training:
            self.whole[kind] = (
                "a batch norm takes its statistics from whole batches (on GPUs it is synchronised)"
            )
            self._warn(f"every rank computes whole batches, which saves no time: {self.whole[kind]}")
        elif kind not in self.whole and (
            self.seen.get(kind, 0) < self.checked_calls or self._must_tell_apart(parts, kind)
        ):
            self.seen[kind] = self.seen.get(kind, 0) + 1
            self._check(parts, kind, args, kwargs)
        if not parts.known or kind in self.whole:
            return self._run(args, kwargs)
        own = parts.of(_run.rank, differentiable=True)
        with _own_random_numbers():
            output = self._run(*own)
        return self._join(output, parts, kind)

    def _must_tell_apart(self, parts: _Parts, kind: Any) -> bool:
        """Return whether ways to combine a number, which agreed so far, give different results for this batch."""
        ways = {way for (of, _), found in self.errors.items() if of == kind for way in found}
        if len(ways) < 2 or self.rechecks.get(kind, 0) >= self.most_rechecks:
            return False
        first, *others = parts.weights(ways).values()
        apart = any(abs(a - b) > 1e-6 for other in others for a, b in zip(first, other, strict=True))
        self.rechecks[kind] = self.rechecks.get(kind, 0) + apart
        return apart

    def _run(self, args: Any, kwargs: Any) -> Any:
        self.inside = True
        try:
            return self.ddp(*args, **kwargs) if self.ddp is not None else self.model(*args, **kwargs)
        finally:
            self.inside = False

    def _plain(self, args: Any, kwargs: Any) -> Any:
        self.inside = True
        try:
            return self.model(*args, **kwargs)
        finally:
            self.inside = False

    def _wrap(self, args: Any, kwargs: Any) -> None:
        """Make the DDP wrapper when the model is first called: its parameters are the final ones by then.

        Where a notebook freezes or unfreezes some later, a new one is made.
        """
        model = self.model
        self.ddp = None  # takes its hooks off the parameters
        if any(isinstance(p, torch.nn.UninitializedParameter) for p in model.parameters()):
            with _without_effects(model, dropout=False):
                self._plain(args, kwargs)
        if not any(p.requires_grad for p in model.parameters()):
            return
        if any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in model.modules()):
            if torch.cuda.is_available():
                torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            else:
                self.batch_norm = True
        self.trained = [(p, p.requires_grad) for p in model.parameters()]
        self.ddp = _ddp(next(m for m in _splits if _splits[m] is self))

    def _check_same_batch(self, parts: _Parts) -> None:
        own = _digest(parts.leaves)
        for rank, other in enumerate(from_all_ranks(own)):
            if other != own:
                raise RuntimeError(f"rank {rank} trains on another batch than rank {_run.rank}. {_SEED}")

    def _check(self, parts: _Parts, kind: Any, args: Any, kwargs: Any) -> None:
        """Compare what parts of a batch give with what the whole batch gives, without gradients."""
        why = "a row's output depends on the other rows of its batch"
        for dropout in (True, False) if self.model.training else (False,):
            try:
                with _without_effects(self.model, dropout=dropout):
                    whole = self._plain(args, kwargs)
                    pieces = [self._plain(*parts.of(rank)) for rank in range(_run.world_size)]
                problem = self._compare(whole, pieces, parts, kind)
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
                problem = f"a part of a batch cannot be computed alone ({type(error).__name__}: {error})"
            if problem is None:
                break
            why = problem
        else:
            problem = why
        own = {number: ways for (of, number), ways in self.errors.items() if of == kind}
        problem, errors = from_main_process(lambda: (problem, own))  # rounding may differ between GPUs
        self.errors.update({(kind, number): ways for number, ways in errors.items()})
        if problem is not None:
            self.whole[kind] = problem
            self._warn(f"every rank computes whole batches, which saves no time: {problem}")

    def _compare(self, whole: Any, pieces: list[Any], parts: _Parts, kind: Any) -> str | None:
        """Return what is wrong with computing parts; note how well each way combines a number."""
        leaves = pytree.tree_leaves(whole)
        of_pieces = [pytree.tree_leaves(piece) for piece in pieces]
        if any(len(piece) != len(leaves) for piece in of_pieces):
            return "its outputs have another structure for a part of a batch"
        for number, (leaf, *parted) in enumerate(zip(leaves, *of_pieces, strict=True)):
            if not isinstance(leaf, torch.Tensor):
                continue
            key = (kind, number)
            if leaf.numel() == 1 and leaf.ndim == 0:
                so_far = self.errors.get(key)
                ways = dict(so_far or {})
                for way, weights in parts.weights(so_far).items():
                    joined = sum(p * w for p, w in zip(parted, weights, strict=True) if w)
                    ways[way] = max(ways.get(way, 0.0), _difference(leaf, joined))
                ways = {way: error for way, error in ways.items() if error <= _tolerance(leaf)}
                if not ways:
                    return "it gives a number that is no mean or sum over the rows of its batch"
                self.errors[key] = ways
            elif [len(p) if p.ndim else 0 for p in parted] == parts.sizes and len(leaf) == parts.rows:
                if _difference(leaf, torch.cat(parted)) > _tolerance(leaf):
                    return "a row's output depends on the other rows of its batch"
            elif any(p.shape != leaf.shape or _difference(leaf, p) > _tolerance(leaf) for p in parted):
                return "an output has no row for each row of the batch"
        return None

    def _join(self, output: Any, parts: _Parts, kind: Any) -> Any:
        """Return the outputs of all rows from this rank's."""
        leaves, spec = pytree.tree_flatten(output)
        joined = []
        for number, leaf in enumerate(leaves):
            ways = self.errors.get((kind, number))
            if ways is not None:
                best = min(ways, key=lambda way: ways[way] if ways[way] > 1e-7 else 0.0)
                weights = parts.weights([best, "mean over rows"])
                chosen = weights.get(best) or weights["mean over rows"]
                leaf = _SumOverRanks.apply(leaf, chosen[_run.rank])
            elif isinstance(leaf, torch.Tensor) and leaf.ndim and len(leaf) == parts.sizes[_run.rank]:
                leaf = _GatherRows.apply(leaf, parts.sizes, _run.rank)
            joined.append(leaf)
        return pytree.tree_unflatten(joined, spec)

    def _warn(self, text: str) -> None:
        """Print a warning once, on rank 0."""
        if is_main_process and text not in self.said:
            self.said.add(text)
            print(f"nb2ddp: WARNING: {text}", file=sys.stderr, flush=True)


def _tolerance(value: torch.Tensor) -> float:
    """Return the relative difference that rounding may make between a batch and its parts."""
    if not value.is_floating_point():
        return 0.0
    if value.dtype in (torch.float16, torch.bfloat16):
        return 3e-2
    return 1e-3 if value.is_cuda or torch.is_autocast_enabled() else 3e-5


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference of two tensors, relative to the largest value."""
    if not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return math.inf
    if not one.is_floating_point():
        return float(not torch.equal(one, other))
    a, b = one.double(), other.double()
    same = (a == b) | (a.isnan() & b.isnan())
    apart = (a - b).abs().masked_fill(same, 0.0)
    return float(apart.max() / a[a.isfinite()].abs().max().clamp(min=1e-6)) if a.numel() else 0.0


@contextlib.contextmanager
def _without_effects(model: torch.nn.Module, *, dropout: bool) -> Iterator[None]:
    """Compute without gradients, random numbers and running statistics; ``dropout`` leaves other parts training."""
    modes = {part: part.training for part in model.modules()}
    state = _random_state()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    quiet = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm)
    for part in modes:
        part.training = dropout and part.training and not isinstance(part, quiet)
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes.items():
            part.training = training
        _set_random_state(state)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu)


@contextlib.contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Let a rank draw its own numbers, for dropout; afterwards all ranks have the same generators again."""
    before = torch.get_rng_state()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    if _run.rank > 0:
        torch.manual_seed(torch.initial_seed() + 1_000_003 * (_run.rank + _run.world_size * _run.steps))
    started = torch.get_rng_state()
    gpu_started = torch.cuda.get_rng_state() if gpu is not None else None
    try:
        yield
    finally:
        drew = not torch.equal(started, torch.get_rng_state())
        torch.set_rng_state(before)
        if drew:
            torch.rand(1)  # alike on every rank: the next call draws other numbers
        if gpu is not None and gpu_started is not None:
            drew = not torch.equal(gpu_started, torch.cuda.get_rng_state())
            torch.cuda.set_rng_state(gpu)
            if drew:
                torch.rand(1, device="cuda")


def takes_turn(turn: int, turns: int, ddp_model: Any) -> bool:
    """Return whether micro-batch ``turn`` of the ``turns`` of an accumulation step is this rank's.

    With a rank's last one, gradients are averaged over the ranks: its backward() waits for them. The step wants
    their sum: that is why backward() starts from the loss times world_size.

    Raises:
        RuntimeError: a step has fewer micro-batches than there are ranks.
    """
    if turns < _run.world_size:
        raise RuntimeError(f"a step has {turns} batches: too few for {_run.world_size} processes")
    ddp_model.require_backward_grad_sync = turn + _run.world_size >= turns
    return turn % _run.world_size == _run.rank


def sum_over_ranks(value: Any) -> Any:
    """Return the sum of a number over all ranks, as a tensor or a float as it was given. Waits for all ranks."""
    if _run.world_size == 1:
        return value
    total = torch.as_tensor(value).detach().clone()
    if torch.cuda.is_available():
        total = total.cuda()
    dist.all_reduce(total)
    return total if isinstance(value, torch.Tensor) else total.item()


# ---- DDP ----------------------------------------------------------------------------------------------------------


def wrap(model: torch.nn.Module) -> Any:
    """Return one DDP wrapper around a model: backward() averages its gradients over all ranks. Waits for them."""
    return model if _run.world_size == 1 else _ddp(model)


def _ddp(model: Any, find_unused: bool | None = None) -> DDP:
    """Wrap a model. ``find_unused`` None: search each step for parameters without a gradient where that may be."""
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if (
        find_unused is None
    ):  # the search costs time: an adapter alone is used as a whole, but for a tower's part
        find_unused = any(_leaves_out(name) for name in trained if "expert" not in name)
        if not any("lora_" in name for name in trained):  # a pooler, say, that nothing reads
            find_unused |= not getattr(model, "is_gradient_checkpointing", False)
    _make_frozen_equal(model)
    ignored = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    DDP._set_params_and_buffers_to_ignore_for_model(model, ignored)
    device_ids = [_run.local_rank] if torch.cuda.is_available() else None
    # gradient_as_bucket_view: gradients are exchanged where they lie, not in copies
    ddp_model = DDP(
        model, device_ids=device_ids, find_unused_parameters=find_unused, gradient_as_bucket_view=True
    )
    # a batch norm alone changes its buffers; for others every forward() would wait for rank 0's in vain
    ddp_model.broadcast_buffers = any(getattr(part, "track_running_stats", False) for part in model.modules())
    _run.reduced.update({id(p): weakref.ref(p) for p in model.parameters() if p.requires_grad})
    return ddp_model


def _make_frozen_equal(model: torch.nn.Module) -> None:
    """Give every rank rank 0's frozen parameters where they differ: DDP sends those that are trained alone.

    Quantised tensors, and parameters that stay on the CPU, cannot be sent; they come from one checkpoint.
    """
    frozen = {name: value for name, value in model.named_parameters() if not value.requires_grad}
    own = {name: _fingerprint(value) for name, value in frozen.items()}
    of_ranks = from_all_ranks(own)
    for name, parameter in frozen.items():
        if any(other.get(name) != own[name] for other in of_ranks):
            with torch.no_grad():
                dist.broadcast(parameter.data, 0)


def _fingerprint(parameter: torch.Tensor) -> str:
    """Return a digest of up to 1024 values of a parameter; "" for a tensor subclass that cannot be read so."""
    try:
        flat = parameter.detach().reshape(-1)
        return _digest(flat[:: max(1, flat.numel() // 1024)])
    except (RuntimeError, NotImplementedError, TypeError):
        return ""


def _reduce_unseen(optimizer: Any, *_: Any) -> None:
    """Average what DDP does not before a step."""
    _tell_batch()
    _average_unseen([parameter for group in optimizer.param_groups for parameter in group["params"]])


def _average_unseen(parameters: list[Any]) -> None:
    """Average gradients that DDP does not: of parameters unfrozen later, or outside the wrapped model.

    To do so once more changes nothing.
    """
    if not _run.reduced or not _run.meets or not dist.is_initialized():
        return
    unseen = [p for p in parameters if p.requires_grad and not _is_reduced(p)]
    if not unseen:
        return
    used = torch.tensor([p.grad is not None for p in unseen], dtype=torch.int, device=unseen[0].device)
    dist.all_reduce(used)  # ranks that disagree would average the gradients of different parameters
    for parameter, ranks in zip(unseen, used.tolist(), strict=True):
        if ranks:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= _run.world_size


def _is_reduced(parameter: Any) -> bool:
    """Return whether DDP averages a parameter's gradient; the id of one that is gone may be another's."""
    known = _run.reduced.get(id(parameter))
    return known is not None and known() is parameter


def _count_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    _run.steps += 1


def check_replicas(model: Any, result: _T | None = None) -> _T | None:
    """Compare the trained parameters of all ranks, bit for bit, and return ``result``. Sharded ones are gathered.

    A difference does not end the run: what rank 0 trained is saved first, then the script ends with exit code 1.
    Every rank waits for the digests of all ranks.
    """
    if _run.world_size == 1:
        return result
    _reshard(model)
    digests = {
        name: _digest(_whole(value)) for name, value in model.named_parameters() if value.requires_grad
    }
    of_ranks = from_all_ranks(digests)
    apart = [name for name in digests if any(other.get(name) != digests[name] for other in of_ranks)]
    if apart:
        _run.failures.append(
            f"the ranks have trained different models: {apart[0]} is not the same on all of them"
        )
        if is_main_process:
            print(f"nb2ddp: ERROR: {_run.failures[-1]}", file=sys.stderr, flush=True)
    else:
        print(f"nb2ddp: {_run.world_size} replicas equal, bit for bit")
    return result


def finish() -> None:
    """Leave the process group and go on with rank 0 alone: nothing below needs another rank.

    Ranks above 0 end here with exit code 0. On several machines the first rank of each waits for rank 0's end,
    because torchrun ends a run soon after the first machine has left it.
    """
    if _run.world_size == 1:
        return
    _leave_group()
    if not is_main_process:
        if _run.machines > 1 and _run.local_rank == 0:
            _wait_for_end_of_rank_0()
        _report_end("has finished")
        shutil.rmtree(os.environ.get("UNSLOTH_COMPILE_LOCATION", ""), ignore_errors=True)
        _exit(0)  # no interpreter teardown: if it crashed, torchrun would kill rank 0 while it saves
    if _run.machines > 1:
        atexit.register(_report_end, "has finished")
    else:
        atexit.register(_check_that_all_have_left, _run.world_size)
    _run.world_size = 1
    for name in _RANK_VARIABLES:  # what rank 0 loads or starts from now on is on its own
        os.environ.pop(name, None)


def _check_that_all_have_left(world_size: int) -> None:
    """End with exit code 1 where another rank does not leave: torchrun would wait for it for ever."""
    deadline = time.monotonic() + min(_PATIENCE, 45.0)
    with contextlib.suppress(dist.DistNetworkError, dist.DistStoreError):
        store = _second_store()
        while left := [rank for rank in range(1, world_size) if not _end_of(rank, store)]:
            if time.monotonic() > deadline:
                where = json.loads(store.get(f"beat {left[0]}"))["place"]
                print(
                    f"nb2ddp: ERROR: rank {left[0]} has not left the training; it was at {where}. "
                    "What rank 0 has saved is whole.",
                    file=sys.stderr,
                    flush=True,
                )
                logging.shutdown()
                _exit(1)
            time.sleep(0.05)


def _wait_for_end_of_rank_0() -> None:
    with contextlib.suppress(dist.DistNetworkError):
        store = _second_store()
        while not _end_of(0, store):
            time.sleep(2)


# ---- versions that do not go together ------------------------------------------------------------------------------


def drop_weight_tying() -> None:
    """Let LoraConfig take the ensure_weight_tying=False that Unsloth gives it; PEFT knows it from 0.18 on.

    Each rank changes its own process, and waits for no other.
    """
    from peft import LoraConfig

    make = LoraConfig.__init__

    @functools.wraps(make)  # Unsloth looks at its parameters
    def make_without(self: Any, *args: Any, ensure_weight_tying: bool = False, **options: Any) -> None:
        make(self, *args, **options)

    LoraConfig.__init__ = make_without


def move_attention_bias() -> None:
    """Move xformers' attention bias to the GPU of the layer that uses it; Unsloth does so from 2026.8.20 on.

    Each rank changes its own process, and waits for no other.
    """
    from xformers.ops.fmha.common import Inputs

    validate = Inputs.validate_inputs

    def move_and_validate(inputs: Any) -> None:
        for name in ("q_seqinfo", "k_seqinfo"):
            lengths = getattr(inputs.attn_bias, name, None)
            if lengths is not None:
                lengths.seqstart = lengths.seqstart.to(inputs.query.device)
        validate(inputs)

    Inputs.validate_inputs = move_and_validate


# ---- watchdog ------------------------------------------------------------------------------------------------------


class _Watchdog(threading.Thread):
    """Reports where this rank stands, and ends the run when the ranks can no longer meet.

    It looks at the main thread's stack every two seconds, which costs well below 0.1 % of a step, and exchanges
    what it sees with the other ranks through a connection of its own to torchrun's store.
    """

    def __init__(self) -> None:
        super().__init__(name="nb2ddp watchdog", daemon=True)
        self.waits_for: int | None = None
        self.waits_since = 0.0
        self._ended = threading.Event()
        self._connection: Any = None
        self._main = threading.main_thread().ident or 0
        self._beats = 0
        self._stack: tuple[Any, ...] = ()
        self._since = time.monotonic()  # when the main thread's stack last changed
        self._heard: dict[int, tuple[int, float]] = {}  # by rank: its last beat, and when it came

    def store(self) -> Any:
        if self._connection is None:
            self._connection = _second_store()
        return self._connection

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(_BEAT):
            try:
                self._watch()
            except (dist.DistNetworkError, dist.DistStoreError):
                return  # torchrun has ended the store: it ends the ranks too
            except Exception:  # a stack that changes while it is read, say: the next look is another one
                continue

    def _watch(self) -> None:
        """Tell the other ranks where this one stands, and look at where they stand."""
        own = self.report()
        if self.store().check(["stop"]):
            time.sleep(2)  # the rank that saw it first says why
            _exit(1)
        peers = {rank: self._peer(rank) for rank in range(_run.world_size) if rank != _run.rank}
        if sentence := _trouble(own, {rank: peer for rank, peer in peers.items() if peer}):
            self._stop_run(sentence)

    def report(self) -> dict[str, Any]:
        """Put into the store what the main thread is doing, and return it."""
        own = self._look()
        self.store().set(f"beat {_run.rank}", json.dumps(own))
        return own

    def _look(self) -> dict[str, Any]:
        """Return what the main thread is doing."""
        frame = sys._current_frames().get(self._main)
        stack = tuple(_frames(frame))
        now = time.monotonic()
        if [(f.f_code, f.f_lasti) for f in stack] != list(self._stack):
            self._stack = tuple((f.f_code, f.f_lasti) for f in stack)
            self._since = now
        lines = tuple(f.f_lineno for f in _script_frames(frame))
        self._beats += 1
        return {
            "beat": self._beats,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "step": _run.steps,
            "place": _place(frame),
            "lines": lines,
            "kind": "waiting" if self.waits_for is not None else _kind(stack),
            "waits_for": self.waits_for,
            "may_take_long": _run.may_take_long > 0,
            "still": now - (self._since if self.waits_for is None else self.waits_since),
        }

    def _peer(self, rank: int) -> dict[str, Any] | None:
        """Return a peer's last report, with how long it is silent; None before its first."""
        if not self.store().check([f"beat {rank}"]):
            return None
        peer: dict[str, Any] = json.loads(self.store().get(f"beat {rank}"))
        now = time.monotonic()
        last, when = self._heard.get(rank, (-1, now))
        if peer["beat"] != last:
            self._heard[rank] = peer["beat"], now
            when = now
        peer["silent"], peer["end"] = now - when, _end_of(rank, self.store())
        return peer

    def _stop_run(self, sentence: str) -> None:
        """Say why, once, and end this rank; torchrun ends the others."""
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        first = self.store().compare_set("stop", "", str(_run.rank))
        if first not in (b"", str(_run.rank).encode()):
            _exit(1)
        text = f"nb2ddp: ERROR: {sentence}"
        print(text, file=sys.__stderr__, flush=True)
        with contextlib.suppress(BaseException):
            try:
                raise RuntimeError(sentence)
            except RuntimeError as error:
                get_error_handler().record_exception(error)
        time.sleep(1)
        _exit(1)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _kind(stack: tuple[FrameType, ...]) -> str:
    """Return what a thread does: in a "collective", in "slow" library code, in the "script" itself, or "other"."""
    for frame in stack[:12]:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if f"torch{os.sep}distributed" in path or name in ("_engine_run_backward", "_pre_forward"):
            return "collective"
    if any(
        _SLOW.search(frame.f_code.co_name) or _SLOW_MODULES.search(str(frame.f_globals.get("__name__")))
        for frame in stack
    ):
        return "slow"
    if stack and stack[0].f_globals.get("__name__") == "__main__":
        return "script" if not _calls(stack[0]) or stack[0].f_lasti < 0 else "script call"
    return "other"


_SLOW = re.compile("save|load_checkpoint|push|upload|download|export|merge|gguf|evaluat|predict|generate")
_SLOW_MODULES = re.compile(
    r"(?:^|\.)(?:datasets|huggingface_hub|safetensors|_inductor|_dynamo|triton|subprocess)(?:\.|$)"
)


def _calls(frame: FrameType) -> bool:
    """Return whether a frame is inside a call that Python does not see, rather than computing itself."""
    code, last = frame.f_code.co_code, frame.f_lasti
    return 0 <= last < len(code) and dis.opname[code[last]].startswith(
        ("CALL", "PRECALL", "LOAD_ATTR", "SEND")
    )


def _trouble(own: dict[str, Any], peers: dict[int, dict[str, Any]]) -> str | None:
    """Return why the ranks can no longer meet, as a sentence; None while they may."""
    blocked = own["still"] if own["kind"] in ("collective", "waiting", "script call", "other") else 0.0
    here = f"rank {_run.rank} (step {own['step']}) waits at {own['place']}"
    for rank, peer in peers.items():
        there = f"rank {rank} (step {peer['step']})"
        awaited = own["kind"] != "waiting" or own["waits_for"] == rank
        if not awaited or peer["end"] == "has finished":
            continue
        if peer["end"] and blocked > 10:
            return f"{there} {peer['end']}, while {here}"
        if peer["silent"] > _silence_allowed(peer) and blocked > 10:
            return f"{there} does not answer since {peer['silent']:.0f} s; it was at {peer['place']}, while {here}"
        if peer["kind"] in ("collective", "waiting"):
            if own["kind"] == "waiting":
                apart = peer["kind"] == "collective" or peer["waits_for"] == _run.rank  # for one another
            else:
                apart = own["kind"] == "collective" and (
                    peer["kind"] == "waiting" or peer["lines"] != own["lines"]
                )
            stuck = apart and min(peer["still"], blocked) > _PATIENCE / 1.5
        elif own["kind"] not in ("collective", "waiting") or peer["may_take_long"]:
            continue
        elif peer["kind"].startswith("script"):  # its lines may change: in a loop that never ends
            stuck = blocked > _PATIENCE
        else:
            long = peer["kind"] == "slow" or own["kind"] == "waiting"
            stuck = blocked > (_GROUP_TIMEOUT.total_seconds() if long else _LONG_PATIENCE)
        if stuck:
            return (
                f"the ranks went different ways: {there} is at {peer['place']}, while {here} since "
                f"{blocked:.0f} s. If it only needs longer, set NB2DDP_PATIENCE to more seconds than {_PATIENCE:.0f}"
            )
    return None


def _silence_allowed(peer: dict[str, Any]) -> float:
    """Return how many seconds a rank may be silent: code that holds Python's lock keeps its watchdog waiting."""
    if peer["host"] != socket.gethostname():
        return 120.0
    try:
        with open(f"/proc/{peer['pid']}/stat", encoding="ascii", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return 120.0 if sys.platform != "linux" else 5.0
    return {"T": 10.0, "t": 10.0, "Z": 5.0, "X": 5.0}.get(state, 600.0 if state == "R" else 120.0)


# ---- FSDP: Unsloth shards the model over the ranks ---------------------------------------------------------------

_FSDP_SINCE = "2026.10.8"  # the first Unsloth whose own FSDP2 runs under torchrun


def _ask_unsloth_for(strategy: str, loads_share: bool) -> None:
    """Set the environment variables that Unsloth reads while it is imported and while it loads the model.

    Raises:
        SystemExit: the environment asks for another strategy; or Unsloth is missing or too old.
    """
    size = os.environ.get("UNSLOTH_TP_SIZE", "")
    if size not in ("", "0", "1"):
        sys.exit(
            f"UNSLOTH_TP_SIZE is set: this script gives each GPU {_HELD[strategy]}. Unset it and start again."
        )
    asked = os.environ.get("UNSLOTH_FSDP2", "")
    if strategy != "fsdp":
        if asked not in ("", "0"):
            sys.exit(
                f"UNSLOTH_FSDP2 is set: this script gives each GPU {_HELD['ddp']}. Unset it and start again."
            )
        return
    if asked not in ("", "1", "native"):
        sys.exit(
            f"UNSLOTH_FSDP2={asked} is set: this script gives each GPU {_HELD['fsdp']}. Unset it and start again."
        )
    for name in ("UNSLOTH_FSDP2_BACKEND", "ACCELERATE_USE_FSDP"):
        if os.environ.get(name, "") not in ("", "0", "native"):
            sys.exit(f"{name} is set: this script lets Unsloth shard the model. Unset it and start again.")
    found = _unsloth_version()
    if _as_numbers(found) < _as_numbers(_FSDP_SINCE):
        sys.exit(
            f"This script shards the model with Unsloth {_FSDP_SINCE} or newer; installed is {found or 'none'}. "
            f'Run: pip install -U "unsloth>={_FSDP_SINCE}" unsloth_zoo'
        )
    os.environ["UNSLOTH_FSDP2"] = "1"
    if loads_share:
        os.environ.setdefault("UNSLOTH_FSDP2_SHARDED_LOAD", "1")


_HELD = {"ddp": "a copy of the model", "fsdp": "a share of the model"}


def _unsloth_version() -> str:
    """Return the version of the installed Unsloth without importing it; "" where none is."""
    import importlib.metadata

    try:
        return importlib.metadata.version("unsloth")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def use_shards(trainer: Any) -> Any:
    """Make a Trainer train the model that Unsloth has sharded over the ranks, and return that model.

    Called right before ``trainer.train()``. Every rank waits for the others, and compares its training data with
    theirs. There is no DDP wrapper: the shards of a gradient are summed as they are made.

    Raises:
        RuntimeError: Unsloth has left the model whole; or the Trainer does not know of all ranks; or the ranks have
            different training data.
    """
    prepare_trainer(trainer)
    if _run.world_size == 1:
        return trainer.model
    _check_same_data(getattr(trainer, "train_dataset", None))
    from torch.distributed.fsdp import FSDPModule

    if not isinstance(trainer.model, FSDPModule):
        raise RuntimeError(
            f"Unsloth has not sharded the model of this {type(trainer).__name__}: import unsloth before trl and "
            "transformers, or convert the notebook with --strategy ddp"
        )
    return trainer.model


def save_shards(trainer: Any, folder: str) -> None:
    """Save the model of a Trainer as ``model.save_pretrained(folder)`` does: the adapter, or a whole model.

    Every rank gives its shards and waits until rank 0 has written them. The files come from the Trainer's own
    save, through a folder beside the wanted one; what that adds (tokenizer, training arguments) is left out.
    """
    if _run.world_size == 1:
        trainer.model.save_pretrained(folder)
        return
    folder = os.path.abspath(folder)
    part = from_main_process(lambda: _beside(folder))
    trainer.save_model(part)
    from_main_process(lambda: _move_model(part, folder))


# What a model and PEFT's adapter save.
_MODEL_FILE = re.compile(
    r"adapter_.*|README\.md|config\.json|generation_config\.json|(pytorch_)?model.*\.(safetensors|bin|json)"
)


def _move_model(part: str, folder: str) -> None:
    """Move the files of a model out of a folder, and delete what is left of that."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(part):
        if _MODEL_FILE.fullmatch(name):
            os.replace(os.path.join(part, name), os.path.join(folder, name))
    shutil.rmtree(part)


def _beside(folder: str) -> str:
    """Make an empty folder on the disk that ``folder`` is on."""
    above = os.path.dirname(folder)
    os.makedirs(above, exist_ok=True)
    return tempfile.mkdtemp(prefix=".unfinished-", dir=above)


def _reshard(model: Any) -> None:
    """Let go of what FSDP keeps gathered after an evaluation: numpy would pin its memory, which FSDP frees later."""
    for part in model.modules():
        reshard = getattr(part, "reshard", None)
        if reshard is not None and hasattr(part, "unshard"):
            reshard()


def _whole(value: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor; every rank has to come. Return any other as it is."""
    gather: Callable[[], torch.Tensor] | None = getattr(value, "full_tensor", None)
    return value if gather is None else gather()
