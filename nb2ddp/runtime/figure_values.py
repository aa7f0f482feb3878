"""Know which values of a Trainer's may be figures, and what a micro-batch prints."""

import io
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.kept_values import (
    _MOST,
    _MOST_ON_CPU,
    _OF_ALL_MODULES,
    _SIMPLE,
    _names,
    _of_modules,
    _own_parts,
    _Place,
)

# attributes of a Trainer that hold no figures, or none that a micro-batch changes
_NO_FIGURES = frozenset(
    "model model_wrapped ref_model optimizer lr_scheduler accelerator args train_dataset eval_dataset control state "
    "callback_handler data_collator processing_class _memory_tracker _turns label_names _signature_columns "
    "current_flos current_gradient_accumulation_steps is_in_train".split()
)


def _places(trainer: Any) -> Iterator[_Place]:
    """Yield from where a micro-batch of a Trainer may reach what it changes."""
    yield from _names()
    for name, value in list(vars(trainer).items()):
        if name not in _NO_FIGURES:
            yield _Place(("trainer", name), vars(trainer), name, value)
    yield from _of_modules(_own_parts(trainer.model))
    attributes = getattr(trainer.model, "__dict__", {})
    for name, value in list(attributes.items()):  # of a library's model: `compute_loss` may set some
        if name not in _OF_ALL_MODULES and _holds_values(value):
            yield _Place(("model", "", name), attributes, name, value)
    yield _Place((), None, None, type(trainer))


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


def _printed(events: list[Any]) -> str:
    return "".join(value for kind, value in events if kind == "print")


def _put_prints_in_order(seen: list[list[Any]], orders: list[list[int]]) -> None:
    """Give to micro-batch ``k`` what each rank printed because it was the k-th that it computed.

    A library says some things once in a process. ``seen``: by micro-batch, each rank's note; ``orders``: by rank, in
    which order it computed them.
    """
    texts = [[_printed(note.events).splitlines(keepends=True) for note in notes] for notes in seen]
    own = [_common_end(of_ranks) for of_ranks in texts]  # what the micro-batch itself prints
    leads = [
        ["".join(texts[turn][rank][: len(texts[turn][rank]) - own[turn]]) for turn in order]
        for rank, order in enumerate(orders)
    ]
    if any(of_rank != leads[0] for of_rank in leads):
        return
    for rank, order in enumerate(orders):
        for turn, lead in zip(order, leads[0], strict=True):
            _take_lead(seen[turn][rank].events, len(lead))
    for notes, lead in zip(seen, leads[0], strict=True):
        for note in notes if lead else ():
            note.events.insert(0, ("print", lead))


def _common_end(of_ranks: list[list[str]]) -> int:
    """Return how many of their last lines the ranks' texts share."""
    count = 0
    for lines in zip(*(reversed(text) for text in of_ranks), strict=False):
        if len({*lines}) > 1:
            break
        count += 1
    return count


def _take_lead(events: list[Any], count: int) -> None:
    """Leave out the first ``count`` printed characters."""
    for place, (kind, value) in enumerate(events):
        if kind == "print":
            taken = min(count, len(value))
            events[place], count = (kind, value[taken:]), count - taken
