"""Call a model without effects: what a call changes in its modules is found, and put back."""

import collections
import contextlib
import functools
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from nb2ddp.runtime.metrics import _is_metric
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.value_copies import (
    _class_attributes,
    _copies,
    _is_of_own_class,
    _names_of_script,
    _reachable,
)

_OF_ALL_MODULES = frozenset(
    torch.nn.Module().__dict__
)  # parameters, hooks and the like; buffers are held apart
_MISSING = object()
_SCRIPT = "script"  # what the names of the script hold is named so
_MOST_OBJECTS = 1000  # of the notebook's own classes that are looked into


class _ModuleState:
    """The buffers and attributes of a model's modules, and what else of the notebook's own their calls may change.

    These are objects in the modules, attributes of their classes, and the script's names. With
    ``parameters`` also those of the modules, which `forward()` may move, as an average of another model's, or replace.
    Without ``of_library`` only what modules of the notebook's own classes hold.
    """

    def __init__(self, model: torch.nn.Module, *, parameters: bool = False, of_library: bool = True) -> None:
        self.holders = list(_holders(model, of_library=of_library))
        if parameters:
            self.holders += [(name, part._parameters) for name, part in model.named_modules()]
        self.old = [_values(holder) for _, holder in self.holders]
        of_modules, of_script = list[Any](), list[Any]()
        for (name, _), old in zip(self.holders, self.old, strict=True):
            of = of_script if name.startswith(_SCRIPT) else of_modules
            of += [x for value in old.values() for x in _reachable(value)]
        known = set(map(id, of_modules))
        self.copies = _copies([*of_modules, *of_script], {id(x) for x in of_script} - known)
        self.printed = io.StringIO()

    def changes(self) -> dict[str, list[Any]]:
        """Return by name the numbers and tensors of what is not as it was."""
        changed = {key for key, copy in self.copies.items() if copy.is_changed()}
        found = {}
        for (of, holder), old in zip(self.holders, self.old, strict=True):
            for name, value in _values(holder).items():
                if value is not old.get(name, _MISSING) or any(id(x) in changed for x in _reachable(value)):
                    found[f"{of}.{name}".lstrip(".").removeprefix(f"{_SCRIPT}.")] = list(_numbers(value))
        return found

    def put_back(self) -> None:
        """Make all values what they were."""
        for (_, holder), old in zip(self.holders, self.old, strict=True):
            now = _values(holder)
            for name in now.keys() - old.keys():
                del holder[name]
            for name, value in old.items():
                if now.get(name, _MISSING) is not value:
                    holder[name] = value
        for kept in self.copies.values():
            kept.put_back()


