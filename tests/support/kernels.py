"""A real Jupyter kernel, spoken to as a notebook's front end does."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

MARK = "NB2DDP_TEST_KERNEL"
SECONDS = 120  # for one cell


@dataclass
class Ran:
    """What one cell has put out. ``displays`` holds each state of the displays, in order."""

    ok: bool = False
    text: str = ""
    displays: list[dict[str, str]] = field(default_factory=list)
    result: dict[str, str] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    @property
    def html(self) -> str:
        return self.displays[-1]["text/html"]


class Kernel:
    """One kernel, whose cells have the ids that they are given."""

    def __init__(self, folder: Path, manager: KernelManager, client: BlockingKernelClient, mark: str) -> None:
        self.folder, self.manager, self._client, self._mark = folder, manager, client, mark

    def run(self, code: str, cell: str | None = None) -> Ran:
        """Run a cell and wait for its end."""
        return self.end(self.start(code, cell))

    def start(self, code: str, cell: str | None = None) -> str:
        """Send a cell, and do not wait; returns what `end` takes."""
        session = self._client.session
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = session.msg("execute_request", content, metadata={"cellId": cell} if cell else {})
        self._client.shell_channel.send(message)
        header: dict[str, Any] = message["header"]
        return str(header["msg_id"])

    def end(self, request: str, until: str | None = None) -> Ran:
        """Collect what a cell puts out until its end, or until its text or displays contain ``until``."""
        ran, start = Ran(), time.monotonic()
        while True:
            message = self._client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                ran.text += content["text"]
            elif kind in ("display_data", "update_display_data"):
                ran.displays.append(content["data"])
            elif kind == "execute_result":
                ran.result = content["data"]
            elif kind == "error":
                ran.error = "\n".join(content["traceback"])
            seen = ran.text + (ran.displays[-1]["text/plain"] if ran.displays else "")
            if (until is not None and until in seen) or content == {"execution_state": "idle"}:
                break
        ran.seconds = time.monotonic() - start
        if until is None:
            reply = self._client.get_shell_msg(timeout=SECONDS)
            while reply["parent_header"]["msg_id"] != request:
                reply = self._client.get_shell_msg(timeout=SECONDS)
            ran.ok = reply["content"]["status"] == "ok"
        return ran

    def value(self, expression: str) -> str:
        """What an expression prints."""
        return self.run(f"print({expression})").text.strip()

    def others(self) -> list[int]:
        """Living processes that this kernel has started."""
        mark, found = f"{MARK}={self._mark}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX" and int(entry.name) != self._pid:
                found.append(int(entry.name))
        return found

    @property
    def _pid(self) -> int:
        return int(getattr(self.manager.provisioner, "pid", 0) or 0)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


@contextmanager
def kernel_in(folder: Path, *, load: bool = True, python: Path | None = None) -> Iterator[Kernel]:
    """A kernel that was started in ``folder``; no process of it is left afterwards.

    ``python``: that of another environment, which then sees nothing of this one.
    """
    mark = uuid.uuid4().hex
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("COV")},
        MARK: mark,
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "IPYTHONDIR": str(folder.with_name(f"{folder.name}-ipython")),
        "JPY_SESSION_NAME": "finetune.ipynb",
    }
    manager = KernelManager()
    if python is not None:
        assert manager.kernel_spec is not None
        manager.kernel_spec.argv[0] = str(python)
        environment.pop("PYTHONPATH", None)
    manager.start_kernel(cwd=str(folder), env=environment, stderr=-3)
    client = manager.blocking_client()
    client.start_channels()
    kernel = Kernel(folder, manager, client, mark)
    try:
        client.wait_for_ready(timeout=SECONDS)
        if load:
            assert kernel.run("%load_ext nb2ddp").ok
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        for process in kernel.others():
            os.kill(process, signal.SIGKILL)
