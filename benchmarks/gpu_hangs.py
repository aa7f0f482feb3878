"""Run scripts in which two GPUs wait for each other in vain, and some in which one is only slow; print how each ended.

    python benchmarks/gpu_hangs.py [--patience 20] [WORD ...]

Needs two GPUs and NCCL: a wait for a GPU is busy, which no test on CPUs shows whole. A hung run is to end within twice
the patience and to name the lines of both ranks; a slow one is to live. WORD: the rows with this in their name.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from nb2ddp.runtime import support_module

START = """\
import sys, time
import ddp_support as ddp
rank, local_rank, _ = ddp.init(seed=0)
import torch
import torch.distributed as dist
model = ddp.parallelize(torch.nn.Linear(1024, 1024).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def step():
    loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
def reduced(size=4, group=None):
    ones = torch.ones(size, device="cuda")
    dist.all_reduce(ones, group=group)
    return ones.sum().item()
def compute(seconds):
    a = torch.randn(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    begun = time.time()
    a @ a
    torch.cuda.synchronize()
    for _ in range(int(seconds / (time.time() - begun))):
        a @ a
for _ in range(5):
    step()
reduced()
# ---- cell 2
"""
HUNG = {
    "a collective, and a wait in the store": "reduced() if rank == 0 else ddp.from_all_ranks(1)",
    "collectives of two groups": (
        "one, two = dist.new_group([0, 1]), dist.new_group([0, 1])\nreduced(group=one if rank == 0 else two)"
    ),
    "a step more on one rank": "if rank == 0:\n    step()\nddp.check_replicas(model)",
    "the other has left": "if rank == 1:\n    sys.exit(0)\nreduced()",
}
CALM = {
    "the other sleeps": "if rank == 1:\n    time.sleep(SECONDS)\nreduced()",
    "the other's GPU computes": "if rank == 1:\n    compute(SECONDS)\nreduced()",
    "both GPUs compute before a collective": "compute(SECONDS)\nreduced()",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--patience", type=float, default=20.0)
    arguments = parser.parse_args()
    print("| run | as it should | exit code | seconds | said |\n|---|---|---|---|---|", flush=True)
    wrong = 0
    for name, what in {**HUNG, **CALM}.items():
        if not arguments.words or any(word in name for word in arguments.words):
            wrong += not row(name, what, arguments.patience)
    raise SystemExit(wrong > 0)


def row(name: str, what: str, patience: float) -> bool:
    """Print how a run ended; return whether it ended as it should."""
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ddp_support.py").write_text(support_module(), encoding="utf-8")
        script = (
            START
            + what.replace("SECONDS", str(2 * patience))
            + "\nprint('through', flush=True)\nddp.finish()\n"
        )
        Path(folder, "script.py").write_text(script, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "script.py",
        ]
        environment = {**os.environ, "NB2DDP_PATIENCE": str(patience)}
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                text=True,
                capture_output=True,
                timeout=8 * patience + 60,
            )
            code, output = str(done.returncode), done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            code, output = "none", str(error.stderr or b"")
    said = [line for line in output.splitlines() if line.startswith("nb2ddp: ")]
    what = f"{name} | {{}} | {code} | {time.time() - begun:.0f}"
    good = (
        code == "0"
        if name in CALM
        else code == "1" and ("nb2ddp: ERROR: " in output or "left the script" in output)
    )
    print(f"| {what.format('yes' if good else '**no**')} | {' / '.join(said) or output[-500:]!r} |")
    sys.stdout.flush()
    return good


if __name__ == "__main__":
    main()
