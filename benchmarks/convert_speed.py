"""`nb2ddp convert` against `jupyter nbconvert --to script` on the same notebook, as whole processes.

    python benchmarks/convert_speed.py [NOTEBOOK] [--rounds 10]

The two are run in turn, so that a busy moment of the machine hits both; the ratio is of the medians. Also
prints the median time of `nb2ddp --help`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "sample_notebooks" / "alpaca_sft.ipynb"


def seconds(*command: str | Path) -> float:
    start = time.perf_counter()
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return time.perf_counter() - start


def spread(times: list[float]) -> str:
    return f"median {statistics.median(times):.2f} s (from {min(times):.2f} to {max(times):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebook", nargs="?", type=Path, default=SAMPLE)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    bin_folder = Path(sys.executable).parent
    nb2ddp, jupyter = (shutil.which(name, path=str(bin_folder)) or name for name in ("nb2ddp", "jupyter"))
    ours: list[float] = []
    theirs: list[float] = []
    helps: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds + 1):
            ours.append(seconds(nb2ddp, "convert", arguments.notebook, "--force", "-o", f"{folder}/ours"))
            theirs.append(
                seconds(jupyter, "nbconvert", "--to", "script", arguments.notebook, "--output-dir", folder)
            )
            helps.append(seconds(nb2ddp, "--help"))
    for times in (ours, theirs, helps):
        del times[0]  # the first of each fills the disk's cache
    print(f"nb2ddp convert         {spread(ours)}")
    print(f"nbconvert --to script  {spread(theirs)}")
    print(f"ratio                  {statistics.median(ours) / statistics.median(theirs):.2f}")
    print(f"nb2ddp --help          {spread(helps)}")


if __name__ == "__main__":
    main()
