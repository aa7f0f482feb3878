"""Compute a call as one process does, and this rank's part of it, without effects: their outputs are compared."""

import collections
import contextlib
import copy
import functools
import math
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_patches import _made_before
from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import (
    _are_close,
    _computes_in_16_bits,
    _difference,
    _furthest,
    _gradients,
    _narrowed,
    _tolerance_of,
    _unjoinable,
)
from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.gradients import _nodes, _sum_in_buckets
from nb2ddp.runtime.module_state import _is_compiled, _keeps_rows_apart, _without_effects
from nb2ddp.runtime.object_collectives import _largest_of_ranks, from_all_ranks, from_main_process
from nb2ddp.runtime.output_gathering import _Joins
from nb2ddp.runtime.random_numbers import _generators, _random_state, _set_random_state
from nb2ddp.runtime.random_rows import _RandomRows
from nb2ddp.runtime.repeated_writes import _Effect, _ending_at_effects
from nb2ddp.runtime.run_state import _replaced, _run
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.value_reads import _is_no_mean, _Reads

_Found = tuple[str | None, float, float | None]  # what differs, by how much, and in gradients


class _Trial:
    """What one call gives, and what it leaves in the model."""

    def __init__(self, rows: int) -> None:
        self.output: Any = None
        self.error: BaseException | None = None
        self.changes: dict[str, list[Any]] = {}
        self.reads, self.before = _Reads(rows), list[Any]()  # and older nodes that its graph goes on to
        self.drawn = self.from_given = False  # random numbers; from a generator that the notebook gives
        self.draws_unseen, self.state = False, ""  # in a kernel; that of the generators after what was seen
        self.sets_state, self.in_python = False, ""  # a generator's; those of Python's and NumPy's after it
        self.in_16_bits, self.in_dynamo, self.seconds = False, False, math.inf


class _Trials:
    """Calls that all start from the same state of the model and the same random numbers, which are put back.

    They have a graph where the notebook's own call has. Within ``compiled`` models no mode of PyTorch's is used.
    """

    def __init__(
        self, model: Any, compute: Callable[[_Parts, int, int], Any], state: Any, *, compiled: bool
    ) -> None:
        self.model, self.compute, self.state, self.compiled = model, compute, state, compiled
        self.kept: list[str] = []  # what backward() does, or leaves differently for a part of a batch
        self.in_python = repr(state.random[:2])

    def call(self, parts: _Parts, start: int, end: int) -> _Trial:
        """Return what a call gives for some rows of a batch; an error is one of its results."""
        trial, seed, states, first = _Trial(end - start), torch.initial_seed(), set[str](), _nodes()

        @contextlib.contextmanager
        def draws() -> Iterator[None]:
            """See whether numbers are drawn from a state for the second time, or by another seed."""
            state = _digest(_generators())
            trial.draws_unseen |= state != trial.state
            trial.sets_state |= state in states or torch.initial_seed() != seed
            yield
            trial.state = _digest(_generators())
            if trial.state != state:
                trial.drawn = True
                states.add(state)

        _set_random_state(self.state.random)
        trial.state = _digest(_generators())
        rows = _RandomRows(start, end, parts.rows, draws, everywhere=True)
        try:
            with contextlib.ExitStack() as modes:
                if self.compiled and hasattr(torch.compiler, "set_stance"):
                    modes.enter_context(torch.compiler.set_stance("force_eager"))
                modes.enter_context(_replaced(_run, comparing=True))
                modes.enter_context(_ending_at_effects())
                modes.enter_context(rows)
                modes.enter_context(trial.reads)
                began = time.monotonic()
                trial.output = self.compute(parts, start, end)
                torch.cuda.synchronize() if torch.cuda.is_initialized() else None
                trial.seconds = time.monotonic() - began
        except (Exception, _Effect) as error:
            trial.in_dynamo = "torch/_dynamo" in "".join(traceback.format_tb(error.__traceback__))
            trial.error = error.with_traceback(None)  # whose frames hold what the call has made
        with draws():
            pass
        trial.from_given = rows.from_given
        trial.in_python = repr(_random_state()[:2])
        trial.changes = self.state.take()
        trial.in_16_bits = _computes_in_16_bits(self.model, trial.output)
        trial.before = _made_before(first, trial.output)
        return trial


