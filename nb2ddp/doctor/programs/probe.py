"""Report what this Python has installed: ``python probe.py FOLDER PACKAGE... -- IMPORT...``.

Prints lines of JSON, each as soon as it is known, so that a torch that brings the process down does not take
the rest along:

    {"python": "3.12.3", "environment": {markers of PEP 508}, "missing": [IMPORTs that are not there],
     "installed": {name: version}, "requires": {PACKAGE: [PEP 508 texts]}}
    {"torch": {...}}    or    {"torch_failure": "ModuleNotFoundError: ..."}

FOLDER is where the script lies whose IMPORTs are looked for; "" for none.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import sys
from importlib import metadata
from typing import Any


def main(folder: str, packages: list[str], imports: list[str]) -> None:
    sys.path[:1] = [folder] if folder else []  # as for a script that lies there
    installed, requires = distributions(packages)
    answer: dict[str, Any] = {
        "python": platform.python_version(),
        "environment": environment(),
        "missing": [name for name in imports if not is_there(name)],
        "installed": installed,
        "requires": requires,
    }
    print(json.dumps(answer), flush=True)
    try:
        answer = {"torch": torch_here()}
    except (Exception, SystemExit) as error:  # whatever a broken install comes up with
        answer = {"torch_failure": in_a_sentence(error)}
    print(json.dumps(answer), flush=True)


def distributions(packages: list[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the versions of all distributions, and the requirements of ``packages``.

    Of several with one name the first on the path counts, as it does for imports.
    """
    installed: dict[str, str] = {}
    requires: dict[str, list[str]] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if not name:  # what a broken or half-removed install leaves behind
            continue
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name not in installed:
            installed[name] = distribution.version
            if name in packages:
                requires[name] = distribution.requires or []
    return installed, requires


def environment() -> dict[str, str]:
    """Return the environment markers of PEP 508; `packaging` would take those of its own Python."""
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def torch_here() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "architectures": torch.cuda.get_arch_list(),
        "nccl": nccl_version(torch),
        "gpus": [],
        "gpu_failure": "",
    }
    try:
        torch.cuda.init()  # says why there is no GPU, where device_count() says 0
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            facts["gpus"].append([gpu.name, gpu.total_memory, gpu.major, gpu.minor])
        for index in range(len(facts["gpus"])):
            torch.ones(8, device=f"cuda:{index}").sum().item()
    except Exception as error:
        facts["gpu_failure"] = in_a_sentence(error)
    return facts


def nccl_version(torch: Any) -> str | None:
    if not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        return None
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:
        return "of an unknown version"


def in_a_sentence(error: BaseException) -> str:
    """Return the first sentence of an exception; torch appends pages on how to debug CUDA."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].split('. ')[0]}" if text else type(error).__name__


if __name__ == "__main__":
    border = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2:border], sys.argv[border + 1 :])
