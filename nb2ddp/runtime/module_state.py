"""Call a model without effects: what a call changes in its modules is found, and put back."""

import collections
import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nb2ddp.runtime.random_numbers import _random_state, _set_random_state

_OF_ALL_MODULES = frozenset(
    torch.nn.Module().__dict__
)  # parameters, hooks and the like; buffers are held apart
_MOST_VALUES = 2**26  # of a tensor that is copied, to be put back
_MISSING = object()


class _ModuleState:
    """The buffers and attributes of a model's modules, and those of objects of the notebook's own in them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.holders = list(_holders(model))
        self.old = [_values(holder) for _, holder in self.holders]
        values = {id(value): value for old in self.old for value in old.values()}
        self.copies = {key: _Copy(value) for key, value in values.items()}
        self.printed = io.StringIO()

    def changes(self) -> dict[str, list[Any]]:
        """Return by name the numbers and tensors of what is not as it was."""
        found = {}
        for (of, holder), old in zip(self.holders, self.old, strict=True):
            for name, value in _values(holder).items():
                if value is not old.get(name, _MISSING) or self.copies[id(value)].is_changed():
                    found[f"{of}.{name}" if of else name] = [
                        leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
                        for leaf in pytree.tree_leaves(value)
                        if isinstance(leaf, torch.Tensor | int | float)
                    ]
        return found

    def put_back(self) -> None:
        """Make all values what they were."""
        for (_, holder), old in zip(self.holders, self.old, strict=True):
            for name in _values(holder).keys() - old.keys():
                del holder[name]
            holder.update(old)
        for kept in self.copies.values():
            kept.put_back()


class _Copy:
    """A value, and what it held when this was made."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.held: Any = None
        if isinstance(value, torch.Tensor):
            if not value.is_inference() and not isinstance(value, torch.nn.UninitializedBuffer):
                self.version = value._version
                self.held = value.detach().clone() if value.numel() <= _MOST_VALUES else None
        elif isinstance(value, list | dict | set | collections.deque):
            self.held = value.copy()

    def is_changed(self) -> bool:
        if self.held is None:
            return False
        if isinstance(self.value, torch.Tensor):
            return bool(self.value._version != self.version)
        if len(self.value) != len(self.held):
            return True
        pairs = zip(_items(self.value), _items(self.held), strict=True)
        return any(one is not other for one, other in pairs)

    def put_back(self) -> None:
        if not self.is_changed():
            return
        if isinstance(self.value, torch.Tensor):
            with torch.no_grad():
                self.value.copy_(self.held)
            return
        self.value.clear()
        add = self.value.update if isinstance(self.value, dict | set) else self.value.extend
        add(self.held)


def _items(value: Any) -> Iterator[Any]:
    """Yield what a container holds; of a dict, keys and values."""
    for item in value:
        yield item
        if isinstance(value, dict):
            yield value[item]


def _holders(model: torch.nn.Module) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the dicts that hold the values of modules, and of objects of the notebook's own classes in them."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        yield name, module._buffers
        yield name, module.__dict__
        for attribute, value in _values(module.__dict__).items():
            own = type(value).__module__ == "__main__" and not isinstance(value, torch.nn.Module)
            if own and hasattr(value, "__dict__") and id(value) not in seen:
                seen.add(id(value))
                yield f"{name}.{attribute}" if name else attribute, value.__dict__


def _values(holder: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in holder.items() if name not in _OF_ALL_MODULES}


def _holder_of(model: torch.nn.Module, tensor: torch.Tensor | None) -> tuple[dict[str, Any], str] | None:
    """Return what of a model's modules holds a tensor, and under which name; None where none does."""
    for part in model.modules():
        for holder in (part._buffers, part._parameters, part.__dict__):
            for name, value in holder.items():
                if value is tensor:
                    return holder, name
    return None


@contextlib.contextmanager
def _without_effects(
    model: torch.nn.Module, *, quiet: Callable[[torch.nn.Module], bool], keeps_state: bool = True
) -> Iterator[_ModuleState]:
    """Compute without gradients, prints, random numbers and running statistics; ``quiet`` modules do not train.

    Forward hooks of the notebook do not see these calls, which are none of the notebook's. Gives what the modules
    hold, which is put back at the end, but where a call is to leave its state.
    """
    modes = {part: part.training for part in model.modules()}
    state = _random_state()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    held = _ModuleState(model)
    for part in modes:
        part.training = part.training and not quiet(part)
    try:
        with torch.no_grad(), contextlib.redirect_stdout(held.printed), _without_hooks_of_notebook(model):
            yield held
    finally:
        if keeps_state:
            held.put_back()
        for part, training in modes.items():
            part.training = training
        _set_random_state(state)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu)


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


def _has_other_parameters(model: torch.nn.Module, known: list[tuple[Any, Any, bool]]) -> bool:
    """Return whether the notebook has replaced parameters, or resized one in place, since they became ``known``.

    `torch.func.functional_call` puts tensors in their places for one call, which are no parameters.
    """
    now = list(model.parameters())
    if not known or not all(isinstance(p, torch.nn.Parameter) for p in now):
        return False
    return len(now) != len(known) or any(
        p is not old or p.shape != shape for p, (old, shape, _) in zip(now, known, strict=True)
    )


_PEFT_HOOK = frozenset({"requires_grad_"})  # what PEFT's own tells users to call: nothing is kept


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
    code = getattr(function, "__code__", None)
    return getattr(function, "__module__", None) == "__main__" and not (
        code is not None and _PEFT_HOOK.issuperset(code.co_names)
    )


def _is_batch_norm(part: torch.nn.Module) -> bool:
    return isinstance(part, torch.nn.modules.batchnorm._BatchNorm)


def _is_of_library(part: torch.nn.Module) -> bool:
    """Return whether a module's class is not the notebook's, whose training mode may do anything."""
    return type(part).__module__ != "__main__"
