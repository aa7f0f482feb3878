"""Start the runs of a rehearsal, notice a hang, and end every process that a run has started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nb2ddp.ddp_folder import SCRIPT, shards
from nb2ddp.launch import processes
from nb2ddp.launch.command import LAUNCHER_VARIABLES, torchrun_command, torchrun_environment
from nb2ddp.rehearse.subject import Subject
from nb2ddp.waiting import waiting

REFERENCE = "notebook.py"
"""The notebook's own code, which a run may run instead of the converted script."""

_WARDEN = Path(__file__).parent / "harness" / "warden.py"
_EVERY = 0.5  # seconds between two looks at what the ranks do
_GRACE = 3.0  # seconds that processes get to end by themselves
_COPIED_BYTES = 200 << 20  # more than this beside a notebook is not copied
_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})  # as huggingface_hub reads them


@dataclass(frozen=True)
class Patience:
    """Time limits: seconds without a note or output before the first step, between steps, and after the last.

    ``total`` is how long a run may take in all, whatever it still does.
    """

    start: float = 300
    training: float = 120
    end: float = 180
    total: float = 1200


@dataclass(frozen=True)
class Settings:
    """What all runs of a rehearsal share. ``rows`` is how many are taken of each split of a data set."""

    steps: int = 4
    nproc: int = 2
    data: Mapping[str, Path] = field(default_factory=dict)
    python: str = sys.executable
    patience: Patience = Patience()
    rows: int = 512


@dataclass
class Run:
    """One run: where it works, where its ranks' notes are, and how it ended.

    ``label`` says what runs: the notebook or the script. ``nproc`` is 0 without torchrun. ``hung`` says why
    it was ended, if it did not end itself. ``left`` counts the processes that it left behind.
    """

    name: str
    label: str
    folder: Path
    notes: Path
    nproc: int
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = 0.0
    seconds: float = 0.0
    hung: str | None = None
    left: int = 0

    @property
    def ranks(self) -> range:
        return range(max(1, self.nproc))


