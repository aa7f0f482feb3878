"""Exchange of what a call returns only the outputs that are read."""

import functools
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.run_state import _replaced
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.split_classes import _splits


def only_outputs(model: Any, *keys: str | int) -> Any:
    """Return ``model`` for a call of which these outputs alone are read, by key or place: ranks exchange no others.

    Reading another one raises AttributeError, but where a batch is computed whole. Waits for no rank by itself.
    """
    if not isinstance(model, torch.nn.Module) or model not in _splits:
        return model
    return _replaced(_splits[model], only=functools.partial(_unread, keys, _place()))(model.__call__)


def _unread(keys: Any, where: str, output: Any) -> dict[Any, Any]:
    """Return, by id, what stands for tensors that are in no output with these keys; nothing where one is missing."""
    try:
        kept = [output[key] for key in keys] if keys and not isinstance(output, torch.Tensor) else output
    except (KeyError, IndexError, TypeError):
        return {}
    unread = {id(x) for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor)}
    stands = _nothing(f"{where} says only_outputs(model, {str([*keys])[1:-1]})")
    return dict.fromkeys(unread - {id(leaf) for leaf in pytree.tree_leaves(kept)}, stands)


@functools.cache
def _nothing(says: str) -> Any:
    """Return what stands for an output that nobody reads: whatever is asked of it, it raises what is to be changed."""

    def refuse(*_: Any) -> Any:
        why = "nothing else that this call returns is read. Name this output there, too, or call the model itself"
        raise AttributeError(f"{says}: {why}")

    own = {"__dir__", "__hash__", "__init__", "__new__"}
    names = {name for kind in torch.Tensor.__mro__[:-1] for name in vars(kind)} - own | {"__getattr__"}
    asked = [name for name in names if callable(getattr(torch.Tensor, name, refuse))]
    return type("Nothing", (), dict.fromkeys(asked, staticmethod(refuse)) | {"__hash__": object.__hash__})()
