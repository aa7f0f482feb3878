"""`nb2ddp web` as a process, and users of it without a browser."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support import ROOT

PYTHON = Path(sys.executable) if find_spec("gradio") else ROOT / ".venv-web" / "bin" / "python"

PROBED = """\
import gc, os, socket, sys, threading
from gradio import processing_utils

processing_utils.PUBLIC_HOSTNAME_WHITELIST.append("127.0.0.1")  # a link to this machine is as one to any other

def referred():
    gc.collect()
    marker = {str: "kept-" + "for-how-long", bytes: b"kept-" + b"for-how-long"}
    seen = {id(part): part for part in gc.get_referents(*gc.get_objects())
            if type(part) in marker and len(part) > 30}
    return sum(marker[type(part)] in part for part in seen.values())

def answer(line):
    for _ in line:
        print(referred(), file=line, flush=True)

line = socket.socket(fileno=int(os.environ["PROBE"])).makefile("rw")
threading.Thread(target=answer, args=[line], daemon=True).start()
from nb2ddp.cli import main
main(sys.argv[1:])
"""
"""Serve the page by a process that tells, on a socket of its own, how many texts with the marker it still refers to."""

MARKER = "kept-" + "for-how-long"


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass(frozen=True)
class Served:
    """A page that is served: its address, and the folder for its temporary files."""

    process: subprocess.Popen[str]
    address: str
    folder: Path
    probe: socket.socket

    def files(self) -> list[Path]:
        """Return the files that are not empty."""
        return [path for path in self.folder.rglob("*") if path.is_file() and path.stat().st_size]

    def below(self) -> list[Path]:
        """Return all that lies in Gradio's folder, empty files and folders too."""
        walks = [
            step for folder in self.folder.glob("nb2ddp-web-*") for step in os.walk(folder)
        ]  # some may go meanwhile
        return [Path(above, name) for above, folders, files in walks for name in (*folders, *files)]


@contextlib.contextmanager
def started(folder: Path, *command: str, **more: str) -> Iterator[Served]:
    """Run a command with `.venv-web`'s Python until it has told its address; kill it at the end."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "no_proxy": "127.0.0.1",
        **more,
    }
    probe, its_end = socket.socketpair()
    with its_end:
        process = subprocess.Popen(
            [str(PYTHON), *command],
            cwd=folder,
            env={**environment, "PROBE": str(its_end.fileno())},
            pass_fds=[its_end.fileno()],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    assert process.stdout is not None
    try:
        said = ""
        while not (found := re.search(r"http://[\w.]+:\d+", said)):
            line = process.stdout.readline()
            assert line, said
            said += line
        yield Served(process, found[0].replace("localhost", "127.0.0.1"), folder, probe)
    finally:
        probe.close()
        process.kill()
        process.wait()
        process.stdout.close()


def asked(address: str, data: Any = None, kind: str = "application/json") -> tuple[int, str]:
    """Return the status and the text of an answer; ``data`` is sent, as JSON unless it is bytes."""
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    request = urllib.request.Request(address, data=body, headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")


@dataclass
class Visitor:
    """A user of the page who sends by hand what its browser would send."""

    address: str
    session: str = field(default_factory=lambda: secrets.token_hex(6))

    def __post_init__(self) -> None:
        status, text = asked(f"{self.address}/config")
        assert status == 200, text
        config = json.loads(text)
        self.components = {part["id"]: part for part in config["components"]}
        self.events = config["dependencies"]

    def upload(self, name: str, data: bytes) -> tuple[int, str]:
        """Upload a file; the text of the answer lists its path on the server."""
        boundary = "frontier"
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
        body = head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
        address = f"{self.address}/gradio_api/upload"
        return asked(address, body, f"multipart/form-data; boundary={boundary}")

    def take(self, path: str, **more: Any) -> tuple[bool, str]:
        """Say that a file was dropped, as the page does after an upload; return whether it was taken."""
        file = {"path": path, "orig_name": "a.ipynb", "meta": {"_type": "gradio.FileData"}, **more}
        return self.send(self._event("upload"), [file])

    def convert(self, link: Any = "", options: Mapping[str, Any] | None = None) -> tuple[bool, str]:
        """Press the button; return whether it came to an end, and what the page shows, as JSON."""
        event = self._event("click")
        first, *others = event["inputs"]
        parts = [self.components[number]["props"] for number in others]
        by_label = {name.replace("_", " "): value for name, value in (options or {}).items()}
        values = [by_label.get(part.get("label"), part.get("value")) for part in parts]
        assert self.components[first]["type"] == "textbox"
        return self.send(event, [link, *values])

    def drop(self, name: str, data: bytes) -> tuple[bool, str]:
        """Upload a file, and wait for its conversion."""
        status, text = self.upload(name, data)
        assert status == 200, text
        taken, text = self.take(json.loads(text)[0])
        return self.convert() if taken else (taken, text)

    def send(self, event: dict[str, Any], data: list[Any]) -> tuple[bool, str]:
        """Send an event, and wait for its end."""
        request = {"fn_index": event["id"], "session_hash": self.session, "data": data}
        status, text = asked(f"{self.address}/gradio_api/queue/join", request)
        if status != 200:
            return False, text
        _, text = asked(f"{self.address}/gradio_api/queue/data?session_hash={self.session}")
        return '"success":true' in text, text

    def leave(self) -> None:
        """Close the page, as a browser does: the connection that shows that it is open ends."""
        address = f"{self.address}/gradio_api/heartbeat/{self.session}"
        with urllib.request.urlopen(address, timeout=60) as beats:
            assert beats.readline()

    def _event(self, kind: str) -> dict[str, Any]:
        (found,) = (event for event in self.events if kind in [target[1] for target in event["targets"]])
        return dict(found)


def references(served: Served, patience: float = 120) -> int:
    """Return how many texts with the marker a process refers to that was started as `PROBED`.

    Raises:
        TimeoutError: it has not answered after ``patience`` seconds.
    """
    served.probe.settimeout(patience)
    served.probe.sendall(b"how many?\n")
    answer = b""
    while not answer.endswith(b"\n"):
        part = served.probe.recv(100)
        assert part, "the page has ended"
        answer += part
    return int(answer)


@contextlib.contextmanager
def endless_server() -> Iterator[tuple[str, list[int]]]:
    """Serve a file without an end; give its address, and the bytes that each download has taken."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            taken.append(0)
            place = len(taken) - 1
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while taken[place] < 500_000_000:
                    taken[place] += self.wfile.write(b" " * 1_000_000)

        def log_message(self, *_: object) -> None:
            pass

    taken: list[int] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/a.ipynb", taken
    finally:
        server.shutdown()
        server.server_close()
