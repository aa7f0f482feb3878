"""Kaggle's side of the wire, on a loopback port, for the real ``kaggle`` client.

It speaks what kaggle 2.2.4 and kagglesdk 0.1.37 send and read (their sources, and ../shared/FACTS.md, 6):
POST of camelCase JSON to ``/api/v1/<service>/<Method>``, a log stream of server-sent events, and signed URLs.
The client comes here through ``http_proxy``, so request lines are in absolute form.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

USER, KEY = "ada", "0123456789abcdef0123456789abcdef"
MODIFIED = "Fri, 02 Oct 2026 10:00:00 GMT"
PAGE = 2  # files


class HttpError(Exception):
    """An answer with another status than 200."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        self.status, self.headers = status, headers
        self.body = {"error": {"code": status, "message": message}}


class RawAnswer(Exception):
    """An answer as it is on the wire."""

    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        self.status, self.body, self.headers = status, body, headers


Answer = Callable[["KaggleServer", dict[str, Any]], dict[str, Any] | str]


def takes(server: KaggleServer, request: dict[str, Any]) -> dict[str, Any]:
    """The push is taken and a run begins."""
    ref = request["slug"]
    server.runs.append(request)
    server.versions[ref] = server.versions.get(ref, 0) + 1
    return {
        "ref": f"/code/{ref}",
        "url": f"https://www.kaggle.com/code/{ref}",
        "versionNumber": server.versions[ref],
        "kernelId": 7,
    }


def fails(status: int, message: str, **headers: str) -> Answer:
    def answer(server: KaggleServer, request: dict[str, Any]) -> dict[str, Any]:
        raise HttpError(status, message, **headers)

    return answer


def says(**fields: Any) -> Answer:
    """HTTP 200, with these fields."""
    return lambda server, request: fields


def shows_a_login_page(server: KaggleServer, request: dict[str, Any]) -> str:
    """What a proxy in between may answer."""
    return "<html>Sign in to the guest network</html>"


def hangs(then: Answer | None = None) -> Answer:
    """No answer in time, whether or not the server has acted."""

    def answer(server: KaggleServer, request: dict[str, Any]) -> dict[str, Any]:
        if then is not None:
            then(server, request)
        time.sleep(server.hang_seconds)
        raise ConnectionAbortedError

    return answer


class KaggleServer:
    """What the account has, what the server will answer, and what has reached it."""

    def __init__(self) -> None:
        self.pushes: list[dict[str, Any]] = []  # that reached the server
        self.runs: list[dict[str, Any]] = []  # that it has started
        self.answers: list[Answer] = []  # to the next pushes; then it takes them
        self.versions: dict[str, int] = {}
        self.blob: dict[str, str] = {}
        self.states = ["COMPLETE"]  # one after the other; the last one stays
        self.failure = ""
        self.quota: dict[str, Any] | HttpError = {"timeUsed": "32400s", "totalTimeAllowed": "108000s"}
        self.log: list[str] = []
        self.cuts: list[int] = []  # after so many events the next streams break off
        self.streams = 0
        self.files: dict[str, bytes] = {}
        self.broken_files: list[str] = []  # whose next download breaks off in the middle
        self.served: list[tuple[str, int, int]] = []  # file, status, bytes
        self.asked: list[str] = []
        self.gets: list[tuple[str, str | None]] = []  # address, and the credentials that came with it
        self.calls: dict[str, list[Answer]] = {}  # the next answers of other methods
        self.datasets: dict[str, bytes] = {}  # what was uploaded, by owner/slug
        self.dataset_states: list[str] = ["READY"]  # one after the other; the last one stays
        self.dataset_requests: list[dict[str, Any]] = []
        self.blobs: dict[str, bytes] = {}  # by token
        self.hang_seconds = 4.0
        self.port = 0

    # The methods of the API

    def SaveKernel(self, request: dict[str, Any]) -> dict[str, Any] | str:
        self.pushes.append(request)
        return (self.answers.pop(0) if self.answers else takes)(self, request)

    def GetKernel(self, request: dict[str, Any]) -> dict[str, Any]:
        ref = f"{request['userName']}/{request['kernelSlug']}"
        if ref not in self.versions:
            raise HttpError(403, "Permission 'kernels.get' was denied")
        return {"metadata": {"ref": ref, "currentVersionNumber": self.versions[ref]}, "blob": self.blob}

    def GetKernelSessionStatus(self, request: dict[str, Any]) -> dict[str, Any]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"status": state} | ({"failureMessage": self.failure} if self.failure else {})

    def GetAcceleratorQuotaStatistics(self, request: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.quota, HttpError):
            raise self.quota
        return {"quotaRefreshTime": "2026-11-28T00:00:00Z", "gpuQuota": self.quota}

    def ListKernelSessionOutput(self, request: dict[str, Any]) -> dict[str, Any]:
        start = int(request.get("pageToken") or 0)
        names = sorted(self.files)
        files = [
            {"url": f"http://localhost/signed/{n}?at={start}", "fileName": n}
            for n in names[start : start + PAGE]
        ]
        more = {"nextPageToken": str(start + PAGE)} if start + PAGE < len(names) else {}
        return {"files": files, "log": json.dumps(self.events()), **more}

    def GetDatasetStatus(self, request: dict[str, Any]) -> dict[str, Any]:
        if f"{request['ownerSlug']}/{request['datasetSlug']}" not in self.datasets:
            raise HttpError(403, "Permission 'datasets.get' was denied")
        states = self.dataset_states
        return {"status": states.pop(0) if len(states) > 1 else states[0]}

    def StartBlobUpload(self, request: dict[str, Any]) -> dict[str, Any]:
        token = f"blob-{len(self.blobs)}"
        self.blobs[token] = b""
        return {"token": token, "createUrl": f"http://localhost/upload/{token}"}

    def CreateDataset(self, request: dict[str, Any]) -> dict[str, Any]:
        self.dataset_requests.append(request)
        (file,) = request["files"]
        ref = f"{request['ownerSlug']}/{request['slug']}"
        self.datasets[ref] = self.blobs[file["token"]]
        return {"ref": f"/{ref}", "url": f"https://www.kaggle.com/datasets/{ref}", "status": "ok"}

    def unpacked(self, ref: str) -> dict[str, bytes]:
        """The files of a dataset, as Kaggle unpacks them."""
        with zipfile.ZipFile(io.BytesIO(self.datasets[ref])) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def IntrospectToken(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"active": request["token"] == f"KGAT_{KEY}", "username": USER}

    def GenerateAccessToken(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"token": f"KGAT_{KEY}", "expiresIn": 3600}

    def events(self) -> list[dict[str, Any]]:
        return [{"stream_name": "stdout", "time": n * 0.5, "data": text} for n, text in enumerate(self.log)]

    @contextmanager
    def running(self) -> Iterator[KaggleServer]:
        handler = type("Handler", (_Handler,), {"kaggle": self})
        with _Http(("127.0.0.1", 0), handler) as http:
            self.port = http.server_port
            Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            yield self
            http.shutdown()

    @property
    def environment(self) -> dict[str, str]:
        """What leads the client here; credentials are another matter."""
        return {"KAGGLE_API_ENVIRONMENT": "LOCALHOST", "http_proxy": f"http://127.0.0.1:{self.port}"}


