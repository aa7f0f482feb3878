"""A batch file for SLURM, which stops before its time limit with a checkpoint and queues itself again.

https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from nb2ddp.errors import OptionError
from nb2ddp.options import option
from nb2ddp.targets import job

_NAME, _NAME_FORM = r"[A-Za-z0-9][\w.@+-]*", "a name of letters, digits, _ . @ + and -"


@dataclass(frozen=True)
class Slurm:
    """sbatch's options, by their own names.

    signal_seconds: SLURM may send the signal a minute early.
    """

    title: ClassVar[str] = "SLURM"
    shared_fs: ClassVar[bool] = True
    installs: ClassVar[bool] = False
    time: str = option("Time limit of the job.", "08:00:00")
    job_name: str = option("Name of the job.", "train", metavar="NAME")
    partition: str | None = option("Partition that the job runs in.", metavar="NAME")
    account: str | None = option("Account that the job is charged to.", metavar="NAME")
    mem: str | None = option("Memory of a node, such as 64G.")
    cpus_per_task: int | None = option("Number of CPU cores of a node.")
    signal_seconds: int = option("Stop with a checkpoint this many seconds before the time limit.", 300)
    module: Sequence[str] = option("Environment module to load; may be repeated.", (), metavar="NAME")
    container_image: str | None = option(
        "Container image for srun (needs the Pyxis plugin).", metavar="IMAGE"
    )

    def __post_init__(self) -> None:
        job.checked(
            "--time", self.time, r"(\d+-)?\d{1,3}(:\d{1,2}){0,2}", "30 (minutes), 08:00:00 or 2-12:00"
        )
        job.checked("--mem", self.mem, r"\d+[KMGT]?", "64G")
        for name in ("job_name", "partition", "account"):
            job.checked(f"--{name.replace('_', '-')}", getattr(self, name), _NAME, _NAME_FORM)
        for name in self.module:
            job.checked("--module", name, r"[\w.+/-]+", "cuda/13.0")
        job.checked("--container-image", self.container_image, r"[^\s'\"\\]+", "an image's name, or a path")
        if self.signal_seconds < 1 or (self.cpus_per_task is not None and self.cpus_per_task < 1):
            raise OptionError("--signal-seconds and --cpus-per-task have to be at least 1.")

    def files(self, what: job.Job) -> dict[str, str]:
        return job.files(what, "train.sbatch", self, engine="SLURM", resumes=True)

    def next_command(self, what: job.Job) -> str:
        return "sbatch train.sbatch"
