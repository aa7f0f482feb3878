"""Give each rank a file of its own, where all ranks change one: a database, an array on disk."""

import functools
import os
import pathlib
import tempfile
from typing import Any

from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.run_state import _run


def own_file(path: Any, anew: bool = False) -> Any:
    """Return the path of a file for this rank: rank 0's is the notebook's, the others' are copies of it.

    Every rank executes the same statements of a SQLite file, and changes the same items of a shelf, or of an array in a
    file (NumPy's or HDF5's), so each reads what one process reads. A copy is made of what rank 0's file holds when it
    is opened first, and kept for later openings until that file is gone; with ``anew``, for a file that rank 0 alone
    may have written meanwhile, each opening makes one. What is no file, is a rank's own or larger than 256 MiB stays as
    it is. Where all ranks come, waits for the slowest. Of a folder for temporary files, other ranks get one of their
    own, and wait for none.
    """
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if name in ("", ":memory:") or name.startswith("file:") or _run.world_size == 1:
        return path
    file = os.path.realpath(name)
    if os.path.isdir(file):
        return path if _run.writes else _folder_of_copies().name
    if _run.sends:
        is_there = os.path.isfile(file) or not _run.meets  # else for each rank at its time
        of_ranks = from_all_ranks((file, file in _own_files and not anew, is_there))
        if not of_ranks[0][2] or not all(known for _, known, _ in of_ranks):
            contents = from_main_process(lambda: _contents_to_copy(file))
            _take_copy(file, contents if of_ranks[0][0] == file else None)
    return path if _run.writes else _own_files.get(file, path)


def _contents_to_copy(file: str) -> dict[str, bytes] | None:
    """Return what a file and those beside it hold, by the ends of their names; None where no copy is to be made.

    SQLite has them beside its own; a shelf's files all have one of these ends, or none.
    """
    ends = ("", "-wal", "-journal", ".db", ".dat", ".dir", ".bak", ".pag")
    files = {end: pathlib.Path(f"{file}{end}") for end in ends}
    found = {end: each for end, each in files.items() if each.is_file()}
    is_small = sum(each.stat().st_size for each in found.values()) < _LARGEST_COPY
    can_be = os.access(os.path.dirname(file), os.W_OK)
    return {end: each.read_bytes() for end, each in found.items()} if is_small and can_be else None


def _take_copy(file: str, contents: dict[str, bytes] | None) -> None:
    """Note where this rank's copy of a file is: ``None`` is no copy but the file itself."""
    _own_files[file] = file
    if contents is not None and not _run.writes:
        copy = os.path.join(tempfile.mkdtemp(dir=_folder_of_copies().name), os.path.basename(file))
        for end, body in contents.items():
            pathlib.Path(f"{copy}{end}").write_bytes(body)
        _own_files[file] = copy


@functools.cache
def _folder_of_copies() -> tempfile.TemporaryDirectory[str]:
    """Make the folder of this rank's copies, which goes when the process ends."""
    return tempfile.TemporaryDirectory(prefix="nb2ddp-", ignore_cleanup_errors=True)


_LARGEST_COPY = 1 << 28  # bytes
_own_files: dict[str, str] = {}  # by file, what this rank works on
