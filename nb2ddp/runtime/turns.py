"""Compute the micro-batches of each accumulation step in turns, one process's Trainer on every rank.

Each rank runs the notebook's own Trainer on its own arguments, as one process: the same code with the same numbers.
When the first micro-batch of a step is asked for, each rank computes those that are its own; then losses, figures and
gradients are exchanged. Gradients are summed: each micro-batch has the weight that one process gives it.

The first step and some later ones are checked: rank 0 computes all micro-batches as the notebook does, and the
others do too, but each from where it would begin without those of other ranks; of an only one they compute parts.
Where these differ, or change what cannot be put together, every rank computes all of them from then on.
"""

import types
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.distributed as dist

from nb2ddp.runtime.checked_steps import _CheckedStep
from nb2ddp.runtime.digests import _SEED, _digest
from nb2ddp.runtime.divided_steps import _DRAWS, _STOPS, _DividedSteps, _read_losses
from nb2ddp.runtime.figure_rules import _Note
from nb2ddp.runtime.held_tensors import _Held
from nb2ddp.runtime.kept_values import _MOST, _own_parts
from nb2ddp.runtime.micro_batch_rows import _Part, _Rows
from nb2ddp.runtime.object_collectives import _exchange, _largest_of_ranks
from nb2ddp.runtime.random_draws import _NOTHING, _advanced, _shapes
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.replicas import _make_equal
from nb2ddp.runtime.run_state import _is_power_of_two, _replaced, _run, _warn, _warn_once
from nb2ddp.runtime.script_location import _is_own
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.step_plans import _Division, _equal_parts, _Unit
from nb2ddp.runtime.summed_gradients import (
    _add_gradients,
    _gradient_error,
    _persistent,
    _rounding,
    _take_gradients,
)
from nb2ddp.runtime.switches import _Switches
from nb2ddp.runtime.value_copies import _agree