def _numbers(value: Any) -> Iterator[Any]:
    """Yield the numbers in a value, and copies of its tensors."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor | int | float):
            yield leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
        elif isinstance(leaf, dict | collections.deque):  # pytree knows no Counter
            yield from _numbers(list(leaf.values()) if isinstance(leaf, dict) else list(leaf))


def _holders(
    model: torch.nn.Module, *, with_names: bool = True, of_library: bool = True
) -> Iterator[tuple[str, Any]]:
    """Yield the mappings that hold the values of modules, and of what else of the notebook's their calls may change.

    ``with_names`` also the names of the script.
    """
    seen: set[int] = set()
    kinds: set[type] = set()

    def of_objects(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        waiting = [(name, value)]
        while waiting and len(seen) < _MOST_OBJECTS:
            name, value = waiting.pop()
            for found in _reachable(value):
                own = _is_of_own_class(found) and not isinstance(found, torch.nn.Module | type)
                if (own or _is_metric(found)) and hasattr(found, "__dict__") and id(found) not in seen:
                    seen.add(id(found))
                    kinds.add(type(found))
                    yield name, found.__dict__
                    waiting += [(f"{name}.{attribute}", inner) for attribute, inner in found.__dict__.items()]

    for name, module in model.named_modules():
        if not of_library and _is_of_library(module):
            continue
        yield name, module._buffers
        yield name, module.__dict__
        kinds.update(type(module).__mro__)
        for attribute, value in _values(module.__dict__).items():
            yield from of_objects(f"{name}.{attribute}" if name else attribute, value)
    own = {kind for kind in kinds if kind.__module__ == "__main__"}
    if with_names and own:
        names = _names_of_script()
        yield _SCRIPT, names
        for name, value in list(names.items()):
            yield from of_objects(f"{_SCRIPT}.{name}", value)
    for kind in sorted(own, key=lambda kind: kind.__qualname__):
        names = _class_attributes(kind)
        yield kind.__name__, names
        for name, value in list(names.items()):
            yield from of_objects(name, value)


def _values(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in holder.items() if name not in _OF_ALL_MODULES}


@contextlib.contextmanager
def _without_effects(
    model: torch.nn.Module,
    *,
    quiet: Callable[[torch.nn.Module], bool],
    keeps_state: bool = True,
    parameters: bool = False,
    graph: bool = False,
) -> Iterator[_ModuleState]:
    """Compute without prints, random numbers and running statistics; ``quiet`` modules do not train.

    Without gradients too, but with a ``graph`` where the call itself is to have one. Forward hooks of the notebook do
    not see these calls, which are none of the notebook's. Gives what the modules hold, with their ``parameters``
    if asked; it is put back at the end, but where a call is to leave its state.
    """
    modes = {part: part.training for part in model.modules()}
    state = _random_state()
    held = _ModuleState(model, parameters=parameters)
    # parametrize.cached() would keep values without gradients
    parametrized, parametrize._cache = parametrize._cache, {}
    for part in modes:
        part.training = part.training and not quiet(part)
    try:
        with (
            torch.set_grad_enabled(graph),
            contextlib.redirect_stdout(held.printed),
            _without_hooks_of_notebook(model),
        ):
            yield held
    finally:
        try:
            if keeps_state:
                held.put_back()
        finally:
            parametrize._cache = parametrized
            for part, training in modes.items():
                part.training = training
            _set_random_state(state)


@contextlib.contextmanager
def _without_hooks_of_notebook(model: torch.nn.Module) -> Iterator[None]:
    """Take the notebook's forward hooks off: they may count the calls, or keep what they see."""
    taken = []
    for part in model.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            own = {number for number, hook in hooks.items() if _is_of_notebook(hook)}
            if own:
                taken.append((hooks, dict(hooks), own))
                for number in own:
                    del hooks[number]
    try:
        yield
    finally:
        for hooks, before, own in taken:
            still = {number: hook for number, hook in before.items() if number in own or number in hooks}
            hooks.clear()
            hooks.update(still)  # in their order


def _hooks_of_notebook(model: torch.nn.Module) -> str | None:
    """Return what the notebook has hooked a function of its own to: it would be given a part of a batch."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    for name, module in model.named_modules():
        if any(_is_of_notebook(hook) for kind in kinds for hook in getattr(module, kind).values()):
            return f"the module `{name}`" if name else "the model"
    for name, parameter in model.named_parameters():
        hooks = [
            getattr(parameter, kind, None) or {}
            for kind in ("_backward_hooks", "_post_accumulate_grad_hooks")
        ]
        if any(_is_of_notebook(hook) for of_kind in hooks for hook in of_kind.values()):
            return f"the parameter `{name}`"
    return None


def _is_of_notebook(hook: Any) -> bool:
    function = getattr(hook, "func", hook)  # of functools.partial
    function = getattr(function, "__func__", function)
    if type(function).__module__ == "__main__":
        return True
    name = getattr(function, "__name__", "")
    return getattr(function, "__module__", None) == "__main__" and not name.startswith("_nb2ddp_")


def _is_batch_norm(part: torch.nn.Module) -> bool:
    return isinstance(part, torch.nn.modules.batchnorm._BatchNorm)


def _unsynchronised(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Let batch norms take their statistics from all ranks' rows, and return those that do not; on CPUs none can.

    Of another class than PyTorch's own one would lose what it does beside: an activation, say.
    """
    norms = [part for part in model.modules() if _is_batch_norm(part)]
    plain = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
    if norms and torch.cuda.is_available() and all(type(part) in plain for part in norms):
        torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        _let_batch_norms_see_ranks()
        return []
    return norms


@functools.cache
def _let_batch_norms_see_ranks() -> None:
    """Let `SyncBatchNorm` find the process group, which libraries do not: its forward() asks as they do."""
    forward = torch.nn.SyncBatchNorm.forward

    @functools.wraps(forward)
    def forward_of_ranks(norm: Any, rows: torch.Tensor) -> Any:
        before, _run.is_hidden = _run.is_hidden, False
        try:
            return forward(norm, rows)
        finally:
            _run.is_hidden = before

    torch.nn.SyncBatchNorm.forward = forward_of_ranks


def _is_of_library(part: torch.nn.Module) -> bool:
    """Return whether a module's class is not the notebook's, whose training mode may do anything."""
    return type(part).__module__ != "__main__"
