"""Classes of models whose calls are divided over the ranks, and which model has which division."""

import copyreg
import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.metrics import _count_metrics_once
from nb2ddp.runtime.run_state import _run

# by model, what divides its calls: a _Split of divided_calls
_splits: "weakref.WeakKeyDictionary[torch.nn.Module, Any]" = weakref.WeakKeyDictionary()


@functools.cache
def _split_class(kind: Any) -> type:
    """Return a subclass whose instances compute their part of a batch when called; pickled as ``kind``."""

    called: Callable[..., Any] = kind.__call__
    reduced: Callable[..., Any] = kind.__reduce_ex__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        split = _splits.get(self)
        if split is not None:
            _count_metrics_once()
        if split is None or split.inside or not _run.meets or not torch.is_grad_enabled():
            return called(self, *args, **kwargs)
        if _is_transformed():
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


def _divide_no_parts(split: Any) -> None:
    """Stop dividing the calls of a model's submodules: it divides its own calls now."""
    for part in list(split.model.modules()) if len(_splits) > 1 else ():
        if part in _splits and _splits[part] is not split:
            del _splits[part]
            part.__class__ = type(part).__bases__[0]


def _is_transformed() -> bool:
    """Return whether `torch.func.grad` or `vmap` is at work, which DDP cannot: each rank computes all rows there."""
    functorch: Any = torch._C._functorch
    return functorch.peek_interpreter_stack() is not None
