"""Warn of what the notebook's own code writes on every rank, by a call that the conversion does not know."""

import atexit
import contextlib
import functools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.script_location import _place, _script_frames

_MOST_WARNINGS = 5
# audit events: which of the arguments is the path that is written or removed, and which its folder, if any
_PATHS = {
    "open": (0, None),
    "os.link": (1, 3),
    "os.remove": (0, 1),
    "os.rename": (1, 3),
    "os.symlink": (1, 2),
    "os.truncate": (0, None),
    "shutil.rmtree": (0, 1),
}
_EVENTS = {*_PATHS, "tempfile.mkdtemp", "tempfile.mkstemp"}
_WRITES_FOR_ITSELF = {"importlib", "multiprocessing", "subprocess", "tempfile"}  # of Python's own modules
_WRITES_FOR_CALLER = re.compile(
    r"(numpy|pandas|PIL|matplotlib|torch\.serialization|torchvision\.utils|yaml)\b"
)
_WRITING_SQL = re.compile(r"\s*(insert|update|delete|replace|create(?!\s+temp)|drop|alter)\b", re.IGNORECASE)
_OF_A_RANK = re.compile(
    r"(?:rank|gpu|cuda|process|proc|worker|device|node|shard|part)[\W_]*0*(\d+)", re.IGNORECASE
)
_CODE_OF_LIBRARIES = ("site-packages", "dist-packages", "unsloth_compiled_cache")


def _warn_of_repeated_writes() -> None:
    """Warn, on one rank for all that are not to write, until the script ends. No rank waits."""
    if _run.rank != 1 or _run.writes:
        return
    writes = _RepeatedWrites()

    def hook(event: str, args: tuple[Any, ...], events: frozenset[str] = frozenset(_EVENTS)) -> None:
        if event in events and not writes.ended:
            writes.see(event, args)

    sys.addaudithook(hook)
    with contextlib.suppress(ImportError):  # a Python without it
        writes.follow_databases()
    atexit.register(setattr, writes, "ended", True)  # a hook cannot be removed


