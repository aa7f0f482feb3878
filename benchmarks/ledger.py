"""The ledger: notebooks in one process, their scripts on several, and what people do without nb2ddp, side by side.

    python benchmarks/ledger.py [--only TEXT] [--ranks 2,3] [--stack newest,kaggle] [--out docs/ledger]

Runs on the CPU, with gloo. A row is a notebook on a stack and a number of ranks. Two controls stand in it: the notebook
run a second time in one process (the floor below which no difference says anything), and the notebook's own code
started under torchrun as it is ("as it is"). The page, its JSON and the curves are written below --out; rows of an
earlier call that this one does not measure again are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from nb2ddp import convert  # noqa: E402
from tests.support.runs import STACKS, Run, plain_code, run  # noqa: E402

COLUMNS = (
    *("notebook", "stack", "ranks", "verdict", "losses", "loss", "floor", "parameters", "replicas", "files"),
    *("s, 1", "s, ranks", "as it is", "curve"),
)
CLOSE = 1e-5  # relative: what differs more is another run
VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate", "unsloth", "unsloth_zoo")


@dataclass(frozen=True)
class Case:
    """A notebook on a stack and a number of ranks."""

    notebook: Path
    stack: str
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.notebook.stem} {self.stack} {self.ranks}"


@dataclass
class Row:
    """What was measured of a case; differences are relative, seconds are wall time."""

    notebook: str
    stack: str
    ranks: int
    verdict: str = "same"  # or: said, declined, different, failed
    reason: str = ""
    losses: list[float] = field(default_factory=list)  # of the notebook in one process
    losses_ranks: list[float] = field(default_factory=list)  # of its script on the ranks
    loss_difference: float | None = None
    first_step: int | None = None  # the first whose loss differs by more than CLOSE
    parameter_difference: float | None = None
    replicas_equal: bool | None = None
    files_same: bool | None = None
    written_by_others: list[str] = field(default_factory=list)  # by ranks other than rank 0
    seconds_one: float | None = None
    seconds_ranks: float | None = None
    floor: float | None = None  # the loss difference of a second run in one process
    as_it_is: str = ""  # what the notebook's own code does under torchrun
    as_it_is_difference: float | None = None

    @property
    def name(self) -> str:
        return f"{self.notebook} {self.stack} {self.ranks}"


def cases(stacks: Sequence[str], ranks: Sequence[int]) -> Iterator[Case]:
    """Yield the notebooks that may be run here: the samples, but for the magic's, and those of the tests."""
    for folder in ("sample_notebooks", "tests/notebooks"):
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            if path.stem == "run_ddp_magic":
                continue
            for stack in stacks:
                for count in ranks:
                    yield Case(path, stack, count)


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest relative difference of two runs' losses; infinite where one has more."""
    if len(one) != len(other):
        return math.inf
    return max((abs(a - b) / max(abs(a), 1e-12) for a, b in zip(one, other, strict=True)), default=0.0)


def measure(case: Case, folder: Path, *, controls: bool = True, script: str | None = None) -> Row:
    """Run a case and its controls below ``folder``, and compare; ``script`` takes the place of the converted one."""
    row = Row(case.notebook.stem, case.stack, case.ranks)
    conversion = convert(case.notebook)
    if conversion.status != "converted":
        row.verdict, row.reason = "declined", "; ".join(str(why) for why in conversion.declined)
        return row
    plain = plain_code(case.notebook)
    one = run(folder / "one", plain, stack=case.stack, nproc=0)
    several = run(
        folder / "ranks", script or conversion.files["train_ddp.py"], stack=case.stack, nproc=case.ranks
    )
    row.seconds_one, row.seconds_ranks = round(one.seconds, 1), round(several.seconds, 1)
    for name, done in (("the notebook", one), ("the script", several)):
        if done.exit_code:
            row.verdict, row.reason = "failed", f"{name}: {last_line(done)}"
            return row
    compare(row, one, several, case.ranks)
    if controls:
        again = run(folder / "again", plain, stack=case.stack, nproc=0)
        row.floor = difference(row.losses, again.losses("single"))
        as_it_is(row, folder, plain)
    row.verdict, row.reason = verdict(row, several.output)
    return row


