"""Check the environment of the training: variables, port, shared memory, disk, Kaggle's credentials."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from nb2ddp.doctor.group import is_p2p_off
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.outcome import Outcome, fail, ok, size, skip, warn
from nb2ddp.errors import CredentialsError, install_command
from nb2ddp.launch.command import LAUNCHER_VARIABLES

DEFAULT_PORT = 29500
"""The default port of the rendezvous: torchrun without --standalone, Accelerate and plain ``python``."""

_SHARED_MEMORY = Path("/dev/shm")
_MIB, _GIB = 1 << 20, 1 << 30
_NO_OPS = ("UNSLOTH_ENABLE_MULTIGPU",)  # forks of Unsloth read it, Unsloth does not


def variables_clean(machine: Machine) -> Outcome:
    """Check for variables that guides tell people to set by hand, and that do harm or nothing."""
    environ = machine.environ
    left = sorted(LAUNCHER_VARIABLES & environ.keys())
    if left:
        return warn(
            f"{', '.join(left)} {'is' if len(left) == 1 else 'are'} set in this shell",
            f"`unset {' '.join(left)}`: torchrun sets them for each rank, and with them plain `python "
            "train_ddp.py` waits for ranks that are never started",
        )
    for name in _NO_OPS:
        if name in environ:
            return warn(
                f"{name} is set, and Unsloth knows no such switch", f"`unset {name}`; it changes nothing"
            )
    if is_p2p_off(environ):
        return warn(
            "NCCL_P2P_DISABLE=1 is set: the GPUs exchange gradients through the memory of the machine",
            "try `env -u NCCL_P2P_DISABLE nb2ddp doctor`; if the all-reduce works so, unset it for speed",
        )
    return ok("no variable is set that torchrun sets itself")


def port_free(machine: Machine) -> Outcome:
    """Check whether the ranks' usual meeting place is free. ``nb2ddp run`` and ``torchrun --standalone`` do not
    need it: they take any free port."""
    text = machine.environ.get("MASTER_PORT", "")
    port = int(text) if text.isdigit() and 0 < int(text) < 1 << 16 else DEFAULT_PORT
    found: list[Any] = []
    by = end = ""
    with contextlib.suppress(psutil.Error):
        found = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        found = [connection for connection in found if connection.laddr.port == port]
        if pid := next((connection.pid for connection in found if connection.pid), None):
            by = f" by {psutil.Process(pid).name()}, process {pid}"
            end = f", or `kill {pid}` if that is left of an earlier run"
    if not found:
        return ok(f"port {port} is free")
    return warn(
        f"port {port} is taken{by}",
        "`nb2ddp run` and `torchrun --standalone` take a free one by themselves; else add `torchrun "
        f"--master-port {port + 1}` or `accelerate launch --main_process_port {port + 1}`{end}",
    )


def shared_memory(machine: Machine) -> Outcome:
    """Check that /dev/shm is large enough for NCCL and for data loader workers.

    NCCL's guide asks for 1 GiB in containers, which get 64 MiB by default; NCCL does not even start without
    some 4 MiB for each connection (docs.nvidia.com/deeplearning/nccl, "Troubleshooting").
    """
    try:
        disk = shutil.disk_usage(_SHARED_MEMORY)
    except OSError:
        return skip(f"there is no {_SHARED_MEMORY} on this system")
    seen = f"{_SHARED_MEMORY} has {size(disk.free)} free of {size(disk.total)}"
    to_do = (
        "NCCL and data loader workers share memory there: start the container with `--shm-size=1g` or more "
        "(or `--ipc=host`), or, as root, `mount -o remount,size=1g /dev/shm`"
    )
    if disk.total >= _GIB and disk.free < _GIB:
        to_do = f"something fills it: look at {_SHARED_MEMORY}, and delete what is left of earlier runs"
    if disk.free < 16 * _MIB:
        return fail(seen, to_do)
    return warn(seen, to_do) if disk.free < _GIB else ok(seen)


def disk_free(machine: Machine) -> Outcome:
    """Check that the disk has room for checkpoints here, and for models in the Hugging Face cache."""
    places = {"here": Path.cwd(), "for models": _cache(machine.environ)}
    free: dict[int, tuple[int, list[str]]] = {}
    for what, path in places.items():
        there = next(parent for parent in (path, *path.parents) if parent.exists())
        if not os.access(there, os.W_OK):
            return fail(
                f"{there} cannot be written ({what})", "work in a folder that is yours, or set HF_HOME"
            )
        device = there.stat().st_dev
        free.setdefault(device, (shutil.disk_usage(there).free, []))[1].append(f"{what} ({path})")
    seen = "; ".join(f"{size(count)} of disk free {' and '.join(names)}" for count, names in free.values())
    least = min(count for count, _ in free.values())
    to_do = (
        "a model of 7B parameters takes 15 GiB in 16 bit and 6 GiB in 4 bit, and checkpoints come on top: "
        "delete old checkpoints, clean the cache (`hf cache ls`, `hf cache rm`), or set HF_HOME to a "
        "larger disk"
    )
    if least < 5 * _GIB:
        return fail(seen, to_do)
    return warn(seen, to_do) if least < 10 * _GIB else ok(seen)


def _cache(environ: Mapping[str, str]) -> Path:
    """Return the folder in which huggingface_hub keeps models."""
    general = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{general}/huggingface"
    return Path(environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser().absolute()


def kaggle_credentials(machine: Machine) -> Outcome:
    """Check that `nb2ddp push` would find credentials. Nothing is sent: they may have expired."""
    if importlib.util.find_spec("kaggle") is None:
        return skip(
            "the client is not installed; only `nb2ddp push` needs it",
            f"`{install_command('kaggle')}`",
        )
    from nb2ddp.kaggle.credentials import credentials_known_here

    try:
        source = credentials_known_here()
    except CredentialsError as error:
        first = re.split(r"[.;:](?:\s|$)", str(error))[0]
        return warn(f"Kaggle: {first}", f"`{install_command('kaggle')}` brings all that `nb2ddp push` needs")
    if source is None:
        return warn(
            "Kaggle: no credentials on this machine; only `nb2ddp push` needs them",
            "make a token at https://www.kaggle.com/settings/api and put it into ~/.kaggle/access_token, or "
            "run `kaggle auth login`",
        )
    return ok(f"Kaggle: credentials in {source} (not tried out)")
