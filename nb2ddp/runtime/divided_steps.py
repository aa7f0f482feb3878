"""Compute micro-batches of a step whole or in parts, and find whether parts give the whole; `_Turns` says when."""

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from nb2ddp.runtime.figure_rules import _Note
from nb2ddp.runtime.figures import _Figures
from nb2ddp.runtime.gradients import _nodes, _sum_in_buckets
from nb2ddp.runtime.micro_batch_rows import _SUM, _Part, _Rows
from nb2ddp.runtime.object_collectives import _exchange
from nb2ddp.runtime.random_draws import _NOTHING, _Draws
from nb2ddp.runtime.row_parts import _CLOSE_FIGURES, _CLOSEST, _OF_FEW_ROWS, _RowParts
from nb2ddp.runtime.run_state import _is_power_of_two, _replaced, _run, _say, _warn
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.step_plans import _Division, _equal_parts, _planned, _Unit
from nb2ddp.runtime.summed_gradients import (
    _add_gradients,
    _cpu_copies,
    _gradient_error,
    _rounding,
    _take_gradients,
)

_Made = tuple[dict[int, tuple[_Note, list[Any]]], str]  # by part, with gradients; and what was wrong


class _DividedSteps:
    """A Trainer's accumulation step under way: its micro-batches, and how they are divided."""

    def __init__(self, trainer: Any) -> None:
        self.trainer: Any = weakref.proxy(trainer)  # which holds this
        self.figures = _Figures(weakref.ref(trainer))
        self.rows = _RowParts(self.figures.keeps, self.figures.sources)
        self.draws = _Draws()
        self.samples: list[Any] = []
        self.compute: Any = None  # what the Trainer does with one of them, Callable[[Any], torch.Tensor]
        self.steps = 0
        self.batches: list[_Rows] = []  # the rows of the samples
        self.doubtful = -1  # the micro-batch whose division is tried next; -1 where any may be
        self.states: list[tuple[Any, ...]] = []  # random ones, at the beginning of each and at the end
        self.of_model: list[Any] = []
        self.trained: list[Any] = []  # parameters, as of the beginning of the step
        self.checked: Any = None  # the step under way, a `_CheckedStep`
        self.drops_gradients = False  # a micro-batch does, those of the ones before it
        self.epoch, self.spent = 0, 0.0  # what checks cost, in steps of the ranks
        self.is_own = False  # code of the notebook's computes the loss

    def _left_over(self) -> list[int]:
        """Return the micro-batches of this step that would leave a rank without one, where rows may be divided."""
        over = len(self.samples) % _run.world_size
        return [i for i in self._divisible() if i >= len(self.samples) - over]

    def _divisible(self) -> list[int]:
        rows = [] if self.rows.why_not else self.batches
        least = _run.world_size if self._meets else 2
        counts = {i: len(of.lengths) for i, of in enumerate(rows)}
        even = _run.world_size if self._gathers else 1  # gathered rows are as many on each rank
        return [i for i, count in counts.items() if count >= least and count % even == 0]

    @property
    def _gathers(self) -> bool:
        return bool(_run.gathering and _run.gathering[0](self.trainer))

    @property
    def _meets(self) -> bool:
        """Whether all ranks compute parts of a micro-batch at once: its loss compares or weights rows, or it draws."""
        return self._gathers or self.rows.drops or self.rows.rules[:1] not in ([], [_SUM])

    def _plan(self) -> list[_Unit]:
        """Return who computes what of this step."""
        rules, trims = self.rows.rules, self.rows.trims is True
        divisible = {i: self.batches[i] for i in self._divisible() if rules}
        if not self._meets:
            return _planned(self.batches, divisible, trims=trims)
        parts = {i: _equal_parts(self.batches[i]) for i in self._left_over() if i in divisible}
        parts = {i: of for i, of in parts.items() if min(self.rows.weight(self.batches[i], of)) > 0}
        wholes = _planned(self.batches, {}, trims=trims, left_out=parts)
        return wholes + [_Unit(i, of[rank], rank) for i, of in parts.items() for rank in range(len(of))]

    def _tried(self) -> int:
        """Return the micro-batch whose division is tried in a checked step: a later one with much padding; or -1."""
        turns = self._left_over() if self._meets else self._divisible()
        if self.doubtful in turns:
            return self.doubtful

        def saved(i: int) -> tuple[bool, float, float]:
            rows = self.batches[i]
            parts = sum(
                rows.cost_of(part, trims=True) for part in _equal_parts(rows, by_length=not self._meets)
            )
            return i > 0, rows.cost - parts, rows.cost  # at first counts are 0, and may be set anew

        return max(turns, key=saved, default=-1)

    def _say_undivided(self, why: str) -> None:
        self.rows.why_not = why
        if count := len(self.samples) % _run.world_size:
            _warn(
                f"{count} of a step's {len(self.samples)} micro-batches cannot be divided over the ranks: {why}. "
                "One rank computes each of them while others wait, which is right and slower"
            )
        else:
            _say(f"each micro-batch is computed whole, by one of the ranks: {why}")

    def _divide_no_more(self, why: str) -> None:
        self.rows.why_not = why
        _checks.failed(f"parts of a micro-batch do not give the whole: {why}. From here on none is divided")

    def _divisions(self, i: int, *, drops: bool) -> Iterator[_Division]:
        """Yield the ways in which a micro-batch may be divided, with and without common padding."""
        rules, in_order = self.rows, self._meets or drops
        as_whole = drops and not torch.cuda.is_available()
        trims = [False] if drops else [True, False] if rules.trims is None else [rules.trims]
        for blocks, trimmed in itertools.product([rules.blocks] if rules.rules else [1, 2], trims):
            rows = _Rows(self.samples[i], blocks)
            first, *parts = _equal_parts(rows, by_length=not in_order)[::-1] or [()]
            if len(first) > 1 and not self._gathers:
                # one row without padding, and with other signs than those of other parts
                row = first[-1] if in_order else max(first, key=rows.lengths.__getitem__)
                first, parts = (row,), [tuple(other for other in first if other != row), *parts]
            saves = any(rows.width(part, trims=True) < rows.columns for part in parts)
            if saves or not trimmed or False not in trims:  # else it shows nothing
                shows = trimmed if saves or drops else rules.trims
                yield _Division(rows, [first, *parts], trimmed, as_whole, shows)

    def _meanwhile(self) -> _Division | None:
        """Return how ranks above 0 divide a step's only micro-batch while rank 0 computes the whole; None if not."""
        drops, modules = self.rows.drops, [*self.trainer.model.modules()]
        if not self.rows.rules:
            drops = any("Dropout" in type(part).__name__ and getattr(part, "p", 0) for part in modules)
        is_near = drops and (torch.cuda.is_available() or _run.dropout is None)
        is_sparse = any(getattr(part, "sparse", False) for part in modules)
        if len(self.samples) > 1 or self._tried() < 0 or self._gathers or is_near or is_sparse:
            return None
        return next(self._divisions(0, drops=drops))

    def _try_parts(self, i: int, whole: _Note | None, alone: list[Any], first: Any) -> None:
        """Compute rows of a micro-batch, but what is ``first``, and find how parts give the whole. A collective."""
        rules, reasons, known, why = self.rows, list[str](), bool(self.rows.rules), ""
        drops = any(self.draws.expected(self.samples[i])[2:])
        if drops and (_run.dropout is None or not (known or self._left_over())):
            self._say_undivided(_DRAWS)
            return
        near = drops and torch.cuda.is_available()  # each rank's own: compared without dropout
        with _without_dropout() if near else contextlib.nullcontext():
            for way, made in itertools.chain(first, ((of, None) for of in self._divisions(i, drops=drops))):
                made = made or self._compute_parts(i, way, meanwhile=near)
                why = self._why_no_parts(way, made, whole, alone)
                reasons.append(why)
                if not why:
                    rules.trims, rules.blocks = way.shows_trims, way.rows.blocks
                    rules.drops |= drops
                    rules.compared |= rules.kinds(way.rows, way.parts)
                    break
        why = why and (_DRAWS if _DRAWS in reasons else reasons[0])
        _take_gradients(self.trained)
        if not why and not known and rules.rules[0] != _SUM and not self._left_over():
            why = _EVEN
        if why and known and why != _DRAWS:
            self._divide_no_more(why)
        elif why:
            self._say_undivided(why)
        elif not known:
            _say(
                "rows of a micro-batch are divided where that evens out the ranks: a check "
                f"{'without dropout ' * near}has shown that its loss, gradients and figures are those of its parts, "
                "up to rounding"
            )

    def _is_watched(self, step: int) -> bool:
        """Return whether losses of parts are compared: in step 2, 4, 8 and so on, and in epochs; a library's seldom."""
        state, epoch, self.epoch = self.trainer.state, self.epoch, int(self.trainer.state.epoch or 0)
        is_now = epoch != self.epoch or step == 1  # when nothing is divided yet
        if not (self.rows.rules and _checks.is_on and (is_now or _is_power_of_two(step + 1))):
            return False
        cost = _run.world_size**2 / max(1, sum(len(of.lengths) for of in self.batches)) / 2  # a row for each
        is_free = self.is_own and _is_power_of_two(step + 1)
        is_watched = is_free or self._may(cost * (2 - is_now), state.max_steps if step == 1 else step)
        self.spent += cost * (is_watched > is_free)
        return is_watched

    def _of_check(self) -> float:
        """Return what a check of this step costs beyond it, in steps of the ranks."""
        return _run.world_size - 1 + (self._tried() >= 0 and self._meanwhile() is None) / len(self.samples)

    def _may(self, cost: float, steps: int) -> bool:
        """Return whether a check may cost so much, in steps of the ranks, in a run of so many."""
        most = (_run.world_size - 1) * (_MOST_AT_FIRST + _MOST_OF_STEPS * steps)
        return _checks.is_asked or self.spent + cost <= most

    def _needs_check(self, i: int) -> bool:
        """Compare loss and figures of a few rows, or of all, with those of their parts, by forward(). A collective.

        Where they differ, no micro-batch is divided any more. Return whether that raises: the step is to be checked.
        """
        if i < 0:
            return False
        rules, every = self.rows, (*range(len(self.batches[i].lengths)),)
        few = every if self.is_own and _is_power_of_two(self.steps) else every[: _run.world_size]
        rows = _Rows(self.batches[i].of(few, trims=False), rules.blocks)
        near, parts = rules.drops and torch.cuda.is_available(), _equal_parts(rows, by_length=not self._meets)
        way = _Division(rows, parts, rules.trims is True, rules.drops and not near)
        quiet = _without_dropout() if near else contextlib.nullcontext()
        with _replaced(self.trainer.accelerator, backward=lambda *_, **__: None), quiet:
            why = self._why_no_parts(way, self._compute_parts(i, way, meanwhile=True), None, None)
        if not why:
            _checks.record(0.0)
        elif why == _NO_SUM:
            self._divide_no_more(why)
        else:
            self.doubtful = i
        return why not in ("", _NO_SUM)

    def _compute_parts(self, i: int, way: _Division, *, meanwhile: bool = False) -> _Made:
        """Compute this rank's parts; ``meanwhile`` rank 0 computes all rows (-1), or each rank if rows are gathered."""
        found, error, parts = dict[int, tuple[_Note, list[Any]]](), "", way.parts
        self.figures.shares_errors = False  # where one raises, the others do not
        ranks = range(int(meanwhile and not self._gathers), _run.world_size)
        more = len(parts) - len(ranks)  # which the first of them computes, too
        own = [number for number in range(len(parts)) if ranks[max(0, number - more)] == _run.rank]
        own = [-1, *own] if meanwhile and (self._gathers or not _run.rank) else own
        try:
            for number in own if len(parts) > 1 else ():
                _take_gradients(self.trained)
                self.figures.restore(self.figures.base)  # parts begin where the whole did
                with _replaced(_run, comparing=True):
                    if number < 0:
                        note = self._record(i, way.rows.inputs, checked=True)
                    else:
                        note = self._record_part(i, way, parts[number], 1.0, checked=True)
                found[number] = note, _cpu_copies(self.trained)
                untold = any(change.is_untracked for change in note.changes.values())
                if self.checked and (untold or self.checked.held.changed()):
                    error = _STOPS  # one call, as in one process
                    break
        except Exception as raised:
            error = f"its rows alone raise {type(raised).__name__}"
        self.figures.shares_errors = True
        _read_losses([note for note, _ in found.values()])
        return found, error

    def _why_no_parts(self, way: _Division, made: _Made, whole: Any, alone: list[Any] | None) -> str:
        """Return why parts do not give the whole, or ""; ``alone``: its gradients, if they count. A collective."""
        rows, parts, (found, error), learnt = way.rows, way.parts, made, self.rows
        _take_gradients(self.trained)
        self.figures.restore(self.figures.base)
        if len(parts) < 2:
            return "it holds no rows that can be divided, or a single one"
        seen = _exchange(({number: note for number, (note, _) in found.items()}, error, whole))
        if why := next((error for _, error, _ in seen if error), ""):
            return why
        of_parts = {number: note for notes, *_ in seen[::-1] for number, note in notes.items()}
        whole = of_parts.pop(-1, seen[0][-1])  # rank 0's, for all are to decide alike
        notes = [of_parts[number] for number in range(len(parts))]
        is_other = any(note.is_near or note.draws != whole.draws for note in notes)
        if is_other or (whole.draws != _NOTHING and not way.drops):
            return _DRAWS
        tolerance, weights = _rounding(self.trainer), learnt.figure_weights(rows, parts)
        rules = learnt.narrow(rows, parts, [note.result[0] for note in notes], whole.result[0], tolerance)
        is_rough = alone is None and (len(rows.lengths) <= _run.world_size or tolerance > _CLOSE_FIGURES)
        if not rules or (is_rough and self.steps > 2):  # in the first step figures were 0: all ways hold
            learnt.rules = rules or learnt.rules
            return "" if rules else _NO_SUM
        if alone:
            _, alone = found.pop(-1, (None, alone))
            for number, (_, gradients) in found.items():
                weight = weights[rules[0]][number]
                _add_gradients(self.trained, [of if of is None else of * weight for of in gradients])
            self._sum(_exchange(bytes(p.grad is not None for p in self.trained)))
            difference = _exchange(_gradient_error(self.trained, alone))[0]
            # 16 bits: up to 6.1e-2 came of rounding where layers are 16,384 wide, on an H200; a mean over rows in
            # place of a sum, or labels left out, gave 9.4e-2 and more
            if difference > (16 if tolerance > _CLOSE_FIGURES else 10) * tolerance:
                return f"the gradients of its rows do not add up (they differ by {difference:.1e})"
        learnt.rules = rules
        figure = len(self.samples) == 1 and self.figures.learn([[whole]])
        near = _OF_FEW_ROWS if is_rough else [of for of in _CLOSEST if of <= tolerance]
        figure = figure or learnt.learn_figures(weights, notes, whole, near)
        if alone and not figure:
            learnt.branches |= learnt.asked | learnt.unlike(notes)
            learnt.asked.clear()
        return figure and f"{figure} cannot be put together from the ranks' rows"

    def _record_part(
        self, i: int, way: _Division, part: _Part, weight: float, *, checked: bool = False
    ) -> _Note:
        """Compute rows of a micro-batch, with a weight in backward(); on GPUs its dropout is this rank's own."""
        rows, accelerator = way.rows, self.trainer.accelerator
        inputs = rows.of(part, trims=way.trims)
        backward = accelerator.backward
        near = torch.cuda.is_available() or rows.blocks > 1
        of = None if near else (part[0], part[-1] + 1, len(rows.lengths))
        random = _run.dropout[1](of) if way.drops else contextlib.nullcontext(bool)
        drew: list[bool] = []

        def compute() -> torch.Tensor:
            with random as has_drawn:
                loss = self.compute(inputs).detach()
            drew.append(has_drawn())
            return loss

        gathering = _run.gathering[1](self.trainer) if _run.gathering else contextlib.nullcontext()
        weighted = _replaced(accelerator, backward=lambda loss, **options: backward(loss * weight, **options))
        first = _nodes()
        with weighted, gathering, _choices() as chosen:
            note = self._record(i, inputs, compute, checked=checked)
        note.is_near, note.chosen, note.nodes = any(drew), bytes(chosen), _nodes() - first
        return note

    def _record(
        self, i: int, inputs: Any, compute: Callable[[], torch.Tensor] | None = None, *, checked: bool = False,
    ) -> _Note:  # fmt: skip
        """Compute a micro-batch, or rows of it, from where one process stands at its beginning."""
        _run.micro_batch = i, len(self.samples), inputs is not self.samples[i]
        before = [p for p in self.trained if p.grad is not None]
        try:
            whole = compute or (lambda: self.compute(_copied_batch(inputs)).detach())
            return self.figures.record(whole, i, self.states[i], checked=checked)
        finally:
            _run.micro_batch = None
            self.drops_gradients |= any(p.grad is None for p in before)

    def _find_trained(self) -> list[Any]:
        """Return what is trained: of the model, and what else the optimizer has (a loss's own, say)."""
        found = {id(p): p for p in self.of_model if p.requires_grad}
        for group in self.trainer.optimizer.param_groups if self.trainer.optimizer is not None else ():
            found.update({id(p): p for p in group["params"] if p.requires_grad})
        return list(found.values())

    def _sum(self, has: list[bytes]) -> None:
        """Sum the gradients of all ranks; a parameter for which no rank ``has`` one keeps none, as in one process."""
        found = [p for p, *of_ranks in zip(self.trained, *has, strict=True) if any(of_ranks)]
        for parameter in found:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        _sum_in_buckets([parameter.grad for parameter in found])


