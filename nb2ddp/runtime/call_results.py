"""Compare what calls of a model give."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.run_state import _run


def _graph(outputs: list[torch.Tensor], beside: Any = None, first: int = 0) -> Iterator[Any]:
    """Yield the operations that tensors come from; not those behind ``beside``, or those before ``first``, alone."""
    nodes: list[Any] = [of.grad_fn for of in outputs if of.grad_fn is not None and of.grad_fn is not beside]
    seen = {*nodes, beside}
    while nodes:
        node = nodes.pop()
        yield node
        behind = () if first and node._sequence_nr() < first else node.next_functions
        following = {following for following, _ in behind if following is not None} - seen
        seen |= following
        nodes += following


def _gradients(output: Any, parameters: list[Any], keeps: bool) -> list[Any] | None:
    """Return a gradient of parameters behind the outputs of a call, weighted alike on every rank; None for none."""
    grad: Any = getattr(torch.autograd.grad, "__wrapped__", torch.autograd.grad)
    of = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor) and x.requires_grad]
    drawn, most = torch.Generator().manual_seed(0), 1_000_003  # a prime; more takes seconds on the CPU
    some = [torch.randn(min(x.numel(), most), generator=drawn, device="cpu").to(x) for x in of]
    weights = [
        w.repeat(x.numel() // most + 1)[: x.numel()].view(x.shape) for w, x in zip(some, of, strict=True)
    ]
    if not of or not parameters:
        return None
    found = grad(of, parameters, weights, keeps, allow_unused=True)  # a graph that the notebook's own needs
    found = (torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True))
    return [gradient.detach().to_dense() for gradient in found]


_IN_16_BITS = (
    "each rank computes its rows in 16 bits, which rounds otherwise than the whole batch: the losses are near the "
    "single process's (by about 1e-3 of them), not equal"
)
_OWN_NUMBERS = (
    "the model draws random numbers, for dropout say, for each rank's rows apart: the losses are near the single "
    "process's, not equal, and what the same generator draws later differs: on a CPU the order of shuffled samples, too"
)
_OTHER_NUMBERS = (
    "a rank had drawn random numbers that the others had not: where it alone comes, or by values that it alone has; "
    "all ranks take rank 0's random state here. Draw random numbers on every rank"
)
_OF_16_BITS = (torch.bfloat16, torch.float16)


def _computes_in_16_bits(model: torch.nn.Module, output: Any) -> bool:
    """Return whether weights, outputs or what these come from have 16 bits, or autocast is on.

    Autocast may be on around the call, in the model's ``forward()``, or put in by Accelerate. A checkpoint that
    computes its block once more, and a compiled function, hide what is inside of them.
    """
    leaves = [x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor)]
    return (
        any(x.dtype in _OF_16_BITS for x in (*leaves, *model.parameters()))
        or any(torch.is_autocast_enabled(kind) for kind in {x.device.type for x in leaves})
        or hasattr(model, "_original_forward")
        or any(of.dtype in _OF_16_BITS for node in _graph(leaves) for of in node._input_metadata)
    )


def _are_close(values: list[Any], others: list[Any] | None) -> bool:
    """Return whether two calls left the same numbers and tensors in the same place."""
    if others is None or len(values) != len(others):
        return False
    pairs = zip(map(torch.as_tensor, values), map(torch.as_tensor, others), strict=True)
    return all(_difference(one, other) <= _tolerance(one) for one, other in pairs)


def _tolerance(value: torch.Tensor) -> float:
    """Return the relative difference that rounding may make between a batch and its parts."""
    if not value.is_floating_point():
        return 1e-9  # a sum over the ranks, with weights
    if value.dtype in _OF_16_BITS:
        return 3e-2
    of_gpu = 1e-3 if torch.is_autocast_enabled() else _narrowed(1e-3, "difference")
    return of_gpu if value.is_cuda or torch.is_autocast_enabled() else 3e-5


def _narrowed(most: float, what: str) -> float:
    """Return how far ``what`` may be off in 32 bits: on a GPU ``most``, or 30 times what good checks have shown.

    That is for TF32; a tenth of ``most`` may come in any case, and on CPUs a sixtieth.
    """
    if not torch.cuda.is_available():
        return most / 60
    shown = _run.checks[what] if _run.checks["checked"] else None
    return most if shown is None else min(most, max(most / 10, 30 * shown))


def _tolerance_of(in_16_bits: bool, floor: float) -> Callable[[torch.Tensor], float]:
    """Return what says how far a value may be from that of the whole batch: what rounding makes."""
    return lambda value: max(3e-2 if in_16_bits and value.is_floating_point() else _tolerance(value), floor)


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference of two tensors, relative to the largest value; infinite for a NaN of one alone."""
    if not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return math.inf
    if not one.is_floating_point():
        return float(not torch.equal(one, other))
    a, b = one.detach().double(), other.detach().double()  # a parameter that the model returns
    same = (a == b) | (a.isnan() & b.isnan())
    apart = (a - b).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf)
    if not a.numel():
        return 0.0
    return float(apart.max() / a.masked_fill(~a.isfinite(), 0.0).abs().max().clamp(min=1e-6))


def _furthest(one: Any, other: Any) -> float:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=False)
    return max((_difference(a, b) for a, b in pairs if isinstance(a, torch.Tensor)), default=0.0)


_PLAIN = (torch.Tensor, str, bytes, int, float, type(None), torch.dtype, torch.device, torch.Size)


def _unjoinable(output: Any) -> str:
    """Return why a call's result cannot be joined from the ranks' parts; "" where it can.

    An object may hide tensors (a distribution, one with slots, a dict of an own class). A cache of Transformers' is
    none: training does not read it.
    """
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, bool | complex):
            return f"it returns a number of Python's ({type(leaf).__name__}), which may be of some rows alone"
        of_library = torch.is_grad_enabled() and type(leaf).__module__.startswith("transformers.")
        is_sparse = torch.is_tensor(leaf) and (leaf.is_nested or leaf.layout is not torch.strided)
        if is_sparse or not (isinstance(leaf, _PLAIN) or of_library):
            return f"it returns a {type(leaf).__name__}, which cannot be put together from the ranks' rows"
    return ""
