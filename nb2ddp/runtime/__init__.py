"""The module that travels with every generated script. It imports nothing of nb2ddp's own."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def support_module() -> str:
    """Return the text of `ddp_support.py`, which is written beside the script or into it."""
    return (Path(__file__).parent / "ddp_support.py").read_text(encoding="utf-8")
