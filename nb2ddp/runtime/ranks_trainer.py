"""Train with a Trainer that knows of the ranks: one that generates in each step (GRPO), or whose model is sharded.

Each rank samples completions of its own, so the run is an equivalent one and not the notebook's to the last digit.
"""

import functools
import importlib.metadata
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.callbacks import _make_also, _OneDecision
from nb2ddp.runtime.other_replicas import _compare, _trained
from nb2ddp.runtime.process_group import _begin
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.run_state import _RANK_VARIABLES, _run, _say
from nb2ddp.runtime.same_data import _check_same_data
from nb2ddp.runtime.saving import _wait_for_save, _WholeCheckpoints
from nb2ddp.runtime.unseen_gradients import _average_gradients
from nb2ddp.runtime.unsloth_sharding import _ask_unsloth_for


def init_ranks(
    seed: int | None = None, strategy: str = "ddp", loads_share: bool = False
) -> tuple[int, int, int]:
    """Prepare this process as `init` does, but let the libraries see all ranks: each selects ``cuda:<local_rank>``.

    ``torch.load`` and pickle also put there what was saved from ``cuda:0``. ``strategy="fsdp"`` asks Unsloth to shard
    the model over the ranks; with ``loads_share`` each rank reads only its share of a 16-bit checkpoint. Without
    ``seed``, ranks wait for rank 0's random state.

    Raises:
        SystemExit: the script has changed what torchrun told this rank; the environment asks Unsloth for another
            strategy, or this Unsloth cannot shard. The sentence names the variable, or what to install.
    """

    def choose_gpu() -> None:
        _ask_unsloth_for(strategy, loads_share)
        if torch.cuda.is_available():
            torch.cuda.set_device(_run.local_rank)  # from here on, "cuda" means this process's own GPU
        else:
            # else each Trainer takes itself for the only one
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")
        _load_on_device()

    _run.at_finish.append(_show_one_process)
    return _begin(seed, choose_gpu)


def _show_one_process() -> None:
    """Let the libraries know of one process: what rank 0 loads, predicts, saves or starts from now on is on its own.

    Accelerate's state is one dict for all that have it (accelerate/state.py); Transformers makes it anew for further
    arguments. It would let a Trainer with such arguments use all GPUs through DataParallel, with as many times the
    batch.
    """
    for name in _RANK_VARIABLES:
        os.environ.pop(name, None)
    module = sys.modules.get("accelerate.state")
    for kind in ("PartialState", "AcceleratorState"):
        state = getattr(getattr(module, kind, None), "_shared_state", None)
        if state:
            alone = {"num_processes": 1, "process_index": 0, "local_process_index": 0}
            state.update(alone, distributed_type=module.DistributedType.NO, backend=None)  # type: ignore[union-attr]
    arguments: Any = getattr(sys.modules.get("transformers.training_args"), "TrainingArguments", None)
    if arguments is not None:
        of_machine = arguments.n_gpu.fget
        arguments.n_gpu = property(lambda self: min(of_machine(self), 1))


