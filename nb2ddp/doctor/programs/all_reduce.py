"""One rank of an all-reduce, started by torchrun: ``all_reduce.py FOLDER BACKEND SECONDS``.

Leaves ``FOLDER/rank<i>.json``, which is written again at each stage, so that a rank that hangs has told how
far it came: {"stage": "started" | "joined" | "done" | "failed"}, at the end with {"wrong": elements with a
wrong sum, "bytes": of the tensor, "seconds": for one all-reduce} or {"error": one line}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any


def main(folder: str, backend: str, seconds: float) -> int:
    note = Path(folder, f"rank{os.environ['RANK']}.json")

    def tell(stage: str, **facts: object) -> None:
        unfinished = note.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"stage": stage, **facts}))
        unfinished.replace(note)

    try:
        import torch
        import torch.distributed as dist

        tell("started")
        local_rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cpu" if backend == "gloo" else f"cuda:{local_rank}")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
        tell("joined")
        tell("done", **measure(torch, dist, device))
        dist.barrier()  # no rank leaves while another still reads from it
        if device.type == "cuda":
            dist.destroy_process_group()
    except Exception as error:
        text = str(error).strip().splitlines()
        tell("failed", error=f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)
        return 1
    return 0


def measure(torch: Any, dist: Any, device: Any) -> dict[str, float]:
    """Check the sum of one all-reduce, and time several."""
    on_gpu = device.type == "cuda"
    count = (128 << 20) // 4 if on_gpu else (16 << 20) // 4  # float32
    world_size, rank = dist.get_world_size(), dist.get_rank()
    pattern = torch.arange(count, device=device, dtype=torch.int32).remainder_(1000).add_(1).float()
    tensor = pattern * (rank + 1)
    dist.all_reduce(tensor)
    # All sums are whole numbers below 2**24, so that float32 holds them exactly.
    wrong = int((tensor != pattern * (world_size * (world_size + 1) // 2)).sum().item())
    tensor.zero_()
    warm_up, rounds = (5, 20) if on_gpu else (1, 5)
    for _ in range(warm_up):
        dist.all_reduce(tensor)
    dist.barrier()
    if on_gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(tensor)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / rounds
    return {"wrong": wrong, "bytes": count * 4, "seconds": seconds}


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # gloo's teardown at the end of the interpreter aborts now and then
