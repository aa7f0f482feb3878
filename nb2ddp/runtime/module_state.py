"""Call a model without effects: what a call changes in its modules is found, and put back."""

import array
import collections
import contextlib
import dis
import functools
import io
import linecache
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from nb2ddp.runtime.digests import _digest
from nb2ddp.runtime.kept_values import (
    _SIMPLE,
    _cannot_go_back,
    _is_array,
    _is_generator,
    _is_record,
    _names,
    _of_modules,
    _own_parts,
    _Path,
    _Place,
    _walk,
)
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _replaced, _run
from nb2ddp.runtime.script_location import _is_own
from nb2ddp.runtime.value_copies import (
    _NOT_COPIED,
    _agree,
    _copied,
    _is_as_it_was,
    _IteratorState,
    _read,
    _refill,
    _remove,
    _write,
)

_MOST_VALUES = 2**26  # of a tensor that is copied
_MOST_OF_SCRIPT = 2**16  # of one that only the script's names hold
_MOST_OF_PARAMETERS = 2**29  # of all parameters together that are copied
_MOST_OF_OTHERS = 2**28  # of all other tensors together
_optimizers = weakref.WeakSet[Any]()  # that a call can reach


class _ModuleState:
    """What a model's modules keep, and what else of the notebook's own their calls may change.

    With ``parameters`` also those of the modules, which `forward()` may move, as an average of another model's, or
    replace. Without ``of_library`` only what modules of the notebook's own classes hold: in a deep model the others are
    hundreds.
    """

    def __init__(self, model: torch.nn.Module, *, parameters: bool = False, of_library: bool = True) -> None:
        self.model, self.parameters, self.of_library = model, parameters, of_library
        self.random = _random_state()
        self.left, self.left_of_others = _MOST_OF_PARAMETERS, _MOST_OF_OTHERS
        if parameters and torch.cuda.is_available():
            # a quarter of what is free, in 4 bytes
            self.left = min(self.left, torch.cuda.mem_get_info()[0] // 16)
        places, copied = self._walked(self._fits)
        self.before = {p: (of, _copied(of.value) if p in copied else _NOT_COPIED) for p, of in places.items()}
        self.copied = {id(of.value) for of in copied.values()}
        self.marks = {path: mark for path, of in copied.items() if (mark := _mark(of.value))}

    def take(self) -> dict[str, list[Any]]:
        """Return by name the numbers and tensors of what is not as it was, and make it that, random generators too."""
        (now, _), changed = self._walked(self._fits_now), dict[_Path, list[Any]]()
        stays = {p for p in now.keys() & self.before.keys() if now[p].value is self.before[p][0].value}
        for path in {**self.before, **now}:
            value, (old, copy) = now.get(path, _Place()).value, self.before.get(path, (_Place(), _NOT_COPIED))
            equals = old.path and path in now and isinstance(value, _SIMPLE) and _agree(value, old.value)
            if not (path in stays or equals) or not self._is_as_it_was(path, value, copy):
                changed[path] = list(_numbers(value))
        for path in now.keys() - self.before.keys():
            if {path[:size] for size in range(2, len(path))} & now.keys() <= stays:
                _remove(now[path].holder, now[path].key)  # not what that holds: it may be old elsewhere
        for path, (place, copy) in self.before.items():
            if _read(place.holder, place.key) is not place.value:
                _write(place.holder, place.key, place.value)
            if path in changed and not self._is_as_it_was(path, place.value, copy):
                _refill(place.value, copy)
                self.marks.update({path: _mark(place.value)} if path in self.marks else {})
        _set_random_state(self.random)
        return {".".join(str(part) for part in path[1:] if part != ""): changed[path] for path in changed}

    def _is_as_it_was(self, path: _Path, value: Any, copy: Any) -> bool:
        if path in self.marks:
            return bool(_mark(value) == self.marks[path])
        return copy is _NOT_COPIED or _is_as_it_was(value, copy)

    def _walked(self, fits: Callable[[_Place], bool]) -> tuple[dict[_Path, _Place], dict[_Path, _Place]]:
        """Return by path what is kept, and what of that can be copied; also of modules beside the model.

        A call may move a target's parameters. Of an object counts which one it is.
        """
        roots, slots, owners = self._roots(), list[_Place](), dict[_Path, Any]()
        modules = [*map(id, _modules(self.model))]
        copied = {x.path: x for x in _walk(roots, fits, modules, owners, slots)}
        own = {id(None), *map(id, self.model.parameters()), *modules}
        for path, of in owners.items():
            if isinstance(of, torch.optim.Optimizer) and "param_groups" in vars(of):
                _optimizers.add(of)
                at = (*path, "param_groups")
                copied[at] = _Place(at, vars(of), "param_groups", of.param_groups)
            elif isinstance(of, torch.nn.Module) and self.parameters:
                held = [x for x in _held_by(of, path) if id(x.value) not in own]
                slots += held
                copied |= {x.path: x for x in held if isinstance(x.value, torch.Tensor) and fits(x)}
        kept = {x.path: x for x in slots if x.holder is not None and _read(x.holder, x.key) is x.value}
        return {x.path: x for x in roots if _is_of_model(x)} | kept | copied, copied

    def _roots(self) -> list[_Place]:
        parts = list(self.model.named_modules()) if self.of_library else _own_parts(self.model)
        held = (x for x in _held_by(self.model) if self.parameters or isinstance(x.value, torch.nn.Module))
        names = _names() if any(_has_own_code(part) for _, part in parts) else ()
        return [*_of_modules(parts), *held, *names]

    def _fits(self, place: _Place) -> bool:
        """Return whether a tensor is small enough to be copied, tiny where the script's names hold it."""
        value = place.value
        if not isinstance(value, torch.Tensor):
            return bool(value.size <= _MOST_OF_SCRIPT)
        lazy = isinstance(value, torch.nn.parameter.UninitializedTensorMixin)
        is_held = _is_of_model(place) or isinstance(value, torch.nn.Parameter)
        most = _MOST_VALUES if is_held else _MOST_OF_SCRIPT
        if lazy or value.is_nested or value.is_meta or value.is_inference() or value.numel() > most:
            return False
        if isinstance(value, torch.nn.Parameter):
            self.left -= value.numel()
            return self.left >= 0 and value.is_floating_point()  # not of quantised weights
        self.left_of_others -= value.numel()
        return self.left_of_others >= 0

    def _fits_now(self, place: _Place) -> bool:
        is_tensor, is_lazy = isinstance(place.value, torch.Tensor), torch.nn.parameter.is_lazy
        is_large = is_tensor and (is_lazy(place.value) or place.value.numel() > _MOST_OF_SCRIPT)
        return id(place.value) in self.copied or not is_large


def _mark(value: Any) -> Any:
    """Return what a change of a large tensor changes: how often it was written, where it lies, the sum of its bits."""
    if isinstance(value, torch.Tensor) and value.numel() > _MOST_OF_SCRIPT:
        # a subclass for quantised weights may not know how
        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
            bits = value.detach().flatten()
            return value._version, value.data_ptr(), int(bits[: len(bits) // 8 * 8].view(torch.int64).sum())
    return None


def _held_by(model: torch.nn.Module, root: _Path = ("model",)) -> Iterator[_Place]:
    """Yield the parameters, buffers and modules of all modules in a model."""
    for name, part in model.named_modules():
        for holder in (part._parameters, part._buffers):
            for key, value in holder.items():
                yield _Place((*root, name, key), holder, key, value)
        for key, value in part._modules.items():
            yield _Place((*root, f"{name}.{key}".lstrip(".")), part._modules, key, value)


def _modules(model: Any) -> list[Any]:
    """Return a model and all modules in it: in each call, and PyTorch's own walk takes several times as long."""
    seen, found = set[int](), list[Any]()
    waiting = [next(model.modules())]  # not a weak proxy of it
    for part in waiting:
        if part is not None and id(part) not in seen:
            seen.add(id(part))
            found.append(part)
            if inner := part._modules:
                waiting += inner.values()
    return found


def _positions(model: Any) -> dict[_Path, tuple[_IteratorState, bool]]:
    """Return where the iterators are that a call of a model may take items of, and whether it may write there."""
    roots = [*_of_modules(_own_parts(model)), *_names()] if _own_parts(model) else []
    places = _walk(roots, lambda _: False, map(id, model.modules()))
    found = {place.path: place.value for place in places if _cannot_go_back(place.value)}
    writes = [hasattr(of, "executemany") or (hasattr(of, "write") and of.writable()) for of in found.values()]
    return {path: (_IteratorState(found[path]), may) for path, may in zip(found, writes, strict=True)}


def _changed_for_good(model: Any, before: dict[_Path, tuple[_IteratorState, bool]], method: str) -> list[str]:
    """Return the names of those that a call has moved since then, and of files that forward() or a method names."""
    now, read = _positions(model), _read_names(model, ("forward", method))
    named = [path for path in now if now[path][1] and str(path[-1 if path[0] == "model" else 1]) in read]
    return [str(path[-1]) for path in before if path in named or now.get(path, before[path]) != before[path]]


def _read_names(model: torch.nn.Module, methods: tuple[str, ...] = ()) -> set[str]:
    """Return what script's names a model's own classes read, or some ``methods`` and attributes, and all they call."""
    kinds = [vars(of) for _, part in _own_parts(model) for of in type(part).__mro__ if _is_own(of.__module__)]
    found, own = set[str](), [vars(sys.modules["__main__"]), *(kinds if methods else ())]
    waiting = [value for kind in kinds for name, value in kind.items() if name in methods or not methods]
    reading = ("LOAD_GLOBAL", *(("LOAD_ATTR", "LOAD_METHOD") if methods else ()))
    for function in waiting:
        if isinstance(function, types.FunctionType):
            names = {at.argval for at in dis.get_instructions(function) if at.opname in reading} - found
            found |= names
            waiting += [of[name] for name in names for of in own if name in of]
    return found


def _has_own_code(part: torch.nn.Module) -> bool:
    """Return whether the notebook has made a module's class, or has put a forward() into a library's, or into it."""
    kind: Any = vars(type(part)).get("_divides", type(part))
    forward = getattr(vars(part).get("forward", getattr(kind, "forward", None)), "__globals__", {})
    return any(map(_is_own, [forward.get("__name__"), *(base.__module__ for base in kind.__mro__)]))


def _is_of_model(place: _Place) -> bool:
    return place.path[:1] == ("model",)


def _numbers(value: Any) -> Iterator[Any]:
    """Yield the numbers in a value, and copies of its tensors."""
    if _is_generator(value):
        yield int(_digest(_copied(value))[:12], 16)
    for leaf in pytree.tree_leaves(value):
        if _is_array(leaf) or isinstance(leaf, array.array):
            plain = getattr(leaf, "dtype", None) is None or leaf.dtype.kind in "biufc"
            yield torch.as_tensor(leaf.tolist() if plain else [len(leaf)], device="cpu")
        elif isinstance(leaf, torch.Tensor | int | float):
            yield leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
        elif isinstance(leaf, str | bytes) or _is_record(leaf):
            yield hash(leaf)
        elif isinstance(leaf, dict | collections.deque):  # pytree knows no Counter
            yield from _numbers(list(leaf.values()) if isinstance(leaf, dict) else list(leaf))


@contextlib.contextmanager
def _without_effects(
    model: torch.nn.Module, *, quiet: Callable[[torch.nn.Module], bool] | None,
    parameters: bool = False, graph: bool = False,
) -> Iterator[_ModuleState]:  # fmt: skip
    """Compute without prints, random numbers and running statistics; ``quiet`` modules do not train.

    Without gradients too, but with a ``graph`` where the call itself is to have one. No model that the notebook has
    hooked a function to is called so. Gives what the modules hold, with their ``parameters`` if asked, to put it back.
    """
    modes = {part: part.training for part in model.modules()}
    held = _ModuleState(model, parameters=parameters)
    for part in modes:
        part.training = part.training and not (quiet and quiet(part))
    try:
        # parametrize.cached() would keep values without gradients
        cache, stdout = _replaced(parametrize, _cache={}), contextlib.redirect_stdout(io.StringIO())
        with cache, stdout, torch.set_grad_enabled(graph):
            yield held
    finally:
        for part, training in modes.items():
            part.training = training
        held.take()


def _hooks_of_notebook(model: torch.nn.Module) -> str | None:
    """Return what the notebook has hooked a function of its own to: it would be given a part of a batch."""
    kinds = "forward_hooks forward_pre_hooks backward_hooks backward_pre_hooks post_accumulate_grad_hooks"
    names = [f"{start}_{kind}" for kind in kinds.split() for start in ("", "_global")]
    for name, of in (("", torch.nn.modules.module), *model.named_modules(), *model.named_parameters()):
        hooks = [getattr(of, each, None) or {} for each in names]
        if any(_is_of_notebook(hook) for of_kind in hooks for hook in of_kind.values()):
            what = "parameter" if isinstance(of, torch.Tensor) else "module"
            return f"the {what} `{name}`" if name else "the model" if of is model else "all modules"
    return None


def _is_of_notebook(hook: Any) -> bool:
    function = getattr(hook, "func", hook)  # of functools.partial
    function = getattr(function, "__func__", function)
    is_ours = getattr(function, "__name__", "").startswith("_nb2ddp_")  # in a single file
    own = _is_own(getattr(function, "__module__", None)) and not is_ours
    return own or _is_own(type(function).__module__)


def _is_compiled(parts: Iterable[Any]) -> bool:
    return any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in parts)


def _keeps_rows_apart(part: torch.nn.Module) -> bool:
    """Return whether rows do not meet in a module where it trains, in a batch norm aside; others are not known."""
    known = "torch.", "torchaudio.", "torchvision.", "timm.", "transformers"
    return type(part).__module__.startswith(known)


def _unsynchronised(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Let batch norms take their statistics from all ranks' rows, and return those that do not; on CPUs none can."""
    norms = [part for part in model.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    on_gpus = [part for part in norms if all(value.is_cuda for value in part.state_dict().values())]
    # a comparison tells whether a library's computes otherwise; gradients of their gradients there are none
    of_library = not any(_is_own(type(part).__module__) for part in norms)
    if norms and on_gpus == norms and of_library and not _is_in_own_code("create_graph"):
        _let_batch_norms_see_ranks()
        return []
    return norms


@functools.cache
def _let_batch_norms_see_ranks() -> None:
    """Let batch norms normalise by all ranks' rows where a model computes a rank's, and by their own in all else."""
    alone: Any = torch.nn.functional.batch_norm
    of_rows = dict[int, bool]()

    @functools.wraps(alone)
    def batch_norm(rows: Any, mean: Any, *given: Any, **named: Any) -> Any:
        if torch._C._current_graph_task_id() < 0:  # in backward() a checkpoint computes once more what it did
            of_rows[id(mean)] = bool(_run.has_rows)
        if of_rows.get(id(mean)) and rows.is_cuda and len(given) == 6 and given[3]:  # as PyTorch's call it
            variance, weight, bias, _, momentum, eps = given
            return _NormOfRows.apply(rows, weight, bias, mean, variance, momentum, eps, None, None)
        return alone(rows, mean, *given, **named)

    torch.nn.functional.batch_norm = batch_norm


class _NormOfRows(torch.nn.modules._functions.SyncBatchNorm):
    """PyTorch's, but that each layer's forward() there waits until the GPU has told which ranks have rows."""

    @staticmethod
    def forward(of: Any, rows: Any, weight: Any, bias: Any, *others: Any) -> Any:
        mean, *_, eps = settings = others[:4]  # the running mean and variance, their momentum and epsilon
        rows = rows if rows.is_contiguous(memory_format=torch.channels_last) else rows.contiguous()
        count, kind = rows.numel() // rows.size(1), torch.promote_types(rows.dtype, torch.float32)
        of_ranks = rows.new_zeros(_run.world_size, 3, rows.size(1), dtype=kind)
        own = of_ranks[_run.rank]
        # of no weight where a model selects another rank's rows alone
        own[1:] = count or torch.tensor([[1], [1e-30]], device=rows.device)
        if count:
            own[0], own[1] = torch.batch_norm_stats(rows, eps)
        of.process_group = torch.distributed.group.WORLD
        torch.distributed.all_reduce(of_ranks)
        means, deviations, counts = of_ranks.unbind(1)
        counts = counts[:, 0].to((rows if mean is None else mean).dtype)
        found = torch.batch_norm_gather_stats_with_counts(rows, means, deviations, *settings, counts)
        of.save_for_backward(rows, weight, *found, counts.to(torch.int32))
        return torch.batch_norm_elemt(rows, weight, bias, *found, eps) if count else torch.empty_like(rows)


def _is_in_own_code(pattern: str) -> bool:
    """Return whether the notebook's own code has something that a regular expression describes."""
    own = [module for name, module in list(sys.modules.items()) if _is_own(name)]
    return any(_is_in_file(getattr(module, "__file__", None) or "", pattern) for module in own)


@functools.cache
def _is_in_file(path: str, pattern: str) -> bool:
    text = "".join(linecache.getlines(path))
    return not text or re.search(pattern, text) is not None  # perhaps, where it cannot be read
