"""Start a rank, and join the process group."""

import atexit
import functools
import importlib.metadata
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from nb2ddp.runtime.ending import _end_on_error, _leave_script
from nb2ddp.runtime.gradients import _count_step, _reduce_unseen
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _seed_all, _set_random_state
from nb2ddp.runtime.repeated_writes import _warn_of_repeated_writes
from nb2ddp.runtime.run_state import _GROUP_TIMEOUT, _run
from nb2ddp.runtime.saving import _save_whole_files
from nb2ddp.runtime.store import _store
from nb2ddp.runtime.unsloth_sharding import _ask_unsloth_for
from nb2ddp.runtime.watchdog import _Watchdog


def init(seed: int | None = None, strategy: str = "ddp", loads_share: bool = False) -> tuple[int, int, int]:
    """Prepare this process and return ``(rank, local_rank, world_size)``.

    Each rank: selects GPU ``cuda:<local_rank>``, where ``torch.load`` and pickle also put what was saved from
    ``cuda:0``; only rank 0 prints; an uncaught exception prints its traceback and ends the rank, without
    a teardown. ``seed`` seeds random, numpy and torch alike on every rank, for a notebook that draws random numbers
    without a seed; without it, ranks wait for the state of rank 0's generators and take it over.
    ``strategy="fsdp"`` asks Unsloth to shard the model over the ranks; with ``loads_share`` each rank reads only
    its share of a 16-bit checkpoint. With ``seed``, no rank waits for another.

    Raises:
        SystemExit: the script has changed what torchrun told this rank; the environment asks Unsloth for another
            strategy, or this Unsloth cannot shard. The sentence names the variable, or what to install.
    """
    if _run.began:
        return _run.rank, _run.local_rank, _run.world_size
    _run.began = True
    _check_told()
    if seed is not None:
        _seed_all(seed)
    if _run.world_size == 1:
        return _run.rank, _run.local_rank, _run.world_size
    _ask_unsloth_for(strategy, loads_share)
    if torch.cuda.is_available():
        torch.cuda.set_device(_run.local_rank)  # from here on, "cuda" means this process's own GPU
        _load_on_own_gpu()
    else:
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")  # else each Trainer takes itself for the only one
        _load_on_numbered_cpu()
    os.environ.setdefault("UNSLOTH_DDP_TIMEOUT", "3600")  # seconds: Unsloth joins the process group for vLLM
    if _run.rank > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- errors still reach stderr
        os.environ["WANDB_MODE"] = "disabled"  # one run, rank 0's
        # Unsloth writes the modules that it compiles; two ranks in one folder would read half-written ones.
        folder = tempfile.mkdtemp(prefix="unsloth_compiled_cache_")  # private to this user
        os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", folder)
        os.environ["MLFLOW_TRACKING_URI"] = pathlib.Path(folder, "mlruns").as_uri()  # see tracking_uri()
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sys.excepthook = _end_on_error
    atexit.register(_leave_script)
    _recompute_with_the_same_graph()
    register_optimizer_step_pre_hook(_reduce_unseen)
    register_optimizer_step_post_hook(_count_step)
    _save_whole_files()
    _warn_of_repeated_writes()
    _store()  # without torchrun's own, rank 0 opens it here; the watchdog's connection would wait for it
    _run.watchdog = _Watchdog()
    _run.watchdog.report()  # at once: a rank that ends without a word is missed from here on
    _run.watchdog.start()
    if seed is None:
        _set_random_state(from_main_process(_random_state))
    return _run.rank, _run.local_rank, _run.world_size


def _recompute_with_the_same_graph() -> None:
    """Let a gradient checkpoint recompute with the graph that torch.compile chose in the forward pass.

    DDP wants checkpoints that are not re-entrant, and those compare the number of saved tensors. By itself
    torch.compile tries the graph first that it used last, which may be another by then: CheckpointError
    (https://github.com/pytorch/pytorch/issues/166926; the error's own text names this switch).
    """
    if hasattr(torch._C._dynamo.eval_frame, "_set_lru_cache"):
        torch._C._dynamo.eval_frame._set_lru_cache(False)


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


