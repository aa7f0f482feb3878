"""See whether a micro-batch changes what is neither trained nor a figure, a teacher say: later ones may read that."""

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.figure_rules import _in_words
from nb2ddp.runtime.kept_values import _is_array
from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.summed_gradients import _persistent


class _Held:
    """A model's buffers, and the modules and large tensors held beside it, before a step."""

    def __init__(self, of: Any, *, by_value: bool) -> None:
        self.buffers = [(buffer, buffer._version, buffer.detach().clone()) for buffer in of.buffers]
        self.parameters, self.figures = of.trained, of.figures
        self.trained = {id(tensor) for tensor in (*of.trained, *of.of_model, *of.buffers)}
        self.by_value = by_value  # not by versions alone: who writes to `.data` leaves no trace
        self.before, self.trained_before = self._versions(), self._versions_of(self.parameters)

    def changed(self) -> str:
        """Return what is wrong, or ""."""
        if any(buffer._version != version for buffer, version, _ in self.buffers):
            return "the model keeps running statistics of its batches, as a batch norm does"
        now = self._versions()
        other = [key for key in {**self.before, **now} if self.before.get(key) != now.get(key)]
        names = [key[0] for key in other if not key[1] or {key} <= self.before.keys() & now.keys()]
        return next((f"a micro-batch changes {name}, which later ones may read" for name in names), "")

    def has_moved(self) -> bool:
        """Return whether a micro-batch has written to trained parameters: and back, but for rounding, as SAM does."""
        return bool(self.trained_before != self._versions_of(self.parameters))

    def put_back(self) -> None:
        """Undo what micro-batches changed of the buffers."""
        with torch.no_grad():
            for buffer, _, copied in self.buffers:
                buffer.copy_(copied)

    def take_from_rank_0(self) -> None:
        """Take what micro-batches changed beside the model as rank 0 has it: others may have computed less or more."""
        now, held = self._versions(), {key: value for key, value in self._values() if not key[1]}
        changed = {key: self._tensors(held[key]) for key in held if now[key] != self.before.get(key)}
        with torch.no_grad():
            for key, values in from_main_process(lambda: changed).items():
                own = self._tensors(held[key]) if key in held else ()
                for tensor, value in zip(own, values, strict=False):
                    tensor[...] = value

    def _versions(self) -> dict[tuple[str, int], Any]:
        return {key: self._versions_of(self._tensors(value)) for key, value in self._values()}

    def _versions_of(self, tensors: list[Any]) -> Any:
        return [(id(of), getattr(of, "_version", 0), self.by_value and _content(of)) for of in tensors]

    def _values(self) -> Iterator[tuple[tuple[str, int], Any]]:
        """Yield values, each with its name, and with its id where only that counts which is changed in place."""
        for path, (*_, value) in self.figures.large.items():
            is_name = path[0] != "model" and len(path) - (path[0] == "class") <= 2
            yield (_in_words(path), 0 if is_name else id(value)), value
        for path, value in self.figures.owners.items():
            if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
                yield (_in_words(path), 0), value

    def _tensors(self, value: Any) -> list[Any]:
        if isinstance(value, torch.Tensor) or _is_array(value):
            return [] if id(value) in self.trained else [value]
        if self.by_value or value not in _of_held_modules:  # a walk through a large model takes milliseconds
            if isinstance(value, torch.nn.Module):
                every = [*value.parameters(), *_persistent(value)]
            else:  # an optimizer, which may be all that holds a parameter
                every = [parameter for group in value.param_groups for parameter in group["params"]]
                every += [v for of in every for v in value.state.get(of, {}).values() if torch.is_tensor(v)]
            _of_held_modules[value] = [tensor for tensor in every if id(tensor) not in self.trained]
        return _of_held_modules[value]


def _content(value: Any) -> str:
    """Return what the change of any value in a tensor or an array changes: its sum, to the last bit, or a digest."""
    if isinstance(value, torch.Tensor):
        return str(value.detach().sum(dtype=torch.float64 if value.is_floating_point() else None).item())
    return _digest(value) if value.nbytes < _MOST_BYTES else ""


_MOST_BYTES = 1 << 29  # of an array: it may be a file
_of_held_modules = weakref.WeakKeyDictionary[Any, list[torch.Tensor]]()  # as of the latest check
