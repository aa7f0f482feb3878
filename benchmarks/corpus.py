"""Convert every notebook of a folder in one process: median seconds per notebook, and peak memory.

python benchmarks/corpus.py FOLDER
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from nb2ddp import convert


def main() -> None:
    seconds: list[float] = []
    statuses: Counter[str] = Counter()
    for path in sorted(Path(sys.argv[1]).rglob("*.ipynb")):
        start = time.perf_counter()
        statuses[convert(path).status] += 1
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(", ".join(f"{count} {status}" for status, count in statuses.items()))
    print(f"median {statistics.median(seconds):.3f} s (from {min(seconds):.3f} to {max(seconds):.3f})")
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
