"""Collect what the checks need to know about a machine, from nvidia-smi and the Python that trains."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nb2ddp.launch.command import torchrun_environment
from nb2ddp.monitor import nvml

SMI_SECONDS = 60.0
"""nvidia-smi initialises every GPU first when no process holds the driver: seconds for each of them."""

TRAINING = (
    "unsloth unsloth-zoo transformers trl peft accelerate datasets bitsandbytes torchvision xformers"
).split()
"""The packages, by normalised name, whose own requirements are read. torch is not among them: what it pins
exactly are CUDA's libraries, and whether those work is tried out."""

NOT_DONE = "it was not done"
"""How the failure of a torch begins that only takes too long."""

_PROBE = Path(__file__).parent / "programs" / "probe.py"
_FIELDS = "index,uuid,name,memory.total,memory.used,driver_version"
_SMI_ON_KAGGLE = "/opt/bin/nvidia-smi"  # not on the PATH there


@dataclass(frozen=True)
class Settings:
    """What the user wants examined. ``nproc`` None: as many processes as GPUs. ``timeout`` in seconds."""

    nproc: int | None = None
    cpu: bool = False
    python: str = sys.executable
    folder: Path | None = None
    imports: Sequence[str] = ()
    timeout: float = 120.0


@dataclass(frozen=True)
class Gpu:
    """A GPU as torch sees it: bytes of memory, compute capability."""

    name: str
    memory: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Torch:
    """``cuda`` and ``hip``: what it was built for; ``nccl``: None without. ``gpu_failure``: why a GPU cannot
    be used, in torch's words; empty when each has computed something. ``failure``: why torch cannot be
    imported; then all else is empty."""

    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    architectures: tuple[str, ...] = ()
    nccl: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_failure: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Board:
    """A GPU as the driver sees it, visible to CUDA or not; bytes."""

    index: str
    uuid: str
    name: str
    total: int
    used: int


@dataclass(frozen=True)
class Driver:
    """What nvidia-smi says. ``cuda``: the newest CUDA that the driver runs. ``failure``: why it says nothing,
    although it is there.

    ``boards`` are all GPUs, ``visible`` those that CUDA_VISIBLE_DEVICES leaves; ``processes`` have
    (GPU's UUID, process id, name).
    """

    is_there: bool = False
    version: str = ""
    cuda: str = ""
    boards: tuple[Board, ...] = ()
    visible: tuple[Board, ...] = ()
    processes: tuple[tuple[str, str, str], ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class Machine:
    """All that checks judge, about the Python that trains (``python_version``: empty if it does not run).

    ``installed``: version by normalised name; ``requires``: what each of TRAINING asks for (PEP 508);
    ``markers``: the environment markers of that Python; ``missing``: of ``settings.imports``.
    """

    settings: Settings = Settings()
    environ: Mapping[str, str] = field(default_factory=dict)
    driver: Driver = Driver()
    python_version: str = ""
    torch: Torch = Torch()
    installed: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, Sequence[str]] = field(default_factory=dict)
    markers: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def nproc(self) -> int:
        """The number of processes that are to train together."""
        return self.settings.nproc or (2 if self.settings.cpu else len(self.torch.gpus))


def look(settings: Settings) -> Machine:
    """Ask nvidia-smi, then the Python that trains: a torch that has a GPU open would count as its user."""
    driver = Driver() if settings.cpu else ask_driver(os.environ)
    told, ending = _probe(settings)
    torch = told.get("torch")
    return Machine(
        settings,
        os.environ,
        driver,
        told.get("python", ""),
        _torch(torch) if torch else Torch(failure=told.get("torch_failure", ending)),
        told.get("installed", {}),
        told.get("requires", {}),
        told.get("environment", {}),
        told.get("missing", ()),
    )


def ask_driver(environ: Mapping[str, str]) -> Driver:
    """Return what nvidia-smi reports."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH")) or shutil.which(_SMI_ON_KAGGLE)
    if program is None:
        return Driver()
    try:
        rows = _rows(program, f"--query-gpu={_FIELDS}")
        header = _answer(program)
    except subprocess.TimeoutExpired:
        return Driver(True, failure=f"it has not answered for {SMI_SECONDS:.0f} seconds")
    except (OSError, subprocess.CalledProcessError) as error:
        words = str(getattr(error, "stdout", "") or error).strip().splitlines()
        return Driver(True, failure=words[0].rstrip(".") if words else "it failed")
    processes: list[list[str]] = []
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # not every driver tells
        processes = _rows(program, "--query-compute-apps=gpu_uuid,pid,process_name")
    rows = [row for row in rows if len(row) == len(_FIELDS.split(","))]
    boards = [nvml.Gpu(row, row[1]) for row in rows]
    shown = nvml.visible_gpus(boards, environ.get("CUDA_VISIBLE_DEVICES"))
    # Driver 610 calls it "CUDA UMD Version".
    found = re.search(r"CUDA (?:UMD )?Version: *(\d+\.\d+)", header)
    return Driver(
        True,
        rows[0][5] if rows else "",
        found[1] if found else "",
        tuple(map(_board, rows)),
        tuple(_board(gpu.handle) for gpu in shown),
        tuple((row[0], row[1], row[2]) for row in processes if len(row) == 3),
    )


def _answer(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SMI_SECONDS).stdout


def _rows(program: str, question: str) -> list[list[str]]:
    lines = _answer(program, question, "--format=csv,noheader,nounits").splitlines()
    return list(csv.reader(lines, skipinitialspace=True))


def _board(row: list[str]) -> Board:
    total, used = (int(mib) << 20 if mib.isdigit() else 0 for mib in row[3:5])
    return Board(row[0], row[1], row[2], total, used)


def _probe(settings: Settings) -> tuple[dict[str, Any], str]:
    """Return what the probe reported, and how it ended if it did not report everything."""
    folder = settings.folder.absolute() if settings.folder else ""
    command = [settings.python, str(_PROBE), str(folder), *TRAINING, "--", *settings.imports]
    environ = torchrun_environment(os.environ, nproc=1, cpu=settings.cpu)
    ending = ""
    try:
        done = subprocess.run(command, capture_output=True, env=environ, timeout=settings.timeout)
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, code = error.stdout or b"", 0
        ending = f"{NOT_DONE} after {settings.timeout:.0f} seconds"
    except OSError as error:
        return {}, f"this Python cannot be started: {error.strerror}"
    told: dict[str, Any] = {}
    for line in output.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):  # what torch prints, or a line that a time-out has cut
            told |= json.loads(line) if line.startswith("{") else {}
    if code < 0:
        ending = f"the process was ended by {signal.Signals(-code).name}"
    elif not told and not ending:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        ending = words[-1] if words else f"the process ended with exit code {code}"
    return told, ending or f"the process ended with exit code {code}"


def _torch(told: dict[str, Any]) -> Torch:
    gpus = tuple(Gpu(name, memory, (major, minor)) for name, memory, major, minor in told.pop("gpus"))
    return Torch(**{**told, "gpus": gpus, "architectures": tuple(told["architectures"])})
