"""Bring a kernel's output home, and say what is in it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nb2ddp.errors import DownloadError, KaggleError
from nb2ddp.kaggle.client import Client


def fetch(client: Client, ref: str, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Fetch every file of the output, and the log; files that are here already stay.

    A file that fails does not keep the others from coming.

    Raises DownloadError at the end when one has failed.
    """
    paths, failures = [], []
    root = folder.resolve()
    for file in client.output(ref):
        path = root / file.name
        if not path.is_relative_to(root) or path == root:
            failures.append(f"{file.name!r} would lie outside of {folder}, so it was left out.")
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = client.download(file, path)
        except OSError as error:
            raise DownloadError(f"{folder} cannot be written: {error.strerror or error}.") from None
        except DownloadError as error:
            failures.append(str(error))
            continue
        say(f"{folder / file.name} ({_size(path)}{'' if is_new else ', was here'})")
        paths.append(path)
    with contextlib.suppress(KaggleError):
        if text := client.log(ref):
            root.mkdir(parents=True, exist_ok=True)
            (root / f"{ref.partition('/')[2]}.log").write_text(text, encoding="utf-8")
    if failures:
        raise DownloadError("\n".join(failures))
    return paths


def _size(path: Path) -> str:
    size = float(path.stat().st_size)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def summary(folder: Path, ref: str) -> tuple[list[str], bool]:
    """What lies in a fetched folder, in sentences, and whether the run has succeeded as far as it says."""
    lines = list(_findings(folder))
    run: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if not run:
        return [
            *lines,
            "There is no run.json: the kernel was ended from outside, or is no bundle of nb2ddp.",
        ], True
    seconds = ", ".join(f"{phase} {took:.0f} s" for phase, took in run.get("seconds", {}).items())
    gpus = ", ".join(run.get("gpus") or ["the CPU"])
    lines.append(f"{run.get('world_size')} processes on {gpus}; {seconds}.")
    if memory := run.get("peak_memory_mib"):
        lines.append(f"Peak memory by GPU: {', '.join(f'{mib} MiB' for mib in memory)}.")
    if stopped := run.get("stopped"):
        lines.append(
            f"The time was up at step {stopped['step']} of {stopped['of']}: "
            f"`nb2ddp push --kaggle --resume-from {ref}` goes on from there."
        )
    if run.get("exit_code"):
        lines.append(
            f"It failed with exit code {run['exit_code']} in the phase {run['phase']}: {run['error']}"
        )
    return lines, not run.get("exit_code")


def _findings(folder: Path) -> Iterator[str]:
    adapters = sorted(file.parent for file in folder.rglob("adapter_config.json"))
    finished = [path for path in adapters if not path.name.startswith("checkpoint-")]
    models = sorted(
        {f.parent for f in folder.rglob("*.safetensors")} | {f.parent for f in folder.rglob("*.gguf")}
    )
    if finished:
        yield f"The adapter is in {', '.join(map(str, finished))}."
    elif adapters:
        newest = max(adapters, key=lambda path: int(path.name.rpartition("-")[2]))
        yield f"No adapter was saved at the end; the last checkpoint is {newest}."
    elif models:
        yield f"The model is in {', '.join(map(str, models))}."
    else:
        yield "There is no adapter and no model in the output."
