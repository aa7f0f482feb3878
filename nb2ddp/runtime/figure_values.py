"""Find the plain values that a micro-batch may change, copy and compare them."""

import collections
import contextlib
import io
import math
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from nb2ddp.runtime.metrics import _is_metric
from nb2ddp.runtime.script_location import _is_own

_Path = tuple[Any, ...]
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_GROWS = (list, collections.deque, set)
_MOST = 256  # values of a container that are looked at; of a longer list only what is appended
_MOST_ON_CPU = 1 << 16  # of a tensor or an array there
_ABSENT = "nb2ddp: there was none"
# attributes of a Trainer that hold no figures, or none that a micro-batch changes
_NO_FIGURES = frozenset(
    "model model_wrapped ref_model optimizer lr_scheduler accelerator args train_dataset eval_dataset control state "
    "callback_handler data_collator processing_class _memory_tracker _turns label_names _signature_columns "
    "current_flos current_gradient_accumulation_steps is_in_train".split()
)


def _root(trainer: Any, name: str) -> tuple[Any, Any]:
    if name == "model":
        return dict(trainer.model.named_modules()), None
    return vars(trainer if name == "trainer" else sys.modules["__main__"]), None


def _walk(trainer: Any, modules: list[tuple[str, Any]]) -> Iterator[tuple[_Path, Any, Any, Any]]:
    """Yield the plain values and containers that a micro-batch may change: path, holder, key, value."""
    main = vars(sys.modules["__main__"])
    own = {name: value for name, value in vars(trainer).items() if name not in _NO_FIGURES}
    waiting: list[tuple[_Path, Any, Any, Any]] = [
        *(
            (("the notebook", name), main, name, value)
            for name, value in list(main.items())
            if name[:2] != "__"
        ),
        *((("trainer", name), vars(trainer), name, value) for name, value in own.items()),
    ]
    for name, module in modules:
        waiting += [
            (("model", name, key), vars(module), key, value) for key, value in list(vars(module).items())
        ]
    seen: set[int] = {id(trainer), id(vars(trainer)), id(main)}
    waiting.reverse()  # taken from the end
    while waiting:
        path, holder, key, value = waiting.pop()
        if (
            isinstance(value, _SIMPLE)
            or _is_record(value)
            or _is_small_tensor(value)
            or (type(value).__module__ == "numpy" and not _is_array(value))
        ):
            yield path, holder, key, value
            continue
        if id(value) in seen or len(seen) > 20 * _MOST:  # or known by another name
            continue
        inner: list[tuple[_Path, Any, Any, Any]] = []
        if isinstance(value, _GROWS):
            seen.add(id(value))
            yield path, holder, key, value
        elif isinstance(value, dict):
            seen.add(id(value))
            if len(value) <= _MOST:
                inner = [((*path, name), value, name, item) for name, item in list(value.items())]
        elif _is_metric(value):  # torchmetrics': what it counts, and how often
            seen.add(id(value))
            names = [*value._defaults, "_update_count"]
            inner = [((*path, name), value, name, getattr(value, name, None)) for name in names]
        elif isinstance(value, types.FunctionType) and _is_own(value.__module__):
            seen.add(id(value))
            for number, cell in enumerate(value.__closure__ or ()):
                with contextlib.suppress(ValueError):  # not filled yet
                    inner.append(((*path, f"variable {number}"), cell, "cell_contents", cell.cell_contents))
            inner += [((*path, name), vars(value), name, item) for name, item in list(vars(value).items())]
        elif isinstance(value, type) and _is_own(value.__module__):
            seen.add(id(value))
            names = [name for name in vars(value) if name[:2] != "__"]
            inner = [((*path, name), value, name, vars(value)[name]) for name in names]
        elif (
            _is_own(type(value).__module__)
            and hasattr(value, "__dict__")
            and not isinstance(value, torch.nn.Module)
        ):
            seen.add(id(value))
            inner = [((*path, name), vars(value), name, item) for name, item in list(vars(value).items())]
            inner.append(((*path, "class"), None, None, type(value)))
        waiting += reversed(inner)


def _own_modules(trainer: Any) -> list[tuple[str, Any]]:
    """Return the modules of a Trainer's model whose classes are the notebook's: they may count their calls."""
    model = getattr(trainer, "model", None)
    if not isinstance(model, torch.nn.Module):
        return []
    return [(name, part) for name, part in model.named_modules() if _is_own(type(part).__module__)]


def _is_record(value: Any) -> bool:
    return type(value) is tuple and len(value) <= 8 and all(isinstance(item, _SIMPLE) for item in value)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_small_tensor(value: Any) -> bool:
    if _is_array(value):
        return bool(value.size <= _MOST_ON_CPU)
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, torch.nn.Parameter)
        and value.numel() <= (_MOST if value.is_cuda else _MOST_ON_CPU)
    )