class _Turns(_DividedSteps):
    """What a Trainer's ranks know of the accumulation step under way."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.next = 0  # the micro-batch that the Trainer asks for next
        self.notes: dict[int, _Note] = {}
        self.whole = ""  # why every rank computes all micro-batches
        self.first = 0  # this Trainer's first step, among those of all
        self.buffers: list[torch.Tensor] = []
        self.switches = _Switches()
        self.moves = False  # a micro-batch moves parameters, and back but for rounding
        self.model: Any = None  # whose parameters are known to be equal
        self.is_compared = False  # a step was
        self.again = -1  # the step to compare since gradients were 0 in the first one

    def begin(self, samples: list[Any]) -> None:
        """Note the micro-batches of a step."""
        self.samples, self.next, self.notes, self.checked = samples, 0, {}, None
        _run.micro_batches = len(samples)

    def release(self) -> None:
        """Drop what a step was and what it held, the Trainer, too: that ends where the notebook's does."""
        self.samples, self.batches, self.notes, self.states, of = [], [], {}, [], self.figures
        of.base, of.now, of.holders, of.owners, of.large = {}, {}, {}, {}, {}
        self.compute, _checks.begun = None, 0

    def expects(self, inputs: Any) -> bool:
        return self.next < len(self.samples) and self.samples[self.next] is inputs

    def take(self, compute: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        """Return the loss of the next micro-batch, and leave its figures as one process does. A collective."""
        if self.next == 0:
            self.compute = compute
            self._begin_step()
        i, self.next = self.next, self.next + 1
        if self.whole or self.checked:
            loss = compute(self.samples[i]) if self.whole else self._take_checked(i)
            if self.next == len(self.samples):
                self._take_from_rank_0()
            dist.broadcast(loss, 0)
            return loss
        self.figures.apply(note := self.notes[i])
        value, dtype = note.result
        return torch.tensor(value, dtype=dtype, device=self.trainer.args.device)

    def _begin_step(self) -> None:
        if self.model is not self.trainer.model:
            self.model = self.trainer.model
            self.of_model = list(self.model.parameters())
            self.buffers = _persistent(self.model)
            _make_equal(self.model, [name for name, _ in self.model.named_parameters()])
            state, self.is_own = _exchange((_random_state(), _has_own_loss(self.trainer)))[0]
            _set_random_state(state)
        self.trained = self._find_trained()
        step, self.steps = self.steps, self.steps + 1
        if self.whole:
            return
        self.batches = [_Rows(of, self.rows.blocks, divides=not self.rows.why_not) for of in self.samples]
        self.doubtful, self.drops_gradients = -1, False
        _checks.begun = self.first = self.first if step else _checks.steps  # others may have trained before
        is_again, most = step == self.again, self.trainer.state.max_steps
        is_due = _checks.is_checked(self.first + step, must=is_again or not self.is_compared)
        is_due = is_due and (not self.is_compared or self._may(self._of_check(), most if is_again else step))
        self.figures.most = _MOST_OF_LIST if is_due or not step else _MOST
        base = self.figures.base = self.figures.snapshot()
        start, kept = _random_state(), _take_gradients(self.trained)
        held = _Held(self, by_value=is_due or not step)
        self.states = self.draws.states(self.samples, start)
        is_due |= self._is_unlike(step)
        why, self.tries = _NO_RULE if is_due or not step else _WRONG_START, 0
        while why == _WRONG_START:
            self.states, self.tries = self.draws.states(self.samples, start), self.tries + 1
            with _replaced(_run, comparing=self.tries > 1):
                why = self._compute(held)
            self.figures.restore(base)
            if why:
                _take_gradients(self.trained)
        _set_random_state(start if why else self.states[-1])
        if self.moves:
            self._take_from_rank_0()
        _add_gradients(self.trained, kept)
        if why == _NO_RULE:
            self.spent += self._of_check()
            self.checked = _CheckedStep(held, base, self.trained, len(self.samples), self._tried())
            self.checked.way = self._meanwhile()
        elif why:
            held.put_back()
            held.take_from_rank_0()
            self.whole = why
            _checks.failed(f"{why}. From here on {_WHOLE}")
        elif self.draws.why_not:
            self._say_near(f"{self.draws.why_not}, after the first of each step")

    def _is_unlike(self, step: int) -> bool:
        """Return whether a step may be another one than those compared so far, and is to be checked. A collective."""
        for i in self._left_over() if self._meets else self._divisible():
            if self.rows.is_unsure(self.batches[i], _equal_parts(self.batches[i])):
                self.doubtful = i
        is_unsure = self.doubtful >= 0
        # by one rank alone: of its seconds, say
        seen = int(self.switches.changed(self.figures.base, self.figures.rules))
        is_other = bool(self.rows.rules and not self.rows.why_not and _largest_of_ranks(seen))
        needs_check = (self._is_watched(step) or is_other) and self._needs_check(self._tried())
        return is_unsure or is_other or needs_check

    def _take_checked(self, i: int) -> torch.Tensor:
        """Compute a micro-batch of a checked step. A rehearsal counts it on one rank."""
        step, here = self.checked, self.figures.snapshot()
        step.mark(i, self.trained)
        if not (step.is_undone and self.draws.known) or self.draws.why_not:
            self.states[i] = _random_state()
        if step.is_undone:
            self.figures.restore(step.own_values)
        self.figures.sets_counters = step.is_undone
        if step.way and step.is_undone:
            found, error = step.parts = self._compute_parts(i, step.way, meanwhile=True)
            note = next(iter(found.values()))[0] if error == _STOPS else _Note()
        else:
            with _replaced(_run, comparing=self.tries > 0 or i not in step.own):
                note = step.made[i, None] = self._record(i, self.samples[i], checked=True)
            loss = note.result.clone()
        step.is_undone &= not any(change.is_untracked for change in note.changes.values())
        if step.is_undone:
            step.own_values = self.figures.now if i in step.own else step.own_values
            self.figures.restore(here)
        self.figures.replay(_exchange(note.events)[0])
        if self.next == len(self.samples):
            value, dtype = self._end_checked(step)
            loss = torch.tensor(value, dtype=dtype, device=self.trainer.args.device)
        return loss

    def _end_checked(self, step: _CheckedStep) -> Any:
        """Compare a checked step, find whether it changes what cannot be put together, and return its last loss."""
        self.checked, self.figures.sets_counters = None, True
        here, state = self.figures.snapshot(), _random_state()
        self.states[-1] = state
        step.mark(len(self.samples), self.trained)
        truth = _take_gradients(self.trained)
        why, of_ranks, seen = self._meet(step.held, step.plan, step.made, step.own_gradients)
        why = why or self._compare(step, of_ranks, seen)
        if why not in ("", _WRONG_START):
            self.whole = why
            step.held.take_from_rank_0()
            if self.is_compared:
                _checks.failed(f"{why}. From here on {_WHOLE}")
            else:  # nothing was divided yet
                _warn(f"{_WHOLE}: {why}")
        self.figures.restore(here)
        for note in of_ranks[0].made.values() if step.is_undone else ():
            note.events = []
            self.figures.apply(note)
        _set_random_state(_exchange(state)[0])
        _take_gradients(self.trained)
        if step.way:  # rank 0 alone has those of the whole
            _add_gradients(self.trained, step.own_gradients)
            self._sum([of_rank.has for of_rank in of_ranks])
        _add_gradients(self.trained, step.earlier_gradients if step.way else truth)
        return of_ranks[0].made[len(self.samples) - 1, None].result

    def _take_from_rank_0(self) -> None:
        """Take gradients and buffers, and what micro-batches move: two computations differ in the last bits."""
        found = [p.grad for p in self.trained if p.grad is not None and not p.grad.is_sparse]
        found += [p.data for p in self.trained if self.moves]
        for tensor in found + [buffer for buffer in self.buffers if buffer.is_floating_point()]:
            dist.broadcast(tensor, 0)

    def _say_near(self, how: str) -> None:
        _warn_once(
            f"micro-batches draw random numbers (dropout, say) {how}: they draw others than in one process, so losses "
            "are near the single process's and not equal"
        )

    def _compute(self, held: _Held) -> str:
        """Compute this rank's micro-batches, and exchange what they gave. Return what is wrong, or ""."""
        plan, figures, made = self._plan(), self.figures, dict[Any, _Note]()
        parts: dict[int, list[_Part]] = {}  # by micro-batch
        for i, part, _ in plan:
            if part is not None:
                parts.setdefault(i, []).append(part)
        weights = {i: self.rows.figure_weights(self.batches[i], of) for i, of in parts.items()}
        for i, part, rank in plan:
            if rank == _run.rank and part is None:
                made[i, part] = self._record(i, self.samples[i])
            elif rank == _run.rank and part is not None:
                weight = weights[i][self.rows.rules[0]][parts[i].index(part)]
                way = _Division(self.batches[i], parts[i], self.rows.trims is True, self.rows.drops)
                made[i, part] = self._record_part(i, way, part, weight)
        wholes = {i: note for (i, part), note in made.items() if part is None}
        of_parts = [note for (_, part), note in made.items() if part is not None]
        is_unknown = figures.unknown(wholes, len(self.samples)) or not self.rows.knows(of_parts)
        why, of_ranks, seen = self._meet(held, plan, made, [p.grad for p in self.trained], is_unknown)
        if why:
            return why
        drawn = [(i, note.draws) for i in parts for note in seen[i] if not note.is_near]
        known = {i: self.draws.known.get(_shapes(self.samples[i])) for i in parts}
        if any(counts != (known[i] or counts if self.rows.drops else _NOTHING) for i, counts in drawn):
            self._say_undivided(_DRAWS)
            return _WRONG_START
        if any(note.is_near for i in parts for note in seen[i]):
            self._say_near("for the rows that a rank computes")
        unlike = {i: self.rows.unlike(seen[i]) for i in parts}
        self.rows.asked.update(*unlike.values())
        unclear = [i for i in parts if unlike[i] or self.rows.are_unclear(weights[i], seen[i])]
        if unclear or any(of_rank.is_unknown for of_rank in of_ranks):
            self.doubtful = unclear[0] if unclear else next(iter(parts), -1)
            self.rows.doubts += bool(parts)
            if parts and self.rows.doubts > _MOST_DOUBTS + self.steps // 50:
                self._say_undivided("its figures, or what Python decides in it, are not those of its rows")
            return _NO_RULE
        if not self._as_expected(seen, parts):
            return _WRONG_START
        if figures.overlapping(seen):
            return _NO_RULE
        self._sum([of_rank.has for of_rank in of_ranks])
        self.notes = {i: of_ranks[rank].made[i, part] for i, part, rank in plan}
        for i in parts:
            self.notes[i] = self.rows.joined(weights[i], seen[i])
        return ""

    def _meet(
        self, held: _Held, plan: list[_Unit], made: Any, gradients: list[Any], is_unknown: bool | None = None
    ) -> tuple[str, list[Any], list[list[_Note]]]:
        """Exchange what this rank has computed. Return what is wrong, or ""; what ranks sent; notes by micro-batch."""
        _read_losses(made.values())
        has = bytes(gradient is not None for gradient in gradients)
        # what the ranks read, by its shapes; by its content in some steps
        is_full = is_unknown is None or _is_power_of_two(self.steps)
        batches = [_digest(inputs) if is_full else str(_shapes(inputs)) for inputs in self.samples]
        is_sparse = any(gradient is not None and gradient.is_sparse for gradient in gradients)
        own = types.SimpleNamespace(made=made, has=has, batches=batches, is_unknown=is_unknown)
        own.wrong = held.changed() or self.drops_gradients * _DROPS or is_sparse * _SPARSE
        own.moves = held.has_moved()
        of_ranks = _exchange(own)
        self.moves |= any(of_rank.moves for of_rank in of_ranks)
        why = next((of_rank.wrong for of_rank in of_ranks if of_rank.wrong), "")
        if any(of_rank.batches != batches for of_rank in of_ranks):
            why = f"the ranks read different batches. {_SEED}"
        elif len({any(of_ranks[unit.rank].has) for unit in plan}) > 1:
            why = why or _DROPS
        # of a micro-batch that is divided, its parts in order
        seen: list[list[_Note]] = [[] for _ in self.samples]
        for i, part, _ in plan:
            seen[i] += [of_rank.made[i, part] for of_rank in of_ranks if (i, part) in of_rank.made]
        return why, of_ranks, seen

    def _as_expected(self, seen: list[list[_Note]], divided: Collection[int] | None = None) -> bool:
        """Return whether all micro-batches began where they do in one process; if not, the next ones will."""
        drawn: list[Any] = []
        for i, notes in enumerate(seen):
            same = all(note.draws == notes[0].draws for note in notes)
            is_near = any(note.is_near for note in notes)
            found = self.draws.expected(self.samples[i]) if is_near else notes[0].draws
            drawn.append(found if same or is_near else None)
        of_wholes = [notes for i, notes in enumerate(seen) if i not in (divided or ())]
        stood = self.figures.learn_counters(of_wholes, finds=divided is None)
        if drawn[-1] is not None:
            self.states[-1] = _advanced(self.states[-2], drawn[-1])
        return self.draws.learn(self.samples, drawn, self.steps) and stood

    def _compare(self, step: _CheckedStep, of_ranks: list[Any], seen: list[list[_Note]]) -> str:
        """Return what of a checked step differs between the ranks; "" if nothing does."""
        stands, tolerance, apart, why = self._as_expected(seen), _rounding(self.trainer), 0.0, ""
        for i, notes in enumerate(seen):
            first, *others = [note.result[0] for note in notes]
            if not all(_agree(first, loss, tolerance) for loss in others):
                values = " and ".join(f"{loss:.6g}" for loss in (first, *others))
                why = f"the loss of micro-batch {i + 1} depends on what its rank computed before ({values})"
            apart = max([apart, *(abs(loss / first - 1) for loss in others if first == first != 0)])
        if not why and (what := self.figures.learn(seen)):
            why = f"{what} may depend on the micro-batches before"
        if why:
            return why if stands else _WRONG_START  # numbers were not known yet: the next step shows it
        self.figures.summed |= self.figures.overlapping(seen)
        if step.tried >= 0:
            first = [(step.way, step.parts)] if step.way else []
            self._try_parts(step.tried, step.made.get((step.tried, None)), step.tried_gradients, first)
        _take_gradients(self.trained)
        _add_gradients(self.trained, step.own_gradients)
        self._sum([of_rank.has for of_rank in of_ranks])
        difference = _exchange(_gradient_error(self.trained, step.all_gradients))[0]
        if difference > 10 * tolerance:
            return f"the ranks' gradients do not add up to those of one process (they differ by {difference:.1e})"
        if not self.is_compared and any(p.grad is not None and not p.grad.any() for p in self.trained):
            self.again = self.steps + 1  # a LoRA's A: B was 0, and is in the next step where a warm-up begins
        self.is_compared = True
        _checks.record(apart, difference)
        return ""


def _has_own_loss(trainer: Any) -> bool:
    """Return whether a Trainer's loss, or a module of its model, is code of the notebook's."""
    kinds = [kind for kind in trainer.__class__.__mro__ if kind.__name__[0] != "_"]  # not what divides it
    names = ("compute_loss", "training_step", "compute_loss_func")
    of = [*kinds, *(vars(each).get(name) for each in (trainer, *kinds) for name in names)]
    return bool(_own_parts(trainer.model)) or any(_is_own(getattr(each, "__module__", None)) for each in of)


_WHOLE = "every rank computes all micro-batches, which is no faster than one GPU"
_DROPS = "a micro-batch drops gradients, which may be those of the ones before"
_SPARSE = "an embedding gives sparse gradients"
_NO_RULE = "a figure has no rule yet"
_WRONG_START = "random numbers or counters were not where they are in one process"
_MOST_OF_LIST = 1 << 20  # items that are compared in a checked step
_MOST_DOUBTS = 5  # steps that may be computed again for a figure of parts, and one of fifty more
