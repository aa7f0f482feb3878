"""Where a converted script can run: each module makes the files that one place needs.

A new target is a file here, one line in `TARGETS`, and its tests in tests/unit/targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, ClassVar, Protocol

from nb2ddp.targets.accelerate import Accelerate
from nb2ddp.targets.job import Job
from nb2ddp.targets.kubeflow import Kubeflow
from nb2ddp.targets.skypilot import Skypilot
from nb2ddp.targets.slurm import Slurm
from nb2ddp.targets.torchrun import Torchrun


class Target(Protocol):
    """What starts a job: a dataclass with its own options, each of them an `options.option`.

    title: its name in the sections of `nb2ddp emit --help`.
    shared_fs: whether the machines share a disk where nothing else is said.
    installs: whether the launcher runs the install step.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    title: ClassVar[str]
    shared_fs: ClassVar[bool]
    installs: ClassVar[bool]

    def __init__(self, **options: Any) -> None: ...

    def files(self, what: Job) -> dict[str, str]:
        """Return the files by name. Raises EmitError for a job that cannot run there."""

    def next_command(self, what: Job) -> str:
        """Return what to type in the folder of the files."""


TARGETS: Mapping[str, type[Target]] = {
    "torchrun": Torchrun,
    "slurm": Slurm,
    "accelerate": Accelerate,
    "kubeflow": Kubeflow,
    "skypilot": Skypilot,
}
"""The targets of ``nb2ddp emit`` by name; the command's options are made from them."""
