"""Run the converted samples again and again on two CPU processes, and count what went wrong.

    python benchmarks/soak.py [--runs 50] [SAMPLE...]

A run is good when every rank exits with 0, the adapter is saved and no process is left.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from nb2ddp import convert  # noqa: E402
from tests.support.runs import STACKS, processes_of, run  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("samples", nargs="*", default=["alpaca_sft", "chat_sft", "peft_loop"])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--stacks", nargs="*", default=list(STACKS), choices=list(STACKS))
    arguments = parser.parse_args()
    cases = [(sample, stack) for sample in arguments.samples for stack in arguments.stacks]
    scripts = {
        sample: convert(ROOT / "sample_notebooks" / f"{sample}.ipynb").files["train_ddp.py"]
        for sample in arguments.samples
    }
    failures, seconds = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.runs):
            sample, stack = cases[number % len(cases)]
            done = run(Path(folder, f"{number}"), scripts[sample], stack=stack, nproc=2, torchrun=True)
            saved = any("adapter_model" in name and "checkpoint" not in name for name in done.files())
            left = processes_of(done.watch)
            good = done.exit_code == 0 and saved and not left
            failures += not good
            seconds.append(done.seconds)
            if not good:
                print(f"run {number}, {sample} on {stack}: exit code {done.exit_code}, {saved=}, {left=}")
                print(done.output[-4000:], flush=True)
    print(f"{arguments.runs} runs, {failures} failed; a run took {statistics.median(seconds):.1f} s (median)")
    raise SystemExit(failures > 0)


if __name__ == "__main__":
    main()
