"""The ranks as their guards report them, through a Unix socket: each starts, gets its output, and ends."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from nb2ddp.errors import LaunchError, OutputError
from nb2ddp.folder_lock import locked

if TYPE_CHECKING:
    from nb2ddp.launch.run import Observer

TORCHRUN_LOG = "torchrun.log"
_PATIENCE = 12.0  # seconds: longer than a launcher takes to end its ranks


@dataclass
class Rank:
    """What the guard of one rank reported.

    ``code`` is negative for a signal. It is None when there is no report: the rank still runs (then ``ended``
    is infinite), or its guard was killed. ``log`` is None for the rank that writes to the console.
    """

    rank: int
    pid: int
    local_rank: int = 0
    attempt: int = 0
    last_attempt: bool = True
    error_file: str = ""
    code: int | None = None
    ended: float = math.inf  # seconds since the epoch
    log: Path | None = None


class Ranks:
    """All ranks of a run, of all attempts; our end of the guards' connections.

    ``killed`` is when the launcher killed the processes itself, in seconds since the epoch. ``restarted`` is
    called with the number of an attempt when the next one begins.
    """

    def __init__(self, address: Path, log_dir: Path, observer: Observer | None = None) -> None:
        self.address = address
        self.log_dir = log_dir
        self.observer = observer
        self.console = (1, 2)
        self.all: list[Rank] = []
        self.killed = math.inf
        self.restarted: Callable[[int], None] = lambda attempt: None
        self._connected: dict[socket.socket, Rank] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Ranks:
        self._listener.bind(str(self.address))
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, bytearray())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._listener.close()

    @property
    def attempt(self) -> int:
        """The number (from 0) of the last attempt: torchrun starts all ranks again with --max-restarts."""
        return max((rank.attempt for rank in self.all), default=0)

    def of_attempt(self, attempt: int) -> list[Rank]:
        return [rank for rank in self.all if rank.attempt == attempt]

    def serve(self, timeout: float) -> bool:
        """Answer the guards for ``timeout`` seconds at most; return False when none sent anything."""
        events = self._selector.select(timeout)
        for key, _ in events:
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is self._listener:
                guard, _ = connection.accept()
                self._selector.register(guard, selectors.EVENT_READ, bytearray())
                continue
            try:
                data = connection.recv(65536)
                key.data.extend(data)
                while b"\n" in key.data:
                    line, _, rest = key.data.partition(b"\n")
                    key.data[:] = rest
                    self._handle(connection, json.loads(line))
            except OSError:  # the guard was killed
                data = b""
            if not data:
                rank = self._connected.get(connection)
                if rank is not None and rank.code is None:
                    rank.ended = time.time()
                self._selector.unregister(connection)
                connection.close()
        return bool(events)

    def finish(self) -> None:
        """Take the guards' last reports; new connections are refused."""
        self._selector.unregister(self._listener)
        self._listener.close()
        while self.serve(0):
            pass

    def failed(self) -> bool:
        """Return whether a rank failed and torchrun will not start the ranks again."""
        return any(rank.code and rank.last_attempt for rank in self.all)

    def _handle(self, connection: socket.socket, message: dict[str, object]) -> None:
        if connection in self._connected:
            rank = self._connected[connection]
            rank.code, rank.ended = int(str(message["code"])), float(str(message["ended"]))
            if self.observer is not None:
                self.observer.ended(rank.rank, rank.code)
            return
        console = bool(message.pop("console"))
        rank = Rank(**message)  # type: ignore[arg-type]
        if self.all and rank.attempt > self.attempt:
            before = self.attempt
            self._keep_logs(before)
            self.restarted(before)
        self._connected[connection] = rank
        self.all.append(rank)
        if self.observer is not None:
            self.observer.started(rank.rank, rank.local_rank, rank.pid)
        if console:
            socket.send_fds(connection, [b"."], self.console)
            return
        rank.log = self.log_dir / f"rank{rank.rank}.log"
        try:
            log = os.open(rank.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise LaunchError(f"The log {rank.log} cannot be written ({error.strerror}).") from None
        try:
            socket.send_fds(connection, [b"."], [log, log])
        finally:
            os.close(log)

    def _keep_logs(self, attempt: int) -> None:
        """Move the logs of an attempt that has failed to a folder of its own: attempt1, attempt2, ..."""
        folder = attempt_logs(self.log_dir, attempt)
        for rank in self.of_attempt(attempt):
            if rank.log is not None:
                with contextlib.suppress(OSError):
                    folder.mkdir(exist_ok=True)
                    rank.log = rank.log.replace(folder / rank.log.name)


def attempt_logs(log_dir: Path, attempt: int) -> Path:
    """Return the folder for the logs of an attempt (from 0) after which torchrun has started again."""
    return log_dir / f"attempt{attempt + 1}"


@contextlib.contextmanager
def held_logs(log_dir: Path, patience: float = _PATIENCE, *, shared: bool = False) -> Iterator[None]:
    """Keep other runs of this machine from the folder of the logs, for as long as this one goes on.

    shared: the hosts of a run share the folder, and each writes the logs of its own ranks.

    Waits ``patience`` seconds for a run that is being ended: a kernel's, say, that was started again.

    Raises LaunchError where one goes on already: it would lose its logs, and both would write the same files.
    """
    with contextlib.ExitStack() as held:
        try:
            with contextlib.suppress(OSError, AttributeError):  # folders are not opened, as on Windows
                log_dir.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(log_dir, patience, shared=shared))
        except OutputError:
            raise LaunchError(
                f"Another run goes on and writes its logs to {log_dir}; wait for its end, or give this one a "
                "folder with --log-dir and another working folder."
            ) from None
        yield


def clear_logs(log_dir: Path) -> None:
    """Remove the logs of an earlier run, leave other files alone, and see that logs can be written.

    Raises LaunchError where they cannot.
    """
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        for path in [*log_dir.glob("rank*.log"), *log_dir.glob("attempt*/rank*.log")]:
            if path.stem[4:].isdigit():
                path.unlink()
        for folder in log_dir.glob("attempt*"):
            if folder.name[7:].isdigit() and folder.is_dir():
                with contextlib.suppress(OSError):  # it holds other files
                    folder.rmdir()
        (log_dir / TORCHRUN_LOG).write_bytes(b"")
    except OSError as error:
        raise LaunchError(
            f"The logs cannot be written to {log_dir} ({error.strerror}); give another folder with --log-dir."
        ) from None
