"""Let each rank compute its part of every batch that a model is called with, in a loop of the notebook's."""

import contextlib
import functools
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from nb2ddp.runtime.autograd_patches import (
    _average_asked_gradients,
    _average_repeated_backward,
    _open_call,
    _open_whole_call,
)
from nb2ddp.runtime.batch_parts import _Parts
from nb2ddp.runtime.call_results import _computes_in_16_bits, _opaque, _reached
from nb2ddp.runtime.call_settings import _Settings
from nb2ddp.runtime.control_flow import _ENOUGH, _are_on_all_ranks, _Known, _learn, _Looks, _Start
from nb2ddp.runtime.dry_runs import _Trial
from nb2ddp.runtime.gradients import (
    _average_after_backward,
    _reduce_unseen,
    _sparse_names,
    _take_rank_0s,
    _trained_by_name,
)
from nb2ddp.runtime.module_state import (
    _has_other_parameters,
    _hooks_of_notebook,
    _is_batch_norm,
    _is_of_library,
    _without_effects,
)
from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.output_gathering import _Joins
from nb2ddp.runtime.process_group import init_process_group
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.random_rows import _own_random_numbers
from nb2ddp.runtime.repeated_writes import _warn_of_repeated_writes
from nb2ddp.runtime.replicas import _ddp
from nb2ddp.runtime.run_state import _run, is_main_process
from nb2ddp.runtime.same_data import _are_same_batches, _is_looked_at, _Losses
from nb2ddp.runtime.saving import _save_whole_files
from nb2ddp.runtime.split_classes import _divide_no_parts, _split_class, _splits


def parallelize(model: torch.nn.Module) -> torch.nn.Module:
    """Let each rank compute its part of every batch that ``model`` is called with, and return ``model``.

    Each rank runs the notebook's loop over the notebook's batches. Where gradients are wanted, ``model(batch)``
    computes this rank's rows alone, through DDP, and returns the outputs of all rows: losses, metrics and decisions
    are computed from whole batches, alike on every rank. Outputs that are one number (a loss that the model
    computes) are combined with the weights that the first batches show to be right. Without gradients every rank
    computes whole batches.

    Where a model's output for a row depends on the batch's other rows, or its rows cannot be told, every rank
    computes whole batches: right, but no faster; a warning says so. Waits for rank 0, whose random generators
    all ranks take over.
    """
    # notebooks call what is in DataParallel past it, too
    inner: Any = model.module if isinstance(model, torch.nn.DataParallel) else model
    if _run.world_size == 1 or inner is None or inner in _splits:
        return model
    init_process_group()
    _patch_for_loops()
    _set_random_state(from_main_process(_random_state))
    kind: Any = type(inner)
    inner.__class__ = _split_class(kind)
    _splits[inner] = _Split(inner)
    return model


@functools.cache
def _patch_for_loops() -> None:
    """Average gradients that DDP does not see, and look at what a loop writes: from the first divided model on."""
    _average_asked_gradients()
    _average_repeated_backward()
    register_optimizer_step_pre_hook(_reduce_unseen)
    _save_whole_files()
    _warn_of_repeated_writes()


