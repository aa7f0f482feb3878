"""Rehearse notebooks one after the other, and print what came of each as a Markdown table.

    python benchmarks/rehearsals.py FOLDER_OR_FILE... [--rows OUT] [OPTION...]

Other options are those of `nb2ddp rehearse`, as --steps=8 or --data=NAME=PATH. `--rows` appends each row to
a file too, as JSON.

`points` are the numbers of the promise and the names of what is measured beside it. `seconds` is the whole
command, imports included. `GB` is the peak of the proportional set sizes (PSS, 10^9 bytes) of all its
processes together, looked at twice a second: a page that several processes share counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

EXITS = {0: "passed", 1: "failed", 3: "cannot be rehearsed"}
HEADER = ("notebook", "exit", "passed", "failed", "not seen", "seconds", "GB", "why")


@dataclass(frozen=True)
class Row:
    """One rehearsal; ``why`` is its first fault, what could not be seen, or why there was none."""

    notebook: str
    code: int
    passed: str
    failed: str
    unseen: str
    seconds: float
    gigabytes: float
    why: str

    @property
    def cells(self) -> tuple[str, ...]:
        numbers = (f"{self.seconds:.0f}", f"{self.gigabytes:.1f}")
        texts = (self.notebook, str(self.code), self.passed, self.failed, self.unseen, *numbers, self.why)
        return tuple(text.replace("|", "\\|") for text in texts)


def notebooks(targets: list[Path]) -> Iterator[Path]:
    for target in targets:
        yield from sorted(target.rglob("*.ipynb")) if target.is_dir() else [target]


def memory(process: psutil.Process) -> int:
    """Bytes of a process and all that it has started."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                used = each.memory_full_info()
                total += getattr(used, "pss", used.uss)  # only Linux tells the PSS
    return total


def rehearse(path: Path, options: list[str]) -> Row:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.monotonic()
        command = [sys.executable, "-m", "nb2ddp", "rehearse", str(path), "--json", *options]
        with subprocess.Popen(command, stdout=out, stderr=err) as process:
            tree, peak = psutil.Process(process.pid), 0
            while process.poll() is None:
                peak = max(peak, memory(tree))
                time.sleep(0.5)
        seconds = time.monotonic() - start
        out.seek(0)
        err.seek(0)
        report: dict[str, Any] = json.loads(out.read() or "{}")
        said = err.read().strip().splitlines()
    points: dict[str, list[str]] = {"passed": [], "failed": [], "unseen": []}
    for point in report.get("points", ()):
        points[point["state"]].append(str(point["number"] or point["title"]))
    reasons = [fault["sentence"] for fault in report.get("faults", ())] + report.get("notes", [])
    why = reasons[0] if reasons else "" if report else said[-1] if said else ""
    passed, failed, unseen = (", ".join(names) for names in points.values())
    return Row(path.name, process.returncode, passed, failed, unseen, seconds, peak / 1e9, why)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", type=Path)
    parser.add_argument("--rows", type=Path)
    arguments, options = parser.parse_known_args()
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    rows = []
    for path in notebooks(arguments.targets):
        row = rehearse(path, options)
        rows.append(row)
        print(f"| {' | '.join(row.cells)} |", flush=True)
        if arguments.rows:
            with arguments.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    counts = [f"{sum(row.code == code for row in rows)} {what}" for code, what in EXITS.items()]
    print(f"\n{len(rows)} notebooks: {', '.join(counts)}")


if __name__ == "__main__":
    main()
