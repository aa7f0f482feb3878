"""The Python that trains, its torch, and the GPUs with their driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nb2ddp.doctor.machine import NOT_DONE, Gpu, Machine, Torch
from nb2ddp.doctor.outcome import Outcome, command, counted, fail, ok, size, skip, warn

IN_USE = 1 << 30
"""Bytes: a GPU with more than this in use is taken; a desktop or a monitor uses less."""

_TRITON = (7, 0)
_SELECTOR = "https://pytorch.org/get-started/locally/"


def not_on_gpus(machine: Machine) -> str:
    """Return why torch cannot be asked about GPUs here; empty where it can."""
    if machine.settings.cpu:
        return "left out with --cpu"
    return "torch cannot be imported" if machine.torch.failure else ""


def without_gpus(machine: Machine) -> str:
    """Return why there is nothing to check about GPUs; empty where there are any, or should be."""
    driver = machine.driver
    if not (machine.torch.gpus or driver.boards or driver.failure) and not machine.settings.cpu:
        return "no GPU is visible"
    return not_on_gpus(machine)


def torch_imports(machine: Machine) -> Outcome:
    """Check that the Python that trains has a torch, and one for GPUs where there are any."""
    torch, python = machine.torch, machine.settings.python
    if not machine.python_version:
        return fail(
            f"{python} does not work as a Python: {torch.failure}",
            "name the Python that trains with --python",
        )
    where = f"Python {machine.python_version} ({python})"
    if torch.failure.startswith(NOT_DONE):
        return fail(
            f"torch cannot be imported in {where}: {torch.failure}",
            "try again, with a longer --timeout: the first import reads gigabytes from the disk. If it never "
            "ends, look whether `nvidia-smi` hangs too; then only a new start of the machine helps",
        )
    if torch.failure:
        is_missing = "No module named 'torch'" in torch.failure
        install = ["install", "torch"] if is_missing else ["install", "--force-reinstall", "torch"]
        return fail(
            f"torch cannot be imported in {where}: {torch.failure}",
            f"{command(python, '-m', 'pip', *install)} installs it; if another Python is to train, "
            "name it with --python",
        )
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "the CPU alone"
    seen = f"torch {torch.version}, built for {built}, in {where}"
    if not (torch.cuda or torch.hip) and machine.driver.boards:
        boards = counted(len(machine.driver.boards), "GPU")
        newest = f" for CUDA {machine.driver.cuda} or older" if machine.driver.cuda else ""
        return fail(f"{seen}; this machine has {boards}", f"install a build{newest}: {_SELECTOR}")
    return ok(seen)


def gpus_alike(machine: Machine) -> Outcome:
    """Check that there are as many GPUs as processes, that each computes, and that all are alike."""
    torch, boards = machine.torch, machine.driver.boards
    if torch.gpu_failure and (torch.gpus or boards):
        names = ", ".join(board.name for board in boards) or _described(torch.gpus)
        return fail(f"torch cannot use the GPUs here ({names}): {torch.gpu_failure}", _cure(machine))
    if not torch.gpus:
        hidden = "`unset CUDA_VISIBLE_DEVICES`; " if "CUDA_VISIBLE_DEVICES" in machine.environ else ""
        return fail(
            f"no GPU is visible{f' ({torch.gpu_failure})' if torch.gpu_failure else ''}",
            f"{hidden}on Kaggle, set the accelerator to GPU T4 x2; start a container with `--gpus all`; "
            "without GPUs, `nb2ddp doctor --cpu` checks the rest and `nb2ddp push --kaggle` trains elsewhere",
        )
    seen = _described(torch.gpus)
    if len(torch.gpus) < machine.nproc:
        return fail(
            f"{seen}; {counted(machine.nproc, 'process')} are wanted, and each needs a GPU of its own",
            f"use --nproc {len(torch.gpus)}, or make more GPUs visible",
        )
    if len(torch.gpus) == 1:
        return warn(seen, "nothing to do if one GPU is meant; more GPUs are what nb2ddp is for")
    used = torch.gpus[: machine.nproc]
    least, most = min(gpu.memory for gpu in used), max(gpu.memory for gpu in used)
    if len({gpu.name for gpu in used}) > 1 or most > 1.05 * least:
        return warn(
            f"{seen}: not alike",
            f"each step waits for the slowest GPU, and a batch has to fit into {size(least)}{_pick(machine)}",
        )
    return ok(seen)


def _pick(machine: Machine) -> str:
    """Return how to select the largest group of GPUs that are alike; empty where no two are."""
    kinds = [_kind(gpu) for gpu in machine.torch.gpus]
    kind, count = Counter(kinds).most_common(1)[0]
    if count == 1:
        return ""
    names = machine.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(kinds))))).split(",")
    alike = ",".join(name.strip() for name, other in zip(names, kinds, strict=False) if other == kind)
    return f"; CUDA_VISIBLE_DEVICES={alike} takes those that are alike"


def _kind(gpu: Gpu) -> str:
    return f"{gpu.name} ({size(gpu.memory)})"


def _cure(machine: Machine) -> str:
    if machine.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        return "`unset CUDA_VISIBLE_DEVICES`, or name GPUs that `nvidia-smi -L` lists"
    return (
        "look at the lines on the driver and on what runs on the GPUs below; "
        "after a driver update the machine has to start anew"
    )


def _described(gpus: Sequence[Gpu]) -> str:
    """Return the GPUs in words: "2 GPUs, both Tesla T4 (15 GiB)"."""
    kinds = list(dict.fromkeys(map(_kind, gpus)))
    every = {1: "", 2: "both "}.get(len(gpus), "all ")
    return f"{counted(len(gpus), 'GPU')}, {every if len(kinds) == 1 else ''}{' and '.join(kinds)}"


def none_hidden(machine: Machine) -> Outcome:
    """Check whether CUDA_VISIBLE_DEVICES hides GPUs that could train."""
    visible = machine.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return ok("CUDA_VISIBLE_DEVICES is not set, so that no GPU is hidden")
    if not machine.driver.boards:
        return skip(
            f"CUDA_VISIBLE_DEVICES={visible} is set, and there is no list of all GPUs to compare with"
        )
    hidden = len(machine.driver.boards) - len(machine.driver.visible)
    if not hidden:
        return ok(f"CUDA_VISIBLE_DEVICES={visible} hides no GPU")
    seen = f"CUDA_VISIBLE_DEVICES={visible} hides {hidden} of {counted(len(machine.driver.boards), 'GPU')}"
    if machine.settings.nproc and machine.settings.nproc <= len(machine.driver.visible):
        return ok(f"{seen} and leaves enough")
    return warn(seen, "`unset CUDA_VISIBLE_DEVICES` to train on all; each rank finds its own GPU among them")


def driver_fits(machine: Machine) -> Outcome:
    """Check that the driver runs the CUDA that torch was built for.

    Within a major release an older driver does, and a newer driver runs all older releases
    (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
    """
    driver, torch = machine.driver, machine.torch
    if not driver.is_there:
        return skip("there is no nvidia-smi to ask for the driver")
    if driver.failure:
        return fail(
            f"nvidia-smi fails: {driver.failure}",
            "start the machine anew (after an update the loaded driver and its libraries differ), or install "
            "the driver again; in a container, that is up to the host",
        )
    seen = f"driver {driver.version}, for CUDA up to {driver.cuda or '(unknown)'}"
    if not torch.cuda or not driver.cuda:
        return ok(seen)
    wanted, offered = _numbers(torch.cuda), _numbers(driver.cuda)
    if wanted[0] > offered[0] and not torch.gpus:
        return fail(
            f"{seen}; torch {torch.version} needs CUDA {torch.cuda}",
            f"update the driver, or install a torch built for CUDA {offered[0]}.x: {_SELECTOR}",
        )
    runs = "CUDA's compatibility package lets it run" if wanted[0] > offered[0] else "it runs"
    return ok(f"{seen}; {runs} torch's CUDA {torch.cuda}")


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor.partition(".")[0] or 0)


def code_for_gpus(machine: Machine) -> Outcome:
    """Check that torch has code for these GPUs' compute capabilities, and that Triton can compile some.

    Triton's limit is the one that torch names when it refuses to compile (torch/_inductor/exc.py).
    """
    torch = machine.torch
    if not torch.gpus:
        return skip("torch sees no GPU")
    if not torch.cuda or not torch.architectures:
        return skip("this torch does not tell for which GPUs it was built")
    without = [gpu for gpu in torch.gpus if not _has_code(torch, gpu)]
    if without:
        major, minor = without[0].capability
        return fail(
            f"torch {torch.version} has no code for {without[0].name} (sm_{major}{minor}); "
            f"it has {', '.join(torch.architectures)}",
            f"install a torch that has: builds for an older CUDA keep older GPUs, a newer torch knows newer "
            f"ones ({_SELECTOR})",
        )
    for old in torch.gpus:
        if old.capability < _TRITON:
            return warn(
                "{} has compute capability {}.{}".format(old.name, *old.capability),
                "Unsloth and torch.compile need 7.0 or more, for they stand on Triton; plain PEFT and TRL do "
                "not. On Kaggle, take GPU T4 x2",
            )
    capabilities = dict.fromkeys("sm_{}{}".format(*gpu.capability) for gpu in torch.gpus)
    return ok(f"torch has code for {', '.join(capabilities)}")


def _has_code(torch: Torch, gpu: Gpu) -> bool:
    """Return whether torch has code that runs on a compute capability.

    Machine code (sm) runs within a major capability from its minor one on, PTX (compute) on all later GPUs,
    and with an "a" on that very one (CUDA C++ Programming Guide, "Binary" and "PTX Compatibility").
    """
    for kind, major, minor, only in re.findall(
        r"\b(sm|compute)_(\d+)(\d)([af]?)\b", " ".join(torch.architectures)
    ):
        built = int(major), int(minor)
        is_later = gpu.capability > built and (kind == "compute" or gpu.capability[0] == built[0])
        if gpu.capability == built or (is_later and only != "a"):
            return True
    return False


def gpus_free(machine: Machine) -> Outcome:
    """Check whether other processes hold memory on the GPUs that are to train."""
    if not machine.driver.visible:
        return skip("there is no nvidia-smi to ask who uses the GPUs")
    users: dict[str, list[str]] = {}
    for uuid, pid, name in machine.driver.processes:
        users.setdefault(uuid, []).append(f"{name.rpartition('/')[2]}, process {pid}")
    busy = [
        f"GPU {board.index}: {size(board.used)} of {size(board.total)}"
        + (f" ({'; '.join(users[board.uuid])})" if board.uuid in users else "")
        for board in machine.driver.visible
        if board.used > IN_USE
    ]
    if busy:
        return warn(
            f"GPU memory is in use already: {', '.join(busy)}",
            "end what is left of an earlier run (`kill PID`), restart the notebook kernel that holds it, or "
            "take other GPUs with CUDA_VISIBLE_DEVICES; no process named: it runs outside this container",
        )
    return ok("no other process uses GPU memory")


def nccl_there(machine: Machine) -> Outcome:
    """Check that this torch has NCCL, with which GPUs exchange gradients."""
    torch = machine.torch
    if torch.nccl is None:
        return fail(
            f"torch {torch.version} has no NCCL, with which GPUs exchange gradients",
            f"on Linux, install a CUDA build ({_SELECTOR}); Windows has none outside WSL",
        )
    return ok(f"NCCL {torch.nccl}")
