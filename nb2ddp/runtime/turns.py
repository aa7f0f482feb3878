"""Compute the micro-batches of each accumulation step in turns, one process's Trainer on every rank.

Each rank runs the notebook's own Trainer on the notebook's own arguments, as one process: batches, losses, logs,
callbacks and checkpoints are the notebook's because they are the same code with the same numbers. When the first
micro-batch of a step is asked for, each rank computes those that are its own; then losses, figures and gradients are
exchanged. Gradients are summed, not averaged: each micro-batch has the weight that one process gives it.

In the first step every rank computes all micro-batches, as the notebook does, and sees whether they change what
cannot be put together. In the next one, and in some later ones, every rank computes the other ranks' micro-batches
after its own, and compares losses, gradients and figures with theirs. Where they differ, every rank computes all
micro-batches from then on.
"""

import contextlib
import itertools
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.digests import _SEED, _digest
from nb2ddp.runtime.divided_steps import _DRAWS, _DividedSteps, _read_losses
from nb2ddp.runtime.figure_rules import _in_words, _Note
from nb2ddp.runtime.held_tensors import _Held
from nb2ddp.runtime.kept_values import _Path
from nb2ddp.runtime.micro_batch_rows import _Part, _Rows
from nb2ddp.runtime.object_collectives import _exchange, _largest_of_ranks
from nb2ddp.runtime.random_draws import _NOTHING, _advanced, _shapes
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.run_state import _run, _warn
from nb2ddp.runtime.spot_checks import _checks, _comparing
from nb2ddp.runtime.step_plans import _in_parts
from nb2ddp.runtime.summed_gradients import (
    _aside,
    _distance,
    _persistent,
    _rounding,
    _take_gradients_of_rank_0,
    _taken,
)
from nb2ddp.runtime.switches import _Switches
from nb2ddp.runtime.value_copies import _agree


