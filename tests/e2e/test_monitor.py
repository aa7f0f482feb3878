"""``nb2ddp run --monitor``: what is read, who is waited for, and that a run stays what it is without it."""

from __future__ import annotations

import csv
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
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import nb2ddp
from nb2ddp.errors import MonitorError
from nb2ddp.monitor.console import Lines
from nb2ddp.monitor.nvml import Gpu, Load, Reader, Watch, visible_gpus
from nb2ddp.monitor.pace import Pace
from nb2ddp.monitor.samples import Sample, straggler

PACKAGE_PARENT = Path(nb2ddp.__file__).parents[1]

# ---------------------------------------------------------------------------------------------------------
# GPUs

MACHINE = [
    Gpu("a", "GPU-aaaa-1"),
    Gpu("b", "GPU-bbbb-2"),
    Gpu("c", "GPU-cccc-3", (Gpu("c0", "MIG-1111-c"), Gpu("c1", "MIG-2222-c"))),
]


@pytest.mark.parametrize(
    ("visible", "handles"),
    [
        (None, ["a", "b", "c0"]),
        ("", []),
        ("1,0", ["b", "a"]),
        ("GPU-bbbb, GPU-aaaa-1", ["b", "a"]),
        ("MIG-2222-c,MIG-1111-c", ["c1", "c0"]),
        ("2", ["c0"]),
        ("0,-1,1", ["a"]),
        ("0,7,1", ["a"]),
        ("GPU-,1", []),
        ("1,GPU-dddd,0", ["b"]),
    ],
)
def test_gpus_are_in_the_ranks_order(visible: str | None, handles: list[str]) -> None:
    assert [gpu.handle for gpu in visible_gpus(MACHINE, visible)] == handles


# NVIDIA's library does not run without a driver; this answers in its place, with the names of nvidia-ml-py.
DRIVER = """
from types import SimpleNamespace as Answer
NVML_CLOCK_SM, nvmlMemory_v2 = 1, 2
NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 2, 3, 4
NVML_ERROR_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 6, 13, 25
class NVMLError(Exception):
    def __init__(self, value): self.value = value
    def __str__(self): return "Driver Not Loaded" if self.value == 9 else "GPU is lost"
old, broken = False, None
def nvmlInit():
    if broken: raise NVMLError(broken)
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetName(handle): return "Tesla T4"
def nvmlDeviceGetMaxMigDeviceCount(handle): raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle): raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
def nvmlDeviceGetMemoryInfo(handle, version=None):
    if broken: raise NVMLError(broken)
    if version and old: raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)
    return Answer(used=(handle + 1) << 30, total=15 << 30)
def nvmlDeviceGetUtilizationRates(handle):
    if old: raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return Answer(gpu=90 + handle)
def nvmlDeviceGetClockInfo(handle, kind): return 1590
def nvmlDeviceGetPowerUsage(handle): return 30_000 + 35_000 * handle
def nvmlDeviceGetEnforcedPowerLimit(handle): return 70_000
def nvmlDeviceGetCurrentClocksEventReasons(handle):
    if old: raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)
    return 0x4
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): return 0x40 * handle
"""


@pytest.fixture
def driver() -> ModuleType:
    module = ModuleType("pynvml")
    exec(DRIVER, vars(module))
    return module


def test_what_the_driver_says(driver: ModuleType) -> None:
    reader = Reader("1", driver)
    gib = 1 << 30
    expected = Load(0, 2 * gib, 15 * gib, 91, "Tesla T4", 1590, 65.0, 70.0, index=1)
    assert reader.loads() == [expected]
    driver.old = True  # type: ignore[attr-defined]
    assert reader.loads() == [replace(expected, percent=None, slowdowns=("too hot (hardware)",))]
    driver.broken = 15  # type: ignore[attr-defined]
    with pytest.raises(MonitorError, match=r"cannot be read any more.*GPU is lost"):
        reader.loads()
    driver.broken = 9  # type: ignore[attr-defined]
    with pytest.raises(MonitorError, match=r"driver does not answer.*Not Loaded"):
        Reader(None, driver)


