"""The load of each rank's GPU, read from the driver's own library (NVML) through ``nvidia-ml-py``.

The only place that asks for GPU load. Nothing here goes through CUDA: it takes no memory on a GPU, needs no
torch and may be called while others train.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nb2ddp.errors import MonitorError

GIB = 1 << 30

_EVERY_SECONDS = 2.0

# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html. A software power cap (0x4) is
# left out: a GPU that works hard is often at its power limit.
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "too hot (driver)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
_UNKNOWN = "NOT_SUPPORTED FUNCTION_NOT_FOUND INVALID_ARGUMENT NOT_FOUND NO_PERMISSION".split()


@dataclass(frozen=True)
class Load:
    """One rank's GPU now, with everything on it, other programs too. None: the driver does not tell.

    used, total: memory in bytes; used leaves out what the driver reserves, as nvidia-smi does.
    percent: of the last moments (1/6 to 1 second, by the device), those in which any kernel ran. A rank that
        waits in NCCL runs a kernel.
    clock: of the multiprocessors, in MHz. power, power_limit: in watts.
    slowdowns: why the hardware holds its clock down, apart from the usual power limit.
    index: of the whole GPU in this machine, as nvidia-smi counts.
    """

    rank: int
    used: int
    total: int
    percent: int | None = None
    name: str = ""
    clock: int | None = None
    power: float | None = None
    power_limit: float | None = None
    slowdowns: tuple[str, ...] = ()
    index: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU of the machine: NVML's handle, identity and number."""

    handle: Any
    uuid: str
    index: int = 0


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """Return the GPUs that CUDA shows a process, in its order; local rank i takes the i-th.

    visible: CUDA_VISIBLE_DEVICES: indices, UUIDs, or beginnings of UUIDs that fit one GPU. As in CUDA, the list
        ends at the first entry that names nothing. An index counts as NVML counts, by PCI bus; for CUDA this
        holds among GPUs of one kind, or with CUDA_DEVICE_ORDER=PCI_BUS_ID. NCCL has no ranks on MIG devices.
    """
    if visible is None:
        return [*gpus]
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdigit():
            named = gpus[int(entry) :][:1]
        else:
            named = [gpu for gpu in gpus if entry and gpu.uuid.startswith(entry)]
        if len(named) != 1:
            break
        chosen += named
    return chosen


class Reader:
    """A connection to NVML for the GPUs that the ranks see."""

    def __init__(self, visible: str | None, nvml: Any = None) -> None:
        """``visible``: the ranks' CUDA_VISIBLE_DEVICES; ``nvml``: the module to ask, normally ``pynvml``.

        May take seconds where no other program holds the driver.

        Raises:
            MonitorError: there is no driver, or it refuses.
        """
        if nvml is None:
            import pynvml

            nvml = pynvml
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
            gpus = [Gpu(handle, nvml.nvmlDeviceGetUUID(handle), n) for n, handle in enumerate(handles)]
        except nvml.NVMLError as error:
            raise MonitorError(
                f"The GPUs' load is not known: NVIDIA's driver does not answer ({error})."
            ) from None
        self._gpus = visible_gpus(gpus, visible)

    def loads(self) -> list[Load]:
        """Return the load of each GPU that the ranks see, by local rank. Takes milliseconds.

        Raises:
            MonitorError: a GPU cannot be read any more.
        """
        try:
            return [self._load(rank, gpu) for rank, gpu in enumerate(self._gpus)]
        except self._nvml.NVMLError as error:
            raise MonitorError(f"The GPUs' load cannot be read any more ({error}).") from None

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _load(self, rank: int, gpu: Gpu) -> Load:
        nvml, handle = self._nvml, gpu.handle
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle) or 0
        return Load(
            rank,
            memory.used,
            memory.total,
            None if busy is None else busy.gpu,
            name=self._ask("nvmlDeviceGetName", handle) or "",
            clock=self._ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            power=None if power is None else power / 1000,
            power_limit=None if limit is None else limit / 1000,
            slowdowns=tuple(word for bit, word in _SLOWDOWNS.items() if reasons & bit),
            index=gpu.index,
        )

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Return the answer, or None where the device or the driver does not know it."""
        nvml = self._nvml
        try:
            return getattr(nvml, name)(*arguments)
        except nvml.NVMLError as error:
            if error.value not in (getattr(nvml, f"NVML_ERROR_{reason}") for reason in _UNKNOWN):
                raise
        return None


class Watch:
    """Read the load every 2 seconds in a thread of its own; report nothing without NVML."""

    def __init__(self, visible: str | None) -> None:
        """``visible``: the ranks' CUDA_VISIBLE_DEVICES."""
        self._loads: list[Load] = []
        self._ended = threading.Event()
        threading.Thread(target=self._read, args=(visible,), name="nb2ddp-gpus", daemon=True).start()

    def loads(self) -> list[Load]:
        """Return what is known now, one for each rank."""
        return self._loads

    def close(self) -> None:
        self._ended.set()

    def _read(self, visible: str | None) -> None:
        if visible == "":
            return
        with contextlib.suppress(MonitorError), contextlib.closing(Reader(visible)) as reader:
            while not self._ended.is_set():
                self._loads = reader.loads()
                self._ended.wait(_EVERY_SECONDS)
