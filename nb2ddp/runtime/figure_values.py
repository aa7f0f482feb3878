"""Know which values of a Trainer's may be figures, how they are sent, and what a micro-batch prints."""

import collections
import enum
import io
import sys
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.kept_values import (
    _GROWS,
    _MOST,
    _OF_ALL_MODULES,
    _SIMPLE,
    _names,
    _of_modules,
    _own_parts,
    _Place,
)
from nb2ddp.runtime.value_copies import _agree, _IteratorState

_UNTRACKED = "nb2ddp: how it changed cannot be told"
_MOST_ON_CPU = 1 << 16  # values of a tensor or an array there

# attributes of a Trainer that hold no figures, or none that a micro-batch changes
_NO_FIGURES = frozenset(
    "model model_wrapped ref_model optimizer lr_scheduler accelerator args train_dataset eval_dataset control state "
    "callback_handler data_collator processing_class _memory_tracker _turns label_names _signature_columns "
    "current_flos current_gradient_accumulation_steps is_in_train _tr_loss".split()
)


def _places(trainer: Any) -> Iterator[_Place]:
    """Yield from where a micro-batch of a Trainer may reach what it changes."""
    yield from _names()
    for name, value in list(vars(trainer).items()):
        if name not in _NO_FIGURES:
            yield _Place(("trainer", name), vars(trainer), name, value)
    for name, value in list(vars(trainer.state).items()):
        if isinstance(value, int | float):  # TRL counts tokens there
            yield _Place(("trainer", "_state", name), vars(trainer.state), name, value)
    yield from _of_modules(_own_parts(trainer.model))
    attributes = getattr(trainer.model, "__dict__", {})
    for name, value in list(attributes.items()):  # of a library's model: `compute_loss` may set some
        if name not in _OF_ALL_MODULES and _holds_values(value):
            yield _Place(("model", "", name), attributes, name, value)
    yield _Place(value=type(trainer))


def _holds_values(value: Any) -> bool:
    """Return whether a value is a number, a text or a tensor, or a list of such: no object of a library's own."""
    values = value if isinstance(value, list) else [value]
    return all(isinstance(item, (*_SIMPLE, torch.Tensor)) for item in values)


def _is_small(place: _Place) -> bool:
    """Return whether a tensor or an array is small enough to be a figure."""
    value = place.value
    if not isinstance(value, torch.Tensor):
        return bool(value.size <= _MOST_ON_CPU)
    most = _MOST if value.is_cuda else _MOST_ON_CPU
    return not isinstance(value, torch.nn.Parameter) and value.numel() <= most


class _Printed(io.TextIOBase):
    """Stands for ``sys.stdout`` while a micro-batch is computed."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.events.append(("print", text))
        return len(text)


def _appended(before: Any, after: Any) -> Any:
    """Return what was added to a container, for a list at its end; None where other items changed."""
    if isinstance(before, str):
        return after if isinstance(after, set) else list(after)
    if not isinstance(before, _GROWS):
        return None
    if isinstance(after, set):
        return after - before if isinstance(before, set) and before <= after else None
    old, new = list(before), list(after)
    for gone in range(len(old) + 1 if getattr(after, "maxlen", None) else 1):
        kept = len(old) - gone
        pairs = zip(old[gone:], new[:kept], strict=False)
        if kept <= len(new) and all(a is b or _agree(a, b) for a, b in pairs):
            return new[kept:]
    return None


def _sent(value: Any) -> Any:
    """Return a value as other ranks get it: tensors on the CPU, without a graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, list | collections.deque):
        return [_sent(item) for item in value]
    if isinstance(value, dict):
        return {name: _sent(item) for name, item in value.items()}
    kind = type(value)
    found = getattr(sys.modules.get(kind.__module__), kind.__name__, None)
    is_local = isinstance(value, tuple | enum.Enum) and found is not kind  # it cannot be pickled
    return _UNTRACKED if isinstance(value, _IteratorState) or is_local else value
