"""Try DDP's all-reduce: under torchrun, with the backend of the training, every sum checked."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.doctor.gpu import without_gpus
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.outcome import Outcome, counted, fail, ok, warn
from nb2ddp.launch.command import LAUNCHER_VARIABLES, torchrun_command, torchrun_environment
from nb2ddp.launch.failure import ending
from nb2ddp.launch.processes import end_processes, start
from nb2ddp.regular_files import json_object

SLOW = 1.0
"""GB/s between GPUs: less is neither NVLink, nor PCIe, nor the memory that both share."""

_PROGRAM = Path(__file__).parent / "programs" / "all_reduce.py"
_GRACE = 2.0  # seconds that processes get to end by themselves
_WITHOUT_P2P = {"NCCL_P2P_DISABLE": "1"}
_WHERE = {
    "": "before torch was imported",
    "started": "while the processes looked for one another",
    "joined": "in the all-reduce",
}
_SHARED = "`docker run --shm-size=1g --ulimit memlock=-1`"


@dataclass(frozen=True)
class Tried:
    """One trial. ``stage``: how far the rank came that came least far ("" before torch was imported, then
    "started", "joined", "done", "failed"). ``seconds``: of the slowest rank, for one all-reduce.
    """

    stage: str
    error: str = ""
    wrong: int = 0
    bytes: int = 0
    seconds: float = 0.0
    timed_out: bool = False

    @property
    def works(self) -> bool:
        return self.stage == "done" and not self.wrong


def bus_bandwidth(count: int, seconds: float, world_size: int) -> float:
    """Return GB/s (10**9 bytes) over the busiest link, for ``count`` bytes that were all-reduced in ``seconds``.

    As nccl-tests do (its doc/PERFORMANCE.md): the algorithm's bandwidth, count / seconds, times 2(n-1)/n, so
    that numbers of different world sizes can be compared with one another and with the hardware's.
    """
    return count / seconds * 2 * (world_size - 1) / world_size / 1e9


def nothing_to_reduce(machine: Machine) -> str:
    """Return why there is nothing to try; empty where there is."""
    torch, nproc = machine.torch, machine.nproc
    if torch.failure:
        return "torch cannot be imported"
    if not machine.settings.cpu:
        if reason := without_gpus(machine):
            return reason
        if torch.gpu_failure or torch.nccl is None or not 0 < nproc <= len(torch.gpus):
            return "NCCL needs a working GPU for each process"
    return "one process exchanges no gradients" if nproc == 1 else ""


def is_p2p_off(environ: Mapping[str, str]) -> bool:
    return environ.get("NCCL_P2P_DISABLE") == "1"


def all_reduce(machine: Machine) -> Outcome:
    """Check an all-reduce over as many processes as are to train.

    With NCCL, a failure is tried again without direct access between GPUs (P2P), its most common cause.
    """
    nproc, backend = machine.nproc, "gloo" if machine.settings.cpu else "nccl"
    tried = attempt(machine, backend)
    what = f"all-reduce with {backend} over {counted(nproc, 'process')}"
    if tried.works:
        rate = bus_bandwidth(tried.bytes, tried.seconds, nproc)
        seen = f"{what}: the sums are right, {rate:.{1 if rate >= 1 else 2}f} GB/s bus bandwidth"
        if backend == "nccl" and rate < SLOW:
            return warn(
                seen,
                "the GPUs talk over sockets, it seems: `NCCL_DEBUG=INFO nb2ddp doctor` says which way they "
                f"take (P2P, SHM or NET); for SHM give /dev/shm at least 1 GiB ({_SHARED})",
            )
        return ok(seen)
    seen = f"{what}: {_failure(tried, machine)}"
    may_help = backend == "nccl" and tried.stage in ("joined", "failed", "done")
    if may_help and not is_p2p_off(machine.environ) and attempt(machine, backend, _WITHOUT_P2P).works:
        return fail(
            f"{seen}; with NCCL_P2P_DISABLE=1 it works",
            "`export NCCL_P2P_DISABLE=1` before training; the cause is often an IOMMU or PCI ACS that is "
            "on (`nvidia-smi topo -p2p p` shows the pairs; BIOS: VT-d and ACS off)",
        )
    return fail(seen, _advice(tried, backend))


def _failure(tried: Tried, machine: Machine) -> str:
    if tried.wrong:
        return f"{tried.wrong} of {tried.bytes // 4} sums are wrong"
    if tried.error:
        return tried.error
    where = _WHERE[tried.stage]
    if tried.timed_out:
        return f"nothing came back within {machine.settings.timeout:.0f} seconds; it hung {where}"
    return f"torchrun ended {where}"


def _advice(tried: Tried, backend: str) -> str:
    """Return what to do about a trial that failed.

    From NCCL's own guide (docs.nvidia.com/deeplearning/nccl, "Troubleshooting" and "Environment Variables").
    """
    if tried.stage == "" and tried.timed_out:
        return "the disk or the CPU is slow or busy: try again with a longer --timeout"
    if not tried.timed_out and tried.stage in _WHERE:
        return (
            "`NCCL_DEBUG=INFO nb2ddp doctor` shows all that the processes print; one that was killed often "
            "wanted more memory than there is"
        )
    if backend == "gloo" or tried.stage == "started":
        return (
            "the processes cannot reach one another: this machine's own name has to lead to itself (an entry "
            "in /etc/hosts), or GLOO_SOCKET_IFNAME=lo (NCCL_SOCKET_IFNAME=lo) names the interface to use"
        )
    return (
        "`NCCL_DEBUG=INFO nb2ddp doctor` shows where NCCL stops. Often: too little shared memory "
        f"({_SHARED}), or an interface that leads nowhere (NCCL_SOCKET_IFNAME=lo on one machine)"
    )


def attempt(machine: Machine, backend: str, more: Mapping[str, str] | None = None) -> Tried:
    """Run torchrun once, and end all that it started. With NCCL_DEBUG in the environment, and INFO or TRACE
    in it, all that the processes print is shown on stderr."""
    nproc, seconds = machine.nproc, machine.settings.timeout
    run_id = uuid.uuid4().hex
    base = {key: value for key, value in os.environ.items() if key not in LAUNCHER_VARIABLES}
    environ = {
        "NCCL_DEBUG": "WARN",
        **torchrun_environment(base, nproc=nproc, cpu=machine.settings.cpu),
        **(more or {}),
    }
    with tempfile.TemporaryDirectory(prefix="nb2ddp-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = torchrun_command(_PROGRAM, nproc=nproc, python=machine.settings.python)
        log = folder / "log.txt"
        timed_out = False
        with log.open("wb") as file:
            output: int = 2 if environ["NCCL_DEBUG"].upper() in ("INFO", "TRACE") else file.fileno()
            process = start([*command, str(folder), backend, str(seconds)], environ, run_id, (output, output))
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
                timed_out = process.poll() is None
                # of processes that hang, one may fail because the other is ended first
                notes = [json_object(folder / f"rank{rank}.json") or {"stage": ""} for rank in range(nproc)]
            finally:
                end_processes(run_id, grace=0 if timed_out else _GRACE, groups=[process.pid])
                process.wait()
        text = log.read_text(encoding="utf-8", errors="replace")
    return judge(notes, text, timed_out=timed_out)


def judge(notes: list[dict[str, Any]], log: str, *, timed_out: bool) -> Tried:
    """Return the result of a trial from the ranks' notes and NCCL's warnings.

    A rank that fails takes the others along; NCCL's own words say more than those of the exception.
    """
    stages = ["", "started", "joined", "done"]
    errors = [note["error"] for note in notes if note["stage"] == "failed"]
    if errors:
        warning = re.search(r"NCCL WARN (.+)", log)
        return Tried("failed", warning[1].strip() if warning else errors[0], timed_out=timed_out)
    stage = min((note["stage"] for note in notes), key=stages.index)
    if stage != "done":
        return Tried(stage, "" if timed_out else _last_words(log, stage), timed_out=timed_out)
    return Tried(
        stage,
        wrong=max(note["wrong"] for note in notes),
        bytes=notes[0]["bytes"],
        seconds=max(note["seconds"] for note in notes),
    )


def _last_words(log: str, stage: str) -> str:
    """Return how a process ended according to torchrun, or why torchrun did not start it."""
    if code := re.search(r"Root Cause.*?exitcode\s*: (-?\d+)", log, re.DOTALL):
        return f"a process failed {_WHERE[stage]} ({ending(int(code[1]))})"
    lines = [line for line in log.splitlines() if re.match(r"\S*(?:Error|Exception)\b", line)]
    return lines[-1] if lines else ""
