"""Join the outputs of a call from the ranks' parts, as comparisons with whole batches show to be right."""

import copy
import math
from collections import Counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_collectives import _apply, _GatherRows, _SumOverRanks
from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import _difference
from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _run

_Ways = dict[Any, float]  # to join a number, and how far off each is
_ROUNDING = 1e-3  # of a number that the right way gives in 16 bits


class _Joins:
    """Learn from comparisons how to combine each output of a kind of call over the ranks.

    Rows are all-gathered; a number is all-reduced with per-rank weights. An output is identified by the structure of
    the call's outputs, and its number among them.
    """

    max_inconclusive_checks = 3

    def __init__(self) -> None:
        # how many ways there were when a check was last asked for, and why; how often it has then ruled out none
        self.asked: tuple[int, set[Any]] = 0, set()
        self.inconclusive = Counter[Any]()
        self.structures = set[str]()  # of outputs that were compared
        self.errors: dict[Any, _Ways] = {}  # by leaf, one number: how far off each way to join it is
        # ways by which some rows counted more than others, and in how many calls that were compared
        self.uneven: dict[Any, int] = {}
        self.extremes: dict[int, tuple[float, float]] = {}  # by argument of integers, as far as compared
        # by leaf: the dimension of its rows, and whether they repeat there as a whole (tokens by rows, flattened), not
        # one by one (rows by tokens), or None for once; no place where it does not depend on the batch
        self.places: dict[Any, tuple[int, bool | None] | None] = {}
        self.draws = False  # random numbers, which can be those of the whole batch
        self.only: Any = lambda _: {}  # gives what stands, by id, for outputs that nobody reads

    def know(self, output: Any, rows: int) -> bool:
        """Return whether an output of this structure was compared; nothing is known of one that comes later."""
        kind, leaves = _structure(output), pytree.tree_leaves(output)
        places = [(x.shape[at[0]], at[1]) for n, x in enumerate(leaves) if (at := self.places.get((kind, n)))]
        return kind in self.structures and not any(on is None and size > rows for size, on in places)

    def form(self, output: Any, rows: int) -> str:
        """Return how `join` treats a rank's output; all ranks have to agree on it.

        A number that is computed for no row, 0.0 say, needs no gradient where those of other ranks do.
        """
        structure, kinds = _structure(output), []
        for number, leaf in enumerate(pytree.tree_leaves(output)):
            if isinstance(leaf, torch.Tensor):
                size, key = [] if leaf.is_nested else [*leaf.shape], (structure, number)
                if size and (place := self.places.get(key, (0, None))):
                    several, rest = divmod(size[place[0]], rows)
                    if not rest:
                        size[place[0]] = f"{several} x rows"
                    elif key in self.places:  # as many as are selected, say: not joined with other ranks' own
                        size[place[0]] = f"{size[place[0]]} of rank {_run.rank}"
                kinds.append((leaf.dtype, leaf.requires_grad, size))
        return f"{structure} {kinds}"

    @property
    def ways(self) -> set[Any]:
        """The ways to join a number that are right for some leaf."""
        return {way for found in self.errors.values() for way in found}

    def are_uncertain(self, parts: _Parts) -> int:
        """Return whether the way to weight a number is uncertain for a batch: 1 where a few of its rows can tell.

        It is where ways that agreed so far give different results; where positions of an argument count unevenly in a
        way compared fewer than three times, since a mean may run over them; and where an argument holds a label that no
        compared batch had: it may count in another way. What several checks could not decide, since they have ruled out
        no way, is not asked again.
        """
        if not (ways := self.ways):
            return 0
        if any(self.uneven.get(way, 0) < 3 for way in parts.uneven_ways()):
            return 2
        weights = [of_way for way, of_way in parts.weights().items() if way in ways and of_way]
        known = ((number, self.extremes.get(number, of), of) for number, of in parts.extremes.items())
        why: set[Any] = {number for number, before, now in known if now[0] < before[0] or now[1] > before[1]}
        pairs = [pair for other in weights[1:] for pair in zip(weights[0], other, strict=True)]
        if any(not abs(a - b) <= parts.weight_tolerance for a, b in pairs):
            why.add("ways")
        count, asked = self.asked
        self.inconclusive.update(asked if count == len(ways) else ())
        why = {reason for reason in why if self.inconclusive[reason] < self.max_inconclusive_checks}
        self.asked = len(ways), why
        return 2 if "ways" in why else int(bool(why))

    def agree(self, parts: _Parts) -> bool:
        """Return whether all ways to weight a number give the same result for a batch, to which each rank adds."""
        ways = [[parts.weights().get(way) for way in of] for of in self.errors.values()]
        return all(of is not None and 0.0 not in of and of == found[0] for found in ways for of in found)

    def known(self) -> Any:
        """Return what comparisons have shown, for the other ranks to `take`."""
        return copy.deepcopy((self.errors, self.places, self.structures, self.uneven, self.draws))

    def take(self, known: Any) -> None:
        """Know what rank 0 knows: rounding may differ between GPUs."""
        self.errors, self.places, self.structures, self.uneven, self.draws = known

    def compare(self, whole: Any, own: Any, parts: _Parts, tolerance: Any) -> tuple[str | None, float]:
        """Return what is wrong with joining the ranks' outputs, and the largest difference; note ways. A collective."""
        leaves, structure = _tensors(whole), _structure(whole)
        self.structures.add(structure)
        self.uneven.update({way: self.uneven.get(way, 0) + 1 for way in parts.uneven_ways()})
        for number, (least, most) in parts.extremes.items():
            before = self.extremes.get(number, (least, most))
            self.extremes[number] = min(least, before[0]), max(most, before[1])
        mine = _tensors(own)
        numbers = [x.detach().cpu() if isinstance(x, torch.Tensor) and not x.ndim else None for x in mine]
        pairs = zip(leaves, mine, strict=False)
        apart = [_difference(x, y) if isinstance(x, torch.Tensor) else 0.0 for x, y in pairs]
        of_ranks = from_all_ranks((_structure(own), self._rows_of(whole, own, parts), numbers, apart))
        if any(of_rank[0] != structure or of_rank[1] != of_ranks[0][1] for of_rank in of_ranks):
            return "its outputs have another form for a part of a batch", math.inf
        largest, problem = 0.0, None
        for number, (leaf, rows) in enumerate(zip(leaves, of_ranks[0][1], strict=True)):
            if not isinstance(leaf, torch.Tensor):
                continue
            key = (structure, number)
            if not leaf.ndim:
                parted = [of_rank[2][number] for of_rank in of_ranks]
                found = self._errors(leaf.detach().cpu(), parted, parts, self.errors.get(key))
                difference = min(found.values(), default=math.inf)
                # what 16 bits round is far below their tolerance in a mean over many values
                most = min(tolerance(leaf), max(_ROUNDING, 10 * difference))
                ways = {way: error for way, error in found.items() if error <= most}
                if not ways:
                    problem = problem or "it gives a number that is no mean or sum over the rows of its batch"
                else:
                    self.errors[key] = ways
            elif rows is not None:
                known, own = self.places.get(key), mine[number]
                ways_on = (False, True) if leaf.shape[rows] > parts.rows else (None,)
                found = {(rows, on): _difference(leaf, _gathered(own, parts, rows, on)) for on in ways_on}
                fits = [of for of in found if found[of] <= tolerance(leaf)]  # both, of equal tokens
                place = known if known in found else fits[0] if len(fits) == 1 else (rows, None)
                difference = math.inf if known and known[0] != rows else found.get(place, min(found.values()))
                self.places[key] = known if known and None in ways_on else place
                if difference > tolerance(leaf):
                    problem = problem or "rows depend on one another, or lie where none were looked for"
            else:
                difference = max(of_rank[3][number] for of_rank in of_ranks)
                if difference > tolerance(leaf):
                    problem = problem or "an output has no row for each row of the batch"
                else:
                    self.places[key] = None
            largest = max(largest, difference)
        return problem, largest

    def _errors(self, leaf: torch.Tensor, parted: list[Any], parts: _Parts, so_far: _Ways | None) -> _Ways:
        """Return how far off each way to join a number is, in this call or an earlier one."""
        found = {}
        for way in so_far or parts.weights():
            weights = parts.weights().get(way)
            if "not as the first" in way:
                continue
            if weights is None:  # nothing counts: such a mean is NaN, or 0 where it is prevented
                error = 0.0 if leaf.isnan() or leaf == 0 else math.inf
            else:
                terms = [part * weight for part, weight in zip(parted, weights, strict=True) if weight]
                wanted = leaf if leaf.is_floating_point() else leaf.double()
                error = _difference(wanted, torch.as_tensor(sum(terms), device=leaf.device))
            found[way] = max(error, so_far[way] if so_far else 0.0)
        return found

    def _rows_of(self, whole: Any, own: Any, parts: _Parts) -> list[Any]:
        """Return of each output in which dimension this rank's has its rows, if in any; and texts as they are."""
        found: list[Any] = []
        for leaf, mine in zip(pytree.tree_leaves(whole), pytree.tree_leaves(own), strict=False):
            if not isinstance(leaf, torch.Tensor) or not isinstance(mine, torch.Tensor):
                found.append(repr(mine) if isinstance(mine, str) else type(mine).__name__)
                continue
            same, sizes = leaf.ndim == mine.ndim, [*zip(leaf.shape, mine.shape, strict=False)]
            others = [dim for dim, (one, other) in enumerate(sizes) if one != other]
            one, other = sizes[others[0]] if same and len(others) == 1 else (0, 1)
            own, each = parts.sizes[_run.rank], one // parts.rows
            found.append(others[0] if (one, other) == (each * parts.rows, each * own) else None)
        return found

    def leave_out_a_rank(self, parts: _Parts) -> bool:
        """Return whether a number is a mean to which a rank's rows add nothing: theirs is NaN, and its gradient too."""
        return any(0.0 in _best_weights(ways, parts) for ways in self.errors.values())

    def join(self, output: Any, parts: _Parts, model: torch.nn.Module, *, of_all: bool = True) -> Any:
        """Return the outputs of all rows from this rank's, all or those that are read; the model's own stays so."""
        (joined, spec), structure = pytree.tree_flatten(output), _structure(output)
        # by id of a tensor, which may have several names
        made: dict[Any, Any] = {} if of_all else self.only(output)
        for number, leaf in enumerate(_tensors(output)):
            key = (structure, number)
            ways, place = self.errors.get(key), self.places.get(key)
            if id(leaf) in made:
                joined[number] = made[id(leaf)]
            elif ways and isinstance(leaf, torch.Tensor) and not leaf.ndim and not _is_in(model, leaf):
                total = _apply(_SumOverRanks, leaf, _best_weights(ways, parts)[_run.rank])
                joined[number] = total if isinstance(joined[number], torch.Tensor) else total.item()
            elif place is not None:
                joined[number] = _gathered(leaf, parts, *place)
            made[id(leaf)] = joined[number]
        return pytree.tree_unflatten(joined, spec)


