"""What is said of a run: while it goes on, and in the closing block of one that has succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nb2ddp.launch.outputs import Outputs
from nb2ddp.monitor.nvml import GIB
from nb2ddp.monitor.progress import WORDS, Progress
from nb2ddp.waiting import clock

_MOST_FOLDERS = 8


def facts(progress: Progress, *, running: bool = True) -> list[str]:
    """Return what is known of a run, in a few words each."""
    said = []
    if progress.total:
        said.append(f"step {progress.step} of {progress.total}")
    elif progress.steps:
        said.append(f"step {progress.steps}")
    if running and progress.seconds_left is not None and progress.step < progress.total:
        said.append(f"{clock(progress.seconds_left)} left")
    if progress.loss is not None:
        said.append(f"loss {progress.loss:.4g}")
    if progress.samples_per_second is not None:
        said.append(f"{progress.samples_per_second:.3g} samples/s")
    elif progress.steps_per_second is not None:
        said.append(f"{progress.steps_per_second:.3g} steps/s")
    if running and progress.doing:
        said.append(WORDS.get(progress.doing, progress.doing))
    return said


def closing_facts(
    progress: Progress,
    seconds: float,
    outputs: Outputs,
    *,
    nproc: int = 0,
    peak_memory: Mapping[int, int] | None = None,
    logs: Path | None = None,
) -> list[tuple[str, str]]:
    """Return what is known of a run, as (name, value); what is not known is left out."""
    trained = [record["train_runtime"] for record in progress.records if "train_runtime" in record]
    ranks = f" on {nproc} process{'es' * (nproc > 1)}" if nproc else ""
    of_it = f", {clock(trained[0])} of it training" if trained else ""
    known = [("time", f"{clock(seconds)}{ranks}{of_it}")]
    if progress.steps:
        speed = progress.samples_per_second
        batch = f", {progress.batch} sample{'s' * (progress.batch > 1)} each" if progress.batch else ""
        known.append(("steps", f"{progress.steps}{batch}" + (f", {speed:.3g} samples/s" if speed else "")))
    losses = [loss for _, loss in progress.curve()]
    if losses:
        known.append(("loss", " -> ".join(f"{loss:.4g}" for loss in dict.fromkeys((losses[0], losses[-1])))))
    if progress.replicas:
        known.append(("ranks", progress.replicas))
    if peak_memory:
        each = ", ".join(f"rank {rank} {size / GIB:.1f} GiB" for rank, size in peak_memory.items())
        known.append(("GPU memory", f"at most {each}"))
    if outputs.output_files:
        known.append(("written", _written(outputs)))
    if logs is not None:
        known.append(("logs", str(logs)))
    if outputs.how_to_load:
        known.append(("load it", outputs.how_to_load))
    return known


def _written(outputs: Outputs) -> str:
    folders = [
        f"{path}/ ({count} file{'' if count == 1 else 's'})" if path.is_dir() else str(path)
        for path, count in outputs.folders
    ]
    more = len(folders) - _MOST_FOLDERS
    return ", ".join(folders[:_MOST_FOLDERS]) + (f" and {more} more" if more > 0 else "")
