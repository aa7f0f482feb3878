"""``nb2ddp run --monitor``: who is waited for, what is shown, and that a run stays what it is without it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

import nb2ddp
from tests.support.limits import LONG
from tests.unit.monitor.test_nvml import DRIVER

PACKAGE_PARENT = Path(nb2ddp.__file__).parents[1]

TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
if rank == 0:
    print("nb2ddp: batch 2 x 2 x 2 processes = 8 per step")
for step in range(20):
    end = time.process_time() + (0.25 if rank == 1 else 0.01)
    while time.process_time() < end:
        sum(range(1000))
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        print(f"step {step}: loss {1 / (step + 1):.3f}")
        print("a word on stderr", file=sys.stderr)
dist.barrier()
os._exit(0)  # gloo's threads sometimes end with SIGABRT
"""

# Without torch, so that it starts quickly.
LOOK = """
import os, sys, time
rank = int(os.environ["RANK"])
if rank == 0:
    columns = os.get_terminal_size().columns if sys.stdout.isatty() else None
    print(f"rank 0 has {columns} columns, \\x1b[32mgreen\\x1b[0m, stderr {sys.stderr.isatty()}")
for step in range(1, 41):
    if rank == 0:
        print(f"\\r{step * 2:3}%|##| {step}/40 [00:01<00:02, 10.0it/s, loss=1.5]", end="", file=sys.stderr)
    time.sleep(0.12)
if rank == 0:
    open("done", "w").close()
else:
    while not os.path.exists("done"):  # it may have started first
        time.sleep(0.1)
    sys.exit(3)
time.sleep(30)
"""


@dataclass
class Ended:
    code: int
    out: str
    err: str
    logs: Path


Start = Callable[..., "subprocess.Popen[bytes]"]


def heed_ctrl_c() -> None:
    """The background of a shell, where the tests may run, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start ``nb2ddp run --monitor`` on two processes, with modules of these texts before all others."""

    def start(
        script: str, *options: str, modules: dict[str, str], to: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        (tmp_path / "train.py").write_text(script)
        stubs = tmp_path / "modules"
        stubs.mkdir()
        # what converts is not there where a script only runs
        for name, text in {"libcst": "raise ImportError", "nbformat": "raise ImportError", **modules}.items():
            (stubs / f"{name}.py").write_text(text)
        path = os.pathsep.join([str(stubs), str(PACKAGE_PARENT)])
        command = [sys.executable, "-m", "nb2ddp", "run", "train.py", "--nproc", "2", "--monitor", *options]
        environment = {**os.environ, "PYTHONPATH": path, "TERM": "xterm-256color"}
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=to,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )

    return start


def ended(process: subprocess.Popen[bytes], folder: Path) -> Ended:
    out, err = process.communicate(timeout=LONG)
    return Ended(process.returncode, out.decode(), err.decode(), folder / "logs")


@pytest.mark.launch
def test_the_rank_that_the_others_wait_for(start: Start, tmp_path: Path) -> None:
    modules = {"pynvml": "raise ImportError"}
    run = ended(start(TRAIN, modules=modules), tmp_path)
    assert run.code == 0, run.err
    steps = [f"step {step}: loss {1 / (step + 1):.3f}" for step in range(20)]
    assert run.out.splitlines() == ["nb2ddp: batch 2 x 2 x 2 processes = 8 per step", *steps]
    assert run.err.count("a word on stderr\n") == 20
    assert "\x1b" not in run.err, "no live table where there is no terminal"
    assert "the others waited for rank 1" in run.err
    assert "it uses CPU time while the others wait" in run.err
    assert re.search(r"train.py, \d+ s, 19 steps, [\d.]+ steps/s, [\d.]+ samples/s", run.err)
    assert "the GPUs' load is not known (ImportError" in run.err
    picture = ElementTree.parse(run.logs / "monitor.svg").getroot()
    lines = [element for element in picture.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 1 + 2 + 2, "the loss, CPU and memory of each rank"
    assert sorted(path.name for path in run.logs.iterdir()) == ["monitor.svg", "rank1.log"]


@pytest.mark.launch
def test_in_a_terminal_a_table_stands_below_the_output(start: Start, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 97))
    process = start(LOOK, "--cpu", modules={}, to=theirs)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + LONG
    while process.poll() is None or select.select([ours], [], [], 0.2)[0]:
        assert time.monotonic() < deadline
        if select.select([ours], [], [], 0.2)[0]:
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    text = shown.decode()
    live, _, summary = text.partition("nb2ddp: train.py, ")
    assert process.wait() == 3
    assert "rank 0 has 97 columns, \x1b[32mgreen\x1b[0m, stderr True" in live
    assert re.search(r"train\.py · 0:\d\d · step \d+ of 40 · 0:02 left · [\d.]+ steps/s", live)
    assert re.search(r"rank +device .*RSS GiB", re.sub(r"\x1b\[[0-9;]*m", "", live))
    assert "ended with 3" in live
    assert "40 steps" in summary
    assert "rank 1 failed first (exit code 3)" in summary, "the reason is the last word"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is back"
    assert (tmp_path / "logs" / "monitor.svg").exists()


@pytest.mark.launch
def test_gpus_in_a_run_and_ctrl_c(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,0")
    process = start(LOOK.replace("sys.exit(3)", "pass"), modules={"pynvml": DRIVER})
    assert process.stderr is not None
    said = b""
    while b"40/40" not in said:
        data = os.read(process.stderr.fileno(), 1 << 16)
        assert data, said
        said += data
    process.send_signal(signal.SIGINT)
    run = ended(process, tmp_path)
    assert run.code == 130, (said, run)
    table = [line.split() for line in run.err.splitlines() if "Tesla T4" in line]
    rows = [(line[0], line[1], line[4], line[-2]) for line in table]
    assert rows == [("0", "1", "2.0", "100"), ("1", "0", "1.0", "0")], "rank, GPU, memory, waited for"
    assert [line[line.index("%") - 1] for line in table] == ["91", "90"], "the GPU's load"
    assert "the others waited for rank 0" in run.err
    assert "its GPU draws 65 W, the others' 30" in run.err
    assert "stopped by SIGINT" in run.err
