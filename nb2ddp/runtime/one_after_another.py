"""Let the ranks run a block one after another, each from the files as the first one found them."""

import contextlib
import functools
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
from typing import Any

from nb2ddp.runtime.object_collectives import _Meeting, from_all_ranks
from nb2ddp.runtime.process_signs import _descendants
from nb2ddp.runtime.run_state import _run, _warn_once
from nb2ddp.runtime.script_location import _place
from nb2ddp.runtime.whole_files import _save_whole_files

_MOST_COPIED = 1 << 28  # bytes of a file


class in_turn:
    """Let the ranks run a block one after another; each waits for its turn, and then for the last rank.

    Rank 0 begins when all ranks have come. What the block does with files is undone for the next rank, which does it
    again, and in the end they are as rank 0 has left them: a line is added once. Files above 256 MiB, on another disk
    than the script, or outside of its folder and the working folder, stay as each rank leaves them. What a rank raises
    in its turn, every rank raises; those after it do not run the block. The others take the values of
    `from_main_process` that rank 0 has left, and its `!` lines run once. Within `main_process_first` they begin with
    the files that rank 0 has left.
    """

    def __enter__(self) -> None:
        from_all_ranks(None)  # none still reads what rank 0 may write
        self.meeting = _Meeting() if _run.sends else None
        if self.meeting is None:
            return
        if _run.rank > 0:
            try:
                (self.meeting.first or self.meeting).wait_for(_run.rank - 1)
            except BaseException as error:
                self.meeting.publish(None, error)  # the next rank waits for this one
                raise
        self.outside = _run.alone, _run.first, _run.repeats
        _run.alone, _run.first, _run.repeats = 1, self.meeting, True
        self.files, self.programs = _Files(), _programs()
        _see_files().append(self.files)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _see_files().remove(self.files)
        if _programs() - self.programs:
            _warn_once(
                f"{_place()}: each rank has started a program in this block, which goes on while the block's files are "
                "put back for the next rank. Start it below the block"
            )
        here = os.getcwd()  # a folder that the block has made, say, and that is moved
        if error is None:
            self.files.undo()
        self.meeting.publish(None, error)
        try:
            if error is None and self.meeting.first is None:
                self.meeting.wait_for(_run.world_size - 1)
        finally:
            self.files.end(redo=_run.writes and error is None)
            _run.alone, _run.first, _run.repeats = self.outside
        if error is None:
            from_all_ranks(None)
            os.chdir(here)


def _programs() -> set[int]:
    """Return the processes below this one, without workers of DataLoaders and pools, and what looks after these."""
    workers, found = {child.pid for child in multiprocessing.active_children()}, set[int]()
    with contextlib.suppress(OSError):  # not Linux
        for number, above in _descendants(os.getpid()):
            with contextlib.suppress(OSError):  # it is gone
                with open(f"/proc/{number}/cmdline", "rb") as file:
                    is_tracker = b"resource_tracker" in file.read()
                if not is_tracker and not workers & {number, *above}:
                    found.add(number)
    return found


class _Files:
    """The files that a block writes, renames or removes."""

    def __init__(self) -> None:
        script = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        beside = os.path.dirname(os.path.realpath(script))  # where the notebook does not look
        self.folder = tempfile.mkdtemp(prefix=".nb2ddp-", dir=beside if os.access(beside, os.W_OK) else None)
        self.folders = f"{os.getcwd()}{os.sep}", f"{beside}{os.sep}"
        self.before: dict[str, str] = {}  # by path, where a copy of what was there is; "" where nothing was
        self.after: dict[str, str] = {}  # what the block has left there
        self.thread = threading.get_ident()

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Keep what a call is about to change."""
        if self.thread != threading.get_ident() or (
            event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            return
        self.thread = 0  # what is done here is not looked at
        with contextlib.suppress(Exception):
            for path in args[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
                self._keep(os.path.abspath(os.fsdecode(path)), copies=event == "open")
        self.thread = threading.get_ident()

    def _keep(self, path: str, *, copies: bool) -> None:
        kept, is_there = os.path.join(self.folder, f"before {len(self.before)}"), os.path.lexists(path)
        disks = {os.stat(folder).st_dev for folder in (os.path.dirname(path), self.folder)}
        if path in self.before or not path.startswith(self.folders) or len(disks) > 1:
            return
        if is_there and not os.path.isfile(path):  # a folder, a device
            return
        if is_there and (copies or not _linked(path, kept)):
            if os.path.getsize(path) > _MOST_COPIED:
                return
            shutil.copy2(path, kept)
        self.before[path] = kept if is_there else ""

    def undo(self) -> None:
        """Make files what they were: what came last, a file in a new folder say, goes first."""
        for number, (path, kept) in reversed([*enumerate(self.before.items())]):
            is_folder = os.path.isdir(path)
            if (is_folder and os.listdir(path)) or not os.path.isdir(os.path.dirname(path)):
                continue  # not the block's alone, or in a folder that the block has removed
            if kept or is_folder or not os.path.isfile(path) or os.path.getsize(path) <= _MOST_COPIED:
                self.after[path] = _move_file(path, os.path.join(self.folder, f"after {number}"))
                _move_file(kept, path)

    def end(self, *, redo: bool) -> None:
        """Make files what the block has left, where ``redo``, and remove all copies."""
        for number, (path, left) in enumerate(reversed([*self.after.items()] if redo else [])):
            _move_file(path, os.path.join(self.folder, f"gone {number}"))
            _move_file(left, path)
        shutil.rmtree(self.folder, ignore_errors=True)


def _linked(path: str, to: str) -> bool:
    with contextlib.suppress(OSError):  # another disk, or one without links
        os.link(path, to, follow_symlinks=False)
    return os.path.lexists(to)


def _move_file(path: str, to: str) -> str:
    """Move a file, if there is one; return where it is now, or ""."""
    return shutil.move(path, to) if os.path.lexists(path) else ""


@functools.cache
def _see_files() -> list[_Files]:
    """Return the list of those that are to see what is done with files; it is empty at first."""
    seeing: list[_Files] = []

    def hook(
        event: str,
        args: tuple[Any, ...],
        events: tuple[str, ...] = ("open", "os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove"),
    ) -> None:
        if seeing and _run.alone == 1 and event in events:  # what `from_main_process` makes stays
            seeing[-1].see(event, args)

    sys.addaudithook(hook)  # it cannot be removed
    return seeing


_run.at_begin.append(_save_whole_files)  # PyTorch's C++ writes past what Python sees
