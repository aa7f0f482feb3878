"""Mark gradients that the ranks have not exchanged yet: whoever computes with one has them exchanged first."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from nb2ddp.runtime.module_state import _is_in_own_code


class _Unexchanged(torch.Tensor):
    """A rank's own gradient of an accumulation step under way."""

    exchange: ClassVar[list[Callable[[], None]]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            for exchange in _Unexchanged.exchange:
                exchange()
            return func(*args, **(kwargs or {}))


@functools.cache
def _handles_errors() -> bool:
    """Return whether the notebook's own code may go on after an error of backward()."""
    others = r"(Interrupt|Iteration|Empty|(Import|NotFound|Key|Attribute|OS|IO|Decode)Error)\b[^,\n]*\n"
    return _is_in_own_code(rf"\b(except\b|suppress\()(?! *\(?[\w.]*{others})")
