"""The ledger: notebooks in one process, their scripts on several, and what people do without nb2ddp, side by side.

    python benchmarks/ledger.py [--only PATTERN] [--new] [--ranks 2,3] [--stack newest,kaggle] [--corpus FOLDER]
    python benchmarks/ledger.py --page    write the page and its summary again, from the rows that are there
    python benchmarks/ledger.py --take FOLDER    the same with the rows of another ledger, made with --out elsewhere
    python benchmarks/ledger.py --stack gpu --ranks 2 --out FOLDER    on a machine with GPUs, with NCCL

Runs on the CPU, with gloo, but for the stack "gpu", which takes the notebooks of GPU_ONLY too. A row is a notebook on a
stack and a number of ranks. Two controls stand in it: the notebook run a second time in one process (the floor below
which no difference says anything), and the notebook's own code started under torchrun as it is ("as it is"). With
--corpus, one notebook of each family in that folder is rehearsed: a few steps of a tiny model; only the family is
named. Rows of an earlier call that this one does not measure again are kept. `make ledger` measures all of them.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]

import nbformat  # noqa: E402
from differential import verdicts  # noqa: E402
from differential.compare import between_prints  # noqa: E402
from ledger_page import line, load, write  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

from nb2ddp import convert  # noqa: E402
from nb2ddp.rehearse.checks import data, model  # noqa: E402
from nb2ddp.rehearse.evidence import Evidence  # noqa: E402
from nb2ddp.rehearse.ledger import Row  # noqa: E402
from nb2ddp.rehearse.observed import Rank, observe  # noqa: E402
from nb2ddp.rehearse.runs import Run as Noted  # noqa: E402
from nb2ddp.rehearse.subject import seeds_of  # noqa: E402
from tests.support.runs import GPU, PYTHONS, Run, run  # noqa: E402

CLOSE = 1e-5  # relative: what differs more is another run
DIVIDES = {
    "ACCELERATE_USE_CPU": "1"
}  # Trainers work on several CPUs as on several GPUs; else each trains all
OTHER_BATCH = "does not divide"
ROUGH = {"eval_entropy", "eval_mean_token_accuracy"}  # means over the batches, which ranks make of other rows
ORDER = ("same", "said", "declined", "different", "failed")
SHELL = re.compile(r"^(\s*)[!%].*", re.MULTILINE)
OWN_FAULT = (
    "nb2ddp: The notebook's own code fails on this machine at ...: "  # how `rehearse` begins to say it
)
GPU_ONLY = "benchmarks/notebooks/*.ipynb"  # notebooks that no CPU can show
LIGHTNING = "tests/e2e/lightning/*.py"  # which the stack newest alone has
FAULT = re.compile(r"^(crash|hang|silent)_")  # what a program once showed


class LeftOutError(Exception):
    """The notebook itself fails on this stack, so that there is nothing to compare with."""


@dataclass(frozen=True)
class Case:
    """A notebook, or a program of cells, on a stack and a number of ranks."""

    notebook: Path
    stack: str
    ranks: int

    @property
    def label(self) -> str:
        of = "lightning_" * (self.notebook.parent.name == "lightning")
        return of + FAULT.sub("", self.notebook.stem)

    @property
    def name(self) -> str:
        return f"{self.label} {self.stack} {self.ranks}"


def cases(stacks: Sequence[str], ranks: Sequence[int]) -> Iterator[Case]:
    """Yield what may be run here: the samples, but for the magic's, the tests' notebooks and generated programs."""
    everywhere = ("sample_notebooks/*.ipynb", "tests/notebooks/*.ipynb", "benchmarks/programs/*.py")
    of_one = {GPU_ONLY: GPU, LIGHTNING: "newest"}
    for pattern in (*everywhere, *of_one):
        for path in sorted(ROOT.glob(pattern)):
            if path.stem == "run_ddp_magic":
                continue
            for stack in stacks:
                for count in ranks:
                    if stack == of_one.get(pattern, stack):
                        yield Case(path, stack, count)


# ---- one row --------------------------------------------------------------------------------------


class Alone:
    """The runs of a notebook in one process on a stack, each made once for all numbers of ranks."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.notebook, self.stack, self.folder = notebook_of(case.notebook, folder), case.stack, folder
        self.plain = plain_code(self.notebook)
        self.conversion = convert(self.notebook)

    @property
    def one(self) -> Run:
        """The notebook's own code, with the seeds that its script sets.

        Raises:
            LeftOutError: it fails.
        """
        if self._one.exit_code:
            raise LeftOutError(last_line(self._one))
        return self._one

    @functools.cached_property
    def _one(self) -> Run:
        return self._run("one")

    @functools.cached_property
    def again(self) -> Run:
        return self._run("again")

    def _run(self, name: str) -> Run:
        seeds = seeds_of(self.conversion.files["train_ddp.py"])
        return run(self.folder / name, f"{seeds}\n{self.plain}", stack=self.stack, nproc=0, steps=True)


