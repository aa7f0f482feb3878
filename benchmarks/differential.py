"""Run generated training notebooks, plain in one process and converted on several ranks, and compare them.

    python benchmarks/differential.py run --seeds 0:500 --out DIR [--ranks 2]
                                          [--three 50] [--jobs 1] [--classes]
    python benchmarks/differential.py show SEED        print the notebook
    python benchmarks/differential.py judge SEED|FILE  run one, with its differences; of several, the verdicts
    python benchmarks/differential.py shrink SEED      print the smallest program with the same fault

A verdict is one of: same; said (another run, and a note or a warning says so); declined; stopped (the run
ended with a sentence of nb2ddp's own); silent (another run, and nothing says so); hang; crash; invalid (the
notebook itself fails). DIR holds verdicts.jsonl, table.md and the notebooks that failed. With --classes a
failing program that no smaller one explains is shrunk to the features that matter, in DIR/classes.jsonl; what
an earlier run wrote there is known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from differential import runs  # noqa: E402
from differential.features import VERSION, Features, draw, is_seeded  # noqa: E402

VERDICTS = ("same", "said", "declined", "stopped", "silent", "hang", "crash", "invalid")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.add_argument("--seeds", required=True, help="FIRST:END, or single ones with commas")
    command.add_argument("--ranks", type=int, default=2)
    command.add_argument("--three", type=int, default=0, help="run the first so many on three ranks too")
    command.add_argument("--jobs", type=int, default=1)
    command.add_argument(
        "--classes", action="store_true", help="shrink each fault that no known one explains"
    )
    command.add_argument("--out", type=Path, required=True)
    command.add_argument(
        "--set", type=pairs_of, default={}, help="NAME=VALUE,...: features that all programs get"
    )
    command.set_defaults(do=run)
    command = commands.add_parser("show")
    command.add_argument("seed", type=int)
    command.set_defaults(do=show)
    for name, function in (("judge", judge_one), ("shrink", shrink_one)):
        command = commands.add_parser(name)
        if function is judge_one:
            command.add_argument("programs", nargs="+", help="seeds, notebooks or files of cells")
        else:
            command.add_argument("program", help="a seed")
        command.add_argument("--ranks", type=int, default=2)
        command.add_argument("--keep", type=Path, help="keep the runs in this folder")
        command.set_defaults(do=function)
    command = commands.add_parser("table")
    command.add_argument("out", type=Path)
    command.set_defaults(do=lambda given: print(table(read(given.out))))
    given = parser.parse_args()
    given.do(given)


def seeds_of(text: str) -> list[int]:
    if ":" in text:
        first, _, end = text.partition(":")
        return list(range(int(first), int(end)))
    return [int(seed) for seed in text.split(",")]


def pairs_of(text: str) -> Features:
    return dict(pair.split("=") for pair in text.split(","))


# ---- run ----


def run(given: argparse.Namespace) -> None:
    """Judge programs, one after another or in several processes that share the preloaded modules."""
    given.out.mkdir(parents=True, exist_ok=True)
    seeds = seeds_of(given.seeds)
    (given.out / "verdicts.jsonl").unlink(missing_ok=True)
    runs.preload()
    workers = [
        _forked(lambda job=job: _work(given, seeds[job :: given.jobs], seeds[: given.three]))
        for job in range(given.jobs)
    ]
    failed = [pid for pid in workers if os.waitpid(pid, 0)[1]]
    rows = read(given.out)
    (given.out / "table.md").write_text(table(rows))
    print(summary(rows))
    if failed:
        sys.exit("a worker failed")


def _forked(work: Callable[[], None]) -> int:
    """Start a worker: it has one thread, so that the runs it forks find no lock taken by another."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid


