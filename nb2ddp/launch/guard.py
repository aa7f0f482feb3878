"""Run one rank's script between `launch` and torchrun: ``python -I -S guard.py SOCKET GRACE COMMAND...``.

Standard library only, and no module of ours is imported: a rank starts in whatever environment the script
needs, and a guard must neither read it nor add to it. `processes.py`, which lies beside this file, is loaded
by its path.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

# torchrun sends these to a rank's whole process group: the script is to act on them, the guard is not.
_GROUP_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)


def _load_processes() -> ModuleType:
    path = Path(__file__).with_name("processes.py")
    spec = importlib.util.spec_from_file_location("nb2ddp_processes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _hello() -> dict[str, object]:
    """Return what torchrun told this rank, for `launch`."""
    rank = int(os.environ["RANK"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return {
        "rank": rank,
        "pid": os.getpid(),
        "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
        "attempt": attempt,
        "last_attempt": attempt >= int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")),
        "error_file": os.environ.get("TORCHELASTIC_ERROR_FILE", ""),
        "console": rank % int(os.environ.get("LOCAL_WORLD_SIZE", "1")) == 0,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command of one rank, report how it ended, and return the exit code for torchrun."""
    processes = _load_processes()
    address, grace, *command = arguments
    run_id = f"{os.environ[processes.RUN_ID_VARIABLE]}/{os.environ['RANK']}"
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_GROUP_SIGNALS):
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # unlike an ignored one it is back to normal in the script
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    connection.sendall(json.dumps(_hello()).encode() + b"\n")
    _, files, _, _ = socket.recv_fds(connection, 1, 2)
    if len(files) != 2:
        return 1
    process = subprocess.Popen(
        command,
        env={**os.environ, processes.RUN_ID_VARIABLE: run_id},
        stdout=files[0],
        stderr=files[1],
        preexec_fn=processes.end_with_parent(signal.SIGKILL),
    )
    for file in files:
        os.close(file)
    while (code := process.poll()) is None:
        ready, _, _ = select.select([awake, connection.fileno()], [], [])
        if awake in ready:
            os.read(awake, 4096)
        if connection.fileno() in ready and not connection.recv(1):
            # launch() is gone; the group is this guard's own.
            processes.end_processes(run_id, grace=float(grace), groups=[os.getpgrp()])
            return 1
    ended = time.time()
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps({"code": code, "ended": ended}).encode() + b"\n")
    # A server that the script has started would keep its port and its GPU memory from the next attempt.
    processes.end_processes(run_id, grace=float(grace))
    return int(processes.exit_code(code))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