_MOST_AT_FIRST, _MOST_OF_STEPS = 1.5, 0.005  # that checks may cost, for each rank but one
_STOPS = "what a part of it changes cannot be put back"
_DRAWS = "it draws random numbers"
_NO_SUM = "its loss is no sum or mean over its rows"
_EVEN = "a step has as many for each rank, and rows are divided to even these out only where a loss is a sum over rows"


def _copied_batch(value: Any) -> Any:
    """Return a batch with copies of its tensors and containers: what is written into them is not read again."""
    if isinstance(value, Mapping):
        made = {name: _copied_batch(item) for name, item in value.items()}
        kind: Any = type(value)
        return made if kind is dict else kind(made)
    if type(value) in (list, tuple):
        return type(value)(map(_copied_batch, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


def _without_dropout() -> Any:
    return _run.dropout[0](0, 0, 0, contextlib.nullcontext, off=True)


@contextlib.contextmanager
def _choices() -> Iterator[list[bool]]:
    """Note where Python decides by values of a tensor, in a block: for some rows it may decide otherwise."""
    chosen: list[bool] = []

    def watched(read: Any) -> Any:
        def reading(tensor: Any, *args: Any) -> Any:
            value = read(tensor, *args)
            if isinstance(value, int):
                chosen.append(bool(value))
            return value

        return reading

    reads = {name: watched(getattr(torch.Tensor, name)) for name in ("__bool__", "item")}
    with _replaced(torch.Tensor, **reads):
        yield chosen


def _read_losses(notes: Iterable[_Note]) -> None:
    """Make numbers of losses, once all are under way: each one that is read waits for the GPU."""
    for note in notes:
        if isinstance(note.result, torch.Tensor):
            note.result = float(note.result), note.result.dtype
