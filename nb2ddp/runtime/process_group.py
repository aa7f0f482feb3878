"""Start a rank, and join the process group."""

import atexit
import logging
import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from nb2ddp.runtime.ending import _SCRATCH, _end_on_error, _leave_script
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.one_process import _hide_launcher, _hide_ranks
from nb2ddp.runtime.random_numbers import _random_state, _seed_all, _set_random_state
from nb2ddp.runtime.run_state import _GROUP_TIMEOUT, _run
from nb2ddp.runtime.store import _store
from nb2ddp.runtime.watchdog import _Watchdog


def init(seed: int | None = None) -> tuple[int, int, int]:
    """Prepare this process and return ``(rank, local_rank, world_size)``.

    Each rank sees its own GPU alone, as ``cuda:0``, so ``local_rank`` is 0 there; the libraries see one process. Only
    rank 0 prints, logs and reads the keyboard; an uncaught exception prints its traceback and ends the rank at once.
    ``seed`` seeds random, numpy and torch alike on every rank, for a notebook that draws without a seed, and no rank
    waits for another; without it, ranks wait for the state of rank 0's generators and take it over.

    Raises:
        SystemExit: the script has changed what torchrun told this rank, or this machine has too few GPUs.
    """
    return _begin(seed, _hide_ranks)


def _begin(seed: int | None, choose_gpu: Callable[[], None]) -> tuple[int, int, int]:
    """Prepare this process, in which texts hash as on all ranks; ``choose_gpu`` decides which GPUs are seen."""
    if _run.began:
        return _run.rank, _run.gpu, _run.world_size
    _run.began = True
    _run.names = frozenset(globals()) if __name__ == "__main__" else frozenset()
    _check_told()
    sys.path.insert(1, "")  # the working folder of the moment, in which a kernel finds modules
    os.environ.update(PAGER="cat", MANPAGER="cat", GIT_PAGER="cat")  # as in a kernel: help() waits for no key
    main: Any = sys.modules["__main__"]
    starts = {sys.argv[0], getattr(main.__spec__, "name", "")} & {*sys.orig_argv}  # by its file, or with -m
    main.__spec__ = type(os.__spec__)("__main__", None)  # no worker runs the script again
    if seed is not None:
        _seed_all(seed)
    if _run.world_size == 1:
        _hide_launcher()
        return _run.rank, _run.local_rank, _run.world_size
    if sys.flags.hash_randomization and starts and "-Xhash" not in sys.orig_argv:
        os.environ.setdefault("PYTHONHASHSEED", "0")  # which counts from the start of Python on
        os.execv(sys.executable, [sys.executable, "-Xhash", *sys.orig_argv[1:]])
    choose_gpu()
    os.environ.setdefault("TORCH_NCCL_ENABLE_TIMING", "1")  # the watchdog asks which collectives have begun
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    os.environ.setdefault("UNSLOTH_DDP_TIMEOUT", "3600")  # seconds: Unsloth joins the process group for vLLM
    if _run.rank > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- errors still reach stderr
        os.dup2(sys.stdout.fileno(), 1)  # what writes past it, too
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # rank 0 alone is asked
        logs: Any = logging  # whoever makes a handler: rank 0 alone keeps logs, and shows what is no warning
        opens, emit = logs.FileHandler.__init__, logs.StreamHandler.emit
        logs.FileHandler.__init__ = lambda log, filename, *a, **k: opens(log, os.devnull, *a, **k)
        logs.StreamHandler.emit = lambda of, r: (r.levelno < 30 and of.stream is sys.stderr) or emit(of, r)
        os.environ.update(WANDB_MODE="disabled", MLFLOW_ALLOW_FILE_STORE="true")  # one run, rank 0's
        # Unsloth writes the modules that it compiles; two ranks in one folder would read half-written ones.
        os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", _SCRATCH)
        os.environ["MLFLOW_TRACKING_URI"] = pathlib.Path(_SCRATCH, "mlruns").as_uri()  # see tracking_uri()
        atexit.register(shutil.rmtree, _SCRATCH, ignore_errors=True)
    sys.excepthook = _end_on_error
    atexit.register(_leave_script)
    register_optimizer_step_post_hook(_count_step)
    _store()  # without torchrun's own, rank 0 opens it here; the watchdog's connection would wait for it
    _run.watchdog = _Watchdog()
    _run.watchdog.report()  # at once: a rank that ends without a word is missed from here on
    _run.watchdog.start()
    _set_random_state(from_main_process(_random_state) if seed is None else _random_state())
    for begin in _run.at_begin:
        begin()
    return _run.rank, _run.gpu, _run.world_size


def _check_told() -> None:
    """Compare RANK and WORLD_SIZE, which a script may set, with the two that torchrun sets beside them.

    Raises:
        SystemExit: they differ, and each rank would take itself for another one.
    """
    for name in ("RANK", "WORLD_SIZE"):
        told, found = os.environ.get(f"ROLE_{name}"), os.environ.get(name)
        if told is not None and found != told:
            change = f"set {name} to {found}" if found is not None else f"removed {name}"
            raise SystemExit(
                f"The script has {change}, which torchrun had set to {told}: each rank would train another run. "
                "Take the lines away that change RANK, LOCAL_RANK or WORLD_SIZE."
            )


def init_process_group() -> None:
    """Join the process group. Called once the model is loaded: Unsloth compiles while it loads.

    Waits until every rank has come, and notices one that has ended. A GPU's tensors go through NCCL, a CPU's through
    gloo: a notebook may train on the CPU beside its GPU.

    Raises:
        RuntimeError: a rank has ended; or an older unsloth_zoo made a group for each rank alone, for vLLM.
        SystemExit: the script has changed what torchrun told this rank.
    """
    if _run.world_size == 1:
        return
    _check_told()
    if not dist.distributed_c10d.is_initialized():
        from_all_ranks(None)  # a rank that has ended is noticed here; init_process_group() would wait an hour
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        joins: Any = {"rank": _run.rank, "world_size": _run.world_size, "timeout": _GROUP_TIMEOUT}
        dist.init_process_group(backend, store=dist.PrefixStore("process_group", _store()), **joins)
        if torch.cuda.is_available():
            _run.cpu_group = dist.new_group(backend="gloo", timeout=_GROUP_TIMEOUT)
        from_all_ranks(None)  # gloo fails on a rank that still connects to one which ends at once
        if _run.is_hidden:  # torchmetrics would add up what ranks have counted; PyTorch's own ask elsewhere
            dist.is_initialized = lambda: not _run.is_hidden
    if dist.get_world_size() != _run.world_size:
        raise RuntimeError("vLLM keeps the ranks apart: update unsloth and unsloth_zoo to 2026.10.9 or newer")


def _count_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if _run.has_rows is None:  # else a model fits something to its batch
        _run.steps += _run.meets  # what a rank trains alone is no step of the run
        _run.steps_of[_run.numbers.setdefault(optimizer, f"optimizer {_run.steps, _run.meets}")] += _run.meets
