"""A rank fails, in each way and phase: under torchrun the run ends within 60 s and names the rank and the place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.runtime import support_module
from tests.support.limits import LONG
from tests.support.runs import processes_of

pytestmark = pytest.mark.launch

SCRIPT = """\
import os, signal, sys, threading, time
import ddp_support as ddp
rank, _, _ = ddp.init(seed=0)
import torch
WHO, FAULT, PHASE = int(os.environ["WHO"]), os.environ["FAULT"], os.environ["PHASE"]
def meet_fault(phase):
    if (rank, phase) == (WHO, PHASE):
        open("met", "w").write(str(time.time()))
        if FAULT == "exception":
            raise ValueError("the fault")
        if FAULT == "exit":
            sys.exit(0)
        if FAULT == "loop":
            while True:
                pass
        if FAULT == "lock":
            threading.Event().wait()
        os.kill(os.getpid(), signal.SIGKILL if FAULT == "kill" else signal.SIGSTOP)
# ---- cell 2
meet_fault("load")
model = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
# ---- cell 3
for step in range(40):
    meet_fault({0: "first step", 20: "middle"}.get(step))
    loss = model(torch.randn(4, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", flush=True)
ddp.finish()
"""
PHASES = {"load": "(cell 2)", "first step": "(cell 3)", "middle": "(cell 3)"}
FAULTS = ("exception", "kill", "stop", "exit", "lock")
CELLS = [(fault, who, phase) for fault in FAULTS for who in (0, 1) for phase in PHASES]
# The others in forked ranks: tests/unit/runtime/test_faults.py. Under torchrun, an exception in test_launch_failures.py
# too, and a rank that is killed in test_launch.py.
FIRST = {("stop", 1, "middle")}


@dataclass(frozen=True)
class Broken:
    folder: Path
    exit_code: int
    output: str
    ended: float


def start(folder: Path, fault: str, who: int, phase: str) -> subprocess.Popen[str]:
    """Start the script under torchrun, with the fault in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.py").write_text(SCRIPT)
    (folder / SUPPORT).write_text(support_module())
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "script.py",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment |= {"WHO": str(who), "FAULT": fault, "PHASE": phase, "NB2DDP_WATCH": str(folder)}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def break_run(folder: Path, fault: str, who: int, phase: str) -> Broken:
    with start(folder, fault, who, phase) as process:
        output, _ = process.communicate(timeout=240)
    return Broken(folder, process.returncode, output, time.time())


@pytest.mark.thorough  # test_launch_end.py shows it of `nb2ddp run`
@pytest.mark.skipif(sys.platform != "linux", reason="a process is found in /proc")
def test_ranks_end_when_torchrun_is_killed(tmp_path: Path) -> None:
    """One that computes for ever, and one that waits for it: nothing else would end them, and they hold the GPUs."""
    with start(tmp_path, "loop", 1, "middle") as torchrun:
        deadline = time.monotonic() + LONG
        while not (tmp_path / "met").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        torchrun.kill()
        output, _ = torchrun.communicate(timeout=LONG)  # both ranks hold the pipe until they end
    assert torchrun.returncode == -signal.SIGKILL
    assert not processes_of(tmp_path), output
    assert "torchrun was killed and has left it behind" in output


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="a process is found in /proc")
def test_ranks_end_when_torchrun_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store answers no more, so no rank can ask another; it goes on to end the run."""
    monkeypatch.setenv("NB2DDP_PATIENCE", "5")
    with start(tmp_path, "loop", 1, "middle") as torchrun:
        deadline = time.monotonic() + LONG
        while not (tmp_path / "met").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        torchrun.send_signal(signal.SIGSTOP)
        output, _ = torchrun.communicate(timeout=LONG)
    assert torchrun.returncode == 1, output
    assert not processes_of(tmp_path), output
    said = f"torchrun (process {torchrun.pid}) has been stopped by a signal"
    assert [line for line in output.splitlines() if line.startswith(f"nb2ddp: ERROR: {said}")], output


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, int, str], Future[Broken]]]:
    """The runs of all selected cells, six at a time: they mostly wait."""
    wanted = {
        spec.params["cell"]
        for item in request.session.items
        if (spec := getattr(item, "callspec", None)) and "cell" in spec.params and item.path == request.path
    }
    folder = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor(6) as pool:
        yield {
            cell: pool.submit(break_run, folder / str(number), *cell)
            for number, cell in enumerate(CELLS)
            if cell in wanted
        }


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(c, marks=() if c in FIRST else pytest.mark.thorough, id="-".join(map(str, c)))
        for c in CELLS
    ],
)
def test_a_fault_ends_the_run_with_its_cause(
    runs: dict[tuple[str, int, str], Future[Broken]], cell: tuple[str, int, str]
) -> None:
    fault, who, phase = cell
    run = runs[cell].result()
    assert run.exit_code != 0, run.output
    assert "trained" not in run.output
    met = float((run.folder / "met").read_text())
    # torchrun waits 30 s for a rank that takes no SIGTERM: one that is stopped is killed before. The others are patient
    # for 45 s, from when they wait: on a busy machine half a minute after the fault.
    assert run.ended - met < 120, run.output
    assert not processes_of(run.folder)
    if fault == "exception":
        said, _, _ = run.output.partition("Root Cause")  # torchrun's own report comes after it
        assert 'raise ValueError("the fault")' in said
        assert said.count("ValueError: the fault") == 1
        assert "NoneType: None" not in run.output
        assert f"rank      : {who} (local_rank: {who})" in run.output
    elif fault == "kill":
        assert f"rank      : {who} (local_rank: {who})" in run.output
        assert "Signal 9 (SIGKILL)" in run.output
    else:
        says = {"exit": "left the script", "stop": "does not answer since", "lock": "is at script.py, line"}
        lines = [line for line in run.output.splitlines() if f"rank {who} " in line and says[fault] in line]
        assert lines, run.output
        assert PHASES[phase] in lines[0], lines
        if fault == "lock":  # by the watchdog's own clock, whatever the load
            assert (waited := re.search(r"since (\d+) s", lines[0])) is not None, lines
            assert 45 <= int(waited[1]) < 60, lines
