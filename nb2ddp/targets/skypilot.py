"""A task for SkyPilot, which rents the machines in a cloud, starts torchrun on them and gives them back.

https://docs.skypilot.co/en/latest/reference/yaml-spec.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nb2ddp.options import option
from nb2ddp.targets import job


@dataclass(frozen=True)
class Skypilot:
    """What is rented: the kind of GPU, and where; by default the cheapest place that SkyPilot finds."""

    title: ClassVar[str] = "SkyPilot"
    shared_fs: ClassVar[bool] = False  # rented machines share no disk
    installs: ClassVar[bool] = True
    accelerator: str = option("Kind of GPU, as `sky gpus list` names it.", "L4", metavar="NAME")
    infra: str | None = option(
        "Cloud, region or Kubernetes context.", metavar="PLACE", otherwise="the cheapest"
    )
    image_id: str | None = option(
        "Machine image or docker:IMAGE.", metavar="IMAGE", otherwise="SkyPilot's own"
    )

    def __post_init__(self) -> None:
        job.checked("--accelerator", self.accelerator, r"[A-Za-z][\w.-]*", "L4, H100 or A100-80GB")
        job.checked(
            "--infra", self.infra, r"[a-z][\w.-]*(/[\w.*-]+)*", "aws, gcp/us-central1 or k8s/my-context"
        )
        job.checked(
            "--image-id", self.image_id, r"[\w][\w./:@-]*", "docker:registry.example.org/me/unsloth:2026.10"
        )

    def files(self, what: job.Job) -> dict[str, str]:
        return job.files(what, "task.yaml", self, engine="SkyPilot")

    def next_command(self, what: job.Job) -> str:
        return "sky launch -c train task.yaml"
