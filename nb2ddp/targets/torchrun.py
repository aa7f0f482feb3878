"""A script that starts torchrun on each machine: several machines, restarts, going on from checkpoints.

https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nb2ddp.errors import OptionError
from nb2ddp.options import option
from nb2ddp.targets import job


@dataclass(frozen=True)
class Torchrun:
    """torchrun's options: the port of the rendezvous, and how often a failed run is started again."""

    title: ClassVar[str] = "torchrun"
    shared_fs: ClassVar[bool] = True
    installs: ClassVar[bool] = False
    rdzv_port: int = option("Port of the rendezvous.", 29500)
    max_restarts: int | None = option(
        "Number of restarts after a failure.",
        otherwise="3; 0 where there is no Trainer to go on from checkpoints",
    )

    def __post_init__(self) -> None:
        job.port("--rdzv-port", self.rdzv_port)
        if self.max_restarts is not None and self.max_restarts < 0:
            raise OptionError(f"--max-restarts {self.max_restarts} has to be 0 or more.")

    def files(self, what: job.Job) -> dict[str, str]:
        return job.files(what, "train_torchrun.sh", self, resumes=True)

    def next_command(self, what: job.Job) -> str:
        if what.max_nodes == 1:
            return "./train_torchrun.sh"
        return "HEAD=node1 ./train_torchrun.sh    (on each machine; node1 is the name of one of them)"
