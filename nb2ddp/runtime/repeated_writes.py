"""Warn of files that every rank has written, and programs that it has started, where the notebook does so once."""

import contextlib
import os
import sys
import threading
import weakref
from typing import Any

from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _run, _warn, is_main_process
from nb2ddp.runtime.script_location import _frames, _is_own, _place
from nb2ddp.runtime.split_classes import _calls
from nb2ddp.runtime.spot_checks import _checks

_MOST_WARNINGS, _MOST_PATHS = 5, 1000
# audit events, and which of the arguments is the path that is written or removed, or the program
_PATHS = {
    "open": 0, "os.link": 1, "os.remove": 0, "os.rename": 1, "os.symlink": 1, "os.truncate": 0, "shutil.rmtree": 0,
    "os.system": 0, "subprocess.Popen": 0,
}  # fmt: skip
_REMOVING = "os.remove", "shutil.rmtree"


class _Effect(BaseException):
    """What a call that is only compared would do and nobody can take back: the call ends there."""


def _warn_of_repeated_writes() -> None:
    """Compare what the ranks have written, after each training and at the end, until one process goes on."""
    writes = _Writes()

    def hook(event: str, args: tuple[Any, ...], events: frozenset[str] = frozenset(_PATHS)) -> None:
        if event in events and _run.meets:
            writes.see(event, args)

    sys.addaudithook(hook)  # it cannot be removed, and keeps the object
    _checks.waiting.append(weakref.WeakMethod(writes.compare))


_run.at_begin.append(_warn_of_repeated_writes)


class _Writes:
    """What this rank has written below the folders of the run, or started, where all ranks run; the first places."""

    def __init__(self) -> None:
        script = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        script_folder, folder = os.path.dirname(os.path.realpath(script)), os.path.realpath(".")
        too_high = {os.path.realpath("/"), os.path.realpath(os.path.expanduser("~"))}
        self.folders = tuple(f"{each}{os.sep}" for each in {script_folder, *({folder} - too_high)})
        self.known = f"{os.sep}__pycache__{os.sep}", f"{os.sep}.unfinished-nb2ddp-", f"{os.sep}cache-"
        self.places: dict[str, str] = {}  # by path or program
        self.said = set[str]()  # places
        self.thread = threading.local()

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an event. Called on every thread, by Python itself."""
        flags = args[-1] if args else 0  # the descriptor of a folder, for what takes no flags
        if event == "open" and not (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            return
        if event not in ("open", "os.truncate") and isinstance(flags, int) and flags >= 0:
            return  # a name in a folder that rmtree() has opened, which is an event of its own
        if getattr(self.thread, "looks", False) or len(self.places) >= _MOST_PATHS:
            return
        self.thread.looks = True
        try:
            with contextlib.suppress(Exception):
                path = os.path.realpath(os.fsdecode(args[_PATHS[event]]))
                starts = event in ("os.system", "subprocess.Popen") and _is_started_apart()
                known = (event == "open" and os.path.isdir(path)) or any(part in path for part in self.known)
                if starts or (path.startswith(self.folders) and not known):
                    verb = "starts" if starts else "removes" if event in _REMOVING else "writes"
                    what = os.fsdecode(args[0]) if starts else os.path.relpath(path)
                    is_trial = _run.comparing and _run.micro_batch is None  # nothing ends a Trainer's
                    if is_trial and threading.current_thread() is threading.main_thread():
                        raise _Effect(f'forward() {verb} "{what}"')
                    self.places.setdefault(what, f"{_place()} {verb}")
        finally:
            self.thread.looks = False

    def compare(self) -> None:
        """Say on rank 0 what all ranks of one disk have written or started. A collective."""
        of_ranks = from_all_ranks(self.places)
        for what, place in of_ranks[0].items() if is_main_process and _run.one_disk else ():
            if place in self.said or not all(what in other for other in of_ranks):
                continue
            self.said.add(place)
            if len(self.said) <= _MOST_WARNINGS:
                _warn(
                    f'{place} "{what}" on every rank, where the notebook does so once: put it below '
                    "`if ddp.is_main_process:` in the script, or `with ddp.main_process_first():` if all use its result"
                )
        self.places = {}


def _is_started_apart() -> bool:
    """Return whether the notebook's own code starts a program in a thread, or while a model computes."""
    names = (frame.f_globals.get("__name__") for frame in _frames(sys._getframe(3)))
    is_own = _is_own(next((of for of in names if of != "subprocess"), ""))
    return is_own and (_calls.are_inside or threading.current_thread() is not threading.main_thread())
