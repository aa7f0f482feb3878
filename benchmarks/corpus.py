"""Convert every notebook of a folder: seconds of CPU time per notebook, and peak memory.

    python benchmarks/corpus.py FOLDER [--against CHECKOUT]

CHECKOUT is a folder with another revision (``git worktree add CHECKOUT REVISION``). Each notebook is converted by
both, one directly after the other, in a process of its own each, which has converted one notebook before the first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Reads the path of a notebook from each line, and answers with the status, the seconds and the peak memory.
CONVERTER = """
import json, resource, sys, time
from nb2ddp import convert
for line in sys.stdin:
    start = time.process_time()
    status = convert(line.rstrip("\\n")).status
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([status, time.process_time() - start, peak]), flush=True)
"""


class Converter:
    """A process that converts with the package of one checkout."""

    def __init__(self, checkout: Path) -> None:
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.peak = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONVERTER],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, notebook: Path) -> list[Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        print(notebook, file=process.stdin, flush=True)
        answer: list[Any] = json.loads(process.stdout.readline())
        return answer

    def convert(self, notebook: Path) -> None:
        status, seconds, self.peak = self.ask(notebook)
        self.statuses[status] += 1
        self.seconds.append(seconds)

    def end(self) -> None:
        self._process.communicate()

    def __str__(self) -> str:
        statuses = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        low, middle, high = min(self.seconds), statistics.median(self.seconds), max(self.seconds)
        return f"{statuses}; median {middle:.3f} s (from {low:.3f} to {high:.3f}); peak memory {self.peak:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    notebooks = sorted(path.resolve() for path in arguments.folder.rglob("*.ipynb"))
    names = {"this": Path(__file__).parents[1], "that": arguments.against}
    converters = {name: Converter(path.resolve()) for name, path in names.items() if path is not None}
    for converter in converters.values():
        converter.ask(notebooks[0])  # imports
    for number, notebook in enumerate(notebooks):
        for converter in list(converters.values())[:: 1 if number % 2 else -1]:
            converter.convert(notebook)
    for name, converter in converters.items():
        converter.end()
        print(f"{name} checkout: {converter}")
    if "that" in converters:
        this, that = converters["this"], converters["that"]
        ratios = sorted(a / b for a, b in zip(this.seconds, that.seconds, strict=True))
        tenth = len(ratios) // 10
        print(
            f"this / that: time of all {sum(this.seconds) / sum(that.seconds):.2f}, per notebook "
            f"{statistics.median(ratios):.2f} (tenths {ratios[tenth]:.2f} to {ratios[-tenth - 1]:.2f}); "
            f"memory {this.peak / that.peak:.2f}"
        )


if __name__ == "__main__":
    main()
