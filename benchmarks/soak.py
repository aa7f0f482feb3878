"""Run the converted samples again and again on two CPU processes, and count what went wrong.

    python benchmarks/soak.py [--runs 50] [SAMPLE...]
    python benchmarks/soak.py --table [--patience 45] [--seconds 60 180] [--only WORD]

A run is good when every rank exits with 0, the adapter is saved and no process is left. ``--table`` runs the scripts of
`tests/support/slow_and_hung.py` instead, in which a rank is slow for some seconds or hangs: the slow ones are to live,
the others to end, with the place where that rank is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from nb2ddp import convert  # noqa: E402
from tests.support.ranks import RankServer, collect  # noqa: E402
from tests.support.runs import STACKS, processes_of, run  # noqa: E402
from tests.support.slow_and_hung import CALM, HUNG, Case  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("samples", nargs="*", default=["alpaca_sft", "chat_sft", "peft_loop"])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--stacks", nargs="*", default=list(STACKS), choices=list(STACKS))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--patience", type=float, default=45.0, help="NB2DDP_PATIENCE of the table's runs")
    parser.add_argument("--seconds", type=float, nargs="+", default=[60.0, 180.0], help="of the slow rank")
    parser.add_argument("--only", default="", help="rows of the table with this in their name")
    arguments = parser.parse_args()
    if arguments.table:
        raise SystemExit(table(arguments.patience, arguments.seconds, arguments.only) > 0)
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


def table(patience: float, seconds: list[float], only: str) -> int:
    """Print how each slow and each hung run ended; return how many ended otherwise than they should."""
    rows = [
        *((f"{name}, {pause:.0f} s", case, pause) for pause in seconds for name, case in CALM.items()),
        *((name, case, 0.0) for name, case in HUNG.items()),
    ]
    rows = [row for row in rows if only in row[0]]
    wrong = 0
    server = RankServer()
    print(
        "| run | as it should | exit codes | seconds | left | said |\n|---|---|---|---|---|---|", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(rows), 22):
            jobs = []
            for number, (name, case, pause) in enumerate(rows[start : start + 22], start):
                place = Path(folder, str(number))
                environment = {"SECONDS": str(pause), "NB2DDP_PATIENCE": str(patience), "TMPDIR": str(place)}
                environment["NB2DDP_WATCH"] = str(place)
                options = {"limit": 460, "grace": 30, "environment": environment}
                jobs.append((name, case, place, server.start(place, case.script, 2, **options)))
            wrong += sum(not _row(name, case, place, job) for name, case, place, job in jobs)
    server.close()
    print(f"\n{len(rows)} runs, {wrong} of them ended otherwise than they should")
    return wrong


def _row(name: str, case: Case, place: Path, job: Future[Any]) -> bool:
    ended = collect(place, job)[0]
    said = [line for line in ended.text.splitlines() if line.startswith("nb2ddp: ERROR")]
    waits = ended.text.count("nb2ddp: WAITING")
    left = [path.name for path in place.iterdir() if "unsloth" in path.name or "nb2ddp-" in path.name]
    left += [str(pid) for pid in processes_of(place)]
    if case.says is None:
        good = ended.codes == [0, 0] and not said
    else:
        good = any(ended.codes) and not ended.hung and case.names_the_rank(ended.text)
    good = good and not left
    met = max((rank.seconds for rank in ended.ranks), default=0.0)
    print(
        f"| {name} | {'yes' if good else '**no**'} | {ended.codes} | {met:.0f} | {', '.join(left) or 'nothing'} | "
        f"{' / '.join(said) or f'{waits} lines of waiting' if good else ended.text[-800:]!r} |",
        flush=True,
    )
    return good


if __name__ == "__main__":
    main()
