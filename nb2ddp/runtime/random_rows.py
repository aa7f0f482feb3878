"""Draw the random numbers of a whole batch where a rank computes some of its rows."""

import contextlib
from typing import Any

import torch

from nb2ddp.runtime.dropout_rows import _DropoutRows, _ones

_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like}
_LIKE |= {torch.bernoulli, torch.normal, torch.multinomial}
_SIZED = {torch.rand, torch.randn, torch.randint}
_OF_TENSORS = "normal uniform bernoulli exponential random log_normal cauchy geometric".split()
_IN_PLACE = {getattr(torch.Tensor, f"{name}_") for name in _OF_TENSORS}
_ROW_BY_ROW = {torch.nn.functional.gumbel_softmax}
_DRAWING = {*_LIKE, *_SIZED, *_IN_PLACE, *_ROW_BY_ROW, torch.randperm}


class _RandomRows(_DropoutRows):
    """Within this, random tensors with a row for each of a rank's rows are those rows of what the batch would draw."""

    from_given = False  # whether numbers came from a generator that the notebook gives

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWING and not self._recomputed():
            given = kwargs.get("generator") is not None
            self.from_given |= given
            with contextlib.nullcontext() if given else self.draws():
                return self._drawn(func, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in _IN_PLACE and self._has_rows(args[0]):
            whole = func(self._of_batch(args[0]), *args[1:], **kwargs)
            return args[0].copy_(whole[self.start : self.end])
        if func in _ROW_BY_ROW and self._has_rows(args[0]):
            ones = _ones(args[0], self.rows)
            whole = torch.cat([ones[: self.start], args[0], ones[self.end :]])
            return func(whole, *args[1:], **kwargs)[self.start : self.end]
        if func in _LIKE and any(map(self._has_rows, (*args, *kwargs.values()))):
            args = [self._of_batch(x) if self._has_rows(x) else x for x in args]
            kwargs = {name: self._of_batch(x) if self._has_rows(x) else x for name, x in kwargs.items()}
            return func(*args, **kwargs)[self.start : self.end]
        if func in _SIZED:
            sized = self._sized(func, list(args), dict(kwargs))
            if sized is not None:
                return func(*sized[0], **sized[1])[self.start : self.end]
        return func(*args, **kwargs)

    def _has_rows(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) == self._own

    def _of_batch(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor with a row for each of the batch's rows; the others' rows hold ones."""
        whole = _ones(value, self.rows)
        whole[self.start : self.end] = value.detach()
        return whole

    def _sized(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Return arguments that give the whole batch's rows; None for a size that is not this rank's."""
        holder: Any = kwargs if "size" in kwargs else args
        place: Any = "size" if "size" in kwargs else 0
        if holder is args and func is torch.randint:
            place = next((n for n, x in enumerate(args) if isinstance(x, tuple | list)), len(args))
        size = holder[place] if place in holder or (holder is args and place < len(args)) else None
        if isinstance(size, tuple | list):
            if not size or size[0] != self._own:
                return None
            holder[place] = (self.rows, *size[1:])
        elif isinstance(size, int) and size == self._own and func is not torch.randint:
            holder[place] = self.rows
        else:
            return None
        return args, kwargs
