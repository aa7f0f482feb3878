"""A configuration file for ``accelerate launch``.

https://huggingface.co/docs/accelerate/package_reference/cli#accelerate-launch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import OptionError
from nb2ddp.options import option
from nb2ddp.targets import job


@dataclass(frozen=True)
class Accelerate:
    """Where the first machine is, by the names that Accelerate's configuration has for it."""

    title: ClassVar[str] = "accelerate"
    shared_fs: ClassVar[bool] = True
    installs: ClassVar[bool] = False
    main_process_ip: str | None = option("Name or address of the first machine.", metavar="HOST")
    main_process_port: int = option("Port on the first machine.", 29500)

    def __post_init__(self) -> None:
        job.checked("--main-process-ip", self.main_process_ip, r"[A-Za-z0-9][\w.:-]*", "10.0.0.1 or node1")
        job.port("--main-process-port", self.main_process_port)

    def files(self, what: job.Job) -> dict[str, str]:
        made = job.files(what, "accelerate.yaml", self, engine="accelerate launch")
        if what.max_nodes > 1 and self.main_process_ip is None:
            raise OptionError("--main-process-ip is missing: the name or address of the first machine.")
        return made

    def next_command(self, what: job.Job) -> str:
        if what.max_nodes == 1:
            return f"accelerate launch --config_file accelerate.yaml {SCRIPT}"
        others = f"    (on each machine, with its own number from 0 to {what.max_nodes - 1})"
        return f"accelerate launch --config_file accelerate.yaml --machine_rank 0 {SCRIPT}{others}"
