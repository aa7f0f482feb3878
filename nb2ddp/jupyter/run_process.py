"""A training run in a process of its own, which a live kernel starts, listens to and ends.

The process is this file, run as a program: it calls `nb2ddp.launch.run.launch`, as the command line does. So
a kernel that has initialised CUDA or threads of its own is no obstacle, and its signal handlers stay its own.
"""

from __future__ import annotations

import codecs
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

GRACE_SECONDS = 5.0
"""From an interrupt to killing what still runs (seconds): with that, all is over within 10."""

_END_SECONDS = 15.0  # for `close`: launch needs its grace, and some time to find what is left


class Training:
    """A started run: `read` until it gives None, then ask for `exit_code`.

    script: the script of a conversion.
    nproc: None: one process for each visible GPU, or 2 with ``cpu``.
    logs: the folder for the ranks' output.
    cwd: the ranks' working folder.
    environment: the environment to start from.
    """

    def __init__(
        self,
        script: Path,
        *,
        nproc: int | None,
        cpu: bool,
        logs: Path,
        cwd: Path,
        environment: Mapping[str, str],
    ) -> None:
        from nb2ddp.launch.processes import end_with_parent

        arguments = {
            "script": str(script.absolute()),
            "nproc": nproc,
            "cpu": cpu,
            "log_dir": str(logs.absolute()),
            "cwd": str(cwd),
        }
        self.started = time.monotonic()
        self._seconds: float | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._process = subprocess.Popen(
            # -P: modules in the kernel's folder do not get in the way of ours
            [sys.executable, "-P", __file__, json.dumps(arguments)],
            cwd=cwd,
            env={"TQDM_MININTERVAL": "0.005", **environment},  # a bar that lags gives its steps to the losses
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Jupyter interrupts the kernel's whole process group
            preexec_fn=end_with_parent(signal.SIGTERM),
        )

    @property
    def seconds(self) -> float:
        """Since the start; till the end when it has ended."""
        return self._seconds if self._seconds is not None else time.monotonic() - self.started

    @property
    def exit_code(self) -> int:
        return self._process.wait()

    def read(self, timeout: float) -> str | None:
        """Return what rank 0 and the launcher have printed since; None at the end.

        Waits for it ``timeout`` seconds at most, then returns an empty text.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], timeout)
        if ready:
            data = os.read(pipe, 1 << 16)
            if data:
                return self._decode(data)
        elif self._process.poll() is None:
            return ""
        if self._seconds is None:
            self._process.wait()
            self._seconds = time.monotonic() - self.started
        return None

    def interrupt(self) -> None:
        """Ask all ranks to end; a second time kills them at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End what still runs, and wait for that."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main(text: str) -> NoReturn:
    """Run `launch` in this process: ``text`` holds its arguments as JSON."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a kernel may have been started with it ignored
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from nb2ddp.errors import LaunchError
    from nb2ddp.launch.run import Launch, launch

    arguments: dict[str, Any] = json.loads(text)
    for name in ("script", "log_dir", "cwd"):
        arguments[name] = Path(arguments[name])
    try:
        sys.exit(launch(Launch(**arguments, grace=GRACE_SECONDS, repeat_trace=True)))
    except LaunchError as error:
        print(f"nb2ddp: the run cannot start: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main(sys.argv[1])
