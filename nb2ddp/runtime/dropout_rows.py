"""Drop out, in a rank's rows of a batch, what one process drops out in them."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nb2ddp.runtime.random_numbers import _generators, _set_generators
from nb2ddp.runtime.run_state import _replaced, _run

_functional: Any = torch.nn.functional
_dropout, _attention = _functional.dropout, _functional.scaled_dot_product_attention
_DROPOUTS = {_dropout, _functional.dropout1d, _functional.dropout2d, _functional.dropout3d}


class _DropoutRows(TorchFunctionMode):
    """Within this, dropout of a rank's rows is that of the batch's rows.

    ``draws`` is a context in which the numbers are drawn. Outside it draws what a kernel draws (in an LSTM, say), GPUs,
    where a mask for the whole batch would cost time, and a gradient checkpoint, which draws again in backward().
    """

    def __init__(
        self, start: int, end: int, rows: int, draws: Callable[[], Any], *, gradients: bool = False,
        everywhere: bool = False, off: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.start, self.end, self.rows, self.draws = start, end, rows, draws
        self.everywhere, self.off = everywhere, off  # on GPUs too; nothing is dropped out
        self.gradients = gradients  # wanted here, so that a block without them is a re-entrant checkpoint's

    def __enter__(self) -> Any:
        # nn.MultiheadAttention calls these where this mode does not reach; a notebook's own are left alone
        ours: dict[str, Any] = {
            "dropout": (_dropout, functools.partial(self._dropout, _dropout)),
            "scaled_dot_product_attention": (_attention, self._attention),
        }
        ours = {name: made for name, (own, made) in ours.items() if getattr(_functional, name) is own}
        self.patch = _replaced(_functional, **ours)
        self.patch.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.patch.__exit__(*error)
        super().__exit__(*error)

    def _recomputed(self) -> bool:
        """Return whether a gradient checkpoint computes here, or something else that saves tensors its own way."""
        return (self.gradients and not torch.is_grad_enabled()) or bool(_tensor_hooks() != ())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called = functools.partial(self._dropout, func) if func in _DROPOUTS else func
        return called(*args, **(kwargs or {}))

    def _dropout(
        self, func: Any, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        if self.off:
            return x
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
        dropout_p = 0.0 if self.off else dropout_p
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


def _tensor_hooks() -> Any:
    """Return what packs and unpacks the tensors that backward() needs; None where PyTorch does not tell."""
    with contextlib.suppress(AttributeError, TypeError):  # before torch 2.8
        return torch._C._autograd._top_saved_tensors_default_hooks(True) or ()
    return None


def _ones(like: torch.Tensor, rows: int) -> torch.Tensor:
    """Return ones, so many rows of them, that lie in memory in the order of a tensor: numbers are drawn so."""
    order = sorted(range(like.ndim), key=lambda dim: (-like.stride(dim), like.size(dim) == 1, dim))
    shape = (rows, *like.shape[1:])
    return torch.empty_permuted(shape, order, dtype=like.dtype, device=like.device).fill_(1)


@contextlib.contextmanager
def _own_random_numbers(
    rows: tuple[int, int, int] | None, kind: type["_DropoutRows"] | None = None
) -> Iterator[Callable[[], bool]]:
    """Let a rank draw its own numbers; afterwards all ranks have the same generators again.

    With ``rows`` (the first, the end, and the batch's number of them) what ``kind`` can draw as one process does is
    drawn so. The function given tells in the end whether this rank drew numbers of its own.
    """
    common = _generators()
    if _run.rank > 0:
        seed = sum(int(state.view(torch.int64).sum()) for state in common if state is not None)
        torch.manual_seed((seed * 1_000_003 + _run.rank * 7919) % 2**31)
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
        how = {"gradients": torch.is_grad_enabled(), "everywhere": not torch.is_grad_enabled()}
        mode = (kind or _DropoutRows)(*rows, draws, **how) if rows else contextlib.nullcontext()
        seed, kept = torch.initial_seed(), contextlib.nullcontext  # what the call seeds itself stays
        with mode, _replaced(_run, draws=lambda: (draws if torch.initial_seed() == seed else kept)()):
            yield lambda: drew
    finally:
        drawn = [a is not None and not torch.equal(a, b) for a, b in zip(started, _generators(), strict=True)]
        drew = any(drawn)
        _set_generators(common)
        for device, one_drew in zip(("cpu", "cuda"), drawn, strict=False):
            if one_drew:
                torch.rand(1, device=device)  # alike on every rank: the next call draws other numbers


_run.dropout = _DropoutRows, _own_random_numbers


def _alike(draw: Any, *args: Any, **options: Any) -> Any:
    """Draw the first weights of a module that forward() makes as one process does: no rank's rows are in them."""
    if _run.draws is None:
        return draw(*args, **options)
    with _run.draws(), _replaced(_run, draws=None), torch._C.DisableTorchFunction():
        return draw(*args, **options)


_INITS = "uniform normal trunc_normal xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal"
for _name in (f"{name}_" for name in _INITS.split()):
    _plain: Any = getattr(torch.nn.init, _name)
    setattr(torch.nn.init, _name, functools.update_wrapper(functools.partial(_alike, _plain), _plain))
