"""Note what the script trains: loads, batches, losses, gradients, parameters, collectives."""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import os
import platform
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nb2ddp.rehearse.harness import notes, parameters, samples
from nb2ddp.rehearse.harness.imports import Patch, around, patched
from nb2ddp.rehearse.harness.notes import note

COLLECTIVES = (
    "all_reduce broadcast barrier monitored_barrier reduce all_gather all_gather_into_tensor gather scatter "
    "reduce_scatter reduce_scatter_tensor reduce_scatter_single all_gather_single all_to_all all_to_all_single "
    "all_gather_object gather_object broadcast_object_list scatter_object_list"
).split()
_PACKAGES = "torch transformers accelerate datasets trl peft unsloth sentence_transformers".split()
_DUMPED_NUMBERS = 20_000_000
_VOLATILE = frozenset({"local_rank", "logging_dir", "run_name"})  # arguments that differ by nature


def begin() -> None:
    """Note the end of the process."""
    if notes.is_rank():
        atexit.register(note, "exit")


# ---- training ----------------------------------------------------------------------------------------------


class _Step:
    """What happened since the last optimizer step."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.batches: list[tuple[int, int]] = []  # the data loader's iterator and its batch
        self.computed: list[str | None] = []  # digests of the rows that a model was called with, where known
        self.line: int | None = None  # of the script's last backward()
        self.turns = 0  # how many micro-batches the ranks compute in turns
        self.gradients: tuple[str, float] | None = None  # what the optimizer took: digest and norm


class _Given:
    """A batch that a data loader has given: where it belongs, and digests of its rows."""

    def __init__(self, iterator: int, number: int, rows: list[str] | None) -> None:
        self.place, self.rows, self.used = (iterator, number), frozenset(rows or ()), False


class _Call(NamedTuple):
    """A call of a module: the batch that its rows are of, digests of the rows, and whether each rank has its own."""

    given: _Given | None
    digests: list[str | None]
    is_divided: bool


_step = _Step()
_steps = 0
_iterators = 0
_latest: Any = None  # the data loader's iterator that gave the last batch
_given: deque[_Given] = deque(maxlen=512)
_called: list[_Call] = []  # of a model, since the last backward()
_hidden = threading.local()


def _watch_torch(torch: Any) -> None:
    watch_steps(torch)
    if torch.distributed.is_available():
        _watch_distributed(torch.distributed)


def watch_steps(torch: Any) -> None:
    """Note each batch and each optimizer step, with the samples and losses that it was made of."""
    around(torch.Tensor, "backward", _backward)
    optimizers = sys.modules["torch.optim.optimizer"]  # not an attribute of torch.optim
    optimizers.register_optimizer_step_pre_hook(_before_step)
    optimizers.register_optimizer_step_post_hook(_after_step)
    loaders = torch.utils.data.dataloader
    around(torch.nn.Module, "__call__", _module_called)
    around(loaders.DataLoader, "__init__", _note_line)
    around(loaders._BaseDataLoaderIter, "__init__", _new_iterator)
    around(loaders._BaseDataLoaderIter, "_next_index", _next_index)
    around(loaders._BaseDataLoaderIter, "__next__", _next_batch)


def _backward(original: Callable[..., Any], tensor: Any, *arguments: Any, **options: Any) -> Any:
    if tensor.numel() == 1 and notes.is_rank() and not getattr(notes.runtime(), "comparing", False):
        _step.losses.append(float(tensor.detach()))
        _step.line = notes.line_of_script()
        turn, _step.turns, is_divided = _micro_batch() or (0, 0, False)
        places, computed = _taken()
        if _latest is not None and not places:  # rows that were changed on their way: one batch after another
            places = [(_latest.nb2ddp_number, _latest.nb2ddp_used + turn)]
            computed = computed or [None] * is_divided  # some rows, nobody knows how many
        _step.batches += [place for place in places if place not in _step.batches]
        _step.computed += computed
        if _latest is not None and not _step.turns:
            _latest.nb2ddp_used += 1
    return original(tensor, *arguments, **options)


def _taken() -> tuple[list[tuple[int, int]], list[str | None]]:
    """Return the batches, and the rows of them, that the calls since the last backward() were of.

    They are of one loader; calls with the batches of others were an evaluation. What is divided is known by its calls:
    of rows that were changed on their way, their number.
    """
    last = next((call.given.place[0] for call in reversed(_called) if call.given), None)
    matched = [(call, call.given) for call in _called if call.given and call.given.place[0] == last]
    for _, given in matched:
        given.used = True
    counting = [call for call, _ in matched if call.is_divided]
    if not counting and (divided := [call for call in _called if call.is_divided]):
        counting = [max(divided, key=lambda call: len(call.digests))]
    digests = [digest for call in counting or (call for call, _ in matched) for digest in call.digests]
    _called.clear()
    return list(dict.fromkeys(given.place for _, given in matched)), digests


def _micro_batch() -> tuple[int, int, bool] | None:
    """Return which micro-batch of a step, of how many, the runtime module computes, and whether some rows of it."""
    found: tuple[int, int, bool] | None = getattr(notes.runtime(), "micro_batch", None)
    return found


def _module_called(original: Callable[..., Any], self: Any, *inputs: Any, **options: Any) -> Any:
    """Find the batch whose rows the script, or a Trainer, calls a model with; calls within a call are part of it.

    Each rank has its own rows where it calls DDP, or what the runtime module divides. What the runtime module computes
    once more, to compare it, trains no sample.
    """
    torch, run = sys.modules["torch"], notes.runtime()
    if (
        not _given
        or getattr(_hidden, "called", False)
        or not torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or not notes.is_rank()
        or getattr(run, "comparing", False)
    ):
        return original(self, *inputs, **options)
    digests = samples.rows_of_call(inputs, options)
    is_ddp = isinstance(self, torch.nn.parallel.DistributedDataParallel)
    is_divided = is_ddp or self in getattr(run, "divided", ()) or (_micro_batch() or (0, 0, False))[2]
    call = _Call(_batch_of(digests), digests, is_divided)
    is_again = notes.RANK > 0 and getattr(run, "has_rows", None) is False  # a whole batch is rank 0's
    if (call.given is not None or call.is_divided) and not is_again:
        _called.append(call)
    _hidden.called = True
    try:
        return original(self, *inputs, **options)
    finally:
        _hidden.called = False


def _batch_of(digests: list[str | None]) -> _Given | None:
    """Return the first batch that was not used yet and has all these rows, else the last that has them."""
    if not digests or None in digests:
        return None
    having = [given for given in _given if given.rows.issuperset(digests)]
    if _latest is not None and (of := _micro_batch()) is not None:
        place = _latest.nb2ddp_number, _latest.nb2ddp_used + of[0]
        having = [given for given in having if given.place == place]
    return next((given for given in having if not given.used), having[-1] if having else None)


def _before_step(optimizer: Any, arguments: Any, options: Any) -> None:
    """Note digest and norm of the gradients that a step takes; those of the first step are kept whole."""
    if not notes.is_rank():
        return
    with _unnoted():
        gradients = parameters.gradients(optimizer)
        if not hasattr(optimizer, "nb2ddp_seen"):
            optimizer.nb2ddp_seen = True
            note("begin", digest=parameters.digest(parameters.parameters(optimizer)), versions=_versions())
    _step.gradients = parameters.digest(gradients), parameters.norm(gradients)
    if _steps == 0:
        _dump("gradients", gradients)


def _versions() -> dict[str, str]:
    """Return the versions of this Python and of the packages that train in it."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if package in sys.modules:
                found[package] = importlib.metadata.version(package)
    return found


