"""Compare during training what the ranks compute from: batches, and the gradients of their losses."""

import math
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.digests import _ON_ONE_RANK, _SEED, _digest
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run

# PyTorch's own: where a loop is divided, joined outputs get another one
_register_hook: Any = getattr(torch.Tensor.register_hook, "__wrapped__", torch.Tensor.register_hook)


def _are_same_batches(model: Any, leaves: Any) -> bool:
    """Compare a model's modes and its batches, and return whether the random generators are alike too.

    If they are not, every rank takes over rank 0's. Waits for all ranks.

    Raises:
        ValueError: the modes differ.
        RuntimeError: the batches differ.
    """
    modes = [part.training for part in model.modules()]
    own, drawn = _digest(leaves), _digest(_random_state()[:3])
    of_ranks = from_all_ranks((own, drawn, modes))
    for rank, (other, _, others_modes) in enumerate(of_ranks):
        if others_modes != modes:
            what = f"rank {rank} has {model.__class__.__name__} in another mode (train() or eval())"
            raise ValueError(f"{what} than rank {_run.rank}: {_ON_ONE_RANK}")
        if other != own:
            raise RuntimeError(f"rank {rank} trains on another batch than rank {_run.rank}. {_SEED}")
    alike = all(other == drawn for _, other, _ in of_ranks)
    if not alike:
        _set_random_state(from_main_process(_random_state))
    return alike


class _Losses:
    """Compare the gradients that the losses of all ranks give a model's outputs.

    Every rank has the same outputs, so the gradients differ only where losses do: by labels in another order, say.
    """

    def __init__(self) -> None:
        self.noted: list[tuple[int, list[float]]] = []  # by output, in the order of backward()

    def note(self, output: Any, of_rank: Any = ()) -> None:
        """Note the gradients of outputs when backward() first comes to them.

        Left out is what depends on parameters alone: a parameter that the model returns, and what is still as it was
        ``of_rank``, not joined from all ranks' rows. Its gradient may come from this rank's rows.
        """
        unjoined = {id(leaf) for leaf in pytree.tree_leaves(of_rank)}
        for number, leaf in enumerate(pytree.tree_leaves(output)):
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None and id(leaf) not in unjoined:
                self._note_once(number, leaf)

    def _note_once(self, number: int, leaf: torch.Tensor) -> None:
        def measure(grad: torch.Tensor | None) -> None:
            if grad is None:  # of an output that the loss does not use
                return
            try:
                measures = _measures(grad)
            except RuntimeError:  # under torch.func or is_grads_batched there are no numbers
                return
            self.noted.append((number, measures))
            handle.remove()

        handle = _register_hook(leaf, measure)

    def compare(self) -> None:
        """Compare what was noted since the last time. A collective.

        Raises:
            RuntimeError: two ranks have computed other losses from the same outputs.
        """
        own, self.noted = self.noted, []
        for rank, other in enumerate(from_all_ranks(own)):
            same = [number for number, _ in own] == [number for number, _ in other]
            pairs = [(here, there) for (_, here), (_, there) in zip(own, other, strict=False)]
            # where one overflowed, the sums say nothing
            both = [(a, b) for a, b in pairs if all(map(math.isfinite, (*a, *b)))]
            apart = [abs(x - y) > 0.05 * max(a[0], b[0]) for a, b in both for x, y in zip(a, b, strict=True)]
            if same and any(apart):
                raise RuntimeError(
                    f"ranks {rank} and {_run.rank} compute different losses from the same batch: their labels, or "
                    f"something else that the loss is computed from, differ. {_SEED}"
                )


_MEASURED = 2**20  # values of a gradient that are copied at a time


def _measures(grad: torch.Tensor) -> list[float]:
    """Return the norm of a gradient, and a number that depends on which row has which part of it."""
    with torch.no_grad():
        values = grad.detach().to_dense()
        values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
        sums = torch.zeros(2, dtype=torch.float64, device=values.device)
        for number, part in enumerate(values.reshape(-1).split(_MEASURED)):
            part = part.double()
            places = torch.arange(len(part), dtype=torch.float64, device=part.device) + number * _MEASURED
            sums += torch.stack([part @ part, part @ places.cos_()])
        squares, placed = sums.tolist()
        return [math.sqrt(squares), placed]
