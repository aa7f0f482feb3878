"""Compute micro-batches of a step whole or in parts, and find whether parts give the whole; `_Turns` says when."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from nb2ddp.runtime.figure_rules import _Note
from nb2ddp.runtime.figures import _Figures
from nb2ddp.runtime.gradients import _nodes, _sum_in_buckets
from nb2ddp.runtime.micro_batch_rows import _SUM, _Part, _Rows
from nb2ddp.runtime.object_collectives import _exchange
from nb2ddp.runtime.random_draws import _NOTHING, _Draws
from nb2ddp.runtime.row_parts import _RowParts
from nb2ddp.runtime.run_state import _run, _say, _warn
from nb2ddp.runtime.spot_checks import _checks, _comparing
from nb2ddp.runtime.step_plans import _in_parts, _planned, _Unit
from nb2ddp.runtime.summed_gradients import _aside, _distance, _rounding, _taken

_How = tuple[bool, bool]  # whether a part leaves out padding, and whether it drops out as the whole does


class _DividedSteps:
    """A Trainer's accumulation step under way: its micro-batches, and how they are divided."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.figures = _Figures(trainer)
        self.rows = _RowParts(self.figures.keeps)
        self.draws = _Draws()
        self.samples: list[Any] = []
        self.compute: Callable[[Any], torch.Tensor]  # what the Trainer does with one of them
        self.steps = 0
        self.batches: list[_Rows] = []  # the rows of the samples
        self.doubtful = -1  # the micro-batch whose division is tried next; -1 where any may be
        # random states at the beginning of each micro-batch, and at the end
        self.states: list[tuple[Any, ...]] = []
        self.of_model: list[Any] = []
        self.trained: list[Any] = []  # parameters, as of the beginning of the step
        self.drops_gradients = False  # a micro-batch does, those of the ones before it
        self.watched, self.epoch = 0, 0

    def _left_over(self) -> list[int]:
        """Return the micro-batches of this step that would leave a rank without one, where rows may be divided."""
        over = len(self.samples) % _run.world_size
        return [turn for turn in self._divisible() if turn >= len(self.samples) - over]

    def _divisible(self) -> list[int]:
        rows = [] if self.rows.why_not else self.batches
        least = _run.world_size if self._meets else 2
        counts = {turn: len(of.lengths) for turn, of in enumerate(rows)}
        # gathered rows are as many on each rank
        uneven = {count for count in counts.values() if count % _run.world_size and self._gathers}
        return [turn for turn, count in counts.items() if count >= least and count not in uneven]

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
        divisible = {turn: self.batches[turn] for turn in self._divisible() if rules}
        if not self._meets:
            return _planned(self.batches, divisible, trims=trims)
        parts = {turn: _in_parts(self.batches[turn]) for turn in self._left_over() if turn in divisible}
        parts = {turn: of for turn, of in parts.items() if min(self.rows.weight(self.batches[turn], of)) > 0}
        wholes = _planned(self.batches, {}, trims=trims, left_out=parts)
        return wholes + [_Unit(turn, of[rank], rank) for turn, of in parts.items() for rank in range(len(of))]

    def _tried(self) -> int:
        """Return the micro-batch whose division is tried in a checked step: one with much padding; -1 for none."""
        turns = self._left_over() if self._meets else self._divisible()
        if self.doubtful in turns:
            return self.doubtful

        def saved(turn: int) -> tuple[float, float]:
            rows = self.batches[turn]
            parts = sum(rows.cost_of(part, trims=True) for part in _in_parts(rows, by_length=not self._meets))
            return rows.cost - parts, rows.cost

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

    def _try_parts(self, turn: int, whole: _Note, alone: list[Any]) -> None:
        """Compute this rank's rows of a micro-batch, and find how the ranks' parts give the whole. A collective."""
        rules, reasons = self.rows, list[str]()
        known, trims = bool(rules.rules), [True, False] if rules.trims is None else [rules.trims]
        drops = any(self.draws.expected(self.samples[turn])[2:])
        if drops and _run.dropout is None:
            self._say_undivided(_DRAWS)
            return
        near = drops and torch.cuda.is_available()  # each rank's own: compared without dropout
        of_whole: _Note | None = whole
        trims = [False] if drops else trims
        if near:
            of_whole = None
            _taken(self.trained)
            with contextlib.suppress(Exception), _comparing(), _without_dropout():
                of_whole = self._record(turn, self.samples[turn])
                _read_losses([of_whole])
            alone = _aside(self.trained)
        for blocks, trimmed in itertools.product([rules.blocks] if known else [1, 2], trims):
            rows = _Rows(self.samples[turn], blocks)
            parts = _in_parts(rows, by_length=not self._meets)
            saves = any(rows.width(part, trims=True) < rows.columns for part in parts)
            if trimmed and not saves and False in trims:
                continue  # shows nothing
            draws = drops and not near
            with _without_dropout() if near else contextlib.nullcontext():
                why = self._why_no_parts(turn, rows, parts, of_whole, alone, (trimmed, draws))
            reasons.append(why)
            if not why:
                rules.blocks, rules.trims = blocks, trimmed if saves or drops else rules.trims
                rules.drops |= drops
                rules.compared.add(rules.kind(rows, parts))
                break
        why = _DRAWS if _DRAWS in reasons else reasons[0]
        why = why if all(reasons) else ""
        _taken(self.trained)
        if not why and not known and (drops or rules.rules[0] != _SUM) and not self._left_over():
            why = _DRAWS if drops else _EVEN
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
        """Return whether the losses of parts are to be looked at again: in step 2, 4, 8 and so on, and in epochs."""
        epoch, self.epoch = self.epoch, int(self.trainer.state.epoch or 0)
        is_new = epoch != self.epoch and 2 * self.watched <= step
        return bool(self.rows.rules) and _checks.is_on and (is_new or not step & (step + 1))

    def _needs_check(self, turn: int) -> bool:
        """Compare the loss of a few rows, of one for each part, with those of the parts, by forward(). A collective.

        Where they differ, no micro-batch is divided any more. Return whether that raises: the step is to be checked.
        """
        if turn < 0:
            return False
        self.watched += 1
        rules, batch, notes = self.rows, self.batches[turn], list[_Note]()
        twice = tuple(place // 2 % len(batch.lengths) for place in range(2 * _run.world_size))
        few = batch.of(twice, trims=False)
        rows = _Rows(few, rules.blocks)
        parts = _in_parts(rows, by_length=not self._meets)
        near = rules.drops and torch.cuda.is_available()
        how = rules.trims is True, rules.drops and not near
        with (
            contextlib.suppress(Exception),
            _comparing(),
            _with_backward(self.trainer, lambda *_, **__: None),
            _without_dropout() if near else contextlib.nullcontext(),
        ):
            notes.append(self._record(turn, few))
            self.figures.restore(self.figures.base)
            part = parts[min(_run.rank, len(parts) - 1)]
            notes.append(self._record_part(turn, rows, part, 1.0, how))
        _read_losses(notes)
        self.figures.restore(self.figures.base)
        _taken(self.trained)
        seen = _exchange([note.result[0] for note in notes])
        if any(len(losses) < 2 for losses in seen):
            self.doubtful = turn
            return True
        whole, losses = seen[0][0], [losses[1] for losses in seen[: len(parts)]]
        rules.rules = rules.narrow(rows, parts, losses, whole, _rounding(self.trainer))
        if rules.rules:
            _checks.record(0.0)
        else:
            self._divide_no_more(_NO_SUM)
        return False

    def _why_no_parts(
        self, turn: int, rows: _Rows, parts: list[_Part], whole: _Note | None, alone: list[Any], how: _How
    ) -> str:
        """Return why parts do not give the whole; "" where they do, and then their rules are noted. A collective."""
        parameters, note, error = self.trained, None, _DRAWS if whole is None else ""
        _taken(self.trained)
        self.figures.restore(self.figures.base)  # parts begin where the whole did
        if len(parts) < 2:
            return "it holds no rows that can be divided, or a single one"
        try:
            if _run.rank < len(parts):
                with _comparing():
                    note = self._record_part(turn, rows, parts[_run.rank], 1.0, how, checked=True)
        except Exception as raised:
            error = f"its rows alone raise {type(raised).__name__}"
        _read_losses([note] if note is not None else [])
        seen = _exchange((note, bytes(p.grad is not None for p in parameters), error, whole))
        if why := next((error for *_, error, _ in seen if error), ""):
            return why
        whole = seen[0][-1] or _Note()  # every rank saw it a little otherwise, and all are to decide alike
        notes = [note for note, *_ in seen if note is not None]
        if any(note.is_near or note.draws != whole.draws for note in notes):
            return _DRAWS
        if whole.draws != _NOTHING and not how[1]:
            return _DRAWS
        tolerance, weights = _rounding(self.trainer), self.rows.figure_weights(rows, parts)
        found = self.rows.narrow(rows, parts, [note.result[0] for note in notes], whole.result[0], tolerance)
        if not found:
            return _NO_SUM
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad *= weights[found[0]][_run.rank]
        self._sum(parameters, [has for _, has, *_ in seen])
        if max(_exchange(_distance(parameters, alone))) > 10 * tolerance:
            return "the gradients of its rows do not add up"
        self.rows.rules = found
        figure = self.rows.learn_figures(weights, notes, whole, self.figures.sources)
        if not figure:
            self.rows.branches |= self.rows.asked | self.rows.unlike(notes)
            self.rows.asked.clear()
        return figure and f"{figure} cannot be put together from the ranks' rows"

    def _record_part(
        self, turn: int, rows: _Rows, part: _Part, weight: float, how: _How, *, checked: bool = False
    ) -> _Note:
        """Compute rows of a micro-batch, whose loss counts with a weight in backward().

        On CPUs its dropout is that of these rows in one process, on GPUs this rank's own.
        """
        trims, draws = how
        inputs, backward = rows.of(part, trims=trims), self.trainer.accelerator.backward
        near = torch.cuda.is_available() or rows.blocks > 1
        of = None if near else (part[0], part[-1] + 1, len(rows.lengths))
        random = _run.dropout[1](of) if draws else contextlib.nullcontext(bool)
        drew: list[bool] = []

        def compute() -> torch.Tensor:
            with random as has_drawn:
                loss = self.compute(inputs).detach()
            drew.append(has_drawn())
            return loss

        gathering = _run.gathering[1](self.trainer) if _run.gathering else contextlib.nullcontext()
        weighted = _with_backward(self.trainer, lambda loss, **options: backward(loss * weight, **options))
        first = _nodes()
        with weighted, gathering, _choices() as chosen:
            note = self._record(turn, inputs, compute, checked=checked)
        note.is_near, note.chosen, note.nodes = any(drew), bytes(chosen), _nodes() - first
        return note

    def _record(
        self, turn: int, inputs: Any, compute: Callable[[], torch.Tensor] | None = None, *, checked: bool = False,
    ) -> _Note:  # fmt: skip
        """Compute a micro-batch, or rows of it, from where one process stands at its beginning."""
        _run.micro_batch = turn, len(self.samples), inputs is not self.samples[turn]
        before = [p for p in self.trained if p.grad is not None]
        try:
            whole = compute or (lambda: self.compute(_copied_batch(inputs)).detach())
            return self.figures.record(whole, turn, self.states[turn], checked=checked)
        finally:
            _run.micro_batch = None
            self.drops_gradients |= any(p.grad is None for p in before)

    def _find_trained(self) -> list[Any]:
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
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dense.append(parameter.grad)
        _sum_in_buckets(dense)


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


@contextlib.contextmanager
def _with_backward(trainer: Any, backward: Callable[..., Any]) -> Iterator[None]:
    """Let a Trainer's step end with another backward()."""
    accelerator = trainer.accelerator
    own = vars(accelerator).get("backward")
    accelerator.backward = backward
    try:
        yield
    finally:
        del accelerator.backward
        if own is not None:
            accelerator.backward = own


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

    for name in ("__bool__", "item"):
        setattr(torch.Tensor, name, watched(getattr(torch.Tensor, name)))
    try:
        yield chosen
    finally:
        for name in ("__bool__", "item"):
            delattr(torch.Tensor, name)


def _read_losses(notes: Iterable[_Note]) -> None:
    """Make numbers of losses, once all are under way: each one that is read waits for the GPU."""
    for note in notes:
        if isinstance(note.result, torch.Tensor):
            note.result = float(note.result), note.result.dtype