def _after_step(optimizer: Any, arguments: Any, options: Any) -> None:
    global _step, _steps
    if not notes.is_rank():
        return
    done, _step = _step, _Step()
    run = notes.runtime()
    if turns := getattr(run, "micro_batches", None):
        done.turns, run.micro_batches = turns, 0  # this rank may have computed none of them
    if _latest is not None:
        _latest.nb2ddp_used += done.turns
    _steps += 1
    with _unnoted():
        trained = parameters.parameters(optimizer)
    note(
        "step",
        number=_steps,
        losses=done.losses,
        batches=done.batches,
        computed=done.computed,
        gradients=done.gradients,
        backward=done.line,
        line=notes.line_of_script(),
        digest=parameters.digest(trained),
    )
    _dump("parameters", trained)


def _dump(name: str, tensors: list[Any]) -> None:
    """Keep tensors of this rank as plain float32 numbers, the last ones of a name, if they are not too many."""
    if sum(tensor.numel() for tensor in tensors) <= _DUMPED_NUMBERS:
        with open(os.path.join(notes.FOLDER, f"{name}-{notes.RANK}.f32"), "wb") as file:
            for tensor in tensors:
                file.write(tensor.float().numpy().tobytes())


# ---- samples -----------------------------------------------------------------------------------------------


