"""Join the outputs of a call from the ranks' parts, as the first batches show to be right."""

import math
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_collectives import _GatherRows, _SumOverRanks
from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import _difference, _opaque, _tolerance
from nb2ddp.runtime.dry_runs import _Trial
from nb2ddp.runtime.run_state import _run


class _Joins:
    """Learn from the first calls how to combine each output over the ranks.

    Rows are all-gathered; a number is all-reduced with per-rank weights. An output is identified by its kind of call,
    the structure of that call's outputs, and its number among them.
    """

    first_calls = 3  # of one kind, which are compared before the way to join their outputs is settled
    most_in_vain = 16

    def __init__(self) -> None:
        self.calls: dict[Any, int] = {}  # by kind of call: how many there were
        # by kind of call: how many ways there were when they last gave different results; how often none was left out
        self.left: dict[Any, int] = {}
        self.in_vain: dict[Any, int] = {}
        self.structures: dict[Any, set[str]] = {}  # of outputs, by kind of call
        self.errors: dict[
            Any, dict[Any, float]
        ] = {}  # by leaf, one number: how far off each way to join it is
        # by kind of call: ways by which some rows counted more than others, and in how many calls that were compared
        self.uneven: dict[Any, dict[Any, int]] = {}
        # by kind of call: what holds the class weights of a mean that the model computes, and the label that is ignored
        self.classes: dict[Any, tuple[Any, Any, int]] = {}
        self.of_model: set[Any] = set()  # leaves that do not depend on the batch: parameters

    def know(self, output: Any, kind: Any) -> bool:
        """Return whether an output of this structure was compared; nothing is known of one that comes later."""
        return _structure(output) in self.structures.get(kind, ())

    def form(self, output: Any, kind: Any, rows: int) -> str:
        """Return how `join` treats a rank's output; all ranks have to agree on it.

        A number that is computed for no row, 0.0 say, needs no gradient where those of other ranks do.
        """
        structure = _structure(output)
        leaves = pytree.tree_leaves(output) if self.know(output, kind) else []
        kinds = []
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                has_row = (kind, structure, number) not in self.of_model and leaf.ndim and len(leaf) == rows
                size = ("rows", *leaf.shape[1:]) if has_row else tuple(leaf.shape)
                kinds.append((leaf.dtype, leaf.requires_grad, size))
        return f"{structure} {kinds}"

    def ways(self, kind: Any) -> set[Any]:
        """Return the ways to join a number that are right for some leaf of a kind of call."""
        return {way for leaf, found in self.errors.items() if leaf[0] == kind for way in found}

    def must_compare(self, parts: _Parts, kind: Any) -> bool:
        """Return whether a call is to be compared with its parts.

        True for the first three calls of a kind; and, if an output is a number, for calls where ways to weight it that
        agreed so far give different results (until comparing has ruled out none of them too often); and where positions
        of an argument count unevenly in a way compared fewer than three times, since a mean may run over them.
        """
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] <= self.first_calls:
            return True
        if not (ways := self.ways(kind)):
            return False
        if any(self.uneven[kind].get(way, 0) < self.first_calls for way in parts.uneven_ways()):
            return True
        weights = [of_way for way, of_way in parts.weights().items() if way in ways and of_way]
        apart = any(
            not abs(a - b) <= parts.least
            for other in weights[1:]
            for a, b in zip(weights[0], other, strict=True)
        )
        if apart and self.left.get(kind) == len(ways):
            self.in_vain[kind] = self.in_vain.get(kind, 0) + 1
        if apart:
            self.left[kind] = len(ways)
        return apart and self.in_vain.get(kind, 0) <= self.most_in_vain

    def is_late(self, kind: Any) -> bool:
        """Return whether calls of a kind were found to be right to divide: one that is not may be an exception."""
        return self.calls[kind] > self.first_calls

    def of(self, kind: Any) -> Any:
        """Return what is known of a kind of call, for the other ranks to `take`."""
        errors = {leaf[1:]: ways for leaf, ways in self.errors.items() if leaf[0] == kind}
        return (
            errors,
            {leaf[1:] for leaf in self.of_model if leaf[0] == kind},
            set(self.structures.get(kind, ())),
            dict(self.uneven.get(kind, {})),
        )

    def take(self, kind: Any, known: Any) -> None:
        """Know of a kind of call what rank 0 knows: rounding may differ between GPUs."""
        errors, of_model, self.structures[kind], self.uneven[kind] = known
        self.errors = {leaf: ways for leaf, ways in self.errors.items() if leaf[0] != kind}
        self.errors.update({(kind, *leaf): ways for leaf, ways in errors.items()})
        self.of_model = {leaf for leaf in self.of_model if leaf[0] != kind} | {
            (kind, *leaf) for leaf in of_model
        }

    def classes_of(self, kind: Any) -> tuple[torch.Tensor | None, int] | None:
        """Return the class weights, as they are now, and the ignored label of a mean that the model computes."""
        if kind not in self.classes:
            return None
        holder, name, ignored = self.classes[kind]
        return (holder.get(name) if holder else None), ignored

    def compare(self, trial: _Trial, parts: _Parts, kind: Any) -> str | None:
        """Return what is wrong with computing parts; note how well each way combines a number."""
        whole, pieces = trial.outputs[0], trial.outputs[1:]
        if trial.classes is not None:
            self.classes[kind] = trial.classes
            parts.know_classes(self.classes_of(kind))
        compared = self.uneven.setdefault(kind, {})
        compared.update({way: compared.get(way, 0) + 1 for way in parts.uneven_ways()})
        if kind_of := _opaque(whole):
            return f"it returns a {kind_of}, whose rows cannot be told"
        leaves, structure = pytree.tree_leaves(whole), _structure(whole)
        self.structures.setdefault(kind, set()).add(structure)
        of_pieces = [pytree.tree_leaves(piece) for piece in pieces]
        if any(len(piece) != len(leaves) for piece in of_pieces):
            return "its outputs have another structure for a part of a batch"
        for number, (leaf, *parted) in enumerate(zip(leaves, *of_pieces, strict=True)):
            if not isinstance(leaf, torch.Tensor):
                continue
            key = (kind, structure, number)
            if leaf.numel() == 1 and leaf.ndim == 0:
                so_far, ways = self.errors.get(key), {}
                for way in so_far or parts.weights():
                    weights = parts.weights().get(way)
                    if "not as the first" in way:
                        continue
                    if weights is None:  # nothing counts: such a mean is NaN, or 0 where it is prevented
                        error = 0.0 if leaf.isnan() or leaf == 0 else math.inf
                    elif any(w and p is None for p, w in zip(parted, weights, strict=True)):
                        error = math.inf
                    else:
                        joined = sum(p * w for p, w in zip(parted, weights, strict=True) if w)
                        error = _difference(leaf, joined)
                    ways[way] = max(error, so_far[way] if so_far else 0.0)
                ways = {way: error for way, error in ways.items() if error <= _tolerance(leaf)}
                if not ways or (leaf.is_floating_point() and trial.hides_classes):
                    return "it gives a number that is no mean or sum over the rows of its batch"
                self.errors[key] = ways
            elif [len(p) if p.ndim else 0 for p in parted] == parts.sizes and len(leaf) == parts.rows:
                if _difference(leaf, torch.cat(parted)) > _tolerance(leaf):
                    return "a row's output depends on the other rows of its batch"
            elif any(p.shape != leaf.shape or _difference(leaf, p) > _tolerance(leaf) for p in parted):
                return "an output has no row for each row of the batch"
            else:
                self.of_model.add(key)
        return None

    def leave_out_a_rank(self, parts: _Parts, kind: Any) -> bool:
        """Return whether a number is a mean to which a rank's rows add nothing: theirs is NaN, and its gradient too."""
        found = [ways for leaf, ways in self.errors.items() if leaf[0] == kind]
        return any(0.0 in _best_weights(ways, parts) for ways in found)

    def join(self, output: Any, parts: _Parts, kind: Any) -> Any:
        """Return the outputs of all rows from this rank's."""
        leaves, spec = pytree.tree_flatten(output)
        structure, joined = _structure(output), []
        for number, leaf in enumerate(leaves):
            key = (kind, structure, number)
            ways = self.errors.get(key) or self._of_other_form(kind, number)
            if ways and isinstance(leaf, torch.Tensor) and not leaf.ndim:
                leaf = _SumOverRanks.apply(leaf, _best_weights(ways, parts)[_run.rank])
            elif key in self.of_model or not isinstance(leaf, torch.Tensor) or not leaf.ndim:
                pass
            elif len(leaf) == parts.sizes[_run.rank]:
                leaf = _GatherRows.apply(leaf, parts.sizes, _run.rank)
            joined.append(leaf)
        return pytree.tree_unflatten(joined, spec)

    def _of_other_form(self, kind: Any, number: int) -> dict[Any, float] | None:
        """Return the ways to join a number that stands at the same place in outputs of another form."""
        return next(
            (ways for leaf, ways in self.errors.items() if (leaf[0], leaf[2]) == (kind, number)), None
        )


def _best_weights(ways: dict[Any, float], parts: _Parts) -> list[float]:
    """Return what each rank's number is to be multiplied by, in the way to join it that came nearest."""
    best = min(ways, key=lambda way: ways[way] if ways[way] > 1e-7 else 0.0)
    return parts.weights().get(best) or parts.mean_over_rows


def _structure(output: Any) -> str:
    """Return the names and places of a call's outputs, and how many dimensions each has."""
    leaves, spec = pytree.tree_flatten(output)
    return f"{spec} {[leaf.ndim if isinstance(leaf, torch.Tensor) else None for leaf in leaves]}"
