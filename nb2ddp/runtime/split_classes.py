"""Classes of models whose calls are divided over the ranks, and which model has which division."""

import contextlib
import copyreg
import functools
import linecache
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from nb2ddp.runtime.run_state import _replaced, _run, _warn
from nb2ddp.runtime.script_location import _script_frames

_splits = _run.divided
# what is known of the calls of modules: whether they are inside of one that may be divided; what finds the models that
# train; whether rows are read whole; and in each thread whether it reads rows just now, beside a model that is called
_calls = types.SimpleNamespace(are_inside=False, search=None, reads_whole=False, of_thread=threading.local())


@functools.cache
def _split_class(kind: Any) -> Any:
    """Return a subclass whose instances compute their part of a batch when called; pickled as ``kind``, equal to it."""

    called: Callable[..., Any] = kind.__call__
    reduced: Callable[..., Any] = kind.__reduce_ex__

    @torch.compiler.disable  # a compiled function that calls the model would trace this file
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        split = _splits.get(self)
        if split is None or "_divides" not in vars(type(self)) or not _is_to_divide():  # parametrized since
            return called(self, *args, **kwargs)
        return split.forward(args, kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        function, arguments, *rest = reduced(self, protocol)
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            function, arguments = copyreg._reconstructor, (kind, object, None)  # type: ignore[attr-defined]
        return (function, arguments, *rest)

    members: dict[str, Any] = {name: _divided_method(name, of) for name, of in _methods(kind)}
    members |= {"__call__": call, "__reduce_ex__": reduce, "__module__": kind.__module__, "_divides": kind}
    members |= {"__doc__": kind.__doc__, "__qualname__": kind.__qualname__}
    equal: dict[str, Any] = {"__eq__": lambda of, x: x is of or x is kind, "__hash__": lambda _: hash(kind)}

    def as_kind(name: str) -> property:
        of_type: Any = vars(type)[name]  # a class below this one has its own, as when it is parametrized
        return property(lambda of: getattr(kind, name) if "_divides" in vars(of) else of_type.__get__(of))

    equal |= {name: as_kind(name) for name in ("__bases__", "__mro__")}
    return type("Divided", (type(kind),), equal)(kind.__name__, (kind,), members)


def _methods(kind: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods that a model's own classes define: some train it past its call."""
    for name in () if hasattr(kind, "automatic_optimization") else dir(kind):  # Lightning's loop calls them
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        if name.startswith("_") or owner is object or owner.__module__.partition(".")[0] == "torch":
            continue
        if isinstance(vars(owner)[name], types.FunctionType):
            yield name, vars(owner)[name]


def _divided_method(name: str, function: Callable[..., Any]) -> Any:
    @torch.compiler.disable
    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        split = _splits.get(self)
        own = "_divides" in vars(type(self))  # not in `_as_it_was`: Accelerate keeps this method in the model
        if split is None or not own or name in split.plain or not _is_to_divide():
            return function(self, *args, **kwargs)
        return split.method(name, functools.partial(function, self), args, kwargs)

    return method


def _is_to_divide() -> bool:
    """Return whether all ranks come to a call, outside of a backward(), of a tracer and of torch.func.

    `torch.func.grad` and `vmap` cannot be divided: each rank computes all rows there. What does not train may stand
    below `if ddp.is_main_process`, or in another thread: such a call is this rank's own.
    """
    functorch: Any = torch._C._functorch
    frames: Any = () if torch.is_grad_enabled() else _script_frames()
    return (
        _run.meets
        and not getattr(_calls.of_thread, "reads", False)
        and torch._C._current_graph_task_id() == -1
        and not torch.jit.is_tracing()
        and functorch.peek_interpreter_stack() is None
        and (torch.is_grad_enabled() or threading.current_thread() is threading.main_thread())
        and not any(_asks_for_rank(of.f_code.co_filename, of.f_lineno) for of in frames)
    )


@functools.cache
def _asks_for_rank(path: str, line: int) -> bool:
    """Return whether a line of the script stands below a test of the rank, or after one that others do not pass."""
    depth = sys.maxsize
    for text in filter(str.strip, reversed(linecache.getlines(path)[:line])):
        left = len(text) - len(text.lstrip())
        if left <= depth and _RANK.match(text) and (left < depth or "not " in text or "!=" in text):
            return True
        depth = min(depth, left)
    return False


_RANK = re.compile(r"\s*(if|elif)\b.*\b(is_main\w*|is_local_main\w*|\w*rank)\b")


@contextlib.contextmanager
def _as_it_was(model: Any, *, has_rows: bool) -> Iterator[None]:
    """Give a model its own class within this: what it calls of itself is not divided once more, or traced by dynamo."""
    kind = type(model)
    if model in _splits:
        object.__setattr__(model, "__class__", vars(kind).get("_divides", kind))
    try:
        with _replaced(_calls, are_inside=True), _replaced(_run, has_rows=has_rows):
            yield
    finally:
        object.__setattr__(model, "__class__", kind)


def _divide_no_parts(split: Any) -> None:
    """Stop dividing the calls of a model's submodules: it divides its own calls now."""
    for part in list(split.model.modules()) if len(_splits) > 1 and not split.by_parts else ():
        if part in _splits and _splits[part] is not split:
            _divide_no_more(part)


def _divide_no_more(model: Any) -> None:
    """Give a model its own class again."""
    del _splits[model]
    object.__setattr__(model, "__class__", vars(type(model)).get("_divides", type(model)))


def _divide_nothing_more() -> None:
    """Give all models their own classes again: one process goes on with them, or a Trainer does."""
    for model in list(_splits):
        _divide_no_more(model)


_run.at_finish.append(_divide_nothing_more)
_run.at_trainer.append(_divide_nothing_more)


def _divide_what_is_compiled(divide: Callable[[Any], None]) -> None:
    """Divide the calls of what `torch.compile` makes of a divided model, so that dynamo sees none of this file."""
    compiled: Callable[..., Any] = torch.compile

    @functools.wraps(compiled)
    def compiled_and_divided(*args: Any, **options: Any) -> Any:
        made = compiled(*args, **options)
        model = args[0] if args else options.get("model")
        if _run.meets and isinstance(made, torch.nn.Module):
            if model in _splits:
                divide(made)
        elif _run.meets and callable(model):
            _warn(
                f"`{getattr(model, '__name__', 'a function')}` is compiled, but not the models that it calls: ranks "
                "divide their calls. Compile the model itself: torch.compile(model)"
            )
        return made

    torch.compile = compiled_and_divided
