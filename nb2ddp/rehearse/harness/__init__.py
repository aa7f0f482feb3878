"""What runs inside the rehearsed processes: it notes what they do, and replaces what a laptop does not have.

`warden` starts each rank with this folder on PYTHONPATH; there, Python finds `sitecustomize`. Nothing here
needs more than the standard library until the script itself imports torch, Transformers or Unsloth.
"""

from __future__ import annotations


def begin() -> None:
    """Take up the work in a process that has just started."""
    import random

    from nb2ddp.rehearse.harness import compat, data, imports, models, notes, replace, vllm, watch

    notes.begin()
    random.seed(models.SEED)
    watch.begin()
    replace.begin()
    vllm.begin()
    patches: dict[str, list[imports.Patch]] = {}
    for module in (watch, replace, models, data, compat, vllm):
        for name, patch in module.PATCHES.items():
            patches.setdefault(name, []).append(patch)
    imports.begin(patches)