def _left_differently(model: torch.nn.Module, one: _Trial, other: _Trial) -> list[str]:
    """Return what of the model two calls have left differently; a batch norm that is synchronised counts other rows."""
    of_norms, parts = torch.nn.modules.batchnorm._BatchNorm, model.named_modules()
    norms = tuple(f"{name}." for name, part in parts if isinstance(part, of_norms))
    return [
        name
        for name in {**one.changes, **other.changes}
        if not (norms and name.startswith(norms))
        and not _are_close(one.changes.get(name, []), other.changes.get(name))
    ]


def _gradients_apart(trials: _Trials, join: Any, parts: _Parts, trained: Any) -> tuple[float, str] | None:
    """Return how far the mean of the ranks' gradients is from that of a whole batch, relative to the largest value.

    Also the name of the parameter where it is the farthest. None where they cannot be had: a re-entrant checkpoint
    gives none. A collective.
    """
    own, values = parts.ranges[_run.rank], list(trained.values())
    whole = trials.call(parts, 0, parts.rows)
    expected, why = None, ""
    try:
        with contextlib.suppress(Exception), _ending_at_effects():
            expected = _gradients(whole.output, values, bool(whole.before))
    except _Effect as effect:
        why = str(effect).replace("forward()", "backward()")
    whole.output, whole.before, whole.changes = None, [], trials.state.take()
    part = trials.call(parts, *own)
    of_ranks = from_all_ranks((why, bool(why or whole.error or part.error or expected is None)))
    trials.kept = [why for why, _ in of_ranks if why]
    if any(fails for _, fails in of_ranks):
        return None
    found_of_rank: list[Any] | None = None
    with contextlib.suppress(Exception):
        found_of_rank = _gradients(join(part.output, parts, trials.model), values, bool(part.before))
    part.changes = trials.state.take()
    found = from_all_ranks((_left_differently(trials.model, whole, part), found_of_rank is None))
    trials.kept = [f"backward() keeps in `{name}` {_KEEPS}" for names, _ in found for name in names]
    if any(fails for _, fails in found) or found_of_rank is None or expected is None:
        return None
    _sum_in_buckets(found_of_rank, mean=True)
    most = max(float(x.abs().max()) if x.numel() else 0.0 for x in expected)
    pairs = zip(expected, found_of_rank, strict=True)
    apart = [float((x - y).abs().max().nan_to_num(nan=0.0)) if x.numel() else 0.0 for x, y in pairs]
    if not (most < math.inf and most > 0):  # overflowed, or there is no gradient
        return 0.0, ""
    return max(apart) / most, list(trained)[apart.index(max(apart))]


