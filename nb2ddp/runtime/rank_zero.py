"""Let rank 0 do for all ranks what must be done once: write, run a command, fill a cache."""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from nb2ddp.runtime.object_collectives import _Meeting, from_all_ranks, from_main_process
from nb2ddp.runtime.random_numbers import _random_state, _set_random_state
from nb2ddp.runtime.run_state import _RANK_VARIABLES, _run


class main_process_only:
    """Let rank 0 alone run a block when all ranks have come to it; the others wait until it is through. Use as::

        with ddp.main_process_only() as is_main:
            if is_main:
                model.save_pretrained("folder")

    What rank 0 raises in the block, every rank raises; ``break``, ``continue`` and ``return`` release the others.
    Afterwards all ranks have rank 0's random generators. Machines without a shared disk (NB2DDP_SHARED_FS=0)
    run the block once each. Waits however long rank 0 takes, and notices when it has ended.
    """

    # Classes, for a generator cannot raise the StopIteration that rank 0 has raised.

    def __enter__(self) -> bool:
        self.meeting = _Meeting(per_machine=True) if _run.meets else None
        if self.meeting is None:
            return _run.writes or _run.world_size == 1 or _run.alone > 0
        _all_come(self.meeting)
        _run.alone += _run.writes
        return _run.writes

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        if _run.writes:
            _run.alone -= 1
            self.meeting.tell(None if error else _random_state(), error)
        elif error is None:
            _set_random_state(self.meeting.hear(_writer()))


class main_process_first:
    """Let rank 0 run a block first; then the others run it and find what it left in a cache or a folder.

    Rank 0 begins when all ranks have come: none still reads what it may write. What rank 0 raises, the others raise
    without running the block. Waits however long rank 0 takes.
    """

    def __enter__(self) -> None:
        self.meeting = _Meeting(per_machine=True) if _run.meets else None
        if self.meeting is not None:
            _all_come(self.meeting)
            self.state: Any = None if _run.writes else self.meeting.hear(_writer())
            _run.alone += 1

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.meeting is None:
            return
        _run.alone -= 1
        if _run.writes:
            self.meeting.tell(None if error else _random_state(), error)
        else:
            _set_random_state(self.state)  # rank 0 may have drawn numbers where the others read its cache


def _all_come(meeting: _Meeting) -> None:
    """Let the rank that writes wait for those that may still read what it is about to change: a folder, say.

    Where one of them does not come, the rank that writes tells the others, which wait for it.
    """
    if not _run.writes:
        meeting.tell(None)
        return
    size = _run.world_size if _run.one_disk else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        for rank in range(_run.rank + 1, _run.rank + size):
            meeting.hear(rank)
    except BaseException as error:
        meeting.tell(None, error)
        raise


def _writer() -> int:
    """Return the rank that makes the files of this rank's disk."""
    return 0 if _run.one_disk else _run.rank - _run.local_rank


def shell(command: str) -> None:
    """Run a ``!`` line once, on rank 0; the others wait. Like the notebook, go on when it fails."""
    with main_process_only() as is_main:
        if is_main:
            sys.stdout.flush()
            subprocess.run(command, shell=True, executable="/bin/bash", env=environment_without_ranks())


def shell_output(command: str) -> list[str]:
    """Run ``x = !command`` on rank 0; the others wait. Return its output as a list of lines, on every rank."""

    def run() -> list[str]:
        env = environment_without_ranks()
        done = subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, env=env)
        return done.stdout.splitlines()

    return from_main_process(run)


def environment_without_ranks() -> dict[str, str]:
    """Return the environment for a process that is no rank of this run. Waits for no rank."""
    return {name: value for name, value in os.environ.items() if name not in _RANK_VARIABLES}


def write_file(path: str, text: str, mode: str = "w") -> None:
    """Write a file once, on rank 0; the others wait until it is there."""
    with main_process_only() as is_main:
        if is_main:
            with open(path, mode, encoding="utf-8") as file:
                file.write(text)


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