def share_batch(
    batch_size: int, accumulation_steps: int, num_generations: int | None = None
) -> tuple[int, int]:
    """Split the notebook's batch over the ranks: its accumulation steps first, then its per-device batch.

    Returns this rank's micro-batch size and number of accumulation steps; their product with ``world_size`` is the
    notebook's effective batch, or a warning says what it is. ``num_generations`` keeps GRPO's groups whole.
    Every rank computes the same; none waits.
    """
    if num_generations and batch_size * accumulation_steps % num_generations:
        batch_size = num_generations  # Unsloth does this in the notebook: a step takes whole groups
    shared = math.gcd(accumulation_steps, _run.world_size)
    steps, parts = accumulation_steps // shared, _run.world_size // shared
    per_rank = max(batch_size // parts, 1)
    while num_generations and per_rank * steps * _run.world_size % num_generations:
        per_rank += 1
    total, wanted = per_rank * steps * _run.world_size, batch_size * accumulation_steps
    processes = f"{_run.world_size} process{'es' * (_run.world_size > 1)}"
    _say(f"batch {per_rank} x {steps} accumulation steps x {processes} = {total} per step")
    if total != wanted:
        _say(f"WARNING: the notebook's batch of {wanted} does not divide: a step takes {total} samples")
    return per_rank, steps


def wrap_rank_trainer(trainer: Any) -> Any:
    """Let a Trainer that knows of the ranks average their gradients, and return its model.

    Called right before ``trainer.train()``, after the Trainer has cast or replaced parameters. Every rank waits for the
    others, and compares its training data with theirs first.

    Raises:
        RuntimeError: the Trainer does not know of all ranks; or the ranks have different training data.
    """
    _check_knows_ranks(trainer)
    if _run.world_size == 1:
        return trainer.model
    for prepare in _run.at_trainer:
        prepare()
    _check_same_data(getattr(trainer, "train_dataset", None))
    if not isinstance(trainer, _SavesForAll):
        _make_also(trainer, _SavesForAll)
    _make_also(trainer.callback_handler, _OneDecision)
    # Mixed precision as always, and no DDP: it has to be told what a step may leave out, an expert or a tower, say.
    model = trainer.model_wrapped = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
    model._is_accelerate_prepared = True  # by train() no more
    _make_equal(model, [name for name, _ in model.named_parameters()])
    _compare(trainer.model)
    _recompute_with_the_same_graph()
    _leave_experts_uncompiled(model)
    _average_after_backward(trainer)
    return trainer.model


class _SavesForAll(_WholeCheckpoints):
    """A Trainer whose other ranks find what rank 0 saves: the best checkpoint, or a model to load again."""

    def save_model(self, output_dir: Any = None, *args: Any, **options: Any) -> None:
        super().save_model(output_dir, *args, **options)  # type: ignore[misc]
        _wait_for_save(os.path.abspath(output_dir or self.args.output_dir))


def _check_knows_ranks(trainer: Any) -> None:
    if trainer.args.world_size != _run.world_size > 1:
        raise RuntimeError(f"the Trainer knows of {trainer.args.world_size} of {_run.world_size} processes")


def _recompute_with_the_same_graph() -> None:
    """Let a gradient checkpoint recompute with the graph that torch.compile chose in the forward pass.

    Where Unsloth sees several ranks, its checkpoints are not re-entrant, and those compare the number of saved tensors.
    By itself torch.compile tries the graph first that it used last, which may be another by then: CheckpointError
    (https://github.com/pytorch/pytorch/issues/166926; the error's own text names this switch).
    """
    if hasattr(torch._C._dynamo.eval_frame, "_set_lru_cache"):
        torch._C._dynamo.eval_frame._set_lru_cache(False)


def _leave_experts_uncompiled(model: torch.nn.Module) -> None:
    """Switch Unsloth's compiled blocks off for a mixture of experts, and say so on GPUs, where Unsloth compiles.

    On several ranks its checkpoints are not re-entrant: they compare the tensors that a block saves with those that it
    saves when it is recomputed, and a compiled block with experts saves fewer then (CheckpointError; seen with Unsloth
    2026.10.9 and torch 2.11 on two H100). Unsloth reads the variable at each call of a block. One that is set stays.
    """
    with_experts = any("expert" in name for name, _ in model.named_parameters())
    if "unsloth" in sys.modules and with_experts and "UNSLOTH_BLOCK_COMPILE" not in os.environ:
        os.environ["UNSLOTH_BLOCK_COMPILE"] = "0"
        if torch.cuda.is_available():
            _say(
                "Unsloth's compiled blocks are off, for with experts they fail on several GPUs: in 16 bits "
                "that rounds otherwise, so losses are near the notebook's (by about 1e-3 of the loss), not equal"
            )


def _average_after_backward(trainer: Any) -> None:
    """Average the gradients of all ranks after the last backward() of a step, before they are clipped."""
    backward = trainer.accelerator.backward
    if getattr(backward, "_averages", False):  # a second train()
        return

    def backward_and_average(loss: torch.Tensor, **options: Any) -> None:
        backward(loss, **options)
        if trainer.accelerator.sync_gradients:  # else the step goes on accumulating
            trained = [p for group in trainer.optimizer.param_groups for p in group["params"]]
            _average_gradients([p for p in trained if p.requires_grad])

    backward_and_average._averages = True  # type: ignore[attr-defined]
    trainer.accelerator.backward = backward_and_average


def _load_on_device() -> None:
    """Load what was saved from GPU 0 to this rank's GPU: a file notes the GPU that each of its tensors was on.

    By itself every rank would load it to GPU 0. Where the notebook names another place for it, it goes there. Without
    GPUs, know "cpu:0": Accelerate calls a rank's CPU so, and a Trainer loads its checkpoints there.
    """

    is_moved = torch.cuda.is_available() and _run.local_rank > 0

    def restore(storage: Any, location: str) -> Any:
        if location == "cuda:0" and is_moved:
            return torch.serialization.default_restore_location(storage, f"cuda:{_run.local_rank}")
        return storage if location.startswith("cpu:") else None  # None: as PyTorch does

    # 15: asked before PyTorch's own for CUDA, which is 20
    torch.serialization.register_package(15, lambda storage: None, restore)


def own_gpu(pipeline: Callable[..., Any]) -> Callable[..., Any]:
    """Return Transformers' ``pipeline`` so that it runs on this rank's GPU, or on the device that it is given.

    By itself it takes GPU 0 on every rank; once the ranks have joined the process group, its model stays where it was
    loaded: on the CPU. A model that a ``device_map`` has placed stays there. No rank waits.
    """

    @functools.wraps(pipeline)
    def on_own_gpu(*args: Any, **options: Any) -> Any:
        of_model = dict(options.get("model_kwargs") or {})
        is_old = int(importlib.metadata.version("transformers").partition(".")[0]) < 5
        placed = "quantization_config" in {**options, **of_model} and is_old
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


def _reshard(model: Any) -> dict[tuple[str, str], Any]:
    """Reshard FSDP modules: after an evaluation they still hold gathered parameters, which look whole."""
    for part in model.modules() if model is not None else ():
        reshard = getattr(part, "reshard", None)
        if reshard is not None and hasattr(part, "unshard"):
            reshard()
    return {}


_run.of_loops += [_reshard, _trained]  # before a model is compared
