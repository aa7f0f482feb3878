"""Give each rank a SQLite file of its own."""

import functools
import os
import pathlib
import tempfile
from typing import Any

from nb2ddp.runtime.object_collectives import from_all_ranks, from_main_process
from nb2ddp.runtime.run_state import _run


def own_database(path: Any) -> Any:
    """Return the path of a SQLite file for this rank: rank 0's is the notebook's, the others' are copies of it.

    Every rank executes the same statements, so each reads what one process reads. A copy is made of what rank 0's file
    holds when it connects first, and kept for later connections until that file is gone. What is no file, is a rank's
    own or larger than 256 MiB stays as it is. Where all ranks come, waits for the slowest.
    """
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if name in ("", ":memory:") or name.startswith("file:") or _run.world_size == 1:
        return path
    file = os.path.realpath(name)
    if _run.meets:
        of_ranks = from_all_ranks((file, file in _databases, os.path.isfile(file)))
        if not of_ranks[0][2] or not all(known for _, known, _ in of_ranks):
            contents = from_main_process(lambda: _database_contents(file))
            _copy_database(file, contents if of_ranks[0][0] == file else None)
    return path if _run.writes else _databases.get(file, path)


def _database_contents(file: str) -> dict[str, bytes] | None:
    """Return what a database holds, by the end of its files' names; None where it is not to be copied."""
    files = {end: pathlib.Path(f"{file}{end}") for end in ("", "-wal", "-journal")}
    found = {end: each for end, each in files.items() if each.is_file()}
    is_small = sum(each.stat().st_size for each in found.values()) < _LARGE_DATABASE
    can_be = os.access(os.path.dirname(file), os.W_OK) and not os.path.isdir(file)
    return {end: each.read_bytes() for end, each in found.items()} if is_small and can_be else None


def _copy_database(file: str, contents: dict[str, bytes] | None) -> None:
    """Note where this rank's copy of a database is: ``None`` is no copy but the file itself."""
    _databases[file] = file
    if contents is not None and not _run.writes:
        copy = os.path.join(tempfile.mkdtemp(dir=_database_folder().name), os.path.basename(file))
        for end, body in contents.items():
            pathlib.Path(f"{copy}{end}").write_bytes(body)
        _databases[file] = copy


@functools.cache
def _database_folder() -> tempfile.TemporaryDirectory[str]:
    """Make the folder of this rank's copies, which goes when the process ends."""
    return tempfile.TemporaryDirectory(prefix="nb2ddp-", ignore_cleanup_errors=True)


_LARGE_DATABASE = 1 << 28  # bytes
_databases: dict[str, str] = {}  # by file, what this rank works on
