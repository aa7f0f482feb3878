"""Where a converted script can run: each module makes the files that one place needs."""

from __future__ import annotations

from typing import ClassVar, Protocol

from nb2ddp.targets.accelerate import Accelerate
from nb2ddp.targets.job import Job
from nb2ddp.targets.kubeflow import Kubeflow
from nb2ddp.targets.slurm import Slurm
from nb2ddp.targets.torchrun import Torchrun


class Target(Protocol):
    """What starts a job, with its own options.

    shared_fs: whether the machines share a disk where nothing else is said.
    """

    shared_fs: ClassVar[bool]

    def files(self, what: Job) -> dict[str, str]:
        """The files by name. Raises EmitError for a job that cannot run there."""

    def next_command(self, what: Job) -> str:
        """What to type in the folder of the files."""


TARGETS: dict[str, type[Torchrun] | type[Slurm] | type[Accelerate] | type[Kubeflow]] = {
    "torchrun": Torchrun,
    "slurm": Slurm,
    "accelerate": Accelerate,
    "kubeflow": Kubeflow,
}
"""The targets of ``nb2ddp emit`` by name."""
