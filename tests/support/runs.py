"""Run a notebook's own code in one process and its converted script in several, and look at both.

Every run has a working folder of its own; `tests/support/harness/sitecustomize.py` watches it from inside.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat

from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.runtime import support_module
from tests.support import ROOT, SAMPLES
from tests.support.ranks import WITHOUT, RankServer

HARNESS = ROOT / "tests" / "support" / "harness"
GPU = "gpu"  # this Python, on a machine with GPUs
STACKS = {
    "newest": Path(sys.executable),
    "kaggle": ROOT / ".venv-kaggle" / "bin" / "python",
}
PYTHONS = {**STACKS, GPU: Path(sys.executable)}
TIMEOUT = 300  # seconds for one run
PLAIN = ("accelerate", "datasets", "peft", "transformers.trainer", "trl")
UNSLOTH = ("unsloth", *PLAIN)


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

        loaded: dict[str, Any] = torch.load(
            self.watch / f"parameters-{rank}.pt", map_location="cpu", weights_only=True
        )
        return loaded

    def evaluated(self, rank: int | str = 0) -> list[dict[str, float]]:
        """What the Trainers logged when they evaluated, without the times."""
        loaded: list[dict[str, float]] = json.loads((self.watch / f"evaluated-{rank}.json").read_text())
        return loaded

    def written(self, rank: int | str) -> set[str]:
        """Files below the working folder that a rank opened for writing, but for those it saves in first."""
        notes = self.watch / f"writes-{rank}.txt"
        paths = notes.read_text().splitlines() if notes.exists() else []
        paths = [path for path in paths if "/.unfinished-" not in path]
        return {str(Path(p).relative_to(self.folder)) for p in paths if Path(p).is_relative_to(self.folder)}

    def printed(self, rank: int = 0) -> list[str]:
        """The lines that a rank printed, without nb2ddp's own; of a run whose steps are noted."""
        file = self.watch / f"printed-{rank}.txt"
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        return [line for line in lines if line.strip() and not line.startswith("nb2ddp")]

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


def run(
    folder: Path,
    script: str,
    *,
    stack: str,
    nproc: int,
    torchrun: bool = False,
    steps: bool = False,
    apart: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Run:
    """Run ``script`` in ``folder``: on ``nproc`` ranks, or in one plain process when ``nproc`` is 0.

    Ranks are forked from a process that has imported the stack (`rank_server`), which saves each of them some 12 s
    of imports. With ``torchrun`` they are launched as users launch them; so are those on GPUs, which a fork cannot use.
    Forked ranks and those on GPUs note each step with ``steps``, and work in a folder of their own each with ``apart``;
    ``environment`` is added to theirs.
    """
    folder.mkdir(parents=True)
    watch = folder.with_name(f"{folder.name}-watch")
    watch.mkdir()
    # beside the working folder's files, not among them; the same name everywhere
    (folder / "script.py").write_text(script)
    (folder / SUPPORT).write_text(support_module())
    if torchrun or stack == GPU:
        start = time.monotonic()
        noted = {"NB2DDP_STEPS": "1"} if steps else {}
        noted |= {"NB2DDP_APART": "1"} if apart else {}
        code, output = _launched(
            folder, watch, PYTHONS[stack], nproc, {**environment, **noted}, gpus=stack == GPU
        )
    else:
        unsloth = re.search(r"^\s*(from|import) unsloth", script, re.MULTILINE)
        server = _server(PYTHONS[stack], UNSLOTH if unsloth else PLAIN)
        start = time.monotonic()
        code, output = _forked(
            folder, watch, server, script, nproc, environment=environment, steps=steps, apart=apart
        )
    return Run(folder, code, output, time.monotonic() - start)


@functools.cache
def alone(sample: str, stack: str) -> Run:
    """Run a sample's own code in one process, once for all tests of a session that compare with it."""
    folder = Path(tempfile.mkdtemp(prefix="alone-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return run(folder / sample, plain_code(SAMPLES / f"{sample}.ipynb"), stack=stack, nproc=0)


def _variables(folder: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(HARNESS),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "OMP_NUM_THREADS": "1",
    }


def _on_gpus(nproc: int) -> dict[str, str]:
    """The variables that differ where ranks use GPUs, and one process the first of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(max(nproc, 1))))
    paths = [str(HARNESS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "CUDA_VISIBLE_DEVICES": visible if nproc else visible.partition(",")[0],
    }


def _launched(
    folder: Path, watch: Path, python: Path, nproc: int, environment: Mapping[str, str], *, gpus: bool
) -> tuple[int, str]:
    """Start torchrun, or plain Python; on GPUs with a program that notes what a forked rank notes."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={nproc}"] if nproc else []
    noting = [str(Path(__file__).with_name("noting_rank.py"))] if gpus else []
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    variables = {**_variables(folder), **(_on_gpus(nproc) if gpus else WITHOUT)}
    done = subprocess.run(
        [python, *torchrun, *noting, "script.py"],
        cwd=folder,
        env={**inherited, "NB2DDP_WATCH": str(watch), **variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout


@functools.cache
def _server(python: Path, modules: tuple[str, ...]) -> RankServer:
    """Import ``modules`` once for this session; the server ends with it. Unsloth patches what others import."""
    folder = Path(tempfile.mkdtemp(prefix="rank-server-"))
    paths = os.pathsep.join([str(HARNESS), str(ROOT)])
    # TRL's preference trainers compute their losses in Triton kernels, which a CPU can only interpret
    variables = {
        **_variables(folder),
        "PYTHONPATH": paths,
        "NB2DDP_WATCH": str(folder),
        "TRITON_INTERPRET": "1",
        "NB2DDP_WITHOUT": "bitsandbytes torchao",  # what is trained here may use scikit-learn
    }
    server = RankServer(modules, python=python, variables=variables, cwd=folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.close)
    return server


def _forked(
    folder: Path,
    watch: Path,
    server: RankServer,
    script: str,
    nproc: int,
    *,
    environment: Mapping[str, str],
    **options: bool,
) -> tuple[int, str]:
    output = watch / "output.txt"
    ended = server.start(
        folder,
        script,
        nproc,
        output=str(output),
        watch=str(watch),
        environment={"HF_HOME": str(folder / "hf"), **environment},
        limit=TIMEOUT,
        **options,
    ).result(TIMEOUT + 60)[0]
    said = output.read_text(errors="replace")
    if ended["hung"]:
        raise subprocess.TimeoutExpired("script.py", TIMEOUT, said)
    return next((code for code in ended["codes"].values() if code), 0), said


def processes_of(watch: Path) -> list[int]:
    """Processes of a run that still run, whoever started them."""
    marker = f"NB2DDP_WATCH={watch}".encode()
    notes = watch / "sessions.txt"  # of ranks that were forked: /proc shows the environment of their parent
    sessions = notes.read_text().split() if notes.exists() else []
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            session = (entry / "stat").read_text().rpartition(")")[2].split()[3]
            if session in sessions or marker in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
