"""Turn a single-GPU fine-tuning notebook into a DDP script that trains the same run on N GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Conversion", "convert"]

if TYPE_CHECKING:
    from nb2ddp.conversion import Conversion, convert


def __getattr__(name: str) -> Any:
    """Load the converter when it is first used: ``import nb2ddp`` alone stays light."""
    if name in __all__:
        import importlib

        return getattr(importlib.import_module("nb2ddp.conversion"), name)
    raise AttributeError(f"module 'nb2ddp' has no attribute {name!r}")