def test_a_watch_reads_by_itself(driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    watch = Watch(None)
    deadline = time.monotonic() + 30
    while not watch.loads():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watch.close()
    assert [load.rank for load in watch.loads()] == [0, 1]


# ---------------------------------------------------------------------------------------------------------
# Who is waited for

BUSY = Load(0, 8 << 30, 16 << 30, 100, "T4", 1500, 60.0, 70.0)


def on_gpus(*changes: dict[str, object]) -> list[Sample]:
    return [
        Sample(rank, 100.0, 1 << 30, gpu=replace(BUSY, rank=rank, **change))  # type: ignore[arg-type]
        for rank, change in enumerate(changes)
    ]


@pytest.mark.parametrize(
    ("changes", "rank", "sign"),
    [
        ([{}, {"clock": 1100}, {}, {}], 1, "low clock"),
        ([{}, {}, {"slowdowns": ("too hot (driver)",)}], 2, "held back"),
        ([{"percent": 60}, {}], 0, "idle"),
        ([{"power": 40.0}, {}, {"power": 38.0}], 1, "power"),
        ([{"percent": 40, "power": 30.0}, {}], 0, "idle"),  # the other one polls
        ([{"power": 35.0}, {"clock": 1200, "power": 68.0}], 1, "power"),  # at its limit
    ],
)
def test_signs_on_gpus(changes: list[dict[str, object]], rank: int, sign: str) -> None:
    found = straggler(on_gpus(*changes))
    assert found is not None
    assert (found.rank, found.sign) == (rank, sign)


@pytest.mark.parametrize(
    "changes",
    [
        [{}, {}],
        [{"clock": 600}],
        [{"slowdowns": ("too hot (driver)",)}, {"slowdowns": ("too hot (driver)",)}],
        [{"percent": 85, "clock": 1400, "power": 55.0}, {}],
        [{"percent": None, "clock": None, "power": None}, {}],
        [{"power": 5.0}, {"power": 7.0}],  # both do nothing
    ],
)
def test_no_rank_stands_out_on_gpus(changes: list[dict[str, object]]) -> None:
    assert straggler(on_gpus(*changes)) is None


def test_why_a_gpu_idles() -> None:
    samples = on_gpus({}, {"percent": 50})
    samples[1] = replace(samples[1], starved=60.0, swapped=3 << 20)
    found = straggler(samples)
    assert found is not None
    assert "60 % of the time no CPU core was free" in found.why
    assert "3 MiB" in found.why


@pytest.mark.parametrize(
    ("cpu", "rank"),
    [([20.0, 90.0], 1), ([95.0, 90.0], None), ([3.0, 12.0], None), ([None, 90.0], None), ([9, 200, 30], 1)],
)
def test_on_cpus_the_rank_that_computes_is_waited_for(cpu: list[float | None], rank: int | None) -> None:
    found = straggler([Sample(number, value, 1 << 30) for number, value in enumerate(cpu)])
    assert (found.rank if found else None) == rank


def test_a_rank_that_waits_for_a_core_computes_too() -> None:
    samples = [Sample(0, 3.0, 1 << 30, starved=4.0), Sample(1, 12.0, 1 << 30, starved=80.0)]
    found = straggler(samples)
    assert found is not None
    assert (found.rank, found.sign) == (1, "computes")
    assert found.why.endswith("% of a core, the others 7 %; for 80 % of the time no core was free for it")


def test_pace() -> None:
    pace = Pace()
    for seconds, step in [(1.0, 5), (2.0, 6), (10.0, 0), (11.0, 0), (12.0, 2), (20.0, 10)]:
        pace.note(seconds, step)
    assert pace.first == (10.0, 0), "the first steps were another bar's"
    assert pace.overall == 1.0
    pace.note(100.0, 250)
    assert pace.recent == 3.0


# ---------------------------------------------------------------------------------------------------------
# Rank 0's output


def test_lines_that_are_written_over() -> None:
    lines = Lines()
    lines.write("one\ntwo")
    assert lines.take() == []  # not until the cursor has stayed below
    lines.write("\r 10%|#  |\r 20%|## |")
    assert lines.take() == ["one"]
    assert lines.unfinished == [" 20%|## |"]
    lines.write("\n")
    lines.write("\r eval: 50%")
    assert lines.take() == []  # here a second bar is drawn below the first
    lines.write("\x1b[A")
    assert lines.take() == []
    assert lines.unfinished == [" 20%|## |", " eval: 50%"]
    lines.write("\n\r eval: 99%\x1b[A\r 30%|###|")
    assert lines.unfinished == [" 30%|###|", " eval: 99%"]
    lines.write("\r\x1b[Kthree\r\n\r\n")
    lines.take()
    assert lines.take() == ["three", " eval: 99%"]
    lines.write("four")
    assert lines.take(everything=True) == ["four"]


# ---------------------------------------------------------------------------------------------------------
# Runs

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
if rank == 1:
    sys.exit(3)
time.sleep(30)
"""


@dataclass
class Ended:
    code: int
    out: str
    err: str
    logs: Path

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader((self.logs / "monitor.csv").read_text(encoding="utf-8").splitlines()))


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
    out, err = process.communicate(timeout=120)
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
    assert "nvidia-ml-py is not installed here (pip install nvidia-ml-py)" in run.err
    assert {row["rank"] for row in run.rows} == {"0", "1"}
    named = [row["straggler"] for row in run.rows if row["straggler"]]
    assert named.count("1") > len(named) / 2
    # a rank that has just started or ended has no memory
    assert {row["rank"] for row in run.rows if int(row["rss_bytes"]) > 0} == {"0", "1"}
    picture = ElementTree.parse(run.logs / "monitor.svg").getroot()
    lines = [element for element in picture.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 1 + 2 + 2, "the loss, CPU and memory of each rank"
    assert sorted(path.name for path in run.logs.iterdir()) == ["monitor.csv", "monitor.svg", "rank1.log"]


@pytest.mark.launch
def test_in_a_terminal_a_table_stands_below_the_output(start: Start, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 97))
    process = start(LOOK, "--cpu", modules={}, to=theirs)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 60
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
    assert "the others waited for rank 0" in run.err
    assert "its GPU draws 65 W, the others' 30" in run.err
    assert "stopped by SIGINT" in run.err
    assert {(row["rank"], row["gpu_percent"]) for row in run.rows} == {("0", "91"), ("1", "90")}
