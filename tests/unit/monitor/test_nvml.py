"""GPUs as NVML tells them: in the ranks' order, and while a run goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest

from nb2ddp.errors import MonitorError
from nb2ddp.monitor.nvml import Gpu, Load, Reader, Watch, visible_gpus

Start = Callable[..., "subprocess.Popen[bytes]"]


MACHINE = [
    Gpu("a", "GPU-aaaa-1"),
    Gpu("b", "GPU-bbbb-2"),
    Gpu("c", "GPU-cccc-3"),
]


@pytest.mark.parametrize(
    ("visible", "handles"),
    [
        (None, ["a", "b", "c"]),
        ("", []),
        ("1,0", ["b", "a"]),
        ("GPU-bbbb, GPU-aaaa-1", ["b", "a"]),
        ("2", ["c"]),
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
NVML_ERROR_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND = 6, 13
class NVMLError(Exception):
    def __init__(self, value): self.value = value
    def __str__(self): return "Driver Not Loaded" if self.value == 9 else "GPU is lost"
old, broken, hot = False, None, False
def nvmlInit():
    if broken: raise NVMLError(broken)
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetName(handle): return "Tesla T4"
def nvmlDeviceGetMemoryInfo(handle, version):
    if broken: raise NVMLError(broken)
    return Answer(used=(handle + 1) << 30, total=15 << 30)
def nvmlDeviceGetUtilizationRates(handle):
    if old: raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return Answer(gpu=90 + handle)
def nvmlDeviceGetClockInfo(handle, kind): return 1590
def nvmlDeviceGetPowerUsage(handle): return 30_000 + 35_000 * handle
def nvmlDeviceGetEnforcedPowerLimit(handle): return 70_000
def nvmlDeviceGetCurrentClocksEventReasons(handle):
    if old: raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)
    return 0x44 if hot else 0x4
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
    driver.hot = True  # type: ignore[attr-defined]
    assert reader.loads() == [replace(expected, slowdowns=("too hot (hardware)",))]
    driver.old = True  # type: ignore[attr-defined]
    assert reader.loads() == [replace(expected, percent=None)]
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