def prepare(
    work: Path,
    name: str,
    subject: Subject,
    settings: Settings,
    file: str,
    nproc: int = 0,
    order: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> Run:
    """Make the working folder for a run of ``file``, with what it reads and imports, and its plan.

    ``order``: the batches that data loaders are to give, by the number of their iterator.
    """
    folder, notes = work / name, work / f"{name}-notes"
    for path in (folder, notes):
        path.mkdir(parents=True)
    is_script = file == SCRIPT
    beside = (*subject.files, *(subject.script_files if is_script else ()))
    for path in {path.name: path for path in beside}.values():
        _copy(path, folder / path.name)
    script = folder / file
    texts = {**subject.modules, file: subject.script} if is_script else {file: subject.reference}
    for name_of, text in texts.items():
        (folder / name_of).write_text(text, encoding="utf-8")
    plan = {
        "script": str(script),
        "steps": settings.steps,
        "data": {name: str(path.resolve()) for name, path in settings.data.items()},
        "columns": subject.columns,
        "markers": subject.markers,
        "models": str(work / "models"),
        "rows": settings.rows,
        "datasets": str(work / "datasets"),
        "handmade": subject.handmade,
        "nproc": max(1, settings.nproc),
        "order": order or {},
        "arguments": subject.arguments if is_script else (),
        "hub": not any(os.environ.get(name, "").upper() in _TRUE for name in _OFFLINE),
    }
    (notes / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return Run(name, "script" if is_script else "notebook", folder, notes, nproc)


def _copy(path: Path, to: Path) -> None:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    if sum(file.stat().st_size for file in files) <= _COPIED_BYTES:
        shutil.copytree(path, to) if path.is_dir() else shutil.copy2(path, to)


def _start(run: Run, settings: Settings, scratch: Path) -> subprocess.Popen[bytes]:
    plan = json.loads((run.notes / "plan.json").read_text(encoding="utf-8"))
    script = Path(plan["script"])
    guard = [settings.python, "-I", "-S", str(_WARDEN), str(run.notes)]
    if run.nproc:
        command = torchrun_command(script, nproc=run.nproc, python=settings.python, guard=guard)
    else:
        command = [*guard, settings.python, "-u", str(script)]
    command += [argument.replace("$", "$$") if run.nproc else argument for argument in plan["arguments"]]
    base = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES and not k.startswith("COV")}
    environment = {
        **torchrun_environment(base, nproc=1, cpu=True, cores=1),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(scratch / f"{run.name}-data"),
        "TMPDIR": str(scratch),
        "TOKENIZERS_PARALLELISM": "false",
        "TRITON_INTERPRET": "1",  # TRL's preference trainers compute their losses in Triton kernels
        "WANDB_MODE": "disabled",
    }
    if plan["handmade"]:
        environment["ACCELERATE_USE_CPU"] = "true"
    if run.nproc and shards(script.read_text(encoding="utf-8")):
        # Unsloth compiles for shards; on a CPU that takes a minute
        environment["TORCH_COMPILE_DISABLE"] = "1"
    with (run.notes / "output.txt").open("wb") as output:
        run.started = time.time()
        log = output.fileno()
        return processes.start(command, environment, run.run_id, (log, log), cwd=run.folder)


def execute(runs: Sequence[Run], settings: Settings, scratch: Path, title: str) -> None:
    """Make the runs, at the same time, and return when all their processes are gone.

    ``scratch`` has a short name: the paths of Unix sockets in it may have about 100 characters. While they run,
    ``title`` is shown with what each process is doing.
    """
    living: dict[str, tuple[Run, subprocess.Popen[bytes]]] = {}
    following, looked = Following(runs), 0.0
    try:
        with waiting(title) as line:
            for run in runs:
                living[run.name] = run, _start(run, settings, scratch)
            while living:
                time.sleep(0.1)
                if time.monotonic() - looked > _EVERY:
                    looked = time.monotonic()
                    states = (f"{name}: {state}" for name, state in following.states().items())
                    line.update(f"{title}: {', '.join(states)}")
                for run, process in list(living.values()):
                    if process.poll() is not None:
                        run.left = _left(run)
                    elif _hangs(run, settings.patience, following):
                        following.show_stacks(run)
                    else:
                        continue
                    run.seconds = time.time() - run.started
                    del living[run.name]
                    _end(run, process)
    finally:
        for run, process in living.values():
            _end(run, process)


class Following:
    """Read the ranks' notes as they are written, for what each of them is doing."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._files = {name: run.notes / f"notes-{n}.jsonl" for run in runs for n, name in _names(run)}
        self._read = dict.fromkeys(self._files, 0)
        self._states = dict.fromkeys(self._files, "starting")
        self._pids: dict[str, int] = {}

    def states(self) -> dict[str, str]:
        """Return what each process has noted last: ``{"rank 0": "step 2"}``."""
        for name, path in self._files.items():
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self._read[name])
                whole, newline, _ = file.read().rpartition(b"\n")
                self._read[name] += len(whole + newline)
                for line in whole.splitlines():
                    self._take(name, json.loads(line))
        return dict(self._states)

    def _take(self, name: str, note: dict[str, Any]) -> None:
        if note["kind"] == "start":
            self._pids[name] = note["pid"]
        elif note["kind"] == "step":
            self._states[name] = f"step {note['number']}"
        elif note["kind"] in ("trained", "left_group"):
            self._states[name] = "trained"
        elif note["kind"] == "load" and self._states[name] == "starting":
            self._states[name] = "model loaded"

    def phase(self, run: Run, patience: Patience) -> tuple[str, float]:
        """Return the phase of the rank that has come furthest, and how long it may be silent."""
        states = self.states()
        reached = {states[name].partition(" ")[0] for _, name in _names(run)}
        if "trained" in reached:
            return "after training", patience.end
        if "step" in reached:
            return "in training", patience.training
        return "before training", patience.start

    def show_stacks(self, run: Run) -> None:
        """Make each rank write its stack to a file, by the signal that `notes.begin` has registered."""
        for _, name in _names(run):
            with contextlib.suppress(OSError, KeyError):
                os.kill(self._pids[name], signal.SIGUSR1)
        time.sleep(0.5)


def _names(run: Run) -> list[tuple[int, str]]:
    """Return the number of each process of a run, and what it is called."""
    return [(rank, f"rank {rank}" if run.nproc else run.label) for rank in run.ranks]


def _end(run: Run, process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    processes.end_processes(run.run_id, grace=_GRACE, groups=[process.pid])
    process.wait()


def _left(run: Run) -> int:
    """Return how many processes of a run are left, a moment after it has ended."""
    deadline = time.monotonic() + 1
    while (left := processes.processes_of(run.run_id)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return len(left)


def _hangs(run: Run, patience: Patience, following: Following) -> bool:
    """Return whether nothing was noted and nothing printed for longer than this phase may be silent."""
    now = time.time()
    if now - run.started > patience.total:
        run.hung = f"it still ran after {patience.total:.0f} s"
        return True
    files = [path for path in run.notes.iterdir() if path.name.startswith(("notes-", "rank"))]
    silent = now - max([run.started, *(path.stat().st_mtime for path in files)])
    if silent > min(patience.start, patience.training, patience.end):
        phase, seconds = following.phase(run, patience)
        if silent > seconds:
            run.hung = f"nothing happened any more {phase}"
    return run.hung is not None
