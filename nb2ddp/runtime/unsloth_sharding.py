"""Ask Unsloth for the strategy of this script: a copy of the model on each GPU, or a share of it (FSDP)."""

import os
import re
import sys

_FSDP_SINCE = "2026.10.8"  # the first Unsloth whose own FSDP2 runs under torchrun


def _ask_unsloth_for(strategy: str, loads_share: bool) -> None:
    """Set the environment variables that Unsloth reads while it is imported and while it loads the model.

    Raises:
        SystemExit: the environment asks for another strategy; or Unsloth is missing or too old.
    """
    size = os.environ.get("UNSLOTH_TP_SIZE", "")
    if size not in ("", "0", "1"):
        sys.exit(
            f"UNSLOTH_TP_SIZE is set: this script gives each GPU {_HELD[strategy]}. Unset it and start again."
        )
    asked = os.environ.get("UNSLOTH_FSDP2", "")
    if strategy != "fsdp":
        if asked not in ("", "0"):
            sys.exit(
                f"UNSLOTH_FSDP2 is set: this script gives each GPU {_HELD['ddp']}. Unset it and start again."
            )
        return
    if asked not in ("", "1", "native"):
        sys.exit(
            f"UNSLOTH_FSDP2={asked} is set: this script gives each GPU {_HELD['fsdp']}. Unset it and start again."
        )
    for name in ("UNSLOTH_FSDP2_BACKEND", "ACCELERATE_USE_FSDP"):
        if os.environ.get(name, "") not in ("", "0", "native"):
            sys.exit(f"{name} is set: this script lets Unsloth shard the model. Unset it and start again.")
    found = _unsloth_version()
    if _as_numbers(found) < _as_numbers(_FSDP_SINCE):
        sys.exit(
            f"This script shards the model with Unsloth {_FSDP_SINCE} or newer; installed is {found or 'none'}. "
            f'Run: pip install -U "unsloth>={_FSDP_SINCE}" unsloth_zoo'
        )
    os.environ["UNSLOTH_FSDP2"] = "1"
    if loads_share:
        os.environ.setdefault("UNSLOTH_FSDP2_SHARDED_LOAD", "1")


_HELD = {"ddp": "a copy of the model", "fsdp": "a share of the model"}


def _unsloth_version() -> str:
    """Return the version of the installed Unsloth without importing it; "" where none is."""
    import importlib.metadata

    try:
        return importlib.metadata.version("unsloth")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