def measure(
    case: Case, folder: Path, *, controls: bool = True, script: str | None = None, alone: Alone | None = None
) -> Row:
    """Run a case and its controls below ``folder``, and compare; ``script`` takes the place of the converted one.

    ``alone`` has the runs in one process, where they are made already.

    Raises:
        LeftOutError: the notebook itself fails.
    """
    alone = alone or Alone(case, folder)
    row = Row(case.label, case.stack, case.ranks, date=time.strftime("%Y-%m-%d"))
    row.load = round(os.getloadavg()[0], 1)
    conversion = alone.conversion
    if conversion.status != "converted":
        row.verdict, row.reason = "declined", "; ".join(str(why) for why in conversion.declined)
        return row
    one = alone.one
    text = script or conversion.files["train_ddp.py"]
    several = run(folder / "ranks", text, stack=case.stack, nproc=case.ranks, steps=True)
    row.seconds_one, row.seconds_ranks = round(one.seconds, 1), round(several.seconds, 1)
    told = [change.why for change in conversion.notes]
    told += [text for text in several.output.splitlines() if "nb2ddp" in text and "WARNING" in text]
    said = [
        re.sub(r"^nb2ddp: WARNING: ", "", text) for text in told if verdicts.TRAINS_OTHERWISE.search(text)
    ]
    if several.exit_code:
        noted = "".join(f"; noted at conversion: {text}" for text in told if "refuses" in text)
        row.verdict, row.reason = "failed", f"the script: {last_line(several)}{noted}"
        return row
    compare(row, one, several, any(OTHER_BATCH in text for text in said))
    row.versions = versions_of(several)
    if controls:
        row.floor = difference(row.losses, _losses(alone.again, _noted(alone.again, 0)[0]))
        as_it_is(row, folder, alone.plain)
    row.verdict, row.reason = verdict(row, said)
    return row


def notebook_of(path: Path, folder: Path) -> Path:
    """Return the notebook; of a program, one that is made below ``folder``."""
    if path.suffix == ".ipynb":
        return path
    made = folder / f"{path.stem}.ipynb"
    cells = [cell.strip("\n") for cell in re.split(r"^# %%.*$", path.read_text(), flags=re.M)]
    code = [new_code_cell(cell) for cell in cells if re.sub(r"^#.*$", "", cell, flags=re.M).strip()]
    nbformat.write(new_notebook(cells=code), made)
    return made


def plain_code(notebook: Path) -> str:
    """Return the notebook's own Python, without shell lines and magics, and showing what its cells show."""
    cells = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    return verdicts.plain_code([SHELL.sub(r"\1pass", cell) for cell in cells])


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest relative difference of two runs' losses; infinite where one has more."""
    if len(one) != len(other):
        return math.inf
    return max((abs(a - b) / max(abs(a), 1e-12) for a, b in zip(one, other, strict=True)), default=0.0)


