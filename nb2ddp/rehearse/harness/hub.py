"""The first rows of a data set of the hub, where the hub can be reached.

The rehearsed processes stay offline. One of them starts this file as a process of its own, which streams the
rows into a folder that all runs of the rehearsal read: ``python hub.py FOLDER``, with the request on stdin.
What could not be had is remembered there too, so that no run and no rank waits for it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

KEYS = frozenset({"path", "name", "data_dir", "data_files", "split", "revision", "token"})
"""The arguments of `datasets.load_dataset` that say which rows."""

_CONNECT = 3.0  # seconds for the hub's first answer, name resolution included
_FETCH = 90.0  # seconds for the rows of one data set
_UNREACHED = 9  # exit code


class Unavailable(Exception):
    """The hub does not provide these rows; the message says why."""


def first_rows(request: dict[str, Any], count: int) -> Any:
    """Return a `datasets.DatasetDict` with the first ``count`` rows of each split that is asked for.

    Raises:
        Unavailable: the user works offline, the hub is not reached, or has no such rows.
    """
    import datasets

    from nb2ddp.rehearse.harness.notes import PLAN

    if not PLAN["hub"]:
        raise Unavailable("HF_HUB_OFFLINE is set")
    asked = {**request, "split": _names(request.get("split")), "count": count}
    text = json.dumps(asked, sort_keys=True, default=str)
    place = Path(PLAN["datasets"])
    place.mkdir(parents=True, exist_ok=True)
    folder = place / hashlib.sha256(text.encode()).hexdigest()[:12]
    failures = [place / "unreached", folder.with_suffix(".failed")]
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(path.exists() for path in (folder, *failures)):
            code, reason = _fetch(folder, text)
            if code:
                failures[code != _UNREACHED].write_text(reason, encoding="utf-8")
    if not folder.exists():
        raise Unavailable(next(path for path in failures if path.exists()).read_text(encoding="utf-8"))
    return datasets.load_from_disk(str(folder))


def spec(split: Any) -> str:
    """Return a split as text: "train[:10%]"."""
    return str(split.to_spec() if hasattr(split, "to_spec") else split)


def _names(split: Any) -> list[str] | None:
    """Return the names of the splits: ["test", "train"] for "train[:5]+test"; None for all of them."""
    if split is None:
        return None
    specs = split if isinstance(split, list | tuple) else [split]
    return sorted({name for one in specs for name in re.findall(r"(?:^|\+)\s*([\w.-]+)", spec(one))})


def _fetch(folder: Path, request: str) -> tuple[int, str]:
    """Run this file as a process; return its exit code and its last line."""
    cache = str(folder.with_suffix(".cache"))  # the user's own stays as it is
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("NB2DDP_REHEARSAL")},
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_CACHE": cache,
        "HF_DATASETS_CACHE": cache,
    }
    command = [sys.executable, "-P", __file__, str(folder)]
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, env=environment, timeout=_FETCH
        )
    except subprocess.TimeoutExpired:
        return 1, f"the hub gave no rows of it within {_FETCH:.0f} s"
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return done.returncode, said[-1] if said else f"reading it from the hub ended with {done.returncode}"


# ---- in the process of its own -----------------------------------------------------------------------------


def _is_reached() -> bool:
    """Return whether the hub answers; asked in a thread, for name resolution has no time limit."""
    from huggingface_hub import get_session
    from huggingface_hub.constants import ENDPOINT

    answers = []

    def ask() -> None:
        answers.append(get_session().head(ENDPOINT, timeout=_CONNECT))

    threading.excepthook = lambda arguments: None  # no answer says it all
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_CONNECT)
    return bool(answers)


def _stream(request: dict[str, Any], folder: Path) -> None:
    import datasets

    count, names = request.pop("count"), request.pop("split")
    streams = datasets.load_dataset(**request, streaming=True)
    rows = datasets.DatasetDict()
    for name in streams if names is None else names:
        stream = streams[name]
        rows[name] = datasets.Dataset.from_list(list(stream.take(count)), features=stream.features)
    part = folder.with_suffix(".part")
    rows.save_to_disk(part)
    part.rename(folder)  # complete, or not there


def _main(folder: Path) -> int:
    request = json.load(sys.stdin)
    if not _is_reached():
        print("the hub does not answer", file=sys.stderr)
        return _UNREACHED
    try:
        _stream(request, folder)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"the hub gives no rows of it ({reason[:200]})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = _main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)  # a thread may still wait for an answer
