"""Run a notebook's own code in one process and its converted script in several, and look at both.

Every run has a working folder of its own; `tests/support/harness/sitecustomize.py` watches it from inside.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.runtime import support_module
from tests.support import ROOT

STACKS = {"newest": Path(sys.executable), "kaggle": ROOT / ".venv-kaggle" / "bin" / "python"}
TIMEOUT = 300  # seconds for one run


@dataclass(frozen=True)
class Run:
    """One run that has ended."""

    folder: Path
    exit_code: int
    output: str
    seconds: float

    @property
    def watch(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-watch")

    def losses(self, rank: int | str = 0) -> list[float]:
        loaded: list[float] = json.loads((self.watch / f"losses-{rank}.json").read_text())
        return loaded

    def parameters(self, rank: int | str = 0) -> dict[str, Any]:
        import torch

        loaded: dict[str, Any] = torch.load(self.watch / f"parameters-{rank}.pt", weights_only=True)
        return loaded

    def evaluated(self, rank: int | str = 0) -> list[dict[str, float]]:
        """What the Trainers logged when they evaluated, without the times."""
        loaded: list[dict[str, float]] = json.loads((self.watch / f"evaluated-{rank}.json").read_text())
        return loaded

    def written(self, rank: int | str) -> set[str]:
        """Files below the working folder that a rank opened for writing."""
        notes = self.watch / f"writes-{rank}.txt"
        paths = notes.read_text().splitlines() if notes.exists() else []
        return {str(Path(p).relative_to(self.folder)) for p in paths if Path(p).is_relative_to(self.folder)}

    def files(self) -> set[str]:
        """What lies in the working folder at the end, caches left out."""
        return {
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and not _is_cache(path.relative_to(self.folder))
        }


def _is_cache(path: Path) -> bool:
    return path.parts[0] in ("unsloth_compiled_cache", "hf", "script.py", SUPPORT, "__pycache__", "logs")


def plain_code(notebook: Path) -> str:
    """The notebook's own Python: its code cells without shell lines and magics."""
    cells = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    return "\n".join(re.sub(r"^(\s*)[!%].*", r"\1pass", cell, flags=re.MULTILINE) for cell in cells)


def run(folder: Path, script: str, *, stack: str, nproc: int, extra: dict[str, str] | None = None) -> Run:
    """Run ``script`` in ``folder``: under torchrun, or in one plain process when ``nproc`` is 0."""
    folder.mkdir(parents=True)
    watch = folder.with_name(f"{folder.name}-watch")
    watch.mkdir()
    # beside the working folder's files, not among them; the same name everywhere
    path = folder / "script.py"
    path.write_text(script)
    (folder / SUPPORT).write_text(support_module())
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={nproc}"] if nproc else []
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("COV")},
        "NB2DDP_WATCH": str(watch),
        "PYTHONPATH": str(ROOT / "tests" / "support" / "harness"),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "OMP_NUM_THREADS": "1",
        **(extra or {}),
    }
    start = time.monotonic()
    done = subprocess.run(
        [STACKS[stack], *torchrun, path.name],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
        check=False,
    )
    return Run(folder, done.returncode, done.stdout, time.monotonic() - start)


def processes_of(watch: Path) -> list[int]:
    """Processes that still run with this watch folder in their environment."""
    marker = f"NB2DDP_WATCH={watch}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