def compare(row: Row, one: Run, several: Run, ranks: int) -> None:
    """Note how far the ranks are from one process, and from one another."""
    import torch

    row.losses, row.losses_ranks = one.losses("single"), several.losses(0)
    row.loss_difference = difference(row.losses, row.losses_ranks)
    pairs = zip(row.losses, row.losses_ranks, strict=False)
    row.first_step = next((n for n, (a, b) in enumerate(pairs, 1) if difference([a], [b]) > CLOSE), None)
    first, *others = (several.parameters(rank) for rank in range(ranks))
    row.replicas_equal = all(
        other.keys() == first.keys() and all(torch.equal(first[name], other[name]) for name in first)
        for other in others
    )
    expected = one.parameters("single")
    if expected.keys() == first.keys():
        both = [torch.cat([part[name].double().flatten() for name in expected]) for part in (expected, first)]
        row.parameter_difference = float((both[1] - both[0]).norm() / both[0].norm())
    states = {name for name in one.files() | several.files() if "rng_state" in name}  # one for each rank
    own = {f"rng_state_{rank}.pth" for rank in range(ranks)}
    row.written_by_others = sorted(
        name
        for rank in range(1, ranks)
        for name in several.written(rank)
        if Path(name).parts[0] not in ("hf", "unsloth_compiled_cache") and Path(name).name not in own
    )
    row.files_same = one.files() - states == several.files() - states


def as_it_is(row: Row, folder: Path, plain: str) -> None:
    """Start the notebook's own code on the ranks, unchanged."""
    try:
        done = run(folder / "as-it-is", plain, stack=row.stack, nproc=row.ranks)
    except subprocess.TimeoutExpired:
        row.as_it_is = "hangs"
        return
    if done.exit_code:
        row.as_it_is = f"fails: {last_line(done)}"
        return
    losses = done.losses(0)
    row.as_it_is_difference = difference(row.losses, losses)
    row.as_it_is = (
        f"{len(losses)} losses for {len(row.losses)}" if len(losses) != len(row.losses) else "trains"
    )


def last_line(done: Run) -> str:
    """Return what a failed run said last."""
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.partition(":")[0]]
    return (errors or lines or ["nothing"])[-1][:160]


def verdict(row: Row, output: str = "") -> tuple[str, str]:
    """Return the verdict on what was measured, and its reason."""
    if not row.replicas_equal:
        return "different", "the ranks hold different parameters"
    if not row.files_same:
        return "different", "other files are saved"
    if row.written_by_others:
        return "different", f"another rank than 0 writes {row.written_by_others[0]}"
    bound = max(CLOSE, 2 * (row.floor or 0.0))
    losses, parameters = row.loss_difference or 0.0, row.parameter_difference
    if losses <= bound and parameters is not None and parameters <= max(10 * bound, CLOSE):
        return "same", ""
    said = [line for line in output.splitlines() if line.startswith(("nb2ddp: WARNING", "WARNING: "))]
    if said:
        return "said", said[0][:200]
    where = f"loss of step {row.first_step}" if row.first_step else "parameters"
    return (
        "different",
        f"{where}: {losses:.1e}, parameters {parameters if parameters is None else f'{parameters:.1e}'}",
    )


def worse(row: Row, published: Row) -> str:
    """Return how a row is worse than the published one; empty if it is not."""
    order = ["same", "said", "declined", "different", "failed"]
    if order.index(row.verdict) > order.index(published.verdict):
        return f"{row.name}: {row.verdict} ({row.reason}), published: {published.verdict}"
    return ""


def load(folder: Path) -> dict[str, Row]:
    """Return the published rows by name."""
    file = folder / "ledger.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return {row.name: row for row in (Row(**values) for values in rows)}


