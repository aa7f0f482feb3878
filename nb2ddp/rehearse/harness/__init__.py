"""What runs inside the rehearsed processes: it notes what they do, and replaces what a laptop does not have.

`warden` starts each rank with the folder `pythonpath` on PYTHONPATH; there, Python finds `sitecustomize`,
which imports this package by its place. It imports the standard library and its own modules alone until the
script imports torch, Transformers or Unsloth, and no other part of nb2ddp ever.
"""

from __future__ import annotations


def begin() -> None:
    """Patch this process, which has just started, before the script runs."""
    import random

    from nb2ddp.rehearse.harness import (
        compat,
        data,
        draws,
        gpus,
        imports,
        models,
        notes,
        ranks,
        replace,
        vllm,
        watch,
        written,
    )

    notes.begin()
    random.seed(models.SEED)
    for module in (watch, written, replace, draws, vllm):
        module.begin()
    patches: dict[str, list[imports.Patch]] = {}
    for module in (watch, written, replace, gpus, ranks, models, data, compat, vllm, draws):
        for name, patch in module.PATCHES.items():
            patches.setdefault(name, []).append(patch)
    imports.begin(patches)
