"""Warn of files that every rank has written, by a call that the conversion does not know."""

import contextlib
import functools
import os
import sys
import threading
import weakref
from typing import Any

from nb2ddp.runtime.object_collectives import from_all_ranks
from nb2ddp.runtime.run_state import _run, _warn, is_main_process
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.spot_checks import _checks

_MOST_WARNINGS = 5
_MOST_PATHS = 1000
# audit events, and which of the arguments is the path that is written or removed
_PATHS = {
    "open": 0, "os.link": 1, "os.remove": 0, "os.rename": 1, "os.symlink": 1, "os.truncate": 0, "shutil.rmtree": 0,
}  # fmt: skip


class _Effect(BaseException):
    """What a call that is only compared would do and nobody can take back: the call ends there."""


@functools.cache
def _warn_of_repeated_writes() -> None:
    """Compare what the ranks have written, after each training and at the end, until one process goes on."""
    writes = _Writes()

    def hook(event: str, args: tuple[Any, ...], events: frozenset[str] = frozenset(_PATHS)) -> None:
        if event in events and _run.meets:
            writes.see(event, args)

    sys.addaudithook(hook)  # it cannot be removed, and keeps the object
    _checks.waiting.append(weakref.WeakMethod(writes.compare))


class _Writes:
    """The files below the folders of the run that this rank has written where all ranks run, and the first places."""

    def __init__(self) -> None:
        script = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        script_folder, folder = os.path.dirname(os.path.realpath(script)), os.path.realpath(".")
        too_high = {os.path.realpath("/"), os.path.realpath(os.path.expanduser("~"))}
        self.folders = tuple(f"{each}{os.sep}" for each in {script_folder, *({folder} - too_high)})
        self.ours = f"{os.sep}__pycache__{os.sep}", f"{os.sep}.unfinished-nb2ddp-"
        self.places: dict[str, str] = {}  # by path
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
                if path.startswith(self.folders) and not any(part in path for part in self.ours):
                    verb = "removes" if event in ("os.remove", "shutil.rmtree") else "writes"
                    # a Trainer's micro-batch nothing ends
                    is_trial = _run.comparing and _run.micro_batch is None
                    if is_trial and threading.current_thread() is threading.main_thread():
                        raise _Effect(f'forward() {verb} "{os.path.relpath(path)}"')
                    self.places.setdefault(path, f"{_place()} {verb}")
        finally:
            self.thread.looks = False

    def compare(self) -> None:
        """Say on rank 0 which paths all ranks of one disk have written. A collective."""
        of_ranks = from_all_ranks(self.places)
        for path, place in of_ranks[0].items() if is_main_process and _run.one_disk else ():
            if place in self.said or not all(path in other for other in of_ranks):
                continue
            self.said.add(place)
            if len(self.said) <= _MOST_WARNINGS:
                _warn(
                    f'{place} "{os.path.relpath(path)}" on every rank, where the notebook does so '
                    "once: put it below `if ddp.is_main_process:` in the script"
                )
        self.places = {}
