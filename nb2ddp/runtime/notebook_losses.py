"""Read what a notebook has written for its Trainer: whether its loss notes figures, or counts items."""

import dis
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any


def _own_code(trainer: Any) -> Iterator[CodeType]:
    """Yield the code of what the notebook has written of its Trainer's loss, with the functions inside it."""
    methods = [getattr(type(trainer), name) for name in ("compute_loss", "prediction_step", "training_step")]
    for function in (*methods, getattr(trainer, "compute_loss_func", None)):
        code = getattr(inspect.unwrap(function) if function is not None else None, "__code__", None)
        if code is not None and getattr(function, "__module__", "") == "__main__":
            yield from _with_inner(code)


def _with_inner(code: CodeType) -> list[CodeType]:
    """Return a function's code and that of the functions and comprehensions inside it."""
    codes = [code]
    for of in codes:  # which grows
        codes += [inner for inner in of.co_consts if isinstance(inner, CodeType)]
    return codes


def _notes_figures(trainer: Any) -> bool:
    """Return whether a loss of the notebook's own notes what it computes: it logs, prints or sets an attribute."""
    return any(
        _NOTING & {*code.co_names} or any(step.opname == "STORE_ATTR" for step in dis.get_instructions(code))
        for code in _own_code(trainer)
    )


_NOTING = frozenset(
    "log log_metrics log_dict print append extend update write writerow add_scalar add info item".split()
)


def _looks_at_gradients(trainer: Any) -> bool:
    """Return whether a training step of the notebook's own looks at gradients, as adversarial training does."""
    step = inspect.unwrap(type(trainer).training_step)
    if getattr(step, "__module__", "") != "__main__":
        return False
    return any("grad" in code.co_names for code in _followed([step], type(trainer)))


def _followed(functions: list[Any], owner: type) -> Iterator[CodeType]:
    """Yield the code of functions, and of the notebook's functions, classes and methods that they name."""
    seen = set()
    for function in functions:  # which grows
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        codes = _with_inner(function.__code__)
        yield from codes
        names = {name for code in codes for name in code.co_names}
        for of in [
            source
            for name in names
            for source in (function.__globals__.get(name), getattr(owner, name, None))
        ]:
            if getattr(of, "__module__", "") == "__main__":
                functions += list(vars(of).values()) if isinstance(of, type) else [of]


def _takes_items(trainer: Any) -> bool:
    """Return whether a loss may be divided by the number of items: the notebook's own may not look at it."""
    codes = list(_own_code(trainer))
    if not codes or type(trainer).compute_loss.__module__ != "__main__":
        return True
    loaded: set[Any] = set()
    for code in codes:
        for step in dis.get_instructions(code):
            if step.opname.startswith("LOAD"):
                loaded.update(step.argval if isinstance(step.argval, tuple) else [step.argval])
    options = {
        parameter.name
        for parameter in inspect.signature(type(trainer).compute_loss).parameters.values()
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    return bool(loaded & {"num_items_in_batch", *options})
