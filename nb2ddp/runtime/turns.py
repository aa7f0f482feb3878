"""Compute the micro-batches of each accumulation step in turns, one process's Trainer on every rank.

Each rank runs the notebook's own Trainer on the notebook's own arguments, as one process: batches, losses, logs,
callbacks and checkpoints are the notebook's because they are the same code with the same numbers. When the first
micro-batch of a step is asked for, each rank computes those that are its own; then losses, figures and gradients are
exchanged. Gradients are summed, not averaged: each micro-batch has the weight that one process gives it.

In the first step, and in some later ones, every rank computes the other ranks' micro-batches too, and compares
losses, gradients and figures with theirs. Where they differ, every rank computes all micro-batches from then on.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.figure_values import _agree
from nb2ddp.runtime.figures import _Figures, _Note
from nb2ddp.runtime.gradients import _mean_of_rows, _sparse_like, _sparse_names
from nb2ddp.runtime.held_tensors import _Held
from nb2ddp.runtime.object_collectives import _exchange
from nb2ddp.runtime.random_draws import _Draws
from nb2ddp.runtime.random_numbers import _every_random_state, _set_every_random_state
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.row_parts import _cost, _gathering, _RowParts
from nb2ddp.runtime.run_state import _run, _warn
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.summed_gradients import (
    _distance,
    _persistent,
    _rounding,
    _sum_in_buckets,
    _take_gradients_of_rank_0,
    _taken,
)


class _Turns:
    """What a Trainer's ranks know of the accumulation step under way."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.figures = _Figures(trainer)
        self.samples: list[Any] = []
        self.turn = 0  # the micro-batch that the Trainer asks for next
        self.notes: dict[int, _Note] = {}
        self.whole = ""  # why every rank computes all micro-batches
        self.steps, self.spent = 0, 0.0  # and what checks cost, in steps of the ranks
        self.draws = _Draws()
        self.states: list[
            tuple[Any, ...]
        ] = []  # random states at the beginning of each micro-batch, and at the end
        self.losses_apart = 0.0  # in the check under way
        self.rows = _RowParts()
        self.of_model: list[Any] = []
        self.buffers: list[torch.Tensor] = []
        self.sparse: set[int] = set()  # parameters whose gradients are sparse
        self.said = False  # that random numbers are not those of one process
        self.model: Any = None  # whose parameters are known to be equal

    def begin(self, samples: list[Any]) -> None:
        """Note the micro-batches of a step."""
        self.samples, self.turn, self.notes = samples, 0, {}

    def expects(self, inputs: Any) -> bool:
        return self.turn < len(self.samples) and self.samples[self.turn] is inputs

    def take(self, compute: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        """Return the loss of the next micro-batch, and leave its figures as one process does. A collective."""
        if self.turn == 0:
            self._begin_step(compute)
        turn, self.turn = self.turn, self.turn + 1
        if self.whole:
            loss = compute(self.samples[turn])
            if self.turn == len(self.samples):
                _take_gradients_of_rank_0(self._parameters(), self.trainer.model)
            dist.broadcast(loss, 0)
            return loss
        note = self.notes[turn]
        self.figures.apply(note)
        value, dtype = note.result
        return torch.tensor(value, dtype=dtype, device=self.trainer.args.device)

    def _begin_step(self, compute: Callable[[Any], torch.Tensor]) -> None:
        if self.model is not self.trainer.model:
            self.model = self.trainer.model
            sparse = _sparse_names(self.model)
            self.of_model = list(self.model.parameters())
            self.buffers = _persistent(self.model)
            self.sparse = {id(p) for name, p in self.model.named_parameters() if name in sparse}
            _make_equal(self.model, [name for name, _ in self.model.named_parameters()])
            _set_every_random_state(_exchange(_every_random_state())[0])
        step, self.steps = self.steps, self.steps + 1
        if self.whole:
            return
        left = self._left_over()
        cost = (_run.world_size - 1) * (2 if left and len(self.samples) == len(left) else 1)
        is_due = _checks.is_checked(step) and (step == 0 or self.spent + cost <= _MOST_OF_STEPS * step)
        self.spent += cost * is_due
        base, start = self.figures.begin(), _every_random_state()
        kept = [(p, p.grad) for p in self._parameters() if p.grad is not None]
        own = {id(tensor) for tensor in (*self._parameters(), *self.of_model, *self.buffers)}
        held = _Held(self.trainer, self.buffers, own, looks=is_due, keeps=not step)
        is_due |= any(self.rows.is_unsure(self.samples[turn]) for turn in left)
        for parameter, _ in kept:
            parameter.grad = None
        for again in itertools.count():
            self.states = self.draws.states(self.samples, start)
            with _comparing() if again else contextlib.nullcontext():
                why = self._compute(compute, left, held, checked=is_due)
            self.figures.restore(base)
            if why not in (_UNKNOWN, _OTHERWISE):
                break
            is_due |= why == _UNKNOWN
            self._clear_gradients()
        _set_every_random_state(start if why else self.states[-1])
        if why:
            self._clear_gradients()
            held.put_back()
            self.whole = why
            _checks.failed(
                f"{why}. From here on every rank computes all micro-batches, which is no faster than one GPU"
            )
        elif self.draws.why_not and not self.said:
            self.said = True
            _warn(
                f"micro-batches draw random numbers (dropout, say) {self.draws.why_not}: those after the first of each "
                "step draw others than in one process, so losses are near the single process's and not equal"
            )
        for parameter, gradient in kept:
            parameter.grad = gradient if parameter.grad is None else gradient + parameter.grad

    def _clear_gradients(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None

    def _left_over(self) -> list[int]:
        """Return the micro-batches of this step that would leave a rank without one, where rows may be divided."""
        if self.rows.why_not:
            return []
        over = len(self.samples) % _run.world_size
        last = range(len(self.samples) - over, len(self.samples))
        found = [turn for turn in last if self.rows.part(self.samples[turn], _run.rank) is not None]
        if over and not found and not self.rows.rules and not self.steps:
            self._say_undivided("its rows cannot be told apart")
        return found

    def _say_undivided(self, why: str) -> None:
        self.rows.why_not = why
        count = len(self.samples) % _run.world_size
        _warn(
            f"{count} of a step's {len(self.samples)} micro-batches cannot be divided over the ranks: {why}. One "
            "rank computes it while the others wait, which is right and no faster than one GPU"
        )

    def _compute(
        self,
        compute: Callable[[Any], torch.Tensor],
        left: list[int],
        held: _Held,
        *,
        checked: bool,
    ) -> str:
        """Compute this rank's micro-batches, and exchange what they gave. Return what is wrong, or ""."""
        parameters, figures = self._parameters(), self.figures
        knows = self.rows.rules and not checked
        divided = [turn for turn in left if knows and min(self.rows.weight(self.samples[turn])) > 0]
        tried = left[0] if checked and left else -1
        alone: list[Any] = []  # the gradients of the micro-batch whose division is tried

        def record(turn: int) -> _Note:
            if turn != tried:
                return self._record(compute, self.samples[turn], turn, checked=checked)
            others = _taken(parameters)
            note = self._record(compute, self.samples[turn], turn, checked=checked)
            alone[:] = [None if p.grad is None else p.grad.clone() for p in parameters]
            for parameter, gradient in zip(parameters, others, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            return note

        own = {turn: record(turn) for turn, rank in self._owners(divided).items() if rank == _run.rank}
        parts = {}
        for turn in divided:
            part, weight = self.rows.part(self.samples[turn], _run.rank), self.rows.weight(self.samples[turn])
            with self._weighted(weight[_run.rank]), _gathering(self.trainer):
                parts[turn] = self._record(compute, part, turn)
        every, mine = {}, [p.grad for p in parameters]
        if checked:
            for parameter in parameters:
                parameter.grad = None if parameter.grad is None else parameter.grad.clone()
            with _comparing():
                every = {turn: own.get(turn) or record(turn) for turn in range(len(self.samples))}
            whole = _taken(parameters)
        unknown = not checked and (figures.unknown(own) or not self.rows.knows(list(parts.values())))
        unknown |= any(path in figures.tentative for part in parts.values() for path in part.changes)
        has = bytes(gradient is not None for gradient in mine)
        of_ranks = _exchange((every or own, list(own), parts, has, held.changed(), unknown))
        if changed := next((changed for *_, changed, _ in of_ranks if changed), ""):
            return changed
        divided_notes = {turn: [noted[turn] for _, _, noted, *_ in of_ranks] for turn in divided}
        unclear = any(
            self.rows.are_unclear(self.samples[turn], notes) for turn, notes in divided_notes.items()
        )
        if unclear or any(unknown for *_, unknown in of_ranks):
            return _UNKNOWN
        seen = [
            [notes[turn] for notes, *_ in of_ranks if turn in notes] or divided_notes[turn]
            for turn in range(len(self.samples))
        ]
        if not self._as_expected(seen, divided, checked=checked):
            return _OTHERWISE
        why = ""
        if checked:
            why = self._compare(seen, [min(turns, default=0) for _, turns, *_ in of_ranks])
            if tried >= 0 and not why:
                self._try_parts(compute, tried, every[tried], alone)
            for parameter, gradient in zip(parameters, mine, strict=True):
                parameter.grad = gradient
        self._sum(parameters, [has for *_, has, _, _ in of_ranks])
        self.notes = {turn: notes[turn] for notes, turns, *_ in of_ranks for turn in turns}
        for turn in divided:
            self.notes[turn] = self.rows.joined(self.samples[turn], divided_notes[turn])
        if checked and not why:
            difference = max(_exchange(_distance(parameters, whole)))
            if difference > 10 * _rounding(self.trainer):
                why = f"the ranks' gradients do not add up to those of one process (they differ by {difference:.1e})"
            else:
                _checks.record(self.losses_apart, difference)
        return why

    def _try_parts(
        self,
        compute: Callable[[Any], torch.Tensor],
        turn: int,
        whole: _Note,
        alone: list[Any],
    ) -> None:
        """Compute this rank's rows of a micro-batch, and find how the ranks' parts give the whole. A collective."""
        rows, inputs, parameters, why = self.rows, self.samples[turn], self._parameters(), ""
        for blocks in [rows.blocks] if rows.rules else [1, 2]:
            self._clear_gradients()
            part, error = rows.part(inputs, _run.rank, blocks), ""
            note: _Note | None = None
            try:
                if part is not None:
                    with _gathering(self.trainer), _comparing():
                        note = self._record(compute, part, turn)
            except Exception as raised:
                error = f"its rows alone raise {type(raised).__name__}"
            seen = _exchange((note, bytes(p.grad is not None for p in parameters), error))
            why = next((error for *_, error in seen if error), "")
            if why or any(note is None for note, *_ in seen):
                why = why or "its rows cannot be told apart"
                continue
            notes = [note for note, *_ in seen if note is not None]
            tolerance = _rounding(self.trainer)
            found = rows.narrow(
                inputs, [note.result[0] for note in notes], whole.result[0], tolerance, blocks
            )
            if not found:
                why = "its loss is no sum or mean over its rows"
                continue
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad *= rows.weights(inputs, blocks)[found[0]][_run.rank]
            self._sum(parameters, [has for _, has, _ in seen])
            if max(_exchange(_distance(parameters, alone))) > 10 * tolerance:
                why = "the gradients of its rows do not add up"
                continue
            rows.blocks, rows.rules = blocks, found
            if figure := rows.learn_figures(inputs, notes, whole, self.figures.sources):
                why = f"`{figure}` cannot be put together from the ranks' rows"
                continue
            why = ""
            break
        self._clear_gradients()
        if why:
            self._say_undivided(why)

    def _record(
        self, compute: Callable[[Any], torch.Tensor], inputs: Any, turn: int, *, checked: bool = False
    ) -> _Note:
        """Compute a micro-batch, or rows of it, from where one process stands at its beginning."""
        _run.micro_batch = turn, len(self.samples), inputs is not self.samples[turn]
        try:
            return self.figures.record(
                lambda: _as_number(compute(inputs)), turn, self.states[turn], checked=checked
            )
        finally:
            _run.micro_batch = None

    def _as_expected(self, seen: list[list[_Note]], divided: list[int], *, checked: bool) -> bool:
        """Return whether all micro-batches began where they do in one process; if not, the next ones will."""
        drawn = []
        for turn, notes in enumerate(seen):
            draws = self.draws.expected(self.samples[turn]) if turn in divided else notes[0].draws
            drawn.append(draws if turn in divided or all(note.draws == draws for note in notes) else None)
        stood = self.figures.learn_counters(
            [notes for turn, notes in enumerate(seen) if turn not in divided], finds=checked
        )
        return self.draws.learn(self.samples, drawn, self.steps) and stood

    @contextlib.contextmanager
    def _weighted(self, weight: float) -> Iterator[None]:
        """Let a loss count with a weight in backward()."""
        accelerator = self.trainer.accelerator
        backward = accelerator.backward
        accelerator.backward = lambda loss, **options: backward(loss * weight, **options)
        try:
            yield
        finally:
            del accelerator.backward

    def _owners(self, divided: list[int]) -> dict[int, int]:
        """Return which rank computes each micro-batch: the longest first, each on the rank with the least to do."""
        costs = {turn: _cost(inputs) for turn, inputs in enumerate(self.samples) if turn not in divided}
        most = -(-len(costs) // _run.world_size)
        loads, counts = [0] * _run.world_size, [0] * _run.world_size
        owners = {}
        for turn in sorted(costs, key=lambda turn: -costs[turn]):
            free = [rank for rank in range(_run.world_size) if counts[rank] < most]
            rank = min(free, key=lambda rank: (loads[rank], counts[rank], rank))
            owners[turn], loads[rank], counts[rank] = rank, loads[rank] + costs[turn], counts[rank] + 1
        return dict(sorted(owners.items()))

    def _parameters(self) -> list[Any]:
        """Return what is trained: of the model, and what else the optimizer has (a loss's own, say)."""
        found = {id(p): p for p in self.of_model if p.requires_grad}
        for group in self.trainer.optimizer.param_groups if self.trainer.optimizer is not None else ():
            found.update({id(p): p for p in group["params"] if p.requires_grad})
        return list(found.values())

    def _sum(self, parameters: list[Any], has: list[bytes]) -> None:
        """Sum the gradients of all ranks; ``has`` says of each rank which parameters have one.

        A parameter to which no rank has a gradient keeps none, as in one process.
        """
        dense = []
        for parameter, *of_ranks in zip(parameters, *has, strict=True):
            if not any(of_ranks):
                continue
            if id(parameter) in self.sparse:
                dimensions = 0 if parameter.grad is None else parameter.grad.sparse_dim()
                parameter.grad = (
                    _mean_of_rows(_sparse_like(parameter, max(_exchange(dimensions)))) * _run.world_size
                )
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dense.append(parameter.grad)
        _sum_in_buckets(dense)

    def _compare(self, seen: list[list[_Note]], firsts: list[int]) -> str:
        """Return what of a checked step differs between the ranks; "" if nothing does."""
        self.losses_apart, tolerance = 0.0, _rounding(self.trainer)
        for turn, notes in enumerate(seen):
            losses = [note.result[0] for note in notes]
            if not all(_agree(losses[0], loss, tolerance) for loss in losses[1:]):
                values = " and ".join(f"{loss:.6g}" for loss in losses)
                return f"the loss of micro-batch {turn + 1} depends on what the rank computed before it ({values})"
            apart = [abs(loss / losses[0] - 1) for loss in losses if losses[0] == losses[0] != 0]
            self.losses_apart = max(self.losses_apart, *apart, 0.0)
        if what := self.figures.learn(seen, firsts):
            return f"{what} depends on the micro-batches before"
        return ""


_UNKNOWN = "a figure has no rule yet"
_OTHERWISE = "random numbers or counters were not where they are in one process"
_MOST_OF_STEPS = 0.01  # of a run's steps, that checks after the first may cost


@contextlib.contextmanager
def _comparing() -> Iterator[None]:
    """Mark what is computed once more, or by a rank that another one trains for: a rehearsal does not count it."""
    before, _run.comparing = _run.comparing, True
    try:
        yield
    finally:
        _run.comparing = before


def _as_number(loss: torch.Tensor) -> tuple[float, torch.dtype]:
    return float(loss), loss.dtype
