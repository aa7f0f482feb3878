"""Warn of files that every rank has written, and programs that it has started, where the notebook does so once."""

import atexit
import contextlib
import importlib
import logging
import os
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from nb2ddp.runtime.object_collectives import _Meeting, from_all_ranks
from nb2ddp.runtime.run_state import _run, _warn, is_main_process
from nb2ddp.runtime.script_location import _frames, _is_own, _place
from nb2ddp.runtime.split_classes import _calls
from nb2ddp.runtime.spot_checks import _checks
from nb2ddp.runtime.store import _store
from nb2ddp.runtime.whole_files import _save_whole_files

_MOST_WARNINGS, _MOST_PATHS = 5, 1000
# audit events, and which of the arguments is the path that is written or removed, or the program
_PATHS = {
    "open": 0, "os.link": 1, "os.remove": 0, "os.rename": 1, "os.symlink": 1, "os.truncate": 0, "shutil.rmtree": 0,
    "os.system": 0, "subprocess.Popen": 0,
}  # fmt: skip
_KNOWN = f"{os.sep}__pycache__{os.sep}", f"{os.sep}.unfinished-nb2ddp-"
_PUT = ": put it below `if ddp.is_main_process:`, or `with ddp.main_process_first():` if all use its result"


class _Effect(BaseException):
    """What a call would do that nobody can take back, of a part of a batch or only to compare it."""


def _end_trial(effect: str) -> None:
    """End such a call before it has an effect; every rank computes the whole batch then."""
    thread = type(threading.current_thread()).__name__  # Python does not know that of a GPU's backward()
    if _run.effect is not None and thread in ("_MainThread", "_DummyThread"):
        _run.effect = effect
        raise _Effect(effect)


class _Prints(types.SimpleNamespace):
    """Stands for ``sys.stdout``, its ``out``, in such a call."""

    def write(self, text: str) -> Any:
        with contextlib.suppress(_Effect):  # to the call's end: a lock is let go there, a buffer is emptied
            _end_trial("forward() prints; remove the print to divide the work")
        return len(text) if _run.effect else self.out.write(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


@contextlib.contextmanager
def _ending_at_effects() -> Iterator[None]:
    """End a call of some rows where it writes or asks for the rank, and after its end if it prints or logs."""
    before, _run.effect = _run.effect, ""
    try:
        with contextlib.redirect_stdout(_Prints(out=sys.stdout)):
            yield
    finally:
        effect, _run.effect = _run.effect, before
        if effect:  # which the model may have handled: `except:`
            raise _Effect(effect)


class _Module(type(sys)):  # type: ignore[misc]
    """This module: a call that asks it for the rank does something on rank 0 alone, for all rows of a batch."""

    @property
    def is_main_process(self) -> bool:
        _end_trial("forward() does something on rank 0 alone")
        return is_main_process

    def __reduce__(self) -> tuple[Any, ...]:  # a function that Datasets pickles may refer to it
        return importlib.import_module, (__name__,)


sys.modules[__name__].__class__ = _Module


def _see_logs() -> None:
    """See what the notebook's own code logs; what is only compared logs nothing."""
    handle = logging.Logger.handle

    def see(logger: logging.Logger, record: logging.LogRecord) -> None:
        names = (frame.f_globals.get("__name__") for frame in _frames(sys._getframe(1)))
        if _run.effect is not None and _is_own(next((name for name in names if name != "logging"), "")):
            with contextlib.suppress(_Effect):
                _end_trial("forward() logs")
        if not _run.effect and (not _run.comparing or _run.micro_batch is not None):
            handle(logger, record)

    logging.Logger.handle = see  # type: ignore[method-assign,assignment]


def _warn_of_repeated_writes() -> None:
    """Compare what the ranks have written, after each training and at the end, until one process goes on."""
    writes = _Writes()
    start, end = time.time() - 1, sys.excepthook

    def end_on_error(kind: type[BaseException], error: Any, trace: Any) -> None:
        with contextlib.suppress(Exception):
            path = error.filename2 or error.filename
            if kind is FileExistsError and os.stat(path).st_ctime > start:
                error.__dict__["__notes__"] = [f'"{path}" is new, from another rank perhaps{_PUT}']
        end(kind, error, trace)

    sys.excepthook = end_on_error
    sys.addaudithook(writes.see)  # it cannot be removed, and keeps the object
    _checks.waiting.append(weakref.WeakMethod(writes.compare))
    _run.at_finish.append(writes.leave)


_run.at_begin += [_save_whole_files, _see_logs, _warn_of_repeated_writes]


class _Writes:
    """What this rank has written below the folders of the run, or started, where all ranks run; the first places."""

    def __init__(self) -> None:
        script = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        script_folder, folder = os.path.dirname(os.path.realpath(script)), os.path.realpath(".")
        too_high = {os.path.realpath("/"), os.path.realpath(os.path.expanduser("~"))}
        self.folders = tuple(f"{each}{os.sep}" for each in {script_folder, *({folder} - too_high)})
        self.places: dict[str, str] = {}  # by path or program
        self.said = set[str]()  # places

    def see(self, event: str, args: tuple[Any, ...], events: frozenset[str] = frozenset(_PATHS)) -> None:
        """Look at an event. Called on every thread, by Python itself."""
        if event not in events or not _run.meets:
            return
        flags = args[-1] if args and isinstance(args[-1], int) else -1
        reads = event == "open" and (flags < 0 or not flags & (os.O_WRONLY | os.O_RDWR))
        # a name in a folder that rmtree() has opened, which is an event of its own: the last is the folder's descriptor
        if reads or (flags >= 0 and event not in ("open", "os.truncate")):
            return
        with contextlib.suppress(Exception):
            what, verb = os.fsdecode(args[_PATHS[event]]), "starts"
            if event in ("os.system", "subprocess.Popen"):
                names = (frame.f_globals.get("__name__") for frame in _frames(sys._getframe(1)))
                own = _is_own(next((name for name in names if name != "subprocess"), ""))
                counts = own and (_calls.are_inside or threading.current_thread() != threading.main_thread())
            else:
                path = os.path.realpath(what)
                what = os.path.relpath(path)
                verb = "removes" if event.endswith(("remove", "tree")) else "writes"
                known = (event == "open" and os.path.isdir(path)) or any(part in path for part in _KNOWN)
                counts = path.startswith(self.folders) and not known
            if counts:
                _end_trial(f'forward() {verb} "{what}"')
                is_cache = os.path.basename(what).startswith("cache-")  # of a data set
                if len(self.places) < _MOST_PATHS and not is_cache:
                    self.places.setdefault(what, f"{_place()} {verb}")

    def leave(self) -> None:
        """Let rank 0 compare when the others have ended: it may have to save what one that hangs would keep it from."""
        meeting = _Meeting()
        meeting.publish(self.places)
        if is_main_process:
            atexit.register(self.compare, meeting, range(1, _run.world_size))

    def compare(self, meeting: _Meeting | None = None, others: Iterable[int] = ()) -> None:
        """Say on rank 0 what all ranks of one disk have written or started. A collective, without a ``meeting``."""
        if meeting and not _store().check([f"{meeting.key} {rank}" for rank in others]):
            return
        of_ranks = [self.places, *map(meeting.wait_for, others)] if meeting else from_all_ranks(self.places)
        for what, place in of_ranks[0].items() if is_main_process and _run.one_disk else ():
            if place not in self.said and all(what in other for other in of_ranks):
                self.said.add(place)
                if len(self.said) <= _MOST_WARNINGS:
                    _warn(f'{place} "{what}" on every rank, where the notebook does so once{_PUT}')
        self.places = {}