def compare(row: Row, one: Run, several: Run, other_batch: bool = False) -> None:
    """Note how far the ranks are from one process, and from one another."""
    (single,), ranks = _noted(one, 0), _noted(several, row.ranks)
    evidence = Evidence(_as_noted(several, row.ranks), single, single, _as_noted(one, 0), ranks)
    row.losses, row.losses_ranks = _losses(one, single), _losses(several, ranks[0])
    if not _has_losses(one):  # a loop that keeps none: what backward() was called on, the mean of the ranks
        row.losses = [a for a, b in evidence.rows if a is not None]
        row.losses_ranks = [b for a, b in evidence.rows if b is not None]
    pairs = list(zip(row.losses, row.losses_ranks, strict=False))
    row.loss_difference = difference([a for a, _ in pairs], [b for _, b in pairs])
    row.first_step = next((n for n, (a, b) in enumerate(pairs, 1) if difference([a], [b]) > CLOSE), None)
    _compare_parameters(row, one, several, single, ranks)
    point = data.samples(evidence)
    faults = [fault for fault in point.faults if fault.key == "same-samples" or not other_batch]
    row.samples_once = not faults if point.seen else None
    states = {name for name in one.files() | several.files() if "rng_state" in name}  # one for each rank
    own = {f"rng_state_{rank}.pth" for rank in range(row.ranks)}
    row.written_by_others = sorted(
        name
        for rank in range(1, row.ranks)
        for name in several.written(rank)
        if Path(name).parts[0] not in ("hf", "unsloth_compiled_cache") and Path(name).name not in own
    )
    files = [{_of_any_step(name, other_batch) for name in done.files() - states} for done in (one, several)]
    row.files_same = files[0] == files[1]
    printed = between_prints([(0, text) for text in one.printed()], several.printed())
    others = [text for rank in range(1, row.ranks) for text in several.printed(rank)]
    row.prints_same = not printed and not others
    found = {
        "samples": [fault.sentence for fault in faults],
        "prints": [text.what for text in printed] + others,
    }
    row.notes = {column: texts[0][:200] for column, texts in found.items() if texts}
    if said := other_evaluation(_evaluated(one), _evaluated(several)):
        row.notes["evaluation"] = said
    if len(row.losses) != len(row.losses_ranks):
        row.notes["losses"] = f"{len(row.losses_ranks)} losses for the notebook's {len(row.losses)}"
    if not row.files_same:
        row.notes["files"] = (
            f"{min(files[0] ^ files[1])} and {len(files[0] ^ files[1]) - 1} others are not in both"
        )