class _Http(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is no error of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    kaggle: KaggleServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        method = urlsplit(self.path).path.rpartition("/")[2]
        self.kaggle.asked.append(method)
        try:
            if method not in ("IntrospectToken", "GenerateAccessToken"):
                self._sign_in()
            waiting = self.kaggle.calls.get(method)
            answer = waiting.pop(0)(self.kaggle, body) if waiting else getattr(self.kaggle, method)(body)
        except HttpError as error:
            self._send(error.status, json.dumps(error.body).encode(), "application/json", **error.headers)
        except RawAnswer as raw:
            self._send(raw.status, raw.body, "application/json", **raw.headers)
        except ConnectionAbortedError:
            self.close_connection = True
        else:
            page = answer if isinstance(answer, str) else None
            kind = "application/json" if page is None else "text/html"
            self._send(200, (json.dumps(answer) if page is None else page).encode(), kind)

    def do_PUT(self) -> None:
        token = urlsplit(self.path).path.rpartition("/")[2]
        self.kaggle.blobs[token] = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(200, b"", "text/plain")

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        try:
            self.kaggle.gets.append((self.path, self.headers["Authorization"]))
            if url.path.startswith("/away/"):
                self._send(302, b"", "text/html", Location=unquote(url.path.removeprefix("/away/")))
            elif url.path.startswith("/signed/"):
                self._send_file(unquote(url.path.removeprefix("/signed/")))
            elif url.path.startswith("/api/v1/kernels/logs/stream/"):
                self._sign_in()
                self._stream()
            else:
                raise HttpError(404, "Not found")
        except HttpError as error:
            self._send(error.status, json.dumps(error.body).encode(), "application/json", **error.headers)

    def _sign_in(self) -> None:
        basic = base64.b64encode(f"{USER}:{KEY}".encode()).decode()
        if self.headers["Authorization"] not in (f"Basic {basic}", f"Bearer KGAT_{KEY}"):
            raise HttpError(401, "Unauthenticated")

    def _send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        with suppress(ConnectionError):  # the client has gone
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

    def _send_file(self, name: str) -> None:
        content = self.kaggle.files[name]
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        part = content[start:]
        self.send_response(206 if self.headers["Range"] else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", MODIFIED)
        self.send_header("ETag", f'"{hash(content)}"')
        self.end_headers()
        if name in self.kaggle.broken_files:
            self.kaggle.broken_files.remove(name)
            part = part[: len(part) // 2]
            self.close_connection = True
        self.kaggle.served.append((name, 206 if self.headers["Range"] else 200, len(part)))
        with suppress(ConnectionError):
            self.wfile.write(part)

    def _stream(self) -> None:
        self.kaggle.streams += 1
        events = self.kaggle.events()
        cut = self.kaggle.cuts.pop(0) if self.kaggle.cuts else None
        if cut is None and self.kaggle.states == ["COMPLETE"]:  # an ended session's log comes as one blob
            return self._send(200, json.dumps(events).encode(), "application/json")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = [json.dumps(event, ensure_ascii=False) for event in events[:cut]] + (
            [] if cut is not None else ["END_OF_LOG"]
        )
        for line in lines:
            data = f"data: {line}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if cut is None:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True
        return None
