"""Launching scripts on real processes in tests: a folder with a script, and its processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nb2ddp
from tests.support.limits import LONG

PACKAGE_PARENT = Path(nb2ddp.__file__).parents[1]
MARK = "NB2DDP_TEST_MARK"

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)

DRIVER = """
import json, signal, sys
from pathlib import Path
from nb2ddp.errors import LaunchError
from nb2ddp.launch.run import Launch, launch
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a shell
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and this under nohup
for name in sys.argv[2].split():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
arguments = json.loads(sys.argv[1])
for name in ("script", "log_dir", "setup", "cwd"):
    if arguments.get(name):
        arguments[name] = Path(arguments[name])
sys.exit(launch(Launch(**arguments)))
"""

# What the converted scripts do: leave the exception for torchrun, and show it.
RECORD = """
import os, sys
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
handler = get_error_handler()
handler.initialize()
def hook(kind, error, trace):
    try:
        raise error
    except BaseException as again:
        handler.record_exception(again)
    sys.__excepthook__(kind, error, trace)
    os._exit(1)
sys.excepthook = hook
"""

# The same without torch, which is not imported here, so that a test takes less time.
RECORD_QUICKLY = """
import json, os, sys, traceback
def hook(kind, error, trace):
    text = "".join(traceback.format_exception(kind, error, trace))
    message = {"message": f"{kind.__name__}: {error}", "extraInfo": {"py_callstack": text, "timestamp": "1"}}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": message}, file)
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    os._exit(1)
sys.excepthook = hook
"""

HEAD = """
import os, signal, subprocess, sys, time
from pathlib import Path
rank = int(os.environ["RANK"])
def started():
    Path(__file__).with_name(f"started.{rank}").touch()
def meet():  # the first rank that ends has the others killed, at whatever line a loaded machine has let them reach
    started()
    while not all(Path(__file__).with_name(f"started.{other}").exists() for other in range(2)):
        time.sleep(0.01)
"""


@dataclass
class Ended:
    """A finished call of ``launch`` in a process of its own."""

    code: int
    out: str
    err: str


class Project:
    """A folder with a script, and a way to launch it and to find its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "train.py"
        self.logs = folder / "logs"
        self.mark = uuid.uuid4().hex
        self._launched: list[subprocess.Popen[str]] = []

    def write(self, body: str, *, head: str = HEAD) -> None:
        self.script.write_text(head + body)

    def start(self, ignored: str = "", **arguments: Any) -> subprocess.Popen[str]:
        """Start ``launch`` on two processes, with ``ignored`` signals ignored."""
        values = {"script": self.script, "nproc": 2, "cpu": True, "log_dir": None, **arguments}
        text = json.dumps(values, default=str)
        path = os.pathsep.join(filter(None, [str(PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, MARK: self.mark, "PYTHONPATH": path}
        environment.pop("OMP_NUM_THREADS", None)
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, text, ignored],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._launched.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=LONG)
        return Ended(process.returncode, out, err)

    def run(self, **arguments: Any) -> Ended:
        """Launch, wait, and check that nothing is left."""
        ended = self.end(self.start(**arguments))
        assert self.left() == []
        return ended

    def wait_for(self, *names: str) -> None:
        deadline = time.monotonic() + LONG
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < deadline, f"no {names}"
            time.sleep(0.02)

    def left(self) -> list[str]:
        """The command lines of all living processes of this project."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                ):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                pass
        return found

    def all_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.left():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        for process in self._launched:
            process.kill()
            process.communicate()
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                ):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass


@contextmanager
def project_in(parent: Path) -> Iterator[Project]:
    """A project in a folder of its own; none of its processes is left afterwards."""
    folder = parent / "my $$project"  # torchrun gives a meaning to dollars
    folder.mkdir()
    project = Project(folder)
    try:
        yield project
    finally:
        project.close()


def fake_python(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)
