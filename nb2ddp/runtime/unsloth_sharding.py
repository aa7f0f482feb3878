"""Ask Unsloth for the strategy of this script: a copy of the model on each GPU, or a share of it (FSDP)."""

import contextlib
import importlib.metadata
import os
import re
import sys

_FSDP_SINCE = "2026.10.8"  # the first Unsloth whose own FSDP2 runs under torchrun


def _ask_unsloth_for(strategy: str, loads_share: bool) -> None:
    """Set the environment variables that Unsloth reads while it is imported and while it loads the model.

    Raises:
        SystemExit: the environment asks for another strategy; or Unsloth is missing or too old.
    """
    is_sharded = strategy == "fsdp"
    held = "a share of the model" if is_sharded else "a copy of the model"
    own = {
        "UNSLOTH_TP_SIZE": ("", "0", "1"),
        "UNSLOTH_FSDP2": ("", "1", "native") if is_sharded else ("", "0"),
    }
    for name, values in own.items():
        if os.environ.get(name, "") not in values:
            sys.exit(f"{name} is set: this script gives each GPU {held}. Unset it and start again.")
    if not is_sharded:
        return
    for name in ("UNSLOTH_FSDP2_BACKEND", "ACCELERATE_USE_FSDP"):
        if os.environ.get(name, "") not in ("", "0", "native"):
            sys.exit(f"{name} is set: this script lets Unsloth shard the model. Unset it and start again.")
    found = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found = importlib.metadata.version("unsloth")  # it is not imported yet
    if _as_numbers(found) < _as_numbers(_FSDP_SINCE):
        sys.exit(
            f"This script shards the model with Unsloth {_FSDP_SINCE} or newer; installed is {found or 'none'}. "
            f'Run: pip install -U "unsloth>={_FSDP_SINCE}" unsloth_zoo'
        )
    os.environ["UNSLOTH_FSDP2"] = "1"
    if loads_share:
        os.environ.setdefault("UNSLOTH_FSDP2_SHARDED_LOAD", "1")


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
