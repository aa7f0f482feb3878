"""Let each rank compute its part of every batch that a model is called with, in a loop of the notebook's."""

import collections
import contextlib
import functools
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_patches import _made_before, _MeanOverRanks
from nb2ddp.runtime.averaged_backward import _Averaging
from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import _IN_16_BITS, _OTHER_NUMBERS, _OWN_NUMBERS, _computes_in_16_bits
from nb2ddp.runtime.call_settings import _Settings
from nb2ddp.runtime.check_times import _check_times
from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.dropout_rows import _own_random_numbers
from nb2ddp.runtime.gradients import _nodes
from nb2ddp.runtime.module_state import (
    _changed_for_good,
    _hooks_of_notebook,
    _is_compiled,
    _modules,
    _ModuleState,
    _positions,
    _unsynchronised,
)
from nb2ddp.runtime.object_collectives import _exchange, _largest_of_ranks, from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _generators, _set_generators
from nb2ddp.runtime.random_rows import _RandomRows
from nb2ddp.runtime.recomputed_calls import _Comparison
from nb2ddp.runtime.repeated_writes import _Effect, _ending_at_effects
from nb2ddp.runtime.run_state import _is_power_of_two, _replaced, _run, _say_once, _warn_once
from nb2ddp.runtime.same_losses import _are_same_batches, _Losses
from nb2ddp.runtime.split_classes import _as_it_was, _divide_no_parts, _splits
from nb2ddp.runtime.spot_checks import _FROM_HERE_ON, _checks
from nb2ddp.runtime.value_reads import _OTHER_BRANCH, _are_on_all_ranks, _Paths, _Reads