def write(rows: dict[str, Row], folder: Path, command: str) -> None:
    """Write ledger.json, index.md and a curve for each row."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = [rows[name] for name in sorted(rows)]
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "command": command,
        "machine": f"{platform.machine()}, CPU, gloo",
        "versions": {name: version(name) for name in VERSIONS},
    }
    text = json.dumps({"about": about, "rows": [asdict(row) for row in ordered]}, indent=1)
    (folder / "ledger.json").write_text(text + "\n")
    (folder / "index.md").write_text(page(ordered, about))
    shutil.rmtree(folder / "curves", ignore_errors=True)
    (folder / "curves").mkdir()
    for row in ordered:
        if row.losses:
            (folder / "curves" / f"{row.name.replace(' ', '-')}.svg").write_text(curve(row))


def page(rows: Sequence[Row], about: Mapping[str, object]) -> str:
    """Return the page: how it was made, a summary, and a table."""
    counts = {
        kind: sum(row.verdict == kind for row in rows)
        for kind in ("same", "said", "declined", "different", "failed")
    }
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())  # type: ignore[attr-defined]
    lines = [
        "# Ledger",
        "",
        f"<!-- Made by benchmarks/ledger.py on {about['date']}; not edited by hand. -->",
        "",
        f"{len(rows)} rows: {summary}.",
        "A row is a notebook of this project on a stack and a number of ranks (CPU, gloo).",
        f"`{about['command']}`, {about['date']}, {about['machine']}; newest: {versions}.",
        "",
        "Loss and parameters: the largest relative difference to the notebook in one process. Floor: that of a second",
        "run in one process. As it is: the notebook's own code under torchrun, without nb2ddp. JSON: `ledger.json`.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    return "\n".join(lines + [line(row) for row in rows]) + "\n"


def line(row: Row) -> str:
    """Return a row of the table."""

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:.1e}" if value else "0"

    as_it_is = row.as_it_is + (f", {figure(row.as_it_is_difference)}" if row.as_it_is == "trains" else "")
    cells = [
        row.notebook,
        row.stack,
        str(row.ranks),
        f"{row.verdict}: {row.reason}" if row.reason else row.verdict,
        str(len(row.losses)) if row.losses else "",
        figure(row.loss_difference),
        figure(row.floor),
        figure(row.parameter_difference),
        {None: "", True: "equal", False: "DIFFER"}[row.replicas_equal],
        {None: "", True: "same", False: "OTHER"}[row.files_same and not row.written_by_others],
        str(row.seconds_one or ""),
        str(row.seconds_ranks or ""),
        as_it_is,
        f"[curve](curves/{row.name.replace(' ', '-')}.svg)" if row.losses else "",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def curve(row: Row) -> str:
    """Return both loss curves as SVG: one process wide and grey, the ranks thin and blue."""
    every = [*row.losses, *row.losses_ranks]
    low, high = min(every), max(every)
    span = (high - low) or 1.0

    def points(losses: Sequence[float]) -> str:
        step = 300 / max(len(losses) - 1, 1)
        return " ".join(
            f"{10 + n * step:.1f},{90 - 80 * (loss - low) / span:.1f}" for n, loss in enumerate(losses)
        )

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 100" role="img"><title>{row.name}: loss, '
        f"{low:.4g} to {high:.4g}</title>"
        f'<polyline fill="none" stroke="#999" stroke-width="4" points="{points(row.losses)}"/>'
        f'<polyline fill="none" stroke="#06c" stroke-width="1.5" points="{points(row.losses_ranks)}"/></svg>\n'
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name (notebook stack ranks) holds this text")
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--stack", default="newest,kaggle")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "ledger")
    given = parser.parse_args()
    rows = load(given.out)
    stacks = [stack for stack in given.stack.split(",") if STACKS[stack].exists()]
    for case in cases(stacks, [int(count) for count in given.ranks.split(",")]):
        if given.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = measure(case, Path(folder))
            except subprocess.TimeoutExpired as error:
                row = Row(
                    case.notebook.stem, case.stack, case.ranks, "failed", f"not done in {error.timeout} s"
                )
        rows[row.name] = row
        print(line(row), flush=True)
        write(rows, given.out, "python benchmarks/ledger.py")
    return int(any(row.verdict in ("different", "failed") for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
