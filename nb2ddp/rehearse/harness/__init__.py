"""What runs inside the rehearsed processes: it notes what they do, and replaces what a laptop does not have.

`warden` starts each rank with the folder `pythonpath` on PYTHONPATH; there, Python finds `sitecustomize`,
which imports this package by its place. It imports the standard library and its own modules alone until the
script imports torch, Transformers or Unsloth, and no other part of nb2ddp ever.
"""

from __future__ import annotations

_PARTS = "watch replace gpus models data compat draws".split()
"""Modules with ``PATCHES`` for those that the script imports, in the order in which they are applied."""


def begin() -> None:
    """Patch this process, which has just started, before the script runs."""
    import importlib
    import random

    from nb2ddp.rehearse.harness import imports, notes

    notes.begin()
    random.seed(notes.SEED)
    patches: dict[str, list[imports.Patch]] = {}
    for part in _PARTS:
        module = importlib.import_module(f"{__name__}.{part}")
        getattr(module, "begin", lambda: None)()
        for name, patch in module.PATCHES.items():
            patches.setdefault(name, []).append(patch)
    imports.begin(patches)