class _Split:
    """Divides a model's calls over the ranks."""

    most_rechecks = 16
    worth = 4e-3  # seconds, as a comparison takes: a call without gradients that takes less is computed whole

    def __init__(self, model: torch.nn.Module, whole: Any = None) -> None:
        self.model: Any = weakref.proxy(model)
        self.only: Any = lambda _: {}  # gives what stands, by id, for outputs that nobody reads
        # whether it is computed whole but for its parts; of a part, the model that it is in, whose averaging it has
        self.by_parts, self.whole_model = False, None if whole is None else weakref.ref[Any](whole)
        self.averaging = _Averaging(self.model) if whole is None else _splits[whole].averaging
        self.warn: Any = _warn_once if whole is None else lambda _: None  # what the model has said
        self.function: Callable[..., Any] | None = None  # the method that is called, if not the model
        self.plain, self.methods = set[str](), set[str]()  # that train nothing by themselves, and that do
        self.settings: dict[Any, _Settings] = collections.defaultdict(_Settings)  # by mode
        self.mode = True, True  # of this call: whether the model trains, and whether there are gradients
        self.modules, self.batch_norms = list[Any](), list[Any]()  # weak references; those not synchronised
        self.seen: list[Any] = []  # ids of all modules; of all parameters ids, and whether they are trained
        self.hooks = 0  # how many hooks there were
        self.hooked: str | None = None  # what the notebook has hooked a function to
        self.calls, self.of_training, self.steps, self.began = 0, 0, 0, time.monotonic()
        run, worth = weakref.WeakMethod(self._run), None if whole is None else self.worth
        self.compared = _Comparison(self.model, run, worth)
        self.joins, self.kinds = self.compared.joins, set[Any]()  # that were compared
        self.losses, self.paths, self.odd = _Losses(), _Paths(), 0  # the latest call that was an exception
        self.rechecks: dict[Any, int] = {}  # by kind of call: outputs of another form, or by another path
        self.whole: dict[Any, str] = {}  # kinds of calls for which every rank computes whole batches, and why
        self.other_places = set[Any]()  # of them, those for which rows in another dimension are tried next
        self.why = self.takes = ""  # what was wrong with the first layout; what a call changes for good
        self.last: tuple[Any, ...] | None = None  # the latest divided call with gradients
        self.spots: dict[Any, int] = {}  # by kind of call, the step in which it was called last

    def method(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Compute what a method of the model's own gives; the first call says whether it trains by itself."""
        is_given = any(isinstance(x, torch.Tensor) and x.ndim for x in pytree.tree_leaves((args, kwargs)))
        if is_given and name in self.methods:
            with _replaced(self, function=function):  # it holds the model
                return self.forward(args, kwargs, name)
        if not is_given or not torch.is_grad_enabled():  # nobody knows yet whether it trains
            return function(*args, **kwargs)
        before = self.calls
        self._prepare()
        output = function(*args, **kwargs)
        self._prepare()  # a lazy model
        trains = any(getattr(x, "requires_grad", hasattr(x, "__dict__")) for x in pytree.tree_leaves(output))
        if self.calls > before or not trains:
            self.plain.add(name)
        else:
            self.methods.add(name)
            self.calls += 1
            self.averaging.watch(output, whole=True)
        return output

    def forward(self, args: Any, kwargs: Any, name: str = "") -> Any:
        """Return the outputs of a call: of all rows, of which this rank has computed its part."""
        _divide_no_parts(self)
        self.mode, self.why = (self.model.training, torch.is_grad_enabled()), ""
        for layout in range(3):
            parts = _Parts(args, kwargs, layout)
            shape = parts.shape(words=len(self.kinds) < self.most_rechecks)
            kind, of_more = ((name, shape, self.mode, one_row) for one_row in (parts.has_one_row, False))
            if not {kind, of_more} & self.other_places:
                break
            self.why = self.why or self.whole.get(kind) or self.whole[of_more]
        if self._costs_no_time(parts, kind):
            return self._run(args, kwargs, notes=False)
        if _is_power_of_two(self.calls):
            self.losses.compare()
        self.calls, self.of_training = self.calls + 1, self.of_training + self.mode[1]
        if _is_power_of_two(self.calls) and not parts.obstacle:
            self._see_same_batches(parts, kind)
        self._prepare()
        if self.hooks != torch.utils.hooks.RemovableHandle.next_id:
            self.hooked = _hooks_of_notebook(self.model)
        if self.calls == 1 and (positions := _positions(self.model)):  # of iterators in sight
            output = self._compute_whole(args, kwargs)
            of_ranks = from_all_ranks(_changed_for_good(self.model, positions, name))
            self.takes = next((of for of in of_ranks if of), [""])[0]
            return output
        if self._keeps_whole(parts, kind, of_more) or (joined := self._divided(parts, kind)) is None:
            return self._compute_whole(args, kwargs)
        self.last = (parts, kind) if self.mode[1] else self.last
        if self.whole_model:
            name = type(self.whole_model()).__name__
            _say_once(f"parts of {name} are divided over the ranks all the same, which saves time")
        if _is_power_of_two(self.calls):
            self.losses.note(joined[0], of_rank=joined[1])
        self.averaging.watch(joined[0])
        self.hooks = torch.utils.hooks.RemovableHandle.next_id
        return joined[0]

    def _costs_no_time(self, parts: _Parts, kind: Any) -> bool:
        """Return whether a call without gradients is every rank's own: a short one, or that of a lazy model, say."""
        if self.mode[1] or self.by_parts or parts.obstacle or kind in self.whole:
            return not self.mode[1]
        # a library's may show what a call computes
        hooks = [of for part in self.model.modules() for of in (part._forward_hooks, part._forward_pre_hooks)]
        of_modules = {getattr(hook, "__module__", None) or "" for of in hooks for hook in of.values()}
        is_seen = any(not name.startswith("torch.") for name in of_modules)
        is_apart = len({p.device for p in self.model.parameters()}) > 1
        is_lazy = self.calls == 0 and any(map(torch.nn.parameter.is_lazy, self.model.parameters()))
        is_short = self.compared.pace.get(kind, math.inf) * parts.rows < self.worth
        return is_short or is_apart or is_lazy or is_seen

    def _see_same_batches(self, parts: _Parts, kind: Any) -> None:
        try:
            # of a part the whole model's are compared: what that computes from them may be rounded otherwise
            if not self.whole_model and not _are_same_batches(self.model, parts.leaves):
                _warn_once(_OTHER_NUMBERS)
        except RuntimeError:
            if self.mode[1]:
                raise
            self._divide_no_more(kind, "the ranks have drawn or chosen other rows")

    def _prepare(self) -> None:
        """See what is trained, and synchronise new batch norms; a lazy model's parameters have to be there."""
        self.modules = list(map(weakref.ref, (modules := _modules(self.model))))  # it may end before
        if self.whole_model and self.whole_model() is None:  # it is gone, and its part is a model
            self.whole_model, self.averaging = None, _Averaging(self.model)
        averages = torch.is_grad_enabled() or self.averaging.trained is not None
        before, of = self.seen, [p for part in modules for p in part._parameters.values() if p is not None]
        self.seen = [*map(id, modules), *[(id(p), p.requires_grad) for p in of]]
        is_known = self.seen == before and not (averages and self.averaging.trained is None)
        if is_known or any(map(torch.nn.parameter.is_lazy, self.model.parameters())):
            return  # a lazy model's parameters are made, and drawn, in its first call, as in one process
        self.batch_norms = _unsynchronised(self.model)
        if averages:
            self.averaging.refresh()

    def _keeps_whole(self, parts: _Parts, kind: Any, of_more: Any) -> bool:
        """Find what of a model must see whole batches, without a comparison."""
        if parts.obstacle:
            self.warn(f"a batch is computed by every rank: {parts.obstacle}")
            self.whole |= {of_more: parts.obstacle} if parts.obstacle.startswith("its arguments") else {}
        elif of_more in self.whole:
            self.whole[kind] = self.whole[of_more]
        is_lazy = self.mode[1] and self.averaging.trained is None
        if parts.obstacle or self.by_parts or is_lazy or kind in self.whole:
            return True
        why = _BATCH_NORM if any(norm.training for norm in self.batch_norms) else ""
        if self.hooked:
            why = f"the notebook has a hook on {self.hooked}, which must see whole batches; remove it to share them"
        elif self.takes:
            why = f"a call changes `{self.takes}`, and what was read or written there cannot be taken back"
        self._divide_no_more(kind, why) if why else None
        return bool(why)

    def _divided(self, parts: _Parts, kind: Any) -> tuple[Any, Any] | None:
        """Return the outputs of all rows, and those of this rank's; None where the whole batch is to be computed."""
        self.compared.expected = None  # of an earlier batch, which was computed whole after its check
        settings, self.joins[kind].only = self.settings[self.mode], self.only
        found = settings.changed(self.model, self.modules, kind, parts.values)
        mode = 2 * self.mode[0] + self.mode[1]  # a rank may see it alone: of the seconds that it took, say
        changed, settings.looks, most, least = _largest_of_ranks([found, settings.vary, mode, -mode])
        if most != -least:
            self._see_same_batches(parts, kind)
        is_first = kind not in self.kinds
        if is_first and len(self.whole) >= max(self.most_rechecks, len(self.kinds)):  # and one more each time
            self.whole[kind] = next(iter(self.whole.values()))
            return None
        uncertain = 0 if is_first else self.joins[kind].are_uncertain(parts)
        step = _run.steps or max(self.of_training - 1, 0)  # a loop may train without an optimizer
        is_many = self.whole_model or not self.mode[1]  # calls in one step: the first is compared
        spot = _checks.is_checked(step) and not (is_many and self.spots.get(kind) == step)
        self.spots[kind] = step
        if changed:
            _check_times.begin_again(step)
        was_good = not spot or _checks.last_good[1] >= step - 1  # so the change alone is to blame
        is_new = is_first or uncertain > 0 or (changed == 1 and was_good and not settings.looks)
        is_due = is_first or uncertain > 0 or spot or (changed > 0 and _checks.is_on)
        few = not is_first and uncertain < 2 and not (spot and _checks.is_whole)
        if is_due and not self._check(parts, kind, is_new=is_new, few=few, ask=uncertain > 0):
            return None
        if self.joins[kind].leave_out_a_rank(parts) or self._costs_no_time(parts, kind):
            return None
        output = self._compute_part(parts, kind)
        if output is None:
            return None
        if self.calls <= self.most_rechecks and _computes_in_16_bits(self.model, output):
            _warn_once(_IN_16_BITS)
        expected, self.compared.expected = self.compared.expected, None
        joined = self.joins[kind].join(output, parts, self.model, of_all=expected is not None)
        if expected is not None and not from_main_process(lambda: self.compared.is_near(expected, joined)):
            self.whole[kind] = "what the ranks have joined is not what was compared"
            _checks.failed(f"{self.whole[kind]}. {_FROM_HERE_ON}")
        return joined, output

    def _compute_part(self, parts: _Parts, kind: Any) -> Any:
        """Return what this rank's rows give; None where the whole batch is to be computed.

        Where Python sees values, ranks may have taken different ways; what the call has changed is put back then.
        """
        first, own = _nodes(), parts.of(*parts.ranges[_run.rank], differentiable=True)
        rows = (*parts.ranges[_run.rank], parts.rows) if self.joins[kind].draws else None
        compared, sees = self.compared, kind in self.compared.reads or self.settings[self.mode].looks
        chooses = compared.reads.get(kind, 3) < 3 and self.joins[kind].ways
        start, size = _ModuleState(self.model, **compared.moves) if sees else None, parts.sizes[_run.rank]
        put_back: Any = start.take if start else functools.partial(_set_generators, _generators())
        reads, form, error = _Reads(size) if chooses else None, None, None
        try:
            drawn = _own_random_numbers(rows, _RandomRows)
            with drawn as drew, _ending_at_effects(), reads or contextlib.nullcontext():
                self.paths.latest = set()
                output = self._run(*own, has_rows=True)
                form = self.joins[kind].form(output, size) if sees else None
        except (Exception, _Effect) as raised:
            error, form = raised, None
        has_effect = isinstance(error, _Effect)
        why = f"a batch is computed by every rank: {error if has_effect else _OTHER_BRANCH}"
        wrong = start is None and _largest_of_ranks([(error is not None) + has_effect])[0]
        if wrong == 1:
            _exchange(None, error)  # the notebook may handle it, on every rank
        elif wrong:
            compared.reads.setdefault(kind, 0)  # what the next ones change before is put back
            put_back()
            self.warn(why)
            return None
        # where Python sees values, other rows may save it in one process: the largest of a selection that is empty here
        if start is not None:
            way = None if self.paths.asks(kind, self.calls) else ""
            has = str(_digest(_generators())), form, str(reads.choices if reads else 0), way
            draws_alike, of_one_form, alike, on_path = _are_on_all_ranks(*has)
            if not (draws_alike and of_one_form and alike and on_path):
                put_back()
                if not of_one_form or (not alike and self.rechecks.get(kind, 0) >= self.most_rechecks):
                    self.warn(why)
                    return None
                if not self._check(parts, kind, is_new=True):
                    return None
                if not alike:
                    compared.reads[kind] += 1
                with _own_random_numbers(rows, _RandomRows) as drew:
                    output = self._run(*own, has_rows=True)
                self.paths.known[kind] |= self.paths.latest
        if not self.joins[kind].know(output, size):  # a head that the model uses from now on
            self.rechecks[kind] = self.rechecks.get(kind, 0) + 1
            put_back()
            if self.rechecks[kind] > self.most_rechecks:
                self._divide_no_more(kind, "the structure of its outputs keeps changing")
            else:
                self._check(parts, kind, is_new=True)
            return None
        if drew():
            self.compared.expected = None
            _warn_once(_OWN_NUMBERS)
        average = functools.partial(pytree.tree_map_only, torch.Tensor, _MeanOverRanks.apply)
        for node in [*parts.of_whole, *(_made_before(first, output) if kind in compared.going_on else ())]:
            if "nb2ddp" not in node.metadata:  # several calls may read it, each rank's rows in part
                node.metadata["nb2ddp"] = node.register_prehook(average)
        return output

    def _compute_whole(self, args: Any, kwargs: Any) -> Any:
        """Compute a whole batch on every rank."""
        output = self._run(args, kwargs, notes=not self.by_parts)
        self._prepare() if self.averaging.trained is None else None  # a lazy model
        if self.calls < 3:  # each rank's rounding is its own, which counts where the loss is near 0
            self.losses.note(output)
        self.averaging.watch(output, whole=True)
        self.hooks = torch.utils.hooks.RemovableHandle.next_id  # those of ours are known
        return output

    def _run(self, args: Any, kwargs: Any, *, notes: bool = True, has_rows: bool = False) -> Any:
        model = next(of for of in _splits if _splits[of] is self)
        settings, first, self.paths.way = self.settings[self.mode], _nodes(), 0
        looks = settings.looks and not _is_compiled(of() for of in self.modules)
        with _as_it_was(model, has_rows=has_rows), self.paths if looks else contextlib.nullcontext():
            output = (self.function or model)(*args, **kwargs)
        self.paths.latest.add((self.paths.way, _nodes() - first))
        with torch._C.DisableTorchFunction():  # it reads values, too
            settings.note(model) if notes else None
        return output

    def _check(self, parts: _Parts, kind: Any, *, is_new: bool, few: bool = False, ask: bool = False) -> bool:
        """Compare a call, or a ``few`` of its rows, with the same computed whole; return whether to divide it.

        If they differ, every rank computes whole batches of this kind from now on, but for up to 16 exceptions, where
        calls or ranks went other ways. What is new was not divided before; ``ask`` alone how outputs join.
        """
        start, is_first = time.process_time(), kind not in self.kinds
        self._see_same_batches(parts, kind)
        if kind in self.whole:
            return False
        self.paths.latest = set()
        joins = self.joins[kind]
        known, ways = joins.known(), joins.ways
        with torch.inference_mode(mode=False), torch.set_grad_enabled(kind[2][1]):
            found = self.compared.compare(parts, kind, few=few, asks=ask)
        times = time.process_time() - start, time.monotonic() - self.began
        own = found, joins.known(), times, self.compared.pace.get(kind, 0.0), self.paths.are_new(kind)
        found, learnt, times, self.compared.pace[kind], is_new_way = from_main_process(lambda: own)
        problem, difference, in_gradients = found
        joins.take(learnt)
        _check_times.take(*times)
        exceptions = self.rechecks.get(kind, 0)
        if problem is None and self.compared.parted and exceptions and ways - joins.ways:
            problem = _OTHER_BRANCH  # right by chance, perhaps
        is_new_way &= kind in self.compared.reads or self.settings[self.mode].looks
        raises = str(problem).startswith("it raises")  # which the notebook may handle
        # no exception is a way that the next call takes, too
        is_exception = self.compared.parted or (is_new_way and self.odd != self.calls - 1)
        if problem and (raises or (is_exception and not is_first)) and exceptions < self.most_rechecks:
            self.rechecks[kind] = exceptions + 1
            joins.take(known)
            self.odd = self.calls
            if self.compared.parted or raises:
                self.warn(f"a batch is computed by every rank: {problem}")
            return False
        self.kinds.add(kind)
        if problem is None:
            self.paths.known[kind] |= self.paths.latest
            _checks.record(difference, in_gradients)
            if self.compared.loses:
                self._divide_no_more(kind, _LOSES)
            return kind not in self.whole
        if is_first and self.compared.places and parts.layout + 1 < len(parts.layouts):
            self.whole[kind] = problem
            self.other_places.add(kind)
        elif is_new or is_new_way or self.compared.has_effect:
            self._divide_no_more(kind, self.why or problem, one_row=parts.has_one_row)
        else:
            self.whole[kind] = problem
            size = "" if difference == float("inf") else f" (by {difference:.0e} of the largest value)"
            _checks.failed(f"{problem}{size}. {_FROM_HERE_ON}")
        return False

    def check_last(self) -> None:
        """Compare the latest divided call once more, with the model as it is at the end of its training."""
        last, self.last = self.last, None
        model = next((of for of in _splits if _splits[of] is self and not _hooks_of_notebook(of)), None)
        if model is None or last is None or last[1] in self.whole or not _checks.is_on:
            return
        parts, kind = last
        self.mode, training = kind[2], {part: part.training for part in self.model.modules()}
        for part in training if not self.mode[0] else ():
            part.training = False
        self.function = functools.partial(getattr(type(model)._divides, kind[0]), model) if kind[0] else None
        try:
            self._check(parts, kind, is_new=False)
        finally:
            self.function = self.compared.expected = None  # nothing is computed in parts after it
            for part, was in training.items():
                part.training = was

    def _divide_no_more(self, kind: Any, why: str, *, one_row: bool = False) -> None:
        """Let every rank compute whole batches for a kind of call, and say why."""
        self.whole[kind] = why
        where = " where a rank would have one row" if one_row else ", which saves no time"
        where = where if kind[2][1] else f" without gradients{where}"
        self.warn(f"every rank computes whole batches{where}: {why}")


_BATCH_NORM = "a batch norm takes its statistics from whole batches (on GPUs PyTorch's own is synchronised)"
_LOSES = "exchanging its outputs takes longer than computing them"