class _RepeatedWrites:
    """Knows the audit events by which the notebook's own code writes, and says the first few places once each."""

    def __init__(self) -> None:
        script = getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0]
        script_folder, folder = os.path.dirname(os.path.realpath(script)), os.path.realpath(".")
        too_high = {os.path.realpath("/"), os.path.realpath(os.path.expanduser("~"))}
        self.folders = tuple({script_folder, *({folder} - too_high)})
        self.temporary = os.path.realpath(tempfile.gettempdir())
        self.own_temporary: list[str] = []  # made by this process, wherever
        self.python = os.path.dirname(os.path.realpath(os.__file__))
        self.places: set[str] = set()
        self.ended = False
        self.thread = threading.local()

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an event. Called for each on every thread, by Python itself: nothing may be raised."""
        flags = args[-1] if args else 0
        if event == "open" and not (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            return
        if self.ended or os.getpid() != _run.pid or getattr(self.thread, "looks", False):
            return
        self.thread.looks = True
        try:
            with contextlib.suppress(Exception):
                self._look(event, args)
        finally:
            self.thread.looks = False

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "sqlite3.execute":
            statement, database = args
            if _WRITING_SQL.match(statement):
                self._tell("writes", database)
        elif event.startswith("tempfile."):
            self.own_temporary.append(os.path.realpath(os.fsdecode(args[0])))
        else:
            of_path, of_folder = _PATHS[event]
            named = of_folder is None or args[of_folder] in (-1, None)
            if named and isinstance(args[of_path], str | bytes | os.PathLike):
                removes = event in ("os.remove", "shutil.rmtree")
                self._tell("removes" if removes else "writes", os.fsdecode(args[of_path]))

    def follow_databases(self) -> None:
        """See what SQLite connections execute: many only read. An audit event comes before they can be asked."""
        import sqlite3

        connect: Any = sqlite3.connect

        @functools.wraps(connect)
        def followed(database: Any, *args: Any, **options: Any) -> Any:
            connection = connect(database, *args, **options)
            with contextlib.suppress(Exception):
                if path := _file_of(os.fsdecode(database)):
                    connection.set_trace_callback(lambda text: self.see("sqlite3.execute", (text, path)))
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = followed

    def _tell(self, verb: str, path: str) -> None:
        """Say where a path is written, unless that is right on every rank."""
        if _run.alone or _run.world_size == 1:
            return
        frame = self._writer()
        if frame is None or self._is_a_ranks_own(path, frame):
            return
        place = _place(frame)
        if (main := next(_script_frames(frame), None)) is not frame:
            of_module = f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"
            place = of_module if main is None else f"{place} ({of_module})"
        if place in self.places:
            return
        self.places.add(place)
        self.ended = len(self.places) >= _MOST_WARNINGS
        whole, here = os.path.realpath(path), os.path.realpath(".")
        shown = os.path.relpath(whole, here) if _is_below(whole, here) else path
        print(
            f'nb2ddp: WARNING: {place} {verb} "{shown}" on every rank, where the notebook does so once: '
            "put it below `if ddp.is_main_process:` in the script",
            file=sys.__stderr__,
            flush=True,
        )

    def _writer(self) -> FrameType | None:
        """Return the frame of the notebook's own code that writes; None where a library writes for itself."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals is globals():
            frame = frame.f_back
        while frame is not None:
            file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
            if frame.f_globals is globals():
                if frame.f_code.co_name != "save_whole":  # a function of a script calls what writes
                    return None
            elif (module == "__main__" and not file.startswith("<")) or self._is_notebooks(file):
                return frame
            elif module.partition(".")[0] in _WRITES_FOR_ITSELF or not (
                self._is_pythons(file) or _WRITES_FOR_CALLER.match(module)
            ):
                return None
            frame = frame.f_back
        return None

    @functools.lru_cache(maxsize=1024)  # noqa: B019 -- there is one
    def _is_pythons(self, file: str) -> bool:
        return file.startswith("<") or (
            _is_below(os.path.realpath(file), self.python)
            and not any(part in file for part in _CODE_OF_LIBRARIES)
        )

    @functools.lru_cache(maxsize=1024)  # noqa: B019 -- there is one
    def _is_notebooks(self, file: str) -> bool:
        """Return whether a file is a module beside the script, or in the folder that the run began in."""
        if self._is_pythons(file) or any(part in file for part in _CODE_OF_LIBRARIES):
            return False
        return any(_is_below(os.path.realpath(file), folder) for folder in self.folders)

    def _is_a_ranks_own(self, path: str, frame: FrameType) -> bool:
        """Return whether each rank may write a path: in a temporary folder, say, or one that is named after it."""
        whole = os.path.realpath(path)
        if whole.startswith(("/dev/", "/proc/", "/sys/")) or f"{os.sep}__pycache__{os.sep}" in whole:
            return True
        around = max((folder for folder in self.folders if _is_below(whole, folder)), key=len, default="")
        in_run = bool(around)
        if (_is_below(whole, self.temporary) and not in_run) or f"{os.sep}.cache{os.sep}" in whole:
            return True
        if any(whole == own or _is_below(whole, own) for own in self.own_temporary):
            return True
        if in_run:  # the folder that the run is in may have a number, too
            path = os.path.relpath(whole, around)
        numbers = set(_OF_A_RANK.findall(path))
        if any(_asks_for_its_rank(code) for code in _codes(frame)):
            numbers |= {*re.findall(r"\d+", path)}
        return _run.rank in map(int, numbers) or str(os.getpid()) in re.findall(r"\d+", path)


def _file_of(database: str) -> str:
    """Return the file of a SQLite database; nothing for one in memory, or opened to read."""
    path, _, options = database.partition("?") if database.startswith("file:") else (database, "", "")
    in_memory = path.endswith(":memory:") or "mode=memory" in options
    return "" if in_memory or "mode=ro" in options else path.removeprefix("file:")


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _codes(frame: FrameType) -> Iterator[CodeType]:
    yield frame.f_code
    yield from (own.f_code for own in _script_frames(frame))


def _asks_for_its_rank(code: CodeType) -> bool:
    """Return whether code names its rank; every script does in its first lines."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars}
    if code.co_name == "<module>":
        names -= {"rank", "local_rank", "from_all_ranks"}
    known = any("rank" in name or "process_index" in name for name in names)
    return known or bool({"RANK", "LOCAL_RANK"} & {*code.co_consts})