def _gathered(own: Any, parts: _Parts, dim: int, repeats: bool | None) -> Any:
    """Return the rows of all ranks, where this rank's are. A collective."""
    each = own.shape[dim] // parts.sizes[_run.rank]
    if repeats:
        joined = _apply(_GatherRows, own.unflatten(dim, (each, -1)), parts.sizes, 0, dim + 1)
        return joined.flatten(dim, dim + 1).clone()  # no view: it may be changed in place
    return _apply(_GatherRows, own, [size * each for size in parts.sizes], 0, dim)


def _best_weights(ways: _Ways, parts: _Parts) -> list[float]:
    """Return what each rank's number is to be multiplied by, in the way to join it that came nearest."""
    best = min(ways, key=lambda way: ways[way] if ways[way] > 1e-7 else 0.0)
    return parts.weights().get(best) or parts.mean_over_rows


def _is_in(model: torch.nn.Module, number: torch.Tensor) -> bool:
    """Return whether a number lies in the memory of a model's parameter or buffer."""
    own = (*model.parameters(), *model.buffers()) if number.is_leaf or number._is_view() else ()
    return any(torch._C._is_alias_of(value, number) for value in own)


def _tensors(output: Any) -> list[Any]:
    """Return what a call gives, numbers of Python's as tensors too."""
    types, leaves = {int: torch.int64, float: torch.float64}, pytree.tree_leaves(output)
    device = next((x.device for x in leaves if isinstance(x, torch.Tensor)), "cpu")
    return [torch.tensor(x, dtype=types[type(x)], device=device) if type(x) in types else x for x in leaves]


def _structure(output: Any) -> str:
    """Return the names and places of a call's outputs, and how many dimensions each has."""
    leaves, spec = pytree.tree_flatten(output)
    kinds = [leaf.ndim if isinstance(leaf, torch.Tensor) else type(leaf).__name__ for leaf in leaves]
    return f"{spec} {kinds}"
