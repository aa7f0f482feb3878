"""Let rank 0 alone draw plots and keep records: TensorBoard, MLflow, functions that write."""

import contextlib
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

from nb2ddp.runtime.run_state import _run, is_main_process

_plot_numbers = itertools.count(1)


def save_plots() -> None:
    """Save the figures that a notebook would show, on rank 0, as plot_1.png and so on. No rank waits."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot:
        show(*map(pyplot.figure, pyplot.get_fignums()))
        pyplot.close("all")


def show(*values: Any, **options: Any) -> Any:
    """Print what a notebook displays, on rank 0, or save a figure; return a handle where asked to. No rank waits."""
    for value in values:
        of_plotly, of_matplotlib = (hasattr(type(value), name) for name in ("write_html", "gca"))
        if not (of_plotly or of_matplotlib):
            sys.displayhook(value)
        elif is_main_process:
            path = f"plot_{next(_plot_numbers)}.{'html' if of_plotly else 'png'}"
            (value.write_html if of_plotly else value.savefig)(path)
    show.__dict__.update(update=show, display=show)  # as a handle of IPython's has
    return show if options.get("display_id") else None


def on_main_process(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` on rank 0; on the other ranks what does nothing, nor do its results. No rank waits.

    What a model lets a result of rank 0's do in a call of some rows, say log, it does once for the whole batch.
    """
    if not is_main_process or _run.world_size == 1:
        return function if is_main_process else _NoWriter()

    @functools.wraps(function)
    def make(*args: Any, **options: Any) -> Any:
        made: Any = _of_whole_batches(function)(*args, **options)
        kind: Any = type(made)
        with contextlib.suppress(TypeError):  # its class is one of Python's own, None say
            object.__setattr__(made, "__class__", _class_of_whole_batches(kind))
        return made

    return make


@functools.cache
def _class_of_whole_batches(kind: Any) -> Any:
    """Return a class whose objects do nothing in a call of some rows, as a run does on the other ranks."""

    def get(self: Any, name: str) -> Any:
        works = _run.effect is None or name[:2] == "__"
        return kind.__getattribute__(self, name) if works else _NoWriter()

    own = {name: value for base in kind.__mro__[::-1] for name, value in vars(base).items()}
    special = [own[name] for name in ("__getitem__", "__setitem__", "__call__") if name in own]
    members = {value.__name__: _of_whole_batches(value) for value in special}
    members |= {"__getattribute__": get, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), members)


def tracking_uri(uri: Any) -> Any:
    """Return the address of an MLflow store on rank 0; on the other ranks that of an empty one, removed at the end.

    MLflow cannot be disabled, and each rank would start a run of its own in a store that all share. Waits for no
    rank.
    """
    return uri if is_main_process else os.environ["MLFLOW_TRACKING_URI"]


def event_writer(name: str) -> None:
    """Replace a SummaryWriter class in its package; on ranks other than 0 by one that writes no event files.

    A writer of each rank would leave its own file, and TensorBoard would show every curve several times. So all that
    is imported later finds it, modules of the notebook's own, too. What a model writes in a call of some rows, is
    written once for the whole batch. Waits for no rank.
    """
    package, _, kind = name.rpartition(".")
    with contextlib.suppress(ImportError):  # which a notebook may expect
        own: Any = getattr(importlib.import_module(package), kind)
        writing = [member for member in dir(own) if member.startswith(("add_", "export_"))]
        members: dict[str, Any] = {member: _of_whole_batches(getattr(own, member)) for member in writing}
        if not is_main_process:
            members = {"_get_file_writer": _no_file_writer, **dict.fromkeys(writing, _NoWriter())}
        if _run.world_size > 1:
            setattr(sys.modules[package], kind, type(kind, (own,), members))


def _of_whole_batches(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def written(*args: Any, **options: Any) -> Any:
        return _NoWriter() if _is_of_some_rows() else write(*args, **options)

    return written


def _is_of_some_rows() -> bool:
    """Return whether a model computes some rows, or only compares; all ranks compute that batch whole then."""
    if _run.effect is None:
        return False
    _run.effect = "forward() writes to a tracker"
    return True


class _NoWriter:
    """Stands for what writes, or tracks: what it has, keeps and gives is one too; it goes through no items."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":  # what Python asks for, to copy it say
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> Any:
        _is_of_some_rows()
        return self

    __getitem__ = __setitem__ = __enter__ = __call__
    __iter__ = lambda _: iter(())  # noqa: E731
    __len__ = __exit__ = lambda *_: 0
    __bool__ = lambda _: True  # noqa: E731


def _no_file_writer(writer: Any) -> _NoWriter:
    writer.file_writer = made = _NoWriter()
    return made