def _load_on_own_gpu() -> None:
    """Load what was saved from GPU 0 to this rank's GPU: a file notes the GPU that each of its tensors was on.

    By itself every rank would load it to GPU 0. Where the notebook names another place for it, it goes there.
    """

    def restore(storage: Any, location: str) -> Any:
        if location != "cuda:0" or _run.local_rank == 0:
            return None  # as PyTorch does
        return torch.serialization.default_restore_location(storage, f"cuda:{_run.local_rank}")

    # 15: asked before PyTorch's own for CUDA, which is 20
    torch.serialization.register_package(15, lambda storage: None, restore)


def _load_on_numbered_cpu() -> None:
    """Let ``torch.load`` know "cpu:0": Accelerate calls a rank's CPU so, and a Trainer loads its checkpoints there."""

    def restore(storage: Any, location: str) -> Any:
        return storage if location.startswith("cpu:") else None

    torch.serialization.register_package(15, lambda storage: None, restore)


def init_process_group() -> None:
    """Join the process group. Called once the model is loaded: Unsloth compiles while it loads.

    Waits until every rank has come here, and notices one that has ended instead. Gradients go through NCCL on
    GPUs, gloo on CPUs.

    Raises:
        RuntimeError: a rank has ended; or an older unsloth_zoo made a group for each rank alone, for vLLM.
        SystemExit: the script has changed what torchrun told this rank.
    """
    if _run.world_size == 1:
        return
    _check_told()
    if not dist.is_initialized():
        from_all_ranks(None)  # a rank that has ended is noticed here; init_process_group() would wait an hour
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        store = dist.PrefixStore("process_group", _store())
        dist.init_process_group(
            backend, timeout=_GROUP_TIMEOUT, store=store, rank=_run.rank, world_size=_run.world_size
        )
        from_all_ranks(None)  # gloo fails on a rank that still connects to one which ends at once
    if dist.get_world_size() != _run.world_size:
        raise RuntimeError("vLLM keeps the ranks apart: update unsloth and unsloth_zoo to 2026.10.9 or newer")


def own_gpu(pipeline: Callable[..., Any]) -> Callable[..., Any]:
    """Return Transformers' ``pipeline`` so that it runs on this rank's GPU, or on the device that it is given.

    By itself it takes GPU 0 on every rank; once the ranks have joined the process group, its model stays where it was
    loaded: on the CPU. A model that a ``device_map`` has placed stays there. No rank waits.
    """

    @functools.wraps(pipeline)
    def on_own_gpu(*args: Any, **options: Any) -> Any:
        of_model = dict(options.get("model_kwargs") or {})
        placed = "quantization_config" in {**options, **of_model} and _major_version("transformers") < 5
        model = options.get("model", args[1] if len(args) > 1 else None)
        if not torch.cuda.is_available() or placed or getattr(model, "hf_device_map", None) is not None:
            return pipeline(*args, **options)
        if "quantization_config" not in {**options, **of_model}:
            for holder in (options, of_model):  # Transformers 4 takes no device beside it
                holder.pop("device_map", None)
        if "model_kwargs" in options:
            options["model_kwargs"] = of_model
        given = options.pop("device", None)
        device = _run.local_rank if given is None else given
        made = pipeline(*args, device=device, **options)
        if isinstance(device, int):
            device = f"cuda:{device}" if device >= 0 else "cpu"
        if made.device != torch.device(device) and made.model.device.type == "cpu":
            made.device = torch.device(device)
            made.model.to(made.device)
        return made

    return on_own_gpu


def _major_version(package: str) -> int:
    return int(importlib.metadata.version(package).partition(".")[0])
