"""Run a script as `rank_server` runs it, in a process that torchrun or a shell has started: on GPUs, for one.

[torchrun ...] noting_rank.py script.py

NB2DDP_WATCH is the folder for the notes. With NB2DDP_STEPS each step is noted, and rank 0 and a single process start
with the same state of the random generators. With NB2DDP_APART each rank works in a copy of the script's folder.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import types
from pathlib import Path


def main() -> None:
    script = Path(sys.argv[1]).resolve()
    folder, rank = script.parent, int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ and os.environ.get("NB2DDP_APART"):
        copy = folder / f"rank{rank}"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("rank*", "hf"))
        folder = copy
        os.chdir(folder)
    sys.path[0], sys.argv = str(folder), [str(script)]
    if os.environ.get("NB2DDP_STEPS"):
        import numpy
        import torch

        from tests.support import rank_server

        rank_server._note_steps(os.environ["NB2DDP_WATCH"], rank)
        seed = 12345 + 1000 * rank
        random.seed(seed), numpy.random.seed(seed), torch.manual_seed(seed)
    module = types.ModuleType("__main__")
    module.__file__ = str(script)
    sys.modules["__main__"] = module
    exec(compile(script.read_text(), str(script), "exec"), module.__dict__)


if __name__ == "__main__":
    __name__ = "noting_rank"  # the script is the only "__main__": its frames are told by that name
    main()
