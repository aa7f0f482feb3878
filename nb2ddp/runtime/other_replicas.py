"""Find what is compared beside the model of a Trainer: other models, those that are gone, and what no model holds."""

import weakref
from typing import Any

import torch

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.run_state import _run

_uncompared: list[weakref.ref[Any]] = []  # models that check_replicas() has not seen
_gone: dict[tuple[str, str], str] = {}  # digests of models that are gone since the last comparison


def _compare(model: torch.nn.Module) -> None:
    """Compare a model at the next comparison."""
    if all(known() is not model for known in _uncompared):
        _uncompared.append(weakref.ref(model))
    if _trained not in _run.of_loops:
        _run.of_loops.append(_trained)


def _compare_later(model: torch.nn.Module) -> None:
    """Compare a model at the next comparison: where it is gone by then, as it was in the end."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    weakref.finalize(model, _keep_digests, f"gone {len(_uncompared)}", trained).atexit = False
    _compare(model)


def _keep_digests(number: str, trained: dict[str, torch.Tensor]) -> None:
    """Keep what is to be compared of a model that is gone, if it was trained since the last comparison."""
    if _run.meets and _run.steps > _run.compared_steps:
        kept = {name: value for name, value in trained.items() if not hasattr(value, "full_tensor")}
        _gone.update({(number, name): _digest(value) for name, value in kept.items() if not value.is_meta})


def _trained(model: Any) -> dict[tuple[str, str], Any]:
    """Return what was trained beside a model, by where it is; of what is gone, digests.

    The other models are those wrapped since a Trainer's was compared: those of a loop are compared again later.
    """
    found: dict[tuple[str, str], Any] = {**_gone}
    _gone.clear()
    for number, reference in enumerate(_uncompared):
        other = reference()
        if other is not None and other is not model and other is not getattr(model, "module", None):
            named = other.named_parameters()
            found |= {(str(number), name): p for name, p in named if p.requires_grad and not p.is_meta}
    if model is not None:
        _uncompared.clear()
    known = {id(value) for value in found.values()} | {id(p) for p in (model.parameters() if model else ())}
    for optimizer, label in list(_run.numbers.items()) if _run.divided else ():
        for place, value in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            if id(value) not in known and isinstance(value, torch.Tensor) and not value.is_meta:
                found[f"optimizer {label}", f"parameter {place} of an optimizer"] = value
    return found
