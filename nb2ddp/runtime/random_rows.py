"""Draw the random numbers of a whole batch where a rank computes some of its rows."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nb2ddp.runtime.run_state import _run

_functional: Any = torch.nn.functional
_dropout, _attention = _functional.dropout, _functional.scaled_dot_product_attention
_DROPOUTS = {_dropout, _functional.dropout1d, _functional.dropout2d, _functional.dropout3d}
_LIKE = {
    torch.rand_like,
    torch.randn_like,
    torch.randint_like,
    torch.bernoulli,
    torch.normal,
    torch.multinomial,
}
_SIZED = {torch.rand, torch.randn, torch.randint}
_IN_PLACE = {
    getattr(torch.Tensor, f"{name}_")
    for name in (
        "normal",
        "uniform",
        "bernoulli",
        "exponential",
        "random",
        "log_normal",
        "cauchy",
        "geometric",
    )
}
_ROW_BY_ROW = {_functional.gumbel_softmax}
_OTHER = {torch.randperm}
_DRAWING = {*_LIKE, *_SIZED, *_IN_PLACE, *_ROW_BY_ROW, *_OTHER}


class _RandomRows(TorchFunctionMode):
    """Within this, random tensors with a row for each of a rank's rows are those rows of what the batch would draw.

    ``draws`` is a context in which the numbers are drawn. What is drawn inside a kernel, between the layers of an LSTM
    say, is drawn outside it; so is dropout on GPUs, where a mask for the whole batch would cost time, and what a
    gradient checkpoint computes, for that is drawn again in backward(), outside this mode.
    """

    def __init__(
        self, start: int, end: int, rows: int, draws: Callable[[], Any], *, gradients: bool = False,
        everywhere: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.start, self.end, self.rows, self.draws = start, end, rows, draws
        self.everywhere = everywhere  # on GPUs too
        self.gradients = gradients  # wanted here, so that a block without them is a re-entrant checkpoint's
        self.replaced: dict[str, Any] = {}
        self.from_given = False  # whether numbers came from a generator that the notebook gives

    def __enter__(self) -> Any:
        # nn.MultiheadAttention calls these where this mode does not reach; a notebook's own are left alone
        ours = {
            "dropout": (_dropout, functools.partial(self._dropout, _dropout)),
            "scaled_dot_product_attention": (_attention, self._attention),
        }
        for name, (original, ours_of) in ours.items():
            if getattr(_functional, name) is original:
                self.replaced[name] = original
                setattr(_functional, name, ours_of)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for name, original in self.replaced.items():
            setattr(_functional, name, original)
        super().__exit__(*error)

    def _recomputed(self) -> bool:
        """Return whether a gradient checkpoint computes here, or something else that saves tensors its own way."""
        if self.gradients and not torch.is_grad_enabled():
            return True
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # torch 2.8 and newer
        try:
            return top is None or top(True) is not None
        except TypeError:  # older ones took no argument
            return True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return self._dropout(func, *args, **kwargs)
        if func in _DRAWING and not self._recomputed():
            given = kwargs.get("generator") is not None
            self.from_given |= given
            with contextlib.nullcontext() if given else self.draws():
                return self._drawn(func, args, kwargs)
        return func(*args, **kwargs)

    def _dropout(
        self, func: Any, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        factor = len(x) // self._own if x.ndim else 0
        divides = factor and len(x) == factor * self._own and (self.everywhere or not x.is_cuda)
        if not training or p in (0.0, 1.0) or not divides or self._recomputed():
            with torch._C.DisableTorchFunction():
                return func(x, p, training, inplace)
        with self.draws(), torch.no_grad(), torch._C.DisableTorchFunction():
            mask = func(_ones(x, factor * self.rows), p, True)
        mask = mask[factor * self.start : factor * self.end]
        return x.mul_(mask) if inplace else x * mask

    def _attention(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        """Compute attention as PyTorch does on a CPU, so that its dropout can be drawn for the whole batch."""
        if dropout_p == 0.0 or query.is_cuda or query.ndim != 4:
            options = {"scale": scale, **({"enable_gqa": True} if enable_gqa else {})}
            return _attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
        if enable_gqa:
            key, value = (x.repeat_interleave(query.size(1) // x.size(1), 1) for x in (key, value))
        scores = query @ key.transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            no = attn_mask.logical_not() if attn_mask.dtype == torch.bool else None
            scores = scores + attn_mask if no is None else scores.masked_fill(no, -math.inf)
        softmax = getattr(torch, "_safe_softmax", torch.softmax)
        return self._dropout(_dropout, softmax(scores, -1), dropout_p) @ value

    @property
    def _own(self) -> int:
        return self.end - self.start

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in _IN_PLACE and self._has_rows(args[0]):
            whole = func(self._of_batch(args[0]), *args[1:], **kwargs)
            return args[0].copy_(whole[self.start : self.end])
        if func in _ROW_BY_ROW and self._has_rows(args[0]):
            ones = _ones(args[0], self.rows)
            whole = torch.cat([ones[: self.start], args[0], ones[self.end :]])
            return func(whole, *args[1:], **kwargs)[self.start : self.end]
        if func in _LIKE:
            values = [*args, *kwargs.values()]
            if any(self._has_rows(value) for value in values):
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

    def _sized(
        self, func: Any, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]] | None:
        """Return arguments that give the whole batch's rows; None for a size that is not this rank's."""
        if "size" in kwargs:
            holder: Any = kwargs
            place: Any = "size"
        else:
            holder, place = args, 0
            if func is torch.randint:
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


def _ones(like: torch.Tensor, rows: int) -> torch.Tensor:
    """Return ones, so many rows of them, that lie in memory in the order of a tensor: numbers are drawn so."""
    order = sorted(range(like.ndim), key=lambda dim: (-like.stride(dim), like.size(dim) == 1, dim))
    shape = (rows, *like.shape[1:])
    return torch.empty_permuted(shape, order, dtype=like.dtype, device=like.device).fill_(1)


@contextlib.contextmanager
def _own_random_numbers(rows: tuple[int, int, int] | None) -> Iterator[Callable[[], bool]]:
    """Let a rank draw its own numbers; afterwards all ranks have the same generators again.

    With ``rows`` (the first, the end, and the batch's number of them) what `_RandomRows` can draw as one process does
    is drawn so. The function given tells in the end whether this rank drew numbers of its own.
    """
    common = _generators()
    if _run.rank > 0:
        torch.manual_seed(torch.initial_seed() + 1_000_003 * (_run.rank + _run.world_size * _run.steps))
    started = own = _generators()

    @contextlib.contextmanager
    def draws() -> Iterator[None]:
        nonlocal common, own
        own = _generators()
        _set_generators(common)
        try:
            yield
        finally:
            common = _generators()
            _set_generators(own)

    drew = False
    try:
        with _RandomRows(*rows, draws, gradients=True) if rows else contextlib.nullcontext():
            yield lambda: drew
    finally:
        drawn = [not torch.equal(a, b) for a, b in zip(started, _generators(), strict=True)]
        drew = any(drawn)
        _set_generators(common)
        for device, one_drew in zip(("cpu", "cuda"), drawn, strict=False):
            if one_drew:
                torch.rand(1, device=device)  # alike on every rank: the next call draws other numbers


def _generators() -> list[torch.Tensor]:
    """Return the states of the generators of the CPU and of this rank's GPU."""
    gpu = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *gpu]


def _set_generators(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)
