"""Convert what a user of the page gives, within limits. Knows nothing of the page itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nb2ddp.errors import PLEASE_REPORT, Nb2ddpError
from nb2ddp.options import Options, settings
from nb2ddp.source.inputs import file_name
from nb2ddp.web.limits import MEMORY, MOST_BYTES, SECONDS
from nb2ddp.web.worker import too_large, too_much_memory

Status = Literal["converted", "declined", "failed"]

_KEPT = "PATH LANG LC_ALL LC_CTYPE SYSTEMROOT TMPDIR TEMP TMP SSL_CERT_FILE SSL_CERT_DIR".split()
"""Variables that the converting process gets: tokens and passwords of the server are not among them."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from nb2ddp.web.worker import main; main()"
"""Run with -I and this process's own path, made absolute: a dropped json.py must not be imported."""


@dataclass(frozen=True)
class Upload:
    """A file that a user has dropped: its name as the browser tells it, and its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Answer:
    """What became of a notebook.

    sentence: why it failed. page: notebook and script side by side; empty where it failed. archive: the
    folder as a zip archive in base 64, called ``name``; empty unless it was converted. commands: how the
    folder is run, one a line.
    """

    status: Status
    sentence: str = ""
    page: str = ""
    name: str = ""
    archive: str = ""
    commands: str = ""


def converted(
    source: Upload | str, values: Mapping[str, Any], *, seconds: float = SECONDS, memory: int = MEMORY
) -> Answer:
    """Convert a dropped file or a link; ``values`` are options by name, those missing have their defaults.

    Runs in another process and a temporary folder, which is removed. Never raises for what a user gives.
    """
    try:
        options = Options().with_(**_typed(values))
    except Nb2ddpError as error:
        return Answer("failed", f"Options: {error}")
    is_link = isinstance(source, str)
    if isinstance(source, str):
        name, data = source.strip(), b""
    else:
        name, data = file_name(source.name.replace("\\", "/").rpartition("/")[2]), source.data
    if len(data) > MOST_BYTES:
        return Answer("failed", too_large(name, len(data)))
    request = {"source": name, "is_link": is_link, "options": vars(options), "memory": memory}
    with tempfile.TemporaryDirectory(prefix="nb2ddp-web-", ignore_cleanup_errors=True) as folder:
        if not is_link:
            Path(folder, name).write_bytes(data)
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", _START, *map(os.path.abspath, sys.path)],
                input=json.dumps(request).encode(),
                capture_output=True,
                cwd=folder,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return Answer("failed", _TOO_SLOW.format(name, seconds))
    try:
        return Answer(**json.loads(done.stdout))
    except (ValueError, TypeError):
        return Answer("failed", _ended(name, done))


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as the options have them: a browser sends whole numbers as floats, and empty texts."""
    typed = {}
    for setting in settings():
        value = values.get(setting.name)
        if isinstance(value, str):
            value = value.strip()
        if value is None or value == "":
            continue
        if setting.type is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        typed[setting.name] = value
    return typed


def _ended(source: str, done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why a worker ended without an answer."""
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode < 0 or "MemoryError" in last or "memory" in last:
        return too_much_memory(source)
    return f"{source}: INTERNAL ERROR, {last or f'exit code {done.returncode}'}. {PLEASE_REPORT}"


_TOO_SLOW = (
    "{} was not converted in {:.0f} seconds, which is the limit here; `nb2ddp convert` on your own machine has "
    "none."
)
