"""A bundle for Kaggle, and a kernel's folders on this machine, in which its code file runs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nb2ddp.targets.kaggle import METADATA_FILE, kaggle_bundle
from tests.support.limits import LONG

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torchrun comes with torch"
)

SCRIPT = 'print("trained")\n'


def bundle(script: str = SCRIPT, **changes: Any) -> dict[str, str]:
    values: dict[str, Any] = {
        "title": "Tiny run",
        "owner": "ada",
        "setup": None,
        "notebook_name": "tiny.ipynb",
    }
    return kaggle_bundle(script, **values | changes)


def metadata(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bundle(**changes)[METADATA_FILE])
    return found


def code(script: str = SCRIPT, **changes: Any) -> str:
    (text,) = (text for name, text in bundle(script, **changes).items() if name.endswith(".py"))
    return text


class Kaggle:
    """/kaggle in small: the code file in a folder of its own, inputs, and a working folder."""

    def __init__(self, root: Path) -> None:
        self.python = Path(sys.executable)
        self.source, self.work, self.input, self.bin = (root / n for n in ("src", "working", "input", "bin"))
        for folder in (self.source, self.work, self.input, self.bin):
            folder.mkdir()
        self.environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }
        for name in ("HF_TOKEN", "NB2DDP_CPU", "OMP_NUM_THREADS", "PIP_INDEX_URL"):
            self.environment.pop(name, None)
        self.gpus([])

    def gpus(self, names: list[str]) -> None:
        """Install an nvidia-smi that sees these GPUs; the n-th uses n * 1000 MiB."""
        smi = self.bin / "nvidia-smi"
        used = [f"{number * 1000}" for number in range(1, len(names) + 1)]
        answers = {"name": "\n".join(names), "memory.used": "\n".join(used)}
        cases = "".join(f"--query-gpu={field}) echo '{answer}';;\n" for field, answer in answers.items())
        smi.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n' if names else "#!/bin/sh\nexit 9\n")
        smi.chmod(0o755)

    def start(self, text: str, **environment: str) -> subprocess.Popen[str]:
        path = self.source / "script.py"
        path.write_text(text, encoding="utf-8")
        self.source.chmod(0o555)
        return subprocess.Popen(
            [self.python, str(path)],
            cwd=self.work,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def run(self, text: str, **environment: str) -> tuple[int, str]:
        with self.start(text, **environment) as process:
            output, _ = process.communicate(timeout=LONG)
        assert os.listdir(self.source) == ["script.py"]
        return process.returncode, output

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.work / "run.json").read_text())
        return found


class PackageIndex(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def package_index() -> Iterator[str]:
    """Serve a package index, and give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), PackageIndex) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
