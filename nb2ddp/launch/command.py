"""The torchrun command of a run, the environment that it gets, and the GPUs that it can see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nb2ddp.errors import LaunchError

LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK".split()
)
"""What torchrun sets for each rank."""

_OUTPUT_REASON = "nb2ddp writes the output of the ranks; its folder is set with --log-dir before the --"
_START_REASON = "the script is started as a file, with Python"
_OUTPUT = (
    "log-dir redirects tee local-ranks-filter logs-specs duplicate-stdout-filters duplicate-stderr-filters"
)
_REFUSED_OPTIONS = {
    "--nproc-per-node": "the number of processes is set with --nproc before the --",
    **{f"--{name}": _OUTPUT_REASON for name in _OUTPUT.split()},
    **dict.fromkeys(("--module", "--no-python", "--run-path"), _START_REASON),
}
_REFUSED_SHORT = {"-r": "--redirects", "-t": "--tee", "-m": "--module"}
_RENDEZVOUS_OPTIONS = ("--nnodes", "--node-rank", "--rdzv-", "--master-")


def torchrun_command(
    script: Path,
    *,
    nproc: int,
    torchrun_options: Sequence[str] = (),
    python: str = sys.executable,
    guard: Sequence[str] = (),
    error_dir: Path | None = None,
    runner: Path | None = None,
) -> list[str]:
    """Return the command that starts ``script`` on ``nproc`` processes.

    Without ``guard`` and ``error_dir`` this is what one would type by hand. ``guard`` is a command that
    torchrun starts for each rank in place of Python, with Python's command line behind it. ``error_dir``
    is where torchrun keeps the folders with the ranks' error.json. ``runner`` is a Python program that gets
    the script as its argument, and runs it. ``--standalone`` is left out when
    ``torchrun_options`` set the rendezvous themselves (several machines).

    Raises LaunchError for ``nproc`` below 1 and for options that would change what nb2ddp itself sets.
    """
    if nproc < 1:
        raise LaunchError(f"The number of processes must be at least 1, not {nproc}.")
    names = [option.split("=")[0].replace("_", "-") for option in torchrun_options]
    for name, option in zip(names, torchrun_options, strict=True):
        if reason := _refusal(name):
            raise LaunchError(f"The torchrun option {option} cannot be used here: {reason}.")
    standalone = [] if any(name.startswith(_RENDEZVOUS_OPTIONS) for name in names) else ["--standalone"]
    command = [python, "-m", "torch.distributed.run", *standalone, f"--nproc_per_node={nproc}"]
    command += [*([f"--log-dir={error_dir}"] if error_dir else []), *torchrun_options]
    programs = [*([str(runner)] if runner else []), str(script)]
    if not guard:
        return [*command, *programs]
    # torchrun fills in ${local_rank} in what it starts; a dollar in a path has to be doubled.
    started = [argument.replace("$", "$$") for argument in (*guard, python, "-u", *programs)]
    return [*command, "--no-python", *started]


def takes_several_hosts(torchrun_options: Sequence[str]) -> bool:
    """Return whether ranks of other hosts take part in this run."""
    # torchrun takes shortened names too
    counts = re.findall(r"(?<!\S)--nn[a-z]*[= ](?:\d+:)?(\d+)(?!\S)", " ".join(torchrun_options))
    return bool(counts) and counts[-1] != "1"


def _refusal(name: str) -> str | None:
    if name.startswith("--"):  # torchrun takes shortened names too
        matches = [reason for option, reason in _REFUSED_OPTIONS.items() if option.startswith(name)]
        return matches[0] if matches and len(name) > 4 else None
    return _REFUSED_OPTIONS.get(_REFUSED_SHORT.get(name[:2], ""))


def torchrun_environment(
    base: Mapping[str, str],
    *,
    nproc: int,
    cpu: bool,
    cores: int | None = None,
    torchrun_options: Sequence[str] = (),
) -> dict[str, str]:
    """Return the environment to run torchrun in, made from ``base`` (normally ``os.environ``).

    Shares ``cores`` (default: the CPU cores this process may use) among the processes through
    OMP_NUM_THREADS, unless ``base`` sets it. ``cpu`` hides the GPUs. Output is unbuffered. All ranks hash
    strings alike, so that a set of labels has one order. With restarts
    among ``torchrun_options`` each attempt gets a TCPStore of its own: torchrun's would still hold the keys
    of the attempt before, so that waits pass at once and gloo reads old addresses.
    """
    environment = {**base, "PYTHONUNBUFFERED": "1"}
    if cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if any(option.replace("_", "-").startswith("--max-restarts") for option in torchrun_options):
        environment.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // nproc)))
    environment.setdefault("PYTHONHASHSEED", "0")
    return environment


def visible_gpus(python: str = sys.executable, stopped: Callable[[], bool] = lambda: False) -> int:
    """Return how many GPUs the torch of ``python`` sees, with CUDA_VISIBLE_DEVICES taken into account.

    Asks in a process of its own, which takes as long as importing torch does (seconds). Ctrl-C ends it too:
    ``stopped`` tells that, and then the answer is 0.
    Raises LaunchError when that Python has no working torch.
    """
    command = [python, "-c", "import torch; print(torch.cuda.device_count())"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LaunchError(f"Python cannot be started as {python}: {error.strerror}.") from None
    try:
        return int(answer.stdout.split()[-1])
    except (IndexError, ValueError):
        if stopped():
            return 0
        reason = (answer.stderr.strip() or "no answer").splitlines()[-1]
        raise LaunchError(
            f"{python} cannot import torch, which is needed to run the script ({reason})."
        ) from None
