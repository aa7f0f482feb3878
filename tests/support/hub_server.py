"""The hub's side of the wire, on a loopback port, for the real ``datasets`` client.

It answers what datasets 4.8 asks when it streams files (tried with huggingface_hub 1.33 and 0.36). The client
comes here through ``HF_ENDPOINT``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

_COMMIT = "a" * 40


class HubServer:
    """The data sets that the hub has, as {name: {file: rows}}, and what it was asked."""

    def __init__(self) -> None:
        self.data_sets: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.asked: list[str] = []
        self.is_silent = False  # it takes connections and never answers
        self.closing = Event()
        self.endpoint = ""

    def file(self, data_set: str, name: str) -> bytes:
        return "".join(json.dumps(row) + "\n" for row in self.data_sets[data_set][name]).encode()

    def asked_for(self, data_set: str) -> int:
        """How often a client has begun to ask for a data set."""
        return self.asked.count(f"GET /api/datasets/{data_set}")

    @contextmanager
    def running(self) -> Iterator[HubServer]:
        handler = type("Handler", (_Handler,), {"hub": self})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
            self.endpoint = f"http://127.0.0.1:{http.server_port}"
            Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            yield self
            self.closing.set()
            http.shutdown()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.hub.asked.append(f"{self.command} {path}")
        if self.hub.is_silent:
            self.hub.closing.wait()
            self.close_connection = True
            return
        parts = path.strip("/").split("/")
        if path == "/":
            self._send(200)
        elif parts[:2] == ["api", "datasets"] and (name := "/".join(parts[2:4])) in self.hub.data_sets:
            files = self.hub.data_sets[name]
            if parts[4:5] == ["tree"]:
                listed = [
                    {"type": "file", "path": file, "oid": "1", "size": len(self.hub.file(name, file))}
                    for file in files
                ]
                self._send(200, json.dumps(listed).encode())
            else:
                siblings = [{"rfilename": file} for file in files]
                self._send(200, json.dumps({"id": name, "sha": _COMMIT, "siblings": siblings}).encode())
        elif parts[0] == "datasets" and parts[-1] in self.hub.data_sets.get("/".join(parts[1:3]), ()):
            self._send_part(self.hub.file("/".join(parts[1:3]), parts[-1]))
        else:
            known = "/".join(parts[1:3]) in self.hub.data_sets
            self._send(404, X_Error_Code="EntryNotFound" if known else "RepoNotFound")

    def _send_part(self, content: bytes) -> None:
        asked = self.headers.get("Range")
        told = {"ETag": '"1"', "X-Repo-Commit": _COMMIT, "Accept-Ranges": "bytes"}
        if asked is None:
            self._send(200, content, **told)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(content)), len(content) - 1)
        told["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
        self._send(206, content[start : end + 1], **told)

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):  # the client has seen enough
                self.wfile.write(body)
