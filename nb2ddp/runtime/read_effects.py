"""Tell whether reading the rows of a data set changes anything that the script can see later."""

import collections
import functools
import hashlib
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

_GATES = {"is_main_process", "main_process_only", "main_process_first", "in_turn"}
_MOST_SEEN = 20_000  # values
_MOST_OF_VALUE = 1_000  # of a long list
_MOST_OF_TEXT = 2**16  # of a text or array


def _content_of(*roots: Any) -> str:
    """Return a digest of the values that objects hold, of generators' states, and of what their functions name.

    Of libraries' objects it is what their attributes hold; of long values the beginning.
    """
    digest = hashlib.sha256()
    for value in _within(roots):
        is_plain = isinstance(value, str | bytes | int | float | complex | None)
        text = value[:_MOST_OF_TEXT] if isinstance(value, str | bytes) else value
        digest.update((repr(text) if is_plain else type(value).__qualname__).encode())
    return digest.hexdigest()


def _names_rank_0(*roots: Any) -> bool:
    """Return whether functions of the script that objects hold do something on rank 0 alone: write a file, say."""
    functions = [value for value in _within(roots) if isinstance(value, types.FunctionType)]
    return any(_GATES.intersection(code.co_names) for function in functions for code in _codes(function))


def _within(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield objects and what they hold, each once."""
    seen, waiting = dict[int, Any](), [*roots]
    while waiting and len(seen) < _MOST_SEEN:
        value = waiting.pop()
        if isinstance(value, str | bytes | int | float | complex | None):
            yield value
        elif id(value) not in seen:
            seen[id(value)] = value  # kept, so that no other gets its number
            yield value
            waiting += _inside(value)


def _inside(value: Any) -> Iterator[Any]:
    """Yield what an object holds."""
    state = next((getattr(value, of) for of in ("getstate", "get_state") if hasattr(value, of)), None)
    if isinstance(value, torch.Tensor):
        is_small = (
            value.device.type == "cpu" and value.layout is torch.strided and value.nbytes < _MOST_OF_TEXT
        )
        yield (
            value.detach().numpy(force=True).tobytes()
            if is_small and value.dtype.itemsize != 2
            else id(value)
        )
        yield 0 if value.is_inference() else value._version
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        yield len(value)
        yield from (item for item, _ in zip(value, range(_MOST_OF_VALUE), strict=False))
    elif isinstance(value, Mapping):
        yield len(value)
        yield from (
            part for pair, _ in zip(value.items(), range(_MOST_OF_VALUE), strict=False) for part in pair
        )
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType | staticmethod | classmethod):
        yield from (getattr(value, "__self__", None), value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.ModuleType):
        return
    elif isinstance(value, type):
        yield from vars(value).values() if value.__module__ == "__main__" else ()
    elif callable(state):
        yield state()
    elif hasattr(value, "bit_generator"):
        yield value.bit_generator.state
    elif hasattr(value, "tobytes") and hasattr(value, "nbytes"):
        yield value.tobytes() if value.nbytes < _MOST_OF_TEXT else id(value)
    elif hasattr(value, "__dict__"):
        yield from (type(value), vars(value))


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function holds, and what a function of the script names."""
    yield from (function.__dict__, function.__defaults__)
    for cell in function.__closure__ or ():
        yield from [cell.cell_contents] if cell != types.CellType() else []
    for code in _codes(function):
        yield from (function.__globals__[name] for name in code.co_names if name in function.__globals__)


def _codes(function: types.FunctionType) -> Iterator[types.CodeType]:
    """Yield the code of a function of the script, and of those within it."""
    codes = [function.__code__] if function.__module__ == "__main__" else []
    while codes:
        yield (code := codes.pop())
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