class _Comparison:
    """Compares calls of a model with the same computed whole. ``run``, a weak reference, calls it."""

    def __init__(self, model: Any, run: Any, worth: float | None) -> None:
        self.model, self.run, self.is_part = model, run, worth is not None
        self.most_lost = _MOST_LOST if worth is None else -3 * worth  # seconds; what a part has to save
        self.joins = collections.defaultdict[Any, _Joins](_Joins)  # by kind of call
        self.pace: dict[Any, float] = {}  # by kind of call: the least seconds for a row
        self.loses = False  # whether exchanging the outputs of the call that was compared takes too long
        # kinds of calls in which Python sees values of the rows: how often ranks saw others, and it was right
        self.reads: dict[Any, int] = {}
        # the outputs of the call that was compared last, and what rounding may make of them
        self.expected: Any = None
        # in the call that was compared last: the ranks gave other forms; Python saw the same values of each rank's rows
        self.parted, self.of_one_way = False, True
        # whether a call that was compared has changed what a library's module holds, or parameters
        self.moves = {"of_library": False, "parameters": False}
        # what differs may be where the rows lie: another layout is to be tried; the whole batch prints or writes
        self.places = self.has_effect = False
        self.going_on = set[Any]()  # kinds of calls whose graph goes on in what was computed before them
        self.writes = False  # a call that is compared writes into the tensors or the dicts that it is given
        self.compiled: bool | None = False  # a function that the model calls cannot be compiled within a mode

    def compare(self, parts: _Parts, kind: Any, *, few: bool, asks: bool) -> _Found:
        """Return what differs between a whole batch and its parts, if anything does, by how much, and in gradients.

        Of a ``few`` rows, perhaps; where one only ``asks`` how outputs join, not in gradients. What gives a number is
        compared also where each rank's rows are one: it may be right by chance.
        """
        some = functools.partial(parts.some, _FEW_ROWS * _run.world_size)
        compare = functools.partial(self._compare, kind=kind, gradients=not asks)
        found = compare(parts) if not few else compare(some(extreme=True)) if asks else None
        expected, loses = (None, False) if few else (self.expected, self.loses)
        if not asks and from_main_process(lambda: bool(self.joins[kind].ways) and not (found and found[0])):
            of_unlike = compare(some(unlike=True))
            if not of_unlike[0] or self.of_one_way:
                found = of_unlike if few or of_unlike[0] else found
        found = found or compare(some())
        self.expected, self.loses = expected, loses
        return found

    def _compare(self, parts: _Parts, kind: Any, *, gradients: bool) -> _Found:
        grad, compiled = torch.is_grad_enabled(), bool(self.compiled) or _is_compiled(self.model.modules())
        # these may draw random numbers where they train, in ways that cannot be told: a part stays whole then
        may_draw = self.model.training and grad and not self.is_part
        for quiet in (None, _keeps_rows_apart) if may_draw else (None,):
            with _without_effects(self.model, quiet=quiet, parameters=True, graph=grad) as state:
                trials = _Trials(self.model, self._call, state, compiled=compiled)
                problem, difference, whole = self._compare_outputs(trials, parts, kind)
                if problem is None and (whole.drawn or whole.from_given) and quiet is None:
                    self.joins[kind].draws = True
                elif whole.drawn:
                    self.joins[kind].draws = False
                apart = None
                if problem is None and gradients and grad and _checks.is_on:
                    problem, apart = self._compare_gradients(trials, parts, kind, whole.in_16_bits)
                    difference = difference if problem is None else apart or math.inf
            if problem is None:
                tolerance = _tolerance_of(whole.in_16_bits, 4 * difference)
                self.expected = (whole.output, tolerance) if quiet is None else None
                return None, difference, apart
            if self.compiled is None:  # one more try, without modes
                self.compiled = True
                return self._compare(parts, kind, gradients=gradients)
            # so it is where these do not train, too
            unseen = whole.draws_unseen or whole.in_python != trials.in_python
            if problem.startswith((_SETS_STATE, _IT_KEEPS, _FOR_EACH_ROW)) or not unseen:
                break
        return problem, difference, None

    def is_near(self, expected: tuple[Any, Callable[[torch.Tensor], float]], output: Any) -> bool:
        """Return whether outputs are those of the whole batch."""
        pairs = zip(pytree.tree_leaves(expected[0]), pytree.tree_leaves(output), strict=True)
        return all(_difference(a, b) <= expected[1](a) for a, b in pairs if isinstance(a, torch.Tensor))

    def _compare_outputs(self, trials: _Trials, parts: _Parts, kind: Any) -> tuple[str | None, float, _Trial]:
        joins, self.writes, self.places = self.joins[kind], False, False
        whole = trials.call(parts, 0, parts.rows)
        # other outputs may be made of a leaf that is one of them; of the ranks' joined rows they are not
        outputs = [x for x in pytree.tree_leaves(whole.output) if isinstance(x, torch.Tensor)]
        begins = any(x.is_leaf and x.requires_grad and not isinstance(x, torch.nn.Parameter) for x in outputs)
        whole.output = _without_graph(whole.output)
        part = trials.call(parts, *parts.ranges[_run.rank])
        seconds = min(whole.seconds, part.seconds * _run.world_size)  # the first one may have taken longer
        self.pace[kind] = min(seconds / parts.rows, self.pace.get(kind, math.inf))
        form = None if part.error is not None else joins.form(part.output, parts.sizes[_run.rank])
        part.output = _without_graph(part.output)
        kept = _left_differently(self.model, whole, part)
        if kept:  # by itself, as a time that is measured? The whole batch once more
            by_itself = _left_differently(self.model, whole, trials.call(parts, 0, parts.rows))
            kept = [name for name in kept if name not in by_itself]
        if part.error is not None and whole.error is None and not self.compiled:
            self.compiled = None if part.in_dynamo else False
        self.has_effect = isinstance(error := whole.error, _Effect)
        why = str(error) if self.has_effect else "" if error is None else f"it raises {type(error).__name__}"
        if part.in_python != whole.in_python and part.error is None:
            why = why or _FOR_EACH_ROW
        # a GPU's thread, where a gradient of a gradient is made, counts its nodes anew: these are others each time
        count, whole.before = len(whole.before), [node for node in whole.before if node in part.before]
        parameters = whole.changes.keys() & dict(self.model.named_parameters())
        has_lists = any(own and type(x) is list for x, own in zip(parts.leaves, parts.divided, strict=True))
        own = types.SimpleNamespace(
            why=why,  # what is wrong with the whole batch already
            raised="" if part.error is None else f"{type(part.error).__name__}: {part.error}",
            before=-1 if 0 < len(whole.before) < count else len(whole.before),
            kept=kept + ["its arguments"] * self.writes,
            moves={"of_library": bool(whole.changes), "parameters": bool(parameters)},
            form=form,
            reads=part.reads.found or has_lists,  # by Python, values of rows
            same=part.reads.choices == whole.reads.choices,
            decisive=part.reads.deciding,
            draws=part.state != whole.state and not (part.error or part.draws_unseen or whole.draws_unseen),
        )
        seen = from_all_ranks(own)
        for name in self.moves:
            self.moves[name] |= any(of_rank.moves[name] for of_rank in seen)
        found = {of_rank.before for of_rank in seen}
        self.going_on |= {kind} if max(found) else set()
        self.of_one_way = all(of_rank.same for of_rank in seen)
        if any(of_rank.reads for of_rank in seen):
            self.reads.setdefault(kind, 0)
        differ = any(of_rank.raised or of_rank.form != seen[0].form for of_rank in seen)
        self.parted = differ and kind in self.reads
        why = self._why_not_joined(seen, whole, draws=trials.in_python != whole.in_python)
        why = why or (len(found) > 1 or min(found) < 0) * _READS_IN_PART
        if why := why or begins * "it returns a tensor that gradients may be asked for":
            return why, math.inf, whole
        tolerance = _tolerance_of(whole.in_16_bits, 0.0)
        problem, difference = joins.compare(whole.output, part.output, parts, tolerance)
        problem, difference = from_main_process(lambda: (problem, difference))
        if problem is not None and difference < math.inf:  # as far as one process is from itself?
            again = trials.call(parts, 0, parts.rows)
            floor = from_main_process(lambda: _furthest(whole.output, again.output))
            if floor:
                tolerance = _tolerance_of(whole.in_16_bits, 4 * floor)
                found_now = joins.compare(whole.output, part.output, parts, tolerance)
                problem, difference = from_main_process(lambda: found_now)
        self.places = problem is not None or any(of_rank.kept for of_rank in seen)
        if problem is None:
            each = 3 if kind[2][1] else 1  # backward() takes twice as long
            exchanges = 1 + any(getattr(x, "requires_grad", False) for x in parts.leaves)  # of gradients
            most, tries = self.most_lost, list[float]()
            if torch.cuda.is_initialized():  # there a busy machine changes times less
                most = min(most, max(_LEAST_LOST, each * seconds / 4))
            while not tries or (len(tries) < 3 and min(tries) > most):
                if tries:  # the first one may have been slow
                    part.seconds = min(part.seconds, trials.call(parts, *parts.ranges[_run.rank]).seconds)
                saved = min(seconds, part.seconds * _run.world_size) - part.seconds
                (least,) = _largest_of_ranks([-saved])  # the ranks begin to join at the same time
                began = time.monotonic()
                joins.join(part.output, parts, self.model, of_all=False)
                torch.cuda.synchronize() if torch.cuda.is_initialized() else None
                tries += _largest_of_ranks([exchanges * (time.monotonic() - began) + each * least])
            self.loses = min(tries) > most
        if kept := [name for of_rank in seen for name in of_rank.kept]:
            return f"{_IT_KEEPS} `{kept[0]}` {_KEEPS}", math.inf, whole
        return problem, difference, whole

    def _why_not_joined(self, seen: list[Any], whole: _Trial, *, draws: bool) -> str:
        """Return what is wrong with calls before their outputs are compared, or "". A collective."""
        if why := next((of_rank.why for of_rank in seen if of_rank.why), ""):  # rank 0 alone may write
            return str(why)
        if draws:  # a branch may hang on it, in which rows meet
            return "forward() draws from Python's or NumPy's random numbers"
        if whole.sets_state or any(of_rank.draws for of_rank in seen):
            return _SETS_STATE if whole.sets_state else _DRAWS_BY_ROWS
        if raised := next((of_rank.raised for of_rank in seen if of_rank.raised), ""):
            self.places = True
            return f"a part of a batch cannot be computed alone ({raised})"
        decisive = [of_rank.decisive for of_rank in seen]
        if any(decisive) and from_main_process(lambda: _is_no_mean(whole.reads.deciding, decisive)):
            self.parted = False
            return f"forward() decides by {_NO_MEAN}"
        return _unjoinable(whole.output)

    def _compare_gradients(self, trials: _Trials, parts: _Parts, kind: Any, in_16_bits: bool) -> Any:
        """Compare gradients: of a few rows, and of the whole batch where these differ."""
        trained, apart = {name: p for name, p in self.model.named_parameters() if p.requires_grad}, None
        for some in dict.fromkeys((parts.some(4 * _run.world_size), parts)):
            if some.obstacle or not self.joins[kind].agree(some):
                continue
            apart = _gradients_apart(trials, self.joins[kind].join, some, trained)
            if trials.kept:
                return trials.kept[0], None
            most = 0.1 if in_16_bits else _narrowed(3e-3, "gradients")
            apart = from_main_process(functools.partial(copy.copy, apart))
            if apart is not None and apart[0] <= most:
                return None, apart[0]
        if apart is None:
            return None, None
        return f"the gradient of `{apart[1]}` is another one than that of the whole batch", apart[0]

    def _call(self, parts: _Parts, start: int, end: int) -> Any:
        # copies without what they were computed from: backward() is still to come through that
        given = pytree.tree_map_only(
            torch.Tensor, lambda x: x.detach().requires_grad_(x.requires_grad).clone(), parts.of(start, end)
        )
        before = _versions(given)
        output = self.run()(*given, has_rows=end - start < parts.rows)
        self.writes |= _versions(given) != before
        return output


_without_graph = functools.partial(pytree.tree_map_only, torch.Tensor, torch.Tensor.detach)
_MOST_LOST, _LEAST_LOST = 0.25, 0.02  # seconds; less may be a busy machine's, and on GPUs
_FEW_ROWS = 4  # of each rank, where not all rows of a batch are compared
_IT_KEEPS = "it keeps in"
_KEEPS = "what it computes from the rows of a batch; without that, or in evaluation, the ranks would share the work"
_FOR_EACH_ROW = "forward() draws from Python's or NumPy's random numbers for each row"
_DRAWS_BY_ROWS = "forward() draws random numbers as the values of its rows decide"
_SETS_STATE = "forward() sets the state of random generators, by a seed or fork_rng() say"
_READS_IN_PART = "for some rows, or beside gradients of its own, it reads what was computed before it"
_NO_MEAN = "a number, a sum or a norm say, that is another one for some of the rows"


def _versions(arguments: Any) -> list[tuple[int, int]]:
    return [(id(leaf), getattr(leaf, "_version", 0)) for leaf in pytree.tree_leaves(arguments)]
