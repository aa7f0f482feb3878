"""Mark gradients that the ranks have not exchanged yet: whoever computes with one has them exchanged first."""

import ast
import functools
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from nb2ddp.runtime.script_location import _is_own


class _Unexchanged(torch.Tensor):
    """A rank's own gradient of an accumulation step under way."""

    exchange: ClassVar[list[Callable[[], None]]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            for exchange in _Unexchanged.exchange:
                exchange()
            return func(*args, **(kwargs or {}))


def _mark(parameters: list[Any], kind: type[torch.Tensor]) -> None:
    """Let gradients be of a class: `_Unexchanged`, or `torch.Tensor` again."""
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        for parameter in parameters:
            if type(parameter.grad) in (torch.Tensor, _Unexchanged) and type(parameter.grad) is not kind:
                parameter.grad = parameter.grad.as_subclass(kind)


def _may_defer() -> bool:
    """Return whether the notebook's own code looks at no gradient: it may do so on one rank alone, to log a norm."""
    return not _is_in_own_code("grad")


def _is_in_own_code(word: str) -> bool:
    """Return whether the notebook's own code has a word as an attribute, a text or an argument's name."""
    own = [module for name, module in list(sys.modules.items()) if _is_own(name)]
    return any(word in _words(getattr(module, "__file__", None) or "") for module in own)


@functools.cache
def _words(path: str) -> set[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            nodes = list(ast.walk(ast.parse(file.read())))
    except (OSError, ValueError, SyntaxError):
        return {"grad", "create_graph"}  # perhaps
    found = {node.value for node in nodes if isinstance(node, ast.Constant)}
    found |= {node.arg for node in nodes if isinstance(node, ast.keyword)}
    named = [node for node in nodes if isinstance(node, ast.Attribute)]
    return found | {of.attr for of in named if of.attr != "grad" or "autograd" not in ast.unparse(of.value)}