def _note_line(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    """Keep the line of the script that makes an object."""
    self.nb2ddp_line = notes.line_of_script()
    original(self, *others, **options)


def _new_iterator(original: Callable[..., Any], self: Any, loader: Any, *others: Any, **options: Any) -> None:
    global _iterators
    _iterators += 1
    self.nb2ddp_number, self.nb2ddp_used, self.nb2ddp_given = _iterators, 0, 0
    self.nb2ddp_drawn = deque()
    if notes.is_rank():
        rows, sampler = loader.dataset, getattr(loader, "sampler", None)
        note(
            "loader",
            iterator=_iterators,
            digest=samples.digest(rows) if isinstance(rows, list) or hasattr(rows, "_fingerprint") else None,
            line=getattr(loader, "nb2ddp_line", None),
            passed=notes.line_of_script(),
            sampler=type(sampler).__name__,
            sampler_line=getattr(sampler, "nb2ddp_line", None),
        )
    original(self, loader, *others, **options)
    order = notes.PLAN.get("order", {}).get(str(_iterators))
    if order is not None:  # the samples of each step as the ranks had them
        next(self._sampler_iter, None)  # what the notebook's own sampler draws of random numbers
        self._index_sampler, self._sampler_iter = order, iter(order)


def _next_index(original: Callable[..., Any], self: Any) -> Any:
    index = original(self)
    self.nb2ddp_drawn.append(index)
    return index


def _next_batch(original: Callable[..., Any], self: Any) -> Any:
    global _latest
    batch = original(self)
    if notes.is_rank():
        if _latest is None:
            _step.losses.clear()  # of what a library tried before: Unsloth tries how layers are sharded
        _latest = self
        drawn = self.nb2ddp_drawn.popleft() if self.nb2ddp_drawn else None
        indices: list[Any] = drawn if isinstance(drawn, list) else [drawn]
        rows = samples.row_digests(batch, len(indices))
        _given.append(_Given(self.nb2ddp_number, self.nb2ddp_given, rows))
        note(
            "batch",
            iterator=self.nb2ddp_number,
            number=self.nb2ddp_given,
            indices=None if None in indices else [int(index) for index in indices],
            rows=rows,
            width=samples.width(batch),
            counts=samples.counts(batch) if notes.PLAN.get("handmade") else {},
        )
        self.nb2ddp_given += 1
    return batch


# ---- between the ranks -------------------------------------------------------------------------------------


def _watch_distributed(dist: Any) -> None:
    for module in (dist, dist.distributed_c10d):
        for name in COLLECTIVES:
            around(module, name, _collective(name))
        around(module, "init_process_group", _group("group"))
        around(module, "destroy_process_group", _group("left_group"))
    around(sys.modules["torch.utils.data.distributed"].DistributedSampler, "__init__", _note_line)


def _collective(name: str) -> Callable[..., Any]:
    def enters(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if getattr(_hidden, "collectives", False):
            return original(*arguments, **options)
        note("enter", name=name, line=notes.line_of_script())
        try:
            with _unnoted():
                return original(*arguments, **options)
        finally:
            note("leave", name=name)

    return enters


@contextlib.contextmanager
def _unnoted() -> Iterator[None]:
    """Note no collectives: they are part of one that is noted, or our own."""
    _hidden.collectives = True
    try:
        yield
    finally:
        _hidden.collectives = False


def _group(kind: str) -> Callable[..., Any]:
    def changes(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if not getattr(_hidden, "collectives", False):
            note(kind)
        return original(*arguments, **options)

    return changes


# ---- Transformers ------------------------------------------------------------------------------------------


def _watch_trainer(module: Any) -> None:
    class Watch(module.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            values = {name: str(value) for name, value in args.to_dict().items() if name not in _VOLATILE}
            note("train", arguments=values, line=getattr(args, "nb2ddp_line", None))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
            found = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
            note("log", values=found, line=notes.line_of_script())

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            note("trained")

    module.DEFAULT_CALLBACKS.append(Watch)


def loaded(made: Any, name: object, device_map: object) -> None:
    """Note a model that was loaded, alone or beside its tokenizer, and where its parameters are."""
    model = made[0] if isinstance(made, tuple) else made
    note(
        "load",
        name=str(name),
        model=type(model).__name__,
        devices=sorted({str(parameter.device) for parameter in model.parameters()}),
        device_map=device_map,
        line=notes.line_of_script(),
    )


PATCHES: dict[str, Patch] = {
    "torch": _watch_torch,
    "transformers.trainer": _watch_trainer,
    "transformers.training_args": patched("TrainingArguments.__post_init__", _note_line),
}