def _copied(value: Any) -> Any:
    """Return a copy of a value that may be changed in place; of a long list its length alone."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if _is_array(value):
        return value.copy()
    if isinstance(value, _GROWS):
        return type(value)(value) if len(value) <= _MOST else len(value)
    return value


def _refill(value: Any, copy: Any) -> None:
    if isinstance(value, torch.Tensor):
        if not torch.equal(value, copy):  # a write leaves a trace
            with torch.no_grad():
                value.copy_(copy)
    elif _is_array(value):
        value[...] = copy
    elif isinstance(value, list) and isinstance(copy, int):
        del value[copy:]
    elif isinstance(value, list):
        value[:] = copy
    elif isinstance(value, _GROWS) and not isinstance(copy, int):
        value.clear()
        (value.update if isinstance(value, set) else value.extend)(copy)


def _appended(before: Any, after: Any) -> Any:
    """Return what was added to a container, for a list at its end; None where other items changed."""
    if isinstance(before, str):
        return after if isinstance(after, set) else list(after)
    if not isinstance(before, _GROWS):
        return None
    if isinstance(after, set):
        return after - before if isinstance(before, set) and before <= after else None
    old, new = list(before), list(after)
    for gone in range(len(old) + 1 if getattr(after, "maxlen", None) else 1):
        kept = len(old) - gone
        if kept <= len(new) and all(
            a is b or _agree(a, b) for a, b in zip(old[gone:], new[:kept], strict=True)
        ):
            return new[kept:]
    return None


def _sent(value: Any) -> Any:
    """Return a value as other ranks get it: tensors on the CPU, without a graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, list | collections.deque):
        return [_sent(item) for item in value]
    if isinstance(value, dict):
        return {name: _sent(item) for name, item in value.items()}
    return value


def _agree(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values are equal, numbers up to a relative ``tolerance``."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        if not (
            isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape
        ):
            return False
        if not one.is_floating_point():
            return bool(torch.equal(one.cpu(), other.cpu()))
        here, there = one.double().cpu(), other.double().cpu()
        return bool(torch.allclose(here, there, rtol=tolerance, atol=tolerance, equal_nan=True))
    if _is_array(one) or _is_array(other):
        if type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        same = (one == other) | ((one != one) & (other != other))  # both are NaN
        if tolerance and one.dtype.kind in "fc":
            same |= abs(one - other) <= tolerance * (1 + abs(one))
        return bool(same.all())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _agree(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[name], other[name], tolerance) for name in one)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool) and not isinstance(other, bool):
        both_nan = one != one and other != other
        return (
            both_nan or one == other or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * 1e-2)
        )
    try:
        return bool(type(one) is type(other) and (one is other or one == other))
    except Exception:  # __eq__ of any class may do anything
        return False


def _read(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return holder.get(key, _ABSENT)
    return getattr(holder, key, _ABSENT)


def _write(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    else:
        setattr(holder, key, value)


class _Printed(io.TextIOBase):
    """Stands for ``sys.stdout`` while a micro-batch is computed."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.events.append(("print", text))
        return len(text)


def _printed(events: list[Any]) -> str:
    return "".join(value for kind, value in events if kind == "print")


def _put_prints_in_order(seen: list[list[Any]], orders: list[list[int]]) -> None:
    """Give to micro-batch ``k`` what each rank printed because it was the k-th that it computed.

    A library says some things once in a process. ``seen``: by micro-batch, each rank's note; ``orders``: by rank, in
    which order it computed them.
    """
    texts = [[_printed(note.events).splitlines(keepends=True) for note in notes] for notes in seen]
    own = [_common_end(of_ranks) for of_ranks in texts]  # what the micro-batch itself prints
    leads = [
        ["".join(texts[turn][rank][: len(texts[turn][rank]) - own[turn]]) for turn in order]
        for rank, order in enumerate(orders)
    ]
    if any(of_rank != leads[0] for of_rank in leads):
        return
    for rank, order in enumerate(orders):
        for turn, lead in zip(order, leads[0], strict=True):
            _take_lead(seen[turn][rank].events, len(lead))
    for notes, lead in zip(seen, leads[0], strict=True):
        for note in notes if lead else ():
            note.events.insert(0, ("print", lead))


def _common_end(of_ranks: list[list[str]]) -> int:
    """Return how many of their last lines the ranks' texts share."""
    count = 0
    for lines in zip(*(reversed(text) for text in of_ranks), strict=False):
        if len({*lines}) > 1:
            break
        count += 1
    return count


def _take_lead(events: list[Any], count: int) -> None:
    """Leave out the first ``count`` printed characters."""
    for place, (kind, value) in enumerate(events):
        if kind == "print":
            taken = min(count, len(value))
            events[place], count = (kind, value[taken:]), count - taken
