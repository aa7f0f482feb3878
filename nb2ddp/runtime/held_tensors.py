"""See whether a micro-batch changes what is neither the trained model nor a figure: a teacher that follows it, say.

Such a change depends on the micro-batches before, so the ranks cannot compute them alone.
"""

import copy
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.figure_values import _NO_FIGURES, _is_small
from nb2ddp.runtime.kept_values import _Place
from nb2ddp.runtime.summed_gradients import _persistent

_MOST_BYTES = 1 << 32  # that are copied, to be put back


class _Held:
    """A model's buffers, and the modules, optimizers and large tensors held beside it, before a step."""

    def __init__(
        self, trainer: Any, parameters: list[torch.Tensor], buffers: list[torch.Tensor], trained: set[int], *,
        looks: bool, keeps: bool,
    ) -> None:  # fmt: skip
        self.parameters = parameters
        self.buffers = [(buffer, buffer._version, buffer.detach().clone()) for buffer in buffers]
        self.trainer, self.trained = trainer, trained
        self.looks = looks  # at values too: who writes to `.data` leaves no trace
        self.marks, self.places = self._marks(), self._marks_of(parameters)
        self.copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.tensors: list[tuple[Any, Any, Any]] = []
        self.optimizers: list[tuple[Any, Any]] = []
        if not keeps:
            return
        size = 0
        for name, holder, value in self._values():
            if isinstance(value, torch.optim.Optimizer):
                self.optimizers.append((value, copy.deepcopy(value.state_dict())))
            elif isinstance(value, torch.Tensor):
                self.tensors.append((holder, name, value))
            for tensor in self._tensors(value):
                size += tensor.nbytes
                if size < _MOST_BYTES:
                    self.copies.append((tensor, tensor.detach().to("cpu", copy=True)))

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
        """Undo what micro-batches changed, where it was copied."""
        for holder, name, value in self.tensors:
            holder[name] = value
        with torch.no_grad():
            for tensor, copied in [*((buffer, old) for buffer, _, old in self.buffers), *self.copies]:
                tensor.copy_(copied)
        for optimizer, state in self.optimizers:
            optimizer.load_state_dict(state)

    def _marks(self) -> dict[str, Any]:
        return {name: self._marks_of(self._tensors(value)) for name, _, value in self._values()}

    def _marks_of(self, tensors: list[torch.Tensor]) -> Any:
        values = [tensor.detach() for tensor in tensors] if self.looks else []
        kinds = [torch.float64 if value.is_floating_point() else None for value in values]  # to the last bit
        sums = [str(value.sum(dtype=kind).item()) for value, kind in zip(values, kinds, strict=True)]
        return [id(tensor) for tensor in tensors], [tensor._version for tensor in tensors], sums

    def _values(self) -> Iterator[tuple[str, Any, Any]]:
        for values in (vars(self.trainer), vars(sys.modules["__main__"])):
            for name, value in list(values.items()):
                if name in _NO_FIGURES or name[:2] == "__":
                    continue
                if isinstance(value, torch.optim.Optimizer):
                    groups = [group["params"] for group in value.param_groups]
                    if all(id(parameter) in self.trained for group in groups for parameter in group):
                        continue  # the Trainer's own
                kinds = torch.nn.Module | torch.optim.Optimizer
                if isinstance(value, kinds) or (
                    isinstance(value, torch.Tensor) and not _is_small(_Place((), None, None, value))
                ):
                    yield name, values, value

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