class _Split:
    """Divides a model's calls over the ranks."""

    most_rechecks = 16

    def __init__(self, model: torch.nn.Module, ddp: DDP | None = None) -> None:
        self.model: Any = weakref.proxy(model)
        self.inside = False  # a call of ours is under way: the model computes what it is given
        self.ddp, self.former = ddp, None
        # parameters with their shapes, and whether they were trained when the wrapper was made
        self.trained: list[tuple[Any, Any, bool]] = []
        self.apart: list[Any] = []  # trained parameters that no output depends on: the loss may, elsewhere
        self.left, self.words = set[str](), set[Any]()  # their names; arguments of calls that are no tensors
        self.settings = _Settings()
        self.alone = False  # the model is called without DDP: its outputs hide their tensors, or
        self.repeats = False  # backward() comes several times through one call, or apart through several
        self.open, self.open_whole = list[Any](), set[int]()  # calls before their backward(): divided, whole
        self.hooks = 0  # how many hooks there were
        self.hooked: str | None = None  # what the notebook has hooked a function to
        self.calls, self.said = 0, set[str]()
        self.batch_norm = False  # one that cannot be synchronised: on CPUs
        self.joins = _Joins()
        self.rechecks: dict[Any, int] = {}  # by kind of call: outputs of another form, or by another path
        self.keeps: dict[Any, str] = {}  # kinds of calls that leave another state for a part: the attribute
        self.draws = set[Any]()  # kinds of calls with random numbers that can be those of the whole batch
        self.looks: dict[Any, _Known] = {}  # kinds of calls in which Python sees values of the rows
        self.compiled = False  # a function that the model calls cannot be compiled within _RandomRows
        self.whole: dict[Any, str] = {}  # kinds of calls for which every rank computes whole batches, and why
        self.losses = _Losses()

    def forward(self, args: Any, kwargs: Any) -> Any:
        _divide_no_parts(self)
        parts, divides = _Parts(args, kwargs), True
        kind = (parts.shape, self.settings.of(self.model), parts.has_one_row)
        parts.know_classes(self.joins.classes_of(kind))
        if _is_looked_at(self.calls):
            self.losses.compare()
        self.calls += 1
        if _is_looked_at(self.calls) and not _are_same_batches(parts.leaves):
            self._warn(
                "a rank had drawn random numbers that the others had not, below `if rank == 0` for example; all ranks "
                "take rank 0's random state here. Draw random numbers on every rank"
            )
        if self._must_wrap(parts):
            self._wrap(parts)
        if (of_more := (*kind[:2], False)) in self.whole:
            self.whole[kind] = self.whole[of_more]
        if len(self.words) < self.most_rechecks:
            self.words.add(parts.words)
        if self.hooks != torch.utils.hooks.RemovableHandle.next_id:
            self.hooks = torch.utils.hooks.RemovableHandle.next_id
            self.hooked = _hooks_of_notebook(self.model)
        if not parts.known:
            self._warn(f"a batch is computed by every rank: {parts.obstacle}")
        elif self.hooked:
            self._divide_no_more(
                kind,
                f"the notebook has a hook on {self.hooked}, which must see whole batches; remove it to divide the work",
            )
        elif self.batch_norm and self.model.training:
            self._divide_no_more(
                kind, "a batch norm takes its statistics from whole batches (on GPUs it is synchronised)"
            )
        elif kind not in self.whole and self.joins.must_compare(parts, kind):
            divides = self._check(parts, kind, args, kwargs, late=self.joins.is_late(kind))
        if not divides or not parts.known or kind in self.whole or self.joins.leave_out_a_rank(parts, kind):
            return self._compute_whole(args, kwargs)
        computed = self._compute_part(parts, kind, args, kwargs)
        if computed is None:
            return self._compute_whole(args, kwargs)
        output, drew = computed
        if drew:
            self._warn(
                "the model draws random numbers, for dropout say, for each rank's rows apart: the losses are near the "
                "single process's, not equal"
            )
        if self.calls <= self.most_rechecks and _computes_in_16_bits(self.model, output):
            self._warn(
                "each rank computes its rows in 16 bits, which rounds otherwise than the whole batch: the losses are "
                "near the single process's (by about 1e-3 of them), not equal"
            )
        joined = self.joins.join(output, parts, kind)
        _open_call(self, joined)
        if _is_looked_at(self.calls):
            self.losses.note(joined, of_rank=output)
        _average_after_backward(joined, self.apart)
        self.hooks = torch.utils.hooks.RemovableHandle.next_id  # those of ours are known
        return joined

    def _compute_part(self, parts: _Parts, kind: Any, args: Any, kwargs: Any) -> tuple[Any, bool] | None:
        """Return what this rank's rows give, and whether it drew numbers of its own; None: compute the whole batch."""
        own, size = parts.of(*parts.ranges[_run.rank], differentiable=True), parts.sizes[_run.rank]
        rows = (*parts.ranges[_run.rank], parts.rows) if kind in self.draws else None
        if kind not in self.looks:
            with _own_random_numbers(rows) as drew:
                output = self._run(*own)
            start = None
        else:
            changes, places = known = self.looks[kind]
            chooses = any(times < _ENOUGH for times in places.values())
            looks = _Looks(size) if chooses and "mean over rows" in self.joins.ways(kind) else None
            start, form = _Start(self.model, changes=changes), None
            # in one process the other rows may save it: the largest of a selection, which is empty here
            with (
                contextlib.suppress(Exception),
                _own_random_numbers(rows) as drew,
                looks or contextlib.nullcontext(),
            ):
                output = self._run(*own)
                form = self.joins.form(output, kind, size)
            of_one_form, of_one_choice = _are_on_all_ranks(form, looks.choices(known) if looks else "")
            if not of_one_form or (not of_one_choice and self.rechecks.get(kind, 0) >= self.most_rechecks):
                self._warn(f"a batch is computed by every rank: {_Looks.other_branch}")
                start.put_back()
                return None
            if not of_one_choice:
                self._check_another_form(parts, kind, args, kwargs)
                start.put_back()
                return None
        if not self.joins.know(output, kind):  # a head that the model uses from now on
            self._check_another_form(parts, kind, args, kwargs)
            if kind not in self.whole and not self.joins.know(output, kind):
                self._warn(
                    "a call returned outputs of another structure than the compared ones: its scalars are combined "
                    "with the weights found before"
                )
        if kind in self.whole:
            if start is not None:
                start.put_back()
            return None
        return output, drew()

    def _compute_whole(self, args: Any, kwargs: Any) -> Any:
        """Compute a whole batch on every rank."""
        output = self._run(args, kwargs)
        if self.calls < 3:  # each rank's rounding is its own, which counts where the loss is near 0
            self.losses.note(output)
        _open_whole_call(self, output)
        _average_after_backward(output, self.apart)
        self.hooks = torch.utils.hooks.RemovableHandle.next_id  # those of ours are known
        return output

    def _run(self, args: Any, kwargs: Any, *, plain: bool = False) -> Any:
        self.inside = True
        try:
            return (self.model if plain or self.ddp is None else self.ddp)(*args, **kwargs)
        finally:
            self.inside = False
            self.settings.leave_out_counts()

    def _plain(self, args: Any, kwargs: Any) -> Any:
        return self._run(args, kwargs, plain=True)

    def _must_wrap(self, parts: _Parts) -> bool:
        """Return whether to build the DDP wrapper (again).

        On the first call, when other parameters are trained or were replaced, or when this call leaves further
        parameters unused.
        """
        if self.ddp is None and not self.alone:
            return True
        changed = any(p.requires_grad is not trained for p, _, trained in self.trained)
        if changed or _has_other_parameters(self.model, self.trained):
            return True
        known = parts.words in self.words or len(self.words) >= self.most_rechecks
        if self.alone or not self.trained or known:
            return False
        return self._all_left(parts) > self.left

    def _all_left(self, parts: _Parts) -> set[str]:
        """Return the names of trained parameters that this call or an earlier one leaves unused.

        Only the earlier ones, or none, where that would be all.
        """
        trained = _trained_by_name(self.model)
        old = self.left & {*trained}
        both = old | self._names_apart(parts)
        return both if len(both) < len(trained) else old if len(old) < len(trained) else set()

    def _wrap(self, parts: _Parts) -> None:
        """Make the DDP wrapper when the model is first called: its parameters are the final ones by then.

        Where a notebook freezes or unfreezes some later, a new one is made.
        """
        model = self.model
        if self.ddp is not None:
            self.ddp._remove_autograd_hooks()
            self.former, self.ddp = self.ddp, None  # a loss under way may ask for it
            if any(p.shape != shape for p, shape, _ in self.trained):
                self.former = None  # autograd remembers shapes while DDP is there
        if any(isinstance(p, torch.nn.UninitializedParameter) for p in model.parameters()):
            with _without_effects(model, quiet=lambda _: True, keeps_state=False):
                self._plain(*parts.of(0, parts.rows))
        if not any(p.requires_grad for p in model.parameters()):
            return
        if any(map(_is_batch_norm, model.modules())):
            if torch.cuda.is_available():
                torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            else:
                self.batch_norm = True
        self.trained = [(p, p.shape, p.requires_grad) for p in model.parameters()]
        self.left = self._all_left(parts)
        apart, trained = self.left | _sparse_names(model), _trained_by_name(self.model)
        self.alone |= apart >= {*trained}
        self.apart = [p for name, p in trained.items() if name in apart or self.repeats]
        for parameter in self.apart:
            _run.reduced.pop(id(parameter), None)
        whole = next(m for m in _splits if _splits[m] is self)
        if self.alone:
            _run.reduced.setdefault(id(self), weakref.ref(self))  # gradients are averaged before a step
            _run.uncompared.append(weakref.ref(whole))
            return
        self.ddp = _ddp(whole, apart=apart, in_step=True)
        if self.batch_norm:  # gradients are of whole batches, alike, and a mean of three equal ones rounds
            self.ddp.register_comm_hook(None, _take_rank_0s)

    def leave_ddp(self) -> None:
        """Average gradients after each backward() instead of through DDP, which counts one for each call."""
        if self.ddp is not None and not self.trained:  # a Trainer's own wrapper
            return
        self.repeats, self.open, self.open_whole = True, [], set()
        if self.ddp is None:
            return
        self.alone = True
        self.ddp._remove_autograd_hooks()
        self.former, self.ddp = self.ddp, None
        known = {id(p) for p in self.apart}
        self.apart += [p for p, _, trained in self.trained if trained and id(p) not in known]
        _run.reduced.setdefault(id(self), weakref.ref(self))
        for parameter in self.apart:
            _run.reduced.pop(id(parameter), None)

    def _names_apart(self, parts: _Parts) -> set[str]:
        """Return the names of trained parameters that no output of a batch depends on.

        DDP counts them as ready after the call, and fails where the loss still depends on them: its own weights, say.
        """
        own = parts.ranges[_run.rank] if parts.known else (0, parts.rows)
        trained = _trained_by_name(self.model)
        left, opaque = set(), ""
        with _without_effects(self.model, quiet=_is_batch_norm, parameters=True), torch.enable_grad():
            try:
                output = self._plain(*parts.of(*own))
                opaque = _opaque(output)
                reached = _reached([x for x in pytree.tree_leaves(output) if isinstance(x, torch.Tensor)])
                left = {name for name, p in trained.items() if reached is not None and id(p) not in reached}
            except Exception:  # not alone, perhaps
                left = set()
        of_ranks = from_all_ranks((left, opaque))  # one rank's rows may miss an expert that another's reach
        self.alone = self.repeats or any(of_rank[1] for of_rank in of_ranks)
        left = set.intersection(*(of_rank[0] for of_rank in of_ranks))
        return left if len(left) < len(trained) else set()

    def _check(self, parts: _Parts, kind: Any, args: Any, kwargs: Any, *, late: bool = False) -> bool:
        """Compare the whole batch's outputs with those of its parts; return whether to divide this call.

        If they differ, every rank computes whole batches for this kind of call from now on; but ``late``, after the
        first calls, a kind with data-dependent control flow may have up to 16 exceptions, each computed whole. A
        compared batch with scalar outputs is computed whole.
        """
        before, ways, draws = self.joins.of(kind), self.joins.ways(kind), set(self.draws)
        # a library's modules may draw random numbers where they train, in ways that cannot be told
        for quiet in (_is_batch_norm, _is_of_library) if self.model.training else (_is_batch_norm,):
            try:
                problem = self._try_parts(parts, kind, quiet)
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
                problem = f"a part of a batch cannot be computed alone ({type(error).__name__}: {error})"
                if not self.compiled and "torch/_dynamo" in "".join(traceback.format_tb(error.__traceback__)):
                    self.compiled = True
                    return self._check(parts, kind, args, kwargs, late=late)
            if problem is None:
                break
        if kind in self.keeps:
            problem = (
                f"it keeps in `{self.keeps[kind]}` what it computes from the rows of a batch; without that, or in "
                "evaluation alone, the ranks would share the work"
            )
        found = self.joins.of(kind), kind in self.draws, self.looks.get(kind), self.keeps.get(kind)
        problem, (known, drawn, looks, kept) = from_main_process(lambda: (problem, found))
        self.looks.update({} if looks is None else {kind: looks})
        self.keeps.update({kind: kept} if kept else {})
        self.joins.take(kind, known)
        exceptions = self.rechecks.get(kind, 0)
        if late and kind in self.looks and kind not in self.keeps and exceptions < self.most_rechecks:
            if problem is None and exceptions and ways - self.joins.ways(kind):  # right by chance, perhaps
                problem = _Looks.other_branch
            if problem is not None:
                self.rechecks[kind] = exceptions + 1
                self._warn(f"a batch is computed by every rank: {problem}")
                self.joins.take(kind, before)
                self.draws = draws
                return False
        self.draws = self.draws | {kind} if drawn else self.draws - {kind}
        if problem is not None:
            self._divide_no_more(kind, problem, one_row=parts.has_one_row)
        return problem is None and not self.joins.ways(kind)

    def _check_another_form(self, parts: _Parts, kind: Any, args: Any, kwargs: Any) -> None:
        """Check a call whose outputs have another structure than those that were compared."""
        self.rechecks[kind] = self.rechecks.get(kind, 0) + 1
        if self.rechecks[kind] <= self.most_rechecks:
            self._check(parts, kind, args, kwargs)
            return
        self._divide_no_more(kind, "the structure of its outputs keeps changing")

    def _try_parts(self, parts: _Parts, kind: Any, quiet: Callable[[torch.nn.Module], bool]) -> str | None:
        """Return what differs between a whole batch and its parts, or None."""
        trial = _Trial(self.model, self._plain, parts, quiet=quiet, compiled=self.compiled)
        for name in trial.kept if is_main_process else ():  # which tells the others
            self.keeps.setdefault(kind, name)
        problem = self.joins.compare(trial, parts, kind)
        if trial.looked:
            known, right = self.looks.get(kind), problem is None
            self.looks[kind] = _learn(known, trial.looks[1:], changes=trial.changed, is_right=right)
        if trial.printed:
            problem = (
                "the model prints during forward(), and its prints are of whole batches; remove the print to divide "
                "the work"
            )
        if trial.drawn and problem is None and quiet is _is_batch_norm:
            self.draws.add(kind)
        elif trial.drawn:
            self.draws.discard(kind)
        return problem

    def _divide_no_more(self, kind: Any, why: str, *, one_row: bool = False) -> None:
        """Let every rank compute whole batches for a kind of call, and say why."""
        self.whole[kind] = why
        where = " where a rank would have one row" if one_row else ", which saves no time"
        self._warn(f"every rank computes whole batches{where}: {why}")

    def _warn(self, text: str) -> None:
        """Print a warning once, on rank 0."""
        if is_main_process and text not in self.said:
            self.said.add(text)
            print(f"nb2ddp: WARNING: {text}", file=sys.stderr, flush=True)
