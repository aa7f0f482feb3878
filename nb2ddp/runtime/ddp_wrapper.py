"""Wrap a model with DistributedDataParallel."""

import functools
import inspect
import os
import sys
import weakref
from collections.abc import Collection
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from nb2ddp.runtime.other_replicas import _compare
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.script_location import _is_notebooks_own
from nb2ddp.runtime.unseen_gradients import _must_be_on_gpu, _reduce_unseen, _sparse_names

_SMALL = 2**28  # bytes of trained parameters


def _ddp(
    model: Any, find_unused: bool | None = None, apart: Collection[str] = (), *, in_step: bool = False
) -> DDP:
    """Wrap a model. With ``find_unused=None`` DDP searches for unused parameters if the model may have some.

    DDP leaves the parameters named in ``apart``, and those with sparse gradients, alone. With ``in_step`` a loss may
    be under way that already depends on the parameters: they are made equal so that autograd does not take them for
    changed.

    Raises:
        RuntimeError: the process group is the GPUs', and the model is not on one.
    """
    _prepare_for_ddp()
    _must_be_on_gpu(model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    sparse = _sparse_names(model)
    apart = {*apart, *(sparse if len(sparse) < len(trained) else ())}
    # the search costs time: an adapter alone is used as a whole, but for a tower's part
    if find_unused is None:
        find_unused = any(_leaves_out(name) for name in trained if "expert" not in name)
        if not any("lora_" in name for name in trained):  # a pooler, say, that nothing reads
            # Transformers' own word for it, is_gradient_checkpointing, goes in version 6
            find_unused |= not any(getattr(part, "gradient_checkpointing", False) for part in model.modules())
        if find_unused:
            _keep_advice_quiet()
    ignored = [
        name for name, parameter in model.named_parameters() if not parameter.requires_grad or name in apart
    ]
    _make_equal(model, ignored)
    # DDP knows the model's own parameters by names like ".scale"
    DDP._set_params_and_buffers_to_ignore_for_model(model, [*ignored, *(f".{name}" for name in ignored)])
    options: Any = {}
    if in_step and "init_sync" in inspect.signature(DDP.__init__).parameters:
        options = {"init_sync": False}
        sent = [p for name, p in model.named_parameters() if name not in ignored]
        for value in (*sent, *model.buffers()):
            dist.broadcast(value.data, 0)  # `data` is another tensor to autograd
    # gradient_as_bucket_view: gradients are exchanged where they lie, not in copies. In a loop a notebook may keep a
    # gradient beyond zero_grad(), and the next one would be written over it: a copy of small models' costs little.
    small = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad) <= _SMALL
    # without device_ids: DDP would move a batch's tensors to the GPU, those as well that belong on the CPU (lengths)
    ddp_model = _Wrapper(
        model,
        find_unused_parameters=find_unused,
        gradient_as_bucket_view=not (in_step and small),
        **options,
    )
    type(ddp_model).__name__ = DDP.__name__  # Unsloth knows a wrapper by this name
    del ddp_model.dim  # of DataParallel's times; a notebook's `model.dim` is the model's own
    # Batch norms alone change their buffers; for others every forward() would wait for rank 0's in vain. In a loop the
    # ranks' buffers are equal already, and a broadcast before a second forward() would overwrite what autograd saved.
    counts = any(getattr(part, "track_running_stats", False) for part in model.modules())
    ddp_model.broadcast_buffers = counts and not in_step
    _compare(model)
    averaged = [p for name, p in model.named_parameters() if p.requires_grad and name not in apart]
    _run.reduced.update({id(p): weakref.ref(p) for p in averaged})
    return ddp_model


@functools.cache
def _prepare_for_ddp() -> None:
    """Let the first wrapper change what DDP needs: gradients that it does not see are averaged before a step."""
    _recompute_with_the_same_graph()
    register_optimizer_step_pre_hook(_reduce_unseen)


def _recompute_with_the_same_graph() -> None:
    """Let a gradient checkpoint recompute with the graph that torch.compile chose in the forward pass.

    DDP wants checkpoints that are not re-entrant, and those compare the number of saved tensors. By itself
    torch.compile tries the graph first that it used last, which may be another by then: CheckpointError
    (https://github.com/pytorch/pytorch/issues/166926; the error's own text names this switch).
    """
    if hasattr(torch._C._dynamo.eval_frame, "_set_lru_cache"):
        torch._C._dynamo.eval_frame._set_lru_cache(False)


