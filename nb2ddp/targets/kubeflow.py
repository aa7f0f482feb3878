"""A TrainJob for Kubeflow Trainer v2, with the script in it.

Only fields that have been there since the first release of v2 are used:
https://www.kubeflow.org/docs/components/trainer/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nb2ddp.options import option
from nb2ddp.targets import job

_LABEL = r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?"
_LABEL_FORM = "lower-case letters, digits and -, a letter first, 50 characters at most"


@dataclass(frozen=True)
class Kubeflow:
    """Names of the job, its namespace, its runtime and its image."""

    title: ClassVar[str] = "Kubeflow"
    shared_fs: ClassVar[bool] = False  # pods share no disk by themselves
    installs: ClassVar[bool] = True
    name: str = option("Name of the TrainJob.", "train", metavar="NAME")
    namespace: str | None = option("Namespace of the TrainJob.", metavar="NAME")
    runtime: str = option("Training runtime.", "torch-distributed", metavar="NAME")
    image: str | None = option("Container image.", metavar="IMAGE", otherwise="the runtime's")

    def __post_init__(self) -> None:
        for name in ("name", "namespace", "runtime"):
            job.checked(f"--{name}", getattr(self, name), _LABEL, _LABEL_FORM)
        job.checked("--image", self.image, r"[\w][\w./:@-]*", "registry.example.org/me/unsloth:2026.10")

    def files(self, what: job.Job) -> dict[str, str]:
        made = job.files(what, "trainjob.yaml", self, engine="a TrainJob")
        return {"trainjob.yaml": made["trainjob.yaml"]}

    def next_command(self, what: job.Job) -> str:
        return "kubectl apply -f trainjob.yaml"
