"""The runtime module as users get it: one file, joined of its parts, in a folder that holds nothing else."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import py_compile
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.runtime import PARTS, support_module


@functools.cache
def module_folder(*more: str) -> Path:
    """Return a folder for ``sys.path`` from which ``ddp_support`` is imported; it goes with this process.

    A part that changes how every script reads is left out, if it is not among ``more``.
    """
    folder = Path(tempfile.mkdtemp(prefix="nb2ddp-runtime-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / SUPPORT).write_text(
        support_module(frozenset(PARTS) - {"reading_in_turn"} | {*more}), encoding="utf-8"
    )
    py_compile.compile(
        str(folder / SUPPORT), doraise=True
    )  # once, also where Python is told to write no bytecode
    return folder


@functools.cache
def load_module() -> Any:
    """Return the module itself, for tests of what needs no other rank. It needs torch."""
    spec = importlib.util.spec_from_file_location("ddp_support", module_folder() / SUPPORT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["ddp_support"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
