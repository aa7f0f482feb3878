"""Say what a fetched folder holds: the model, the checkpoints and what ``run.json`` tells of the run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.kaggle.untrusted import count_of, dict_of, list_of, number_of, shown, text_of
from nb2ddp.regular_files import json_object

_MAX_BYTES = 1_000_000  # of run.json; ours has some 1,000


def summary(folder: Path, ref: str) -> tuple[list[str], bool]:
    """Return what lies in a fetched folder, in sentences, and whether the run succeeded as far as it says.

    ``run.json`` comes from the kernel and may hold anything.
    """
    lines = list(_findings(folder))
    run = _record(folder / "run.json")
    if run is None:
        lines.append("There is no run.json: the kernel was ended from outside, or is no bundle of nb2ddp.")
        return lines, True
    exit_code = run.get("exit_code")
    if not run or (exit_code is not None and count_of(exit_code) is None):
        lines.append("run.json does not have the shape that a bundle of nb2ddp gives it.")
        return lines, True
    lines.append(_machine(run))
    memory = [mib for mib in map(count_of, list_of(run.get("peak_memory_mib"))[:16]) if mib is not None]
    if memory:
        lines.append(f"Peak memory by GPU: {', '.join(f'{mib} MiB' for mib in memory)}.")
    stopped = dict_of(run.get("stopped"))
    step, steps = count_of(stopped.get("step")), count_of(stopped.get("of"))
    if step is not None and steps is not None:
        lines.append(
            f"The time was up at step {step} of {steps}: "
            f"`nb2ddp push --kaggle --resume-from {ref}` goes on from there."
        )
    if exit_code:
        lines.append(
            f"It failed with exit code {exit_code} in the phase {shown(text_of(run.get('phase')), 40)}: "
            f"{shown(text_of(run.get('error')), 2000)}"
        )
    return lines, not exit_code


@dataclass(frozen=True)
class Ending:
    """How a kernel's run ended, as its output says.

    finished: the training was done. stopped: it was stopped in time, with a checkpoint. error: its own failure, in
    words; empty also where it was ended from outside, or says nothing.
    """

    finished: bool = False
    stopped: bool = False
    error: str = ""
    step: int | None = None
    steps: int | None = None


_FROM_OUTSIDE = ("the kernel was ended from outside", "interrupted")  # the kernel's own words


def ending_of(folder: Path) -> Ending:
    """Return how the run ended whose output lies in a folder; run.json may hold anything."""
    run = _record(folder / "run.json") or {}
    code = count_of(run.get("exit_code")) if run.get("exit_code") is not None else None
    if code == 0:
        stopped = dict_of(run.get("stopped"))
        step, steps = count_of(stopped.get("step")), count_of(stopped.get("of"))
        return Ending(step is None, step is not None, "", step, steps)
    error = shown(text_of(run.get("error")), 2000)
    return Ending(error="" if code is None or error in _FROM_OUTSIDE else error or "it does not say why")


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint below a folder: the Trainer writes its state last."""
    whole = [file.parent for file in _named(folder, "trainer_state.json") if json_object(file)]
    return max((path for path in whole if step_of(path) > 0), key=step_of, default=None)


def hours_of(folder: Path) -> float | None:
    """Return how long the run took whose output lies in a folder; None where it failed or does not tell."""
    run = _record(folder / "run.json") or {}
    seconds = [number_of(value) for value in dict_of(run.get("seconds")).values()]
    known = [value for value in seconds if value is not None and value >= 0]
    return sum(known) / 3600 if known and run.get("exit_code") == 0 else None


def _record(file: Path) -> dict[str, Any] | None:
    """Return run.json, an empty record for one that cannot be read, and None where there is none."""
    return json_object(file, _MAX_BYTES) if file.is_file() else None


def _machine(run: dict[str, Any]) -> str:
    gpus = [shown(text_of(name), 60) for name in list_of(run.get("gpus"))[:16]]
    world_size = count_of(run.get("world_size"))
    count = "?" if world_size is None else world_size
    text = f"{count} process{'' if count == 1 else 'es'} on {', '.join(gpus) or 'the CPU'}"
    phases = [
        f"{shown(phase, 40)} {took:.0f} s"
        for phase, value in list(dict_of(run.get("seconds")).items())[:16]
        if (took := number_of(value)) is not None
    ]
    return f"{text}; {', '.join(phases)}." if phases else f"{text}."


def _findings(folder: Path) -> Iterator[str]:
    adapters = sorted({file.parent for file in _named(folder, "adapter_config.json")})
    finished = [path for path in adapters if not path.name.startswith("checkpoint-")]
    models = sorted({file.parent for end in ("safetensors", "gguf") for file in _named(folder, f"*.{end}")})
    if finished:
        yield f"The adapter is in {_list(finished)}."
    elif adapters:
        newest = max(adapters, key=step_of)
        yield f"No adapter was saved at the end; the last checkpoint is {shown(str(newest))}."
    elif models:
        yield f"The model is in {_list(models)}."
    else:
        yield "There is no adapter and no model in the output."


def _named(folder: Path, pattern: str) -> list[Path]:
    with contextlib.suppress(OSError, RuntimeError):
        return [file for file in folder.rglob(pattern) if file.is_file()]
    return []


def step_of(checkpoint: Path) -> int:
    """Return the step in a checkpoint's name; -1 for a name without one, such as checkpoint-best."""
    found = re.fullmatch(r"checkpoint-(\d{1,12})", checkpoint.name, re.ASCII)
    return int(found[1]) if found else -1


def _list(paths: list[Path]) -> str:
    names = [shown(str(path)) for path in paths]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
