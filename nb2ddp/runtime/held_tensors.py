"""See whether a micro-batch changes what is neither trained nor a figure, a teacher say: later ones may read that."""

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.figure_values import _NO_FIGURES, _is_small
from nb2ddp.runtime.kept_values import _Place
from nb2ddp.runtime.summed_gradients import _persistent


class _Held:
    """A model's buffers, and the modules, optimizers and large tensors held beside it, before a step."""

    def __init__(self, of: Any, *, looks: bool) -> None:
        self.buffers = [(buffer, buffer._version, buffer.detach().clone()) for buffer in of.buffers]
        self.trainer, self.parameters = of.trainer, of.trained
        self.trained = {id(tensor) for tensor in (*of.trained, *of.of_model, *of.buffers)}
        self.looks = looks  # at values too: who writes to `.data` leaves no trace
        self.marks, self.places = self._marks(), self._marks_of(self.parameters)

    def changed(self) -> str:
        """Return what is wrong, or ""."""
        if any(buffer._version != version for buffer, version, _ in self.buffers):
            return "the model keeps running statistics of its batches, as a batch norm does"
        now = self._marks()
        names = [name for name in {**self.marks, **now} if self.marks.get(name) != now.get(name)]
        return next((f"a micro-batch changes `{name}`, which later ones may read" for name in names), "")

    def has_moved(self) -> bool:
        """Return whether a micro-batch has written to trained parameters: and back, but for rounding, as SAM does."""
        return bool(self.places != self._marks_of(self.parameters))

    def put_back(self) -> None:
        """Undo what micro-batches changed of the buffers."""
        with torch.no_grad():
            for buffer, _, copied in self.buffers:
                buffer.copy_(copied)

    def _marks(self) -> dict[str, Any]:
        return {name: self._marks_of(self._tensors(value)) for name, value in self._values()}

    def _marks_of(self, tensors: list[torch.Tensor]) -> Any:
        values = [tensor.detach() for tensor in tensors] if self.looks else []
        kinds = [torch.float64 if value.is_floating_point() else None for value in values]  # to the last bit
        sums = [str(value.sum(dtype=kind).item()) for value, kind in zip(values, kinds, strict=True)]
        return [id(tensor) for tensor in tensors], [tensor._version for tensor in tensors], sums

    def _values(self) -> Iterator[tuple[str, Any]]:
        for values in (vars(self.trainer), vars(sys.modules["__main__"])):
            for name, value in list(values.items()):
                if name in _NO_FIGURES or name[:2] == "__":
                    continue
                if isinstance(value, torch.optim.Optimizer):
                    groups = [group["params"] for group in value.param_groups]
                    if all(id(parameter) in self.trained for group in groups for parameter in group):
                        continue  # the Trainer's own
                is_large = isinstance(value, torch.Tensor) and not _is_small(_Place((), None, None, value))
                if is_large or isinstance(value, torch.nn.Module | torch.optim.Optimizer):
                    yield name, value

    def _tensors(self, value: Any) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value] * (id(value) not in self.trained)
        if not isinstance(value, torch.nn.Module):
            return []
        if self.looks or value not in _of_held_modules:  # a walk through a large model takes milliseconds
            every = [*value.parameters(), *_persistent(value)]
            _of_held_modules[value] = [tensor for tensor in every if id(tensor) not in self.trained]
        return _of_held_modules[value]


_of_held_modules = weakref.WeakKeyDictionary[torch.nn.Module, list[torch.Tensor]]()  # as of the latest check
