"""Observe one process of a run from inside, without a change to its script.

`watch` is called in a freshly forked process before the script is executed. It notes, in a JSON file that is
written when the process ends in whatever way:

- for each optimizer step: projections of gradients and parameters onto fixed vectors, and a digest of the
  parameters' bytes, so that ranks can be compared bit for bit;
- each line printed, with the line of the script that printed it;
- the exception that ended the script.
"""

from __future__ import annotations

import atexit
import faulthandler
import hashlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

EPSILON = (
    1e-4  # of Adam and its kin: at 1e-8 a gradient that is zero but for rounding moves a parameter by lr
)


class Watch:
    """What one process has done so far."""

    def __init__(self, file: Path, script: Path) -> None:
        self.file, self.script = file, str(script)
        self.steps: list[dict[str, Any]] = []
        self.printed: list[tuple[int, str]] = []
        self.error = self.where = ""
        self._gradients: list[float] = []
        self._vectors: dict[int, torch.Tensor] = {}

    def _project(self, tensors: list[torch.Tensor]) -> list[float]:
        if not tensors:
            return [0.0, 0.0, 0.0]
        flat = torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])
        if flat.numel() not in self._vectors:
            self._vectors[flat.numel()] = torch.cos(
                torch.arange(2 * flat.numel(), dtype=torch.float64).view(2, -1) ** 1.5
            )
        return [float(flat.norm()), *(self._vectors[flat.numel()] @ flat).tolist()]

    def before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            if group.get("eps") == 1e-8:
                group["eps"] = EPSILON
        self._gradients = self._project([p.grad for p in _parameters(optimizer) if p.grad is not None])

    def after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = _parameters(optimizer)
        digest = hashlib.sha256()
        for parameter in parameters:
            digest.update(parameter.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        self.steps.append(
            {
                "gradient": self._gradients,
                "parameters": self._project(parameters),
                "digest": digest.hexdigest()[:16],
                "lr": [float(group["lr"]) for group in optimizer.param_groups],
            }
        )

    def dump(self) -> None:
        state = {"steps": self.steps, "printed": self.printed, "error": self.error, "where": self.where}
        self.file.write_text(json.dumps(state))


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


class _Out(io.TextIOBase):
    """A standard output that notes each line and the line of the script that began it."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._line, self._begun = watch, "", 0

    encoding = "utf-8"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, text: str) -> int:
        os.write(1, text.encode())
        if not self._line:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != self._watch.script:
                frame = frame.f_back
            self._begun = frame.f_lineno if frame is not None else 0
        *lines, self._line = (self._line + text).split("\n")
        self._watch.printed.extend((self._begun, line) for line in lines)
        return len(text)


def watch(file: Path, script: Path) -> Watch:
    """Watch this process from now on."""
    from torch.optim import optimizer

    watching = Watch(file, script)
    optimizer.register_optimizer_step_pre_hook(watching.before_step)
    optimizer.register_optimizer_step_post_hook(watching.after_step)
    sys.stdout = sys.__stdout__ = _Out(watching)  # type: ignore[assignment,misc]
    leave = os._exit

    def note_and_leave(code: int) -> None:
        watching.dump()
        leave(code)

    os._exit = note_and_leave  # type: ignore[assignment]
    atexit.register(watching.dump)
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=True)
    return watching