class _Turns(_DividedSteps):
    """What a Trainer's ranks know of the accumulation step under way."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.turn = 0  # the micro-batch that the Trainer asks for next
        self.notes: dict[int, _Note] = {}
        self.whole = ""  # why every rank computes all micro-batches
        self.first = 0  # this Trainer's first step, among those of all
        self.spent = 0.0  # what checks cost, in steps of the ranks
        self.losses_apart = 0.0  # in the check under way
        self.buffers: list[torch.Tensor] = []
        self.switches = _Switches()
        self.moves = False  # a micro-batch moves parameters, and back but for rounding
        self.said = False  # that random numbers are not those of one process
        self.model: Any = None  # whose parameters are known to be equal
        # while the first step is computed whole: what was there before, and where iterators were
        self.look: tuple[_Held, dict[_Path, Any]] | None = None
        self.has_looked = False

    def begin(self, samples: list[Any]) -> None:
        """Note the micro-batches of a step."""
        self.samples, self.turn, self.notes = samples, 0, {}

    def expects(self, inputs: Any) -> bool:
        return self.turn < len(self.samples) and self.samples[self.turn] is inputs

    def take(self, compute: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        """Return the loss of the next micro-batch, and leave its figures as one process does. A collective."""
        if self.turn == 0:
            self.compute = compute
            self._begin_step()
        turn, self.turn = self.turn, self.turn + 1
        if self.whole or self.look:
            loss = compute(self.samples[turn]) if self.whole else self._look_at(turn)
            if self.turn == len(self.samples):
                self._end_look()
                _take_gradients_of_rank_0(self.trained, self.trainer.model)
                self._take_parameters_of_rank_0()
            dist.broadcast(loss, 0)
            return loss
        note = self.notes[turn]
        self.figures.apply(note)
        value, dtype = note.result
        return torch.tensor(value, dtype=dtype, device=self.trainer.args.device)

    def _begin_step(self) -> None:
        if self.model is not self.trainer.model:
            self.model = self.trainer.model
            self.of_model = list(self.model.parameters())
            self.buffers = _persistent(self.model)
            _make_equal(self.model, [name for name, _ in self.model.named_parameters()])
            _set_random_state(_exchange(_random_state())[0])
        self.trained = self._find_trained()
        own = {id(tensor) for tensor in (*self.trained, *self.of_model, *self.buffers)}
        if not self.has_looked and not self.whole:
            held = _Held(self.trainer, self.trained, self.buffers, own, looks=True)
            self.look, self.has_looked = (held, self.figures.positions()), True
            return
        step, self.steps = self.steps, self.steps + 1
        if self.whole:
            return
        divides = not self.rows.why_not
        self.batches = [_Rows(inputs, self.rows.blocks, divides=divides) for inputs in self.samples]
        self.doubtful, left = -1, self._left_over()
        cost = (_run.world_size - 1) * (2 if left and len(self.samples) == len(left) else 1)
        self.first = self.first if step else _checks.steps  # of this Trainer; others may have trained before
        is_due = _checks.is_checked(self.first + step, must=not step) and (
            step == 0 or _checks.is_asked or self.spent + cost <= _MOST_OF_STEPS * step
        )
        self.spent += cost * is_due
        base, start = self.figures.begin(), _random_state()
        kept = [(p, p.grad) for p in self.trained if p.grad is not None]
        held = _Held(self.trainer, self.trained, self.buffers, own, looks=is_due)
        for turn in left if self._meets else self._divisible():
            if self.rows.is_unsure(self.batches[turn], _in_parts(self.batches[turn])):
                is_due, self.doubtful = True, turn
        seen = int(self.switches.changed(base, self.figures.rules))  # by one rank alone: of its seconds, say
        is_other = bool(self.rows.rules and divides and _largest_of_ranks(seen))
        for parameter, _ in kept:
            parameter.grad = None
        self.states = self.draws.states(self.samples, start)
        is_due |= is_other | ((self._is_watched(step) or is_other) and self._needs_check(self._tried()))
        for again in itertools.count():
            self.states = self.draws.states(self.samples, start)
            with _comparing() if again else contextlib.nullcontext():
                why = self._compute(held, checked=is_due)
            self.figures.restore(base)
            if why not in (_UNKNOWN, _OTHERWISE):
                break
            is_due |= why == _UNKNOWN
            self._clear_gradients()
        _set_random_state(start if why else self.states[-1])
        if why:
            self._clear_gradients()
            held.put_back()
            self.whole = why
            _checks.failed(f"{why}. From here on {_WHOLE}")
        elif self.draws.why_not:
            self._say_near(f"{self.draws.why_not}, after the first of each step")
        self._take_parameters_of_rank_0(anyway=bool(why))
        for parameter, gradient in kept:
            parameter.grad = gradient if parameter.grad is None else gradient + parameter.grad

    def _look_at(self, turn: int) -> torch.Tensor:
        """Compute a micro-batch of the first step as the notebook does. A rehearsal counts it on one rank."""
        _run.micro_batch = turn, len(self.samples), False
        try:
            with _comparing() if turn % _run.world_size != _run.rank else contextlib.nullcontext():
                return self.compute(self.samples[turn])
        finally:
            _run.micro_batch = None

    def _end_look(self) -> None:
        """Find after the first step whether micro-batches change what cannot be put together: a teacher, say."""
        if self.look is None:
            return
        (held, before), self.look = self.look, None
        now = self.figures.positions()
        moved = [path for path, place in before.items() if path in now and now[path] != place]
        taken = [f"micro-batches change {_in_words(path)}, which cannot be taken back" for path in moved]
        sparse = any(p.grad is not None and p.grad.is_sparse for p in self.trained)
        whys = [held.changed(), *taken, "an embedding gives sparse gradients" * sparse]
        of_ranks = _exchange((whys, held.has_moved()))
        self.moves |= any(moved for _, moved in of_ranks)
        if found := [why for whys, _ in of_ranks for why in whys if why]:
            self.whole = found[0]
            _warn(f"{_WHOLE}: {self.whole}")

    def _take_parameters_of_rank_0(self, *, anyway: bool = False) -> None:
        """Give all ranks rank 0's parameters where micro-batches move them: each rounds otherwise."""
        for parameter in self.trained if self.moves or anyway else ():
            dist.broadcast(parameter.data, 0)

    def _say_near(self, how: str) -> None:
        if not self.said:
            _warn(
                f"micro-batches draw random numbers (dropout, say) {how}: they draw others than in one process, so "
                "losses are near the single process's and not equal"
            )
        self.said = True

    def _compute(self, held: _Held, *, checked: bool) -> str:
        """Compute this rank's micro-batches, and exchange what they gave. Return what is wrong, or ""."""
        parameters, figures, plan = self.trained, self.figures, self._plan(checked=checked)
        self.drops_gradients = False
        tried = self._tried() if checked else -1
        alone: list[Any] = []  # the gradients of the micro-batch whose division is tried

        def record(turn: int) -> _Note:
            if turn != tried:
                return self._record(turn, self.samples[turn], checked=checked)
            others = _taken(parameters)
            note = self._record(turn, self.samples[turn], checked=checked)
            alone[:] = _aside(parameters)
            for parameter, gradient in zip(parameters, others, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            return note

        parts: dict[int, list[_Part]] = {}  # by micro-batch
        for turn, part, _ in plan:
            if part is not None:
                parts.setdefault(turn, []).append(part)
        weights = {turn: self.rows.figure_weights(self.batches[turn], of) for turn, of in parts.items()}
        made: dict[Any, _Note] = {}
        for turn, part, rank in plan:
            if rank == _run.rank and part is None:
                made[turn, part] = record(turn)
            elif rank == _run.rank and part is not None:
                weight = weights[turn][self.rows.rules[0]][parts[turn].index(part)]
                how = self.rows.trims is True, self.rows.drops
                made[turn, part] = self._record_part(turn, self.batches[turn], part, weight, how)
        mine = _aside(parameters) if checked else [p.grad for p in parameters]
        if checked:
            with _comparing():
                made = {
                    (turn, None): made.get((turn, None)) or record(turn) for turn in range(len(self.samples))
                }
            whole = _taken(parameters)
        of_parts = [note for (_, part), note in made.items() if part is not None]
        unknown = not checked and (
            figures.unknown({turn: note for (turn, part), note in made.items() if part is None})
            or not self.rows.knows(of_parts)
            or (
                len(self.samples) > 1
                and any(figures.tentative & note.changes.keys() for note in made.values())
            )
        )
        has = bytes(gradient is not None for gradient in mine)
        _read_losses(made.values())
        # what the ranks read, by its shapes; by its content in some steps
        is_full = checked or not self.steps & (self.steps - 1)
        batches = [_digest(inputs) if is_full else str(_shapes(inputs)) for inputs in self.samples]
        changes = held.changed() or self.drops_gradients * _DROPS
        of_ranks = _exchange((made, has, batches, changes, unknown, held.has_moved()))
        self.moves |= any(moved for *_, moved in of_ranks)
        if any(of_rank[2] != batches for of_rank in of_ranks):
            return f"the ranks read different batches. {_SEED}"
        if changed := next((of_rank[3] for of_rank in of_ranks if of_rank[3]), ""):
            return changed
        if len({any(of_ranks[unit.rank][1]) for unit in plan}) > 1:
            return _DROPS
        # of a micro-batch that is divided, its parts in order
        seen: list[list[_Note]] = [[] for _ in self.samples]
        for turn, part, _ in plan:
            seen[turn] += [notes[turn, part] for notes, *_ in of_ranks if (turn, part) in notes]
        of_rows = [note for turn in parts for note in seen[turn]]
        drawn = [(turn, note.draws) for turn in parts for note in seen[turn] if not note.is_near]
        known = {turn: self.draws.known.get(_shapes(self.samples[turn])) for turn in parts}
        if any(counts != (known[turn] or counts if self.rows.drops else _NOTHING) for turn, counts in drawn):
            self._say_undivided(_DRAWS)
            return _OTHERWISE
        if any(note.is_near for note in of_rows):
            self._say_near("for the rows that a rank computes")
        unlike = {turn: self.rows.unlike(seen[turn]) for turn in parts}
        self.rows.asked.update(*unlike.values())
        unclear = [turn for turn in parts if unlike[turn] or self.rows.are_unclear(weights[turn], seen[turn])]
        if unclear or any(of_rank[4] for of_rank in of_ranks):
            self.doubtful = unclear[0] if unclear else next(iter(parts), -1)
            self.rows.doubts += bool(parts)
            if parts and self.rows.doubts > _MOST_DOUBTS + self.steps // 50:
                self._say_undivided("its figures, or what Python decides in it, are not those of its rows")
            return _UNKNOWN
        if not self._as_expected(seen, parts, checked=checked):
            return _OTHERWISE
        if not checked and figures.overlapping(seen):
            return _UNKNOWN
        why = ""
        if checked:
            why = self._compare(seen)
            if tried >= 0 and not why:
                self._try_parts(tried, made[tried, None], alone)
            for parameter, gradient in zip(parameters, mine, strict=True):
                parameter.grad = None if gradient is None else gradient.to(parameter.device)
        self._sum(parameters, [has for _, has, *_ in of_ranks])
        self.notes = {turn: of_ranks[rank][0][turn, part] for turn, part, rank in plan}
        for turn in parts:
            self.notes[turn] = self.rows.joined(weights[turn], seen[turn])
        if checked and not why:
            difference = max(_exchange(_distance(parameters, whole)))
            if difference > 10 * _rounding(self.trainer):
                why = f"the ranks' gradients do not add up to those of one process (they differ by {difference:.1e})"
            else:
                _checks.record(self.losses_apart, difference)
        return why

    def _as_expected(self, seen: list[list[_Note]], divided: Collection[int], *, checked: bool) -> bool:
        """Return whether all micro-batches began where they do in one process; if not, the next ones will."""
        drawn: list[Any] = []
        for turn, notes in enumerate(seen):
            same = all(note.draws == notes[0].draws for note in notes)
            is_near = any(note.is_near for note in notes)
            found = self.draws.expected(self.samples[turn]) if is_near else notes[0].draws
            drawn.append(found if same or is_near else None)
        stood = self.figures.learn_counters(
            [notes for turn, notes in enumerate(seen) if turn not in divided], finds=checked
        )
        if drawn[-1] is not None:
            self.states[-1] = _advanced(self.states[-2], drawn[-1])
        return self.draws.learn(self.samples, drawn, self.steps) and stood

    def _compare(self, seen: list[list[_Note]]) -> str:
        """Return what of a checked step differs between the ranks; "" if nothing does."""
        self.losses_apart, tolerance = 0.0, _rounding(self.trainer)
        for turn, notes in enumerate(seen):
            losses = [note.result[0] for note in notes]
            if not all(_agree(losses[0], loss, tolerance) for loss in losses[1:]):
                values = " and ".join(f"{loss:.6g}" for loss in losses)
                return f"the loss of micro-batch {turn + 1} depends on what the rank computed before it ({values})"
            apart = [abs(loss / losses[0] - 1) for loss in losses if losses[0] == losses[0] != 0]
            self.losses_apart = max(self.losses_apart, *apart, 0.0)
        if what := self.figures.learn(seen):
            return f"{what} may depend on the micro-batches before"
        self.figures.summed |= self.figures.overlapping(seen)
        return ""


_WHOLE = "every rank computes all micro-batches, which is no faster than one GPU"
_DROPS = "a micro-batch drops gradients, which may be those of the ones before"
_UNKNOWN = "a figure has no rule yet"
_OTHERWISE = "random numbers or counters were not where they are in one process"
_MOST_DOUBTS = 5  # steps that may be computed again for a figure of parts, and one of fifty more
_MOST_OF_STEPS = 0.01  # of a run's steps, that checks after the first may cost
