"""Ask a rank's GPU what it can do."""

from typing import Any

import torch


def __getattr__(name: str) -> Any:
    """Give `has_bf16`, which a T4 has not. Each rank asks its own GPU when it is read, and waits for no other.

    Raises:
        AttributeError: there is no such name.
    """
    if name == "has_bf16":
        return not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] >= 8
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
