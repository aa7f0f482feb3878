"""Convert seeded mutants of notebooks and count what becomes of them, by family of faults.

    python -m benchmarks.fuzz [--cases 1000] [--first 0] [--jobs 1] [--minutes 10] [FOLDER ...]

FOLDER: notebooks to mutate as well as the samples, the tests' notebooks and the cases of the rules.
Ends with 1 if there was a fault, and with 2 if not all cases were tried; each fault is printed once, with its seed and
the smallest notebook that shows it. The cases run in forked processes of 100, --jobs at a time: one that hangs or dies
loses its own case alone. The table is printed every 10,000 cases, and when the run is stopped (SIGTERM or Ctrl-C) or
its time is up.
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
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.cases import all_cases
from tests.unit.attack.fuzzer import Case, mutate, outcome, shrink

_CHUNK = 100
_MEMORY = 1 << 30  # on top of what the process has when it begins
_SECONDS = 120.0  # wall time of one case, after which the process is killed


# What makes a training notebook of a case without a last cell.
_BEFORE = "import os, torch\nfrom trl import SFTConfig, SFTTrainer"
_AFTER = "last = SFTTrainer('model', args=SFTConfig('out'), train_dataset=[])\nlast.train()"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--minutes", type=float, default=10, help="at most")
    parser.add_argument("folders", nargs="*", type=Path)
    arguments = parser.parse_args()
    notebooks = list(_notebooks(arguments.folders))
    print(f"{len(notebooks)} notebooks to mutate", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    faults: set[str] = set()
    began, used, slowest = time.monotonic(), 0.0, 0.0
    seeds = range(arguments.first, arguments.first + arguments.cases)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        contextlib.closing(_outcomes(notebooks, seeds, arguments.jobs)) as outcomes,
    ):
        for seed, family, result, seconds in outcomes:
            is_fault = result.startswith("FAULT")
            counts[family, "FAULT" if is_fault else result] += 1
            used, slowest = used + seconds, max(slowest, seconds)
            if is_fault and result not in faults:
                faults.add(result)
                print(f"seed {seed}: {result}", flush=True)
                print(_example(notebooks, seed, result), flush=True)
            if counts.total() % 10_000 == 0:
                _print_table(counts, used, slowest)
            if time.monotonic() - began > 60 * arguments.minutes:
                break
    _print_table(counts, used, slowest)
    print(f"{counts.total()} of {len(seeds)} cases tried, {len(faults)} kinds of faults")
    return 1 if faults else 2 if counts.total() < len(seeds) else 0


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


def _outcomes(
    notebooks: list[dict[str, Any]], seeds: range, jobs: int
) -> Iterator[tuple[int, str, str, float]]:
    """Yield the seed, the family, the outcome and the CPU seconds of each case, as they end.

    A forked process tries some of the seeds in order; one that is lost is replaced by one for those that are left.
    """
    waiting = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)][::-1]
    running: dict[Connection, tuple[int, range]] = {}
    families: dict[Connection, str] = {}  # of the case that a process has begun
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    pipe, child = _fork(Path(folder), notebooks, waiting[-1])
                    running[pipe] = child, waiting.pop()
                for pipe in wait(list(running)):
                    assert isinstance(pipe, Connection)
                    child, left = running[pipe]
                    try:
                        family, *ended = pipe.recv()
                    except EOFError:
                        _, status = os.waitpid(child, 0)
                        del running[pipe]
                        if left:
                            yield (
                                left[0],
                                families.get(pipe, ""),
                                f"FAULT the process was lost ({status=})",
                                0.0,
                            )
                            waiting += [left[1:]] * (len(left) > 1)
                        continue
                    families[pipe] = family
                    if ended:
                        running[pipe] = child, left[1:]
                        yield left[0], family, *ended
        finally:
            for child, _ in running.values():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _fork(folder: Path, notebooks: list[dict[str, Any]], seeds: range) -> tuple[Connection, int]:
    """Start a process that tries some seeds; return where it writes what becomes of them, and its number."""
    reader, writer = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            reader.close()
            _run(folder, notebooks, seeds, writer)
        except BaseException:
            traceback.print_exc()  # the fault is the fuzzer's own
            raise
        finally:
            os._exit(0)
    writer.close()
    return reader, child


def _run(folder: Path, notebooks: list[dict[str, Any]], seeds: range, pipe: Connection) -> None:
    """Send the family of each case, and then its family, outcome and CPU seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + _MEMORY, -1))
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for seed in seeds:
            case = _case(notebooks, seed)
            pipe.send([case.family])
            signal.setitimer(signal.ITIMER_REAL, _SECONDS)  # its default action ends the process
            before = time.process_time()
            result = outcome(Path(own), case)
            pipe.send([case.family, result, time.process_time() - before])


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
