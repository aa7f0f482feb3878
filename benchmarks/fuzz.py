"""Convert seeded mutants of notebooks and count what becomes of them, by family of faults.

    python -m benchmarks.fuzz [--cases 1000] [--first 0] [--minutes 10] [FOLDER ...]

FOLDER: notebooks to mutate as well as the samples, the tests' notebooks and the cases of the rules.
Ends with 1 if there was a fault; each is printed once, with its seed and the smallest notebook that shows it.
The cases run in forked processes of 500: one that hangs or dies loses its own case alone.
The table is printed every 10,000 cases, and when the run is stopped (SIGTERM or Ctrl-C) or its time is up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tests.support import ROOT
from tests.support.cases import all_cases
from tests.unit.attack.fuzzer import Case, mutate, outcome, shrink

_CHUNK = 500
_MEMORY = 1 << 30  # on top of what the process has when it begins
_SECONDS = 120.0  # wall time of one case, after which the process is killed


# What makes a training notebook of a case without a last cell.
_BEFORE = "import os, torch\nfrom trl import SFTConfig, SFTTrainer"
_AFTER = "last = SFTTrainer('model', args=SFTConfig('out'), train_dataset=[])\nlast.train()"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10, help="at most")
    parser.add_argument("folders", nargs="*", type=Path)
    arguments = parser.parse_args()
    notebooks = list(_notebooks(arguments.folders))
    print(f"{len(notebooks)} notebooks to mutate", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    faults: set[str] = set()
    began, used, slowest = time.monotonic(), 0.0, 0.0
    last = arguments.first + arguments.cases
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder:
        seed = arguments.first
        while seed < last and time.monotonic() - began < 60 * arguments.minutes:
            for family, result, seconds in _in_a_fork(
                Path(folder), notebooks, seed, min(last, seed + _CHUNK)
            ):
                is_fault = result.startswith("FAULT")
                counts[family, "FAULT" if is_fault else result] += 1
                used, slowest, seed = used + seconds, max(slowest, seconds), seed + 1
                if is_fault and result not in faults:
                    faults.add(result)
                    print(f"seed {seed - 1}: {result}", flush=True)
                    print(_example(notebooks, seed - 1, result), flush=True)
                if counts.total() % 10_000 == 0:
                    _print_table(counts, used, slowest)
    _print_table(counts, used, slowest)
    return 1 if faults else 0


def _notebooks(folders: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the notebooks below the folders, and the cases of the rules."""
    for folder in (ROOT / "sample_notebooks", ROOT / "tests/notebooks", *folders):
        for path in sorted(folder.rglob("*.ipynb")):
            yield json.loads(path.read_text(encoding="utf-8"))
    for case in all_cases():
        cells = case.before if case.last else (_BEFORE, *case.before, _AFTER)
        yield {
            "cells": [_cell(text) for text in (case.first, *cells, case.last) if text],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }


def _cell(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}


def _case(notebooks: list[dict[str, Any]], seed: int) -> Case:
    return mutate(notebooks[seed % len(notebooks)], seed)


def _in_a_fork(
    folder: Path, notebooks: list[dict[str, Any]], first: int, last: int
) -> Iterator[tuple[str, str, float]]:
    """Yield the family, the outcome and the CPU seconds of each case; a process that is lost ends it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                _run(folder, notebooks, range(first, last), pipe)
        except BaseException:
            traceback.print_exc()  # the fault is the fuzzer's own
            raise
        finally:
            os._exit(0)
    os.close(writer)
    family, is_running = "", False
    with os.fdopen(reader) as pipe:
        for line in pipe:
            entry = json.loads(line)
            is_running = len(entry) == 1
            if is_running:
                family = entry[0]
            else:
                yield entry[0], entry[1], entry[2]
    _, status = os.waitpid(child, 0)
    if is_running:
        yield family, f"FAULT the process was lost ({status=})", 0.0


def _run(folder: Path, notebooks: list[dict[str, Any]], seeds: range, pipe: IO[str]) -> None:
    """Write the family of each case to the pipe, and then its outcome too."""
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + _MEMORY, -1))
    for seed in seeds:
        case = _case(notebooks, seed)
        print(json.dumps([case.family]), file=pipe, flush=True)
        signal.setitimer(signal.ITIMER_REAL, _SECONDS)  # its default action ends the process
        before = time.process_time()
        result = outcome(folder, case)
        print(json.dumps([case.family, result, time.process_time() - before]), file=pipe, flush=True)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _example(notebooks: list[dict[str, Any]], seed: int, result: str) -> str:
    """Return what shows a fault: the smallest notebook, the file's name and the options."""
    case = _case(notebooks, seed)
    smallest = case.notebook
    if "lost" not in result and "slow" not in result:
        with tempfile.TemporaryDirectory() as folder:  # the fork works on in the other one
            smallest = shrink(
                case.notebook,
                lambda n: (
                    outcome(Path(folder), Case(seed, case.family, n, case.name, case.options)) == result
                ),
            )
    return f"  {case.name!r} {case.options}\n  {json.dumps(smallest)[:2000]}"


def _print_table(counts: Counter[tuple[str, str]], used: float, slowest: float) -> None:
    results = sorted({result for _, result in counts} | {"converted", "declined", "refused", "FAULT"})
    print("".join(f"{name:>12}" for name in ("family", *results, "all")))
    for family in sorted({family for family, _ in counts}):
        row = [counts[family, result] for result in results]
        print(f"{family:>12}" + "".join(f"{count:12}" for count in (*row, sum(row))))
    by_result: Counter[str] = Counter()
    for (_, result), count in counts.items():
        by_result[result] += count
    totals = [by_result[result] for result in results]
    print(f"{'all':>12}" + "".join(f"{count:12}" for count in (*totals, counts.total())))
    print(f"{counts.total()} cases in {used:.0f} s of CPU time; the slowest took {slowest:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
