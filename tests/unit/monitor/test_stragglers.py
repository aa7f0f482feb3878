"""Which rank the others wait for, by its GPU or its CPU, and the pace of a run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from nb2ddp.monitor.nvml import Load
from nb2ddp.monitor.observer import Pace
from nb2ddp.monitor.samples import Sample, straggler

Start = Callable[..., "subprocess.Popen[bytes]"]


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