class _Wrapper(DDP):
    """A DDP wrapper with the model's own attributes: a Trainer passes it as `model` to a notebook's `compute_loss`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "module" not in self.__dict__.get("_modules", ()):
                raise
        value = getattr(self._modules["module"], name)
        if not torch.is_grad_enabled():
            return value
        if not _is_notebooks_own(sys._getframe(1)):
            if isinstance(value, torch.nn.Parameter) or callable(value):
                raise AttributeError(_not_averaged(name))  # a library knows a wrapper by what it has not
            return value
        if _trains(value):  # hasattr() would take an AttributeError for "there is none", and go another way
            raise RuntimeError(_not_averaged(name))
        if inspect.ismethod(value) and _trains(value.__self__):
            return _refusing_gradients(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in self.__dict__ or "module" not in self.__dict__.get("_modules", ())
        if own or name == "module" or not _is_notebooks_own(sys._getframe(1)):
            super().__setattr__(name, value)
        else:
            setattr(self._modules["module"], name, value)

    def __delattr__(self, name: str) -> None:
        inner = self._modules["module"] if "module" in self.__dict__.get("_modules", ()) else None
        if name in self.__dict__ or inner is None or not _is_notebooks_own(sys._getframe(1)):
            super().__delattr__(name)
        else:
            delattr(inner, name)


def _trains(value: Any) -> bool:
    """Return whether a value is a parameter that is trained, or a module that has some."""
    if isinstance(value, torch.nn.Parameter):
        return bool(value.requires_grad)
    return isinstance(value, torch.nn.Module) and any(p.requires_grad for p in value.parameters())


def _refusing_gradients(name: str, method: Any) -> Any:
    """Return a model's method that raises RuntimeError where what it returns trains the model."""

    @functools.wraps(method)
    def checked(*args: Any, **options: Any) -> Any:
        result = method(*args, **options)
        if _opaque(result):  # a distribution, say, which holds tensors of the model's
            raise RuntimeError(_not_averaged(name))
        for value in pytree.tree_leaves(result):
            if _trains(value) or (isinstance(value, torch.Tensor) and value.requires_grad):
                raise RuntimeError(_not_averaged(name))
        return result

    return checked


def _not_averaged(name: str) -> str:
    return (
        f"the loss uses `{name}` of the model, whose gradients DDP would not average: call the model as a "
        f"whole, with what `{name}` does in its forward(); without gradients, take `trainer.model.{name}`"
    )


@functools.cache
def _keep_advice_quiet() -> None:
    """Hide PyTorch's advice against `find_unused_parameters`: the notebook has not set it.

    PyTorch gives it once in a process, from C++ to file descriptor 2, where a model uses all its parameters. A model of
    one number gets it here, while nothing is shown: without a call, which hooks of the notebook's might see. Every rank
    waits for the others.
    """
    device = torch.device("cuda", _run.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    # a LayerNorm draws no random numbers as it is made
    probe = DDP(torch.nn.LayerNorm(1, device=device), find_unused_parameters=True)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        try:
            shown = os.dup(2)
        except OSError:  # there is none
            return
        try:
            os.dup2(nowhere.fileno(), 2)
            probe.reducer.prepare_for_backward([probe.module.weight + probe.module.bias])
        finally:
            os.dup2(shown, 2)
            os.close(shown)


def _opaque(output: Any) -> str:
    """Return the class of an object in a call's result whose tensors cannot be told apart: a distribution, say.

    "" where there is none. A cache of Transformers' is none: training does not read it.
    """
    for leaf in pytree.tree_leaves(output):
        library = type(leaf).__module__.partition(".")[0]
        if library not in ("builtins", "transformers", "numpy") and not isinstance(leaf, torch.Tensor):
            inside = pytree.tree_leaves(list(getattr(leaf, "__dict__", {}).values()))
            if any(isinstance(value, torch.Tensor) for value in inside):
                return type(leaf).__name__
    return ""


def _leaves_out(name: str) -> bool:
    """Return whether a step may leave a parameter of this name without a gradient: experts, towers."""
    return any(part in name for part in ("expert", "vision", "visual", "image", "audio"))