def other_evaluation(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> str:
    """Return the first figure of two runs' evaluations that differs by more than rounding does; empty if none does."""
    for number, (expected, found) in enumerate(zip(one, other, strict=False), 1):
        for name in sorted(expected.keys() - ROUGH):
            figure = found.get(name, math.nan)
            if not math.isclose(expected[name], figure, rel_tol=1e-3, abs_tol=1e-4):
                return f"evaluation {number}: {name} {figure:.6g}, in one process {expected[name]:.6g}"
    return ""


def _evaluated(done: Run) -> list[dict[str, float]]:
    """Return what the Trainers of rank 0, or of one process, have logged when they evaluated."""
    name = next((name for name in ("single", 0) if (done.watch / f"evaluated-{name}.json").exists()), None)
    return [] if name is None else done.evaluated(name)


def versions_of(done: Run) -> dict[str, str]:
    """Return the versions of the packages that trained, and the GPU that they trained on."""
    import torch

    noted = next((dict(note["versions"]) for note in _noted(done, 1)[0].of("begin")), {})
    return noted | ({"GPU": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


def _of_any_step(name: str, other_batch: bool) -> str:
    """Return a file's name; where steps take another batch there are more or fewer of them, and so of checkpoints."""
    return re.sub(r"checkpoint-\d+", "checkpoint", name) if other_batch else name


def _compare_parameters(row: Row, one: Run, several: Run, single: Rank, ranks: Sequence[Rank]) -> None:
    """Compare what the ranks have trained; where the script's model is out of sight, what its optimizer stepped."""
    import torch

    if not _has_losses(one):
        ends = {rank.steps[-1].digest for rank in ranks if rank.steps}
        row.replicas_equal = len(ends) == 1
        row.parameter_difference = model.distance(single, ranks[0])
        return
    first, *others = (several.parameters(rank) for rank in range(row.ranks))
    row.replicas_equal = all(
        other.keys() == first.keys() and all(torch.equal(first[name], other[name]) for name in first)
        for other in others
    )
    expected = one.parameters("single")
    if expected and expected.keys() == first.keys():
        both = [torch.cat([part[name].double().flatten() for name in expected]) for part in (expected, first)]
        row.parameter_difference = float((both[1] - both[0]).norm() / both[0].norm())


def _as_noted(done: Run, ranks: int) -> Noted:
    return Noted(done.folder.name, "", done.folder, done.watch, ranks)


def _noted(done: Run, ranks: int) -> list[Rank]:
    return observe(_as_noted(done, ranks))


def _has_losses(one: Run) -> bool:
    """Return whether the script keeps its losses, or a Trainer of its logs them."""
    file = one.watch / "losses-single.json"
    return file.exists() and bool(json.loads(file.read_text()))


def _losses(done: Run, rank: Rank) -> list[float]:
    name = "single" if (done.watch / "losses-single.json").exists() else 0
    file = done.watch / f"losses-{name}.json"
    return (done.losses(name) if file.exists() else []) or rank.losses


def as_it_is(row: Row, folder: Path, plain: str) -> None:
    """Start the notebook's own code on the ranks, unchanged; where that fails, with a working folder for each rank.

    In one folder the ranks read files that another one is still writing. That is what people get, and tells nothing of
    the training.
    """
    first = ""
    for apart in (False, True):
        try:
            done = run(
                folder / f"as-it-is{'-apart' * apart}",
                plain,
                stack=row.stack,
                nproc=row.ranks,
                steps=True,
                apart=apart,
                environment={} if row.stack == GPU else DIVIDES,
            )
        except subprocess.TimeoutExpired:
            row.as_it_is = first + "hangs"
            return
        if not done.exit_code:
            break
        failed = f"fails: {last_line(done)}"
        row.as_it_is = first + failed
        if apart:
            return
        first = f"{failed}; with a folder for each rank: "
    row.as_it_is_losses = _losses(done, _noted(done, row.ranks)[0])
    row.as_it_is_seconds = round(done.seconds, 1)
    off = difference(row.losses, row.as_it_is_losses)
    row.as_it_is_difference = None if math.isinf(off) else off
    counts = f"{len(row.as_it_is_losses)} losses for {len(row.losses)}"
    row.as_it_is = first + (counts if math.isinf(off) else "trains")


def last_line(done: Run) -> str:
    """Return what a failed run said last."""
    lines = [text.strip() for text in done.output.splitlines() if text.strip()]
    errors = [text for text in lines if "Error" in text.partition(":")[0]]
    return (errors or lines or ["nothing"])[-1].replace(str(done.folder), ".")[:160]


def verdict(row: Row, said: Sequence[str] = ()) -> tuple[str, str]:
    """Return the verdict on what was measured, and its reason."""
    if not row.replicas_equal:
        return "different", "the ranks hold different parameters"
    if not row.files_same:
        return "different", "other files are saved"
    if row.written_by_others:
        return "different", f"another rank than 0 writes {row.written_by_others[0]}"
    bound = max(CLOSE, 2 * (row.floor or 0.0))
    losses, parameters = row.loss_difference or 0.0, row.parameter_difference
    alike = losses <= bound and parameters is not None and parameters <= max(10 * bound, CLOSE)
    alike = alike and "losses" not in row.notes
    if alike and row.samples_once is not False and "evaluation" not in row.notes:
        return "same", ""
    if said:
        return "said", said[0][:300]
    if alike:
        return "different", row.notes.get("samples") or row.notes["evaluation"]
    if "losses" in row.notes:
        return "different", row.notes["losses"]
    where = f"loss of step {row.first_step}" if row.first_step else "parameters"
    off = parameters if parameters is None else f"{parameters:.1e}"
    return "different", f"{where}: {losses:.1e}, parameters {off}"


def worse(row: Row, published: Row) -> str:
    """Return how a row is worse than the published one; empty if it is not."""
    if ORDER.index(row.verdict) > ORDER.index(published.verdict):
        return f"{row.name}: {row.verdict} ({row.reason}), published: {published.verdict}"
    return ""


# ---- the corpus, by family ------------------------------------------------------------------------


def families(corpus: Path) -> dict[str, list[Path]]:
    """Return the corpus's notebooks by the family that they are named by."""
    found: dict[str, list[Path]] = defaultdict(list)
    for name, about in sorted(json.loads((corpus / "index.json").read_text()).items()):
        kind = str(about.get("task") or "other").replace(" ", "_").lower()
        found[f"family_{name.partition('/')[0]}_{kind}".lower()].append(corpus / name)
    return dict(found)


def rehearse(family: str, paths: Sequence[Path], ranks: int, folder: Path) -> Row:
    """Rehearse the first notebook of a family that can be; the row holds none of its names or words.

    Raises:
        LeftOutError: none can be rehearsed.
    """
    why = ""
    for number, path in enumerate(paths[:3]):
        file = folder / f"{number}.jsonl"
        load = round(os.getloadavg()[0], 1)
        command = [
            sys.executable,
            "-m",
            "nb2ddp",
            "rehearse",
            str(path),
            f"--nproc={ranks}",
            "--ledger",
            str(file),
        ]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        if file.exists():
            (values,) = map(json.loads, file.read_text().splitlines())
            keep = (
                "verdict",
                "losses",
                "losses_ranks",
                "loss_difference",
                "first_step",
                "parameter_difference",
            )
            keep += ("replicas_equal", "samples_once", "files_same", "prints_same", "date")
            row = Row(family, "newest", ranks, **{name: values[name] for name in keep})
            row.reason = {"said": values["reason"], "same": "rehearsed"}.get(row.verdict, "")
            row.reason = row.reason or ", ".join(
                values["notes"]
            )  # the names of the faults, not their sentences
            row.command, row.load = f"nb2ddp rehearse NOTEBOOK --nproc={ranks}", load
            return row
        lines = done.stderr.strip().splitlines()
        why = "not converted" if "was not converted" in done.stderr else lines[-1] if lines else ""
    why = re.sub(r"`[^`]*`|\S*/\S*", "...", why).replace(OWN_FAULT, "")
    raise LeftOutError(textwrap.shorten(why, 120, placeholder=" ..."))


# ---- the command ----------------------------------------------------------------------------------


def jobs(given: argparse.Namespace) -> Iterator[tuple[str, Callable[[Path], Row]]]:
    """Yield the name of each row that is asked for, and a function that measures it in a folder."""
    alone: dict[tuple[Path, str], Alone] = {}  # of the last notebook and stack

    def take(case: Case, folder: Path) -> Row:
        key = case.notebook, case.stack
        if key not in alone:
            for old in alone.values():
                shutil.rmtree(old.folder, ignore_errors=True)
            alone.clear()
            alone[key] = Alone(case, Path(tempfile.mkdtemp(prefix="ledger-")))
        return measure(case, folder, alone=alone[key])

    stacks = [stack for stack in given.stack.split(",") if PYTHONS[stack].exists()]
    ranks = [int(count) for count in given.ranks.split(",")]
    number, _, parts = given.part.partition("/")
    notebooks = sorted({case.notebook for case in cases(stacks, ranks)})[int(number) :: int(parts)]
    for case in cases(stacks, ranks):
        if case.notebook not in notebooks:
            continue
        yield case.name, functools.partial(take, case)
    if given.corpus is not None and given.corpus.exists() and "newest" in stacks:
        for family, paths in families(given.corpus).items():
            for count in ranks:
                yield f"{family} newest {count}", functools.partial(rehearse, family, paths, count)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="rows whose name (notebook stack ranks) this pattern finds"
    )
    parser.add_argument("--new", action="store_true", help="only rows that are not there yet")
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--stack", default="newest,kaggle")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "ledger")
    parser.add_argument(
        "--part", default="0/1", help="I/N: every Nth notebook, from the Ith on (parts at once)"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument(
        "--take", type=Path, action="append", default=[], help="measure nothing, take the rows that lie there"
    )
    given = parser.parse_args()
    rows, left_out = load(given.out)
    for folder in given.take:
        others, why = load(folder)
        rows |= others
        left_out = {name: text for name, text in (left_out | why).items() if name not in rows}
    published, measured = dict(rows), list[str]()
    for name, take in () if given.page or given.take else jobs(given):
        if not re.search(given.only, name) or (given.new and name in {*rows, *left_out}):
            continue
        rows.pop(name, None), left_out.pop(name, None)
        with tempfile.TemporaryDirectory(prefix="ledger-") as folder:
            try:
                rows[name] = take(Path(folder))
                measured.append(name)
                print(line(rows[name]), flush=True)
            except LeftOutError as error:
                left_out[name] = str(error)
                print(f"{name} is left out: {error}", flush=True)
            except subprocess.TimeoutExpired as error:
                notebook, stack, ranks = name.split()
                rows[name] = Row(notebook, stack, int(ranks), "failed", f"not done in {error.timeout:.0f} s")
                measured.append(name)
        write(rows, left_out, given.out)
    if given.page or given.take:
        write(rows, left_out, given.out)
    bad = ("different", "failed")
    known = {name for name, row in published.items() if row.verdict in bad}
    return int(any(rows[name].verdict in bad for name in measured if name not in known))


if __name__ == "__main__":
    sys.exit(main())