def _work(given: argparse.Namespace, seeds: list[int], three: list[int]) -> None:
    from differential.verdicts import FAULTS, cells_of, write_notebook

    work = Path(tempfile.mkdtemp(prefix="differential-"))
    known: dict[str, list[Features]] = defaultdict(list)
    for row in rows_of(given.out / "classes.jsonl"):  # of an earlier run
        known[row["key"]].append(row["features"])
    for seed in seeds:
        features = draw(seed, given.set)
        for ranks in [given.ranks, *([3] if seed in three else [])]:
            verdict = _judged(features, work / "program", ranks)
            row = {"seed": seed, "version": VERSION, "features": features, **verdict.as_dict()}
            with open(given.out / "verdicts.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
            start = f"{seed:6} x{ranks} {features['family']:10} {verdict.seconds:5.1f} s"
            print(f"{start}  {verdict.key}  {_detail(verdict)}", flush=True)
            if verdict.verdict == "declined" and given.classes:
                _classify(given.out, seed, features, verdict, known, work)
            if verdict.verdict in (*FAULTS, "stopped", "invalid"):
                write_notebook(given.out / f"{seed}.ipynb", cells_of(features))
                if given.classes:
                    _classify(given.out, seed, features, verdict, known, work)
                break
    shutil.rmtree(work, ignore_errors=True)


def _judged(features: Features, folder: Path, ranks: int) -> Any:
    from differential.verdicts import Verdict, judge_features

    try:
        return judge_features(features, folder, ranks)
    except Exception as error:
        return Verdict("invalid", ranks, f"harness: {error!r}", notes=[traceback.format_exc()])


def _classify(
    out: Path, seed: int, features: Features, verdict: Any, known: dict[str, list[Features]], work: Path
) -> None:
    """Find the features that matter, unless a known class has the same key and its features are all here."""
    from differential.shrinking import shrink_features
    from differential.verdicts import cells_of, changed, judge

    for small in known[verdict.key]:
        if all(features.get(name) == value for name, value in small.items()):
            return
    small = shrink_features(features, verdict.key, work / "shrink", verdict.ranks)
    matters = {"family": small["family"], **changed(small)}
    known[verdict.key].append(matters)
    again = judge(cells_of(small), is_seeded(small), work / "shrink", verdict.ranks)
    row = {
        "key": verdict.key, "seed": seed, "ranks": verdict.ranks, "features": matters, "why": again.why,
        "differences": again.differences[:3], "notes": again.notes, "cells": cells_of(small),
    }  # fmt: skip
    with open(out / "classes.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"       class: {verdict.key}  {matters}", flush=True)


# ---- tables ----


def read(out: Path) -> list[dict[str, Any]]:
    return sorted(rows_of(out / "verdicts.jsonl"), key=lambda row: (row["seed"], row["ranks"]))


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def summary(rows: list[dict[str, Any]]) -> str:
    verdicts = Counter(row["verdict"] for row in rows)
    made = [", ".join(f"{verdicts[name]} {name}" for name in VERDICTS if verdicts[name])]
    for key, count in Counter(row["key"] for row in rows).most_common():
        seeds = [str(row["seed"]) for row in rows if row["key"] == key][:8]
        made.append(f"{count:5}  {key}  (seeds {', '.join(seeds)})")
    seconds = sorted(row["seconds"] for row in rows)
    made.append(f"median {seconds[len(seconds) // 2]:.1f} s a program, {sum(seconds):.0f} s in all")
    return "\n".join(made)


def table(rows: list[dict[str, Any]]) -> str:
    """Verdicts by feature value."""
    made = [
        summary(rows),
        "",
        f"| feature | value | {' | '.join(VERDICTS)} |",
        "|---|---|" + "--:|" * len(VERDICTS),
    ]
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        for name, value in row["features"].items():
            counts[name, value][row["verdict"]] += 1
    for (name, value), verdicts in sorted(counts.items()):
        made.append(f"| {name} | {value} | " + " | ".join(str(verdicts[v] or "") for v in VERDICTS) + " |")
    return "\n".join(made) + "\n"


# ---- one program ----


def show(given: argparse.Namespace) -> None:
    from differential.verdicts import cells_of, changed

    features = draw(given.seed)
    print(f"# seed {given.seed}: {features['family']}, {changed(features)}")
    print("# %%\n" + "\n\n# %%\n".join(cells_of(features)))


def judge_one(given: argparse.Namespace) -> None:
    from differential.verdicts import cells_of, judge

    runs.preload()

    def work() -> None:
        for program in given.programs:
            if program.isdigit():
                features = draw(int(program))
                cells, seeded = cells_of(features), is_seeded(features)
            else:
                cells = read_cells(Path(program))
                seeded = "seed(" in "".join(cells)
            with _folder(given.keep) as folder:
                verdict = judge(cells, seeded, folder / Path(program).stem, given.ranks)
            if len(given.programs) == 1:
                print(json.dumps(verdict.as_dict(), indent=1))
            else:
                print(
                    f"{Path(program).stem}  {verdict.seconds} s  {verdict.key}  {_detail(verdict)}",
                    flush=True,
                )

    sys.exit(os.waitpid(_forked(work), 0)[1] != 0)


def _detail(verdict: Any) -> str:
    worst = verdict.differences[0] if verdict.differences else {}
    return f"{worst.get('where', '')} {worst.get('what', verdict.why)}"[:110]


def read_cells(path: Path) -> list[str]:
    """The code cells of a notebook, or of a Python file with cells that begin with ``# %%``."""
    if path.suffix == ".py":
        return [
            cell.strip("\n") for cell in re.split(r"^# %%.*$", path.read_text(), flags=re.M) if cell.strip()
        ]
    import nbformat

    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def shrink_one(given: argparse.Namespace) -> None:
    from differential.shrinking import shrink
    from differential.verdicts import changed, judge_features

    features = draw(int(given.program))
    runs.preload()

    def work() -> None:
        with _folder(given.keep) as folder:
            verdict = judge_features(features, folder / "program", given.ranks)
            small, cells = shrink(features, verdict, folder / "shrink")
        print(f"# {verdict.key}\n# {changed(small)}")
        print("# %%\n" + "\n\n# %%\n".join(cells))

    sys.exit(os.waitpid(_forked(work), 0)[1] != 0)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Any:
    if keep is not None:
        yield keep.absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="differential-"))  # a TemporaryDirectory goes when a fork ends
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
