"""Convert seeded mutants of notebooks and count what becomes of them.

    python -m benchmarks.fuzz [--cases 1000] [--first 0] [--minutes 10] [FOLDER ...]

FOLDER: notebooks to mutate instead of the samples. Ends with 1 if there was a fault; each is printed once,
with its seed and the smallest notebook that shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support import ROOT
from tests.unit.attack.fuzzer import mutate, outcome, shrink


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10, help="at most")
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "sample_notebooks"])
    arguments = parser.parse_args()
    paths = sorted(path for folder in arguments.folders for path in folder.rglob("*.ipynb"))
    counts: Counter[str] = Counter()
    began, start, slowest = time.monotonic(), time.process_time(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.first, arguments.first + arguments.cases):
            if time.monotonic() - began > 60 * arguments.minutes:
                break
            whole = json.loads(paths[seed % len(paths)].read_text(encoding="utf-8"))
            notebook, name, options = mutate(whole, seed)
            before = time.process_time()
            result = outcome(Path(folder), notebook, name, options)
            slowest = max(slowest, time.process_time() - before)
            if result.startswith("FAULT") and not counts[result]:
                smallest = shrink(
                    notebook,
                    lambda n: outcome(Path(folder), n, name, options) == result,  # noqa: B023
                )
                print(
                    f"seed {seed}, {paths[seed % len(paths)].name}: {result}\n{json.dumps(smallest)[:2000]}"
                )
            counts[result] += 1
    for result, count in counts.most_common():
        print(f"{count:7}  {result}")
    used = time.process_time() - start
    print(f"{counts.total()} cases in {used:.0f} s of CPU time; the slowest took {slowest:.1f} s")
    return 1 if any(result.startswith("FAULT") for result in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
