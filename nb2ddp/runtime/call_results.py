"""Compare what calls of a model give."""

import math
from typing import Any

import torch
from torch.utils import _pytree as pytree


def _reached(outputs: list[torch.Tensor]) -> set[int] | None:
    """Return the ids of the leaves that tensors depend on; None where a checkpoint hides what it computes."""
    nodes = [output.grad_fn for output in outputs if output.grad_fn is not None]
    found, seen = set(), set(nodes)
    while nodes:
        node: Any = nodes.pop()
        if "Checkpoint" in node.name():
            return None
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        following = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= following
        nodes += following
    return found


def _are_close(values: list[Any], others: list[Any] | None) -> bool:
    """Return whether two calls left the same numbers and tensors in the same place."""
    if others is None or len(values) != len(others):
        return False
    pairs = (
        (torch.as_tensor(one), torch.as_tensor(other)) for one, other in zip(values, others, strict=True)
    )
    return all(_difference(one, other) <= _tolerance(one) for one, other in pairs)


def _tolerance(value: torch.Tensor) -> float:
    """Return the relative difference that rounding may make between a batch and its parts."""
    if not value.is_floating_point():
        return 0.0
    if value.dtype in (torch.float16, torch.bfloat16):
        return 3e-2
    return 1e-3 if value.is_cuda or torch.is_autocast_enabled() else 3e-5


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference of two tensors, relative to the largest value."""
    if not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return math.inf
    if not one.is_floating_point():
        return float(not torch.equal(one, other))
    a, b = one.double(), other.double()
    same = (a == b) | (a.isnan() & b.isnan())
    apart = (a - b).abs().masked_fill(same, 0.0)
    return float(apart.max() / a[a.isfinite()].abs().max().clamp(min=1e-6)) if a.numel() else 0.0


def _opaque(output: Any) -> str:
    """Return the class of an object in a call's result whose tensors cannot be told apart: a distribution, say.

    "" where there is none. A cache of Transformers' is none: training does not read it.
    """
    for leaf in pytree.tree_leaves(output):
        library = type(leaf).__module__.partition(".")[0]
        if library not in ("builtins", "transformers", "numpy") and not isinstance(leaf, torch.Tensor):
            inside = pytree.tree_leaves(list(getattr(leaf, "__dict__", {}).values()))
            if any(isinstance(value, torch.Tensor) for value in inside):
                return type(leaf).__name__
    return ""
