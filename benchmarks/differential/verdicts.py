"""Convert a program, run it plain and on ranks, and give the verdict."""

from __future__ import annotations

import ast
import re
import shutil
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from differential.compare import Difference, between_ranks, between_runs
from differential.features import Features, is_seeded, plainest
from differential.loop_programs import LoopProgram
from differential.recipe_programs import RecipeProgram
from differential.runs import LIMIT, Rank, Run, run
from differential.trainer_programs import TrainerProgram
from nb2ddp import convert

FAULTS = ("silent", "hang", "crash")
# from the worst to the mildest: the first of them names a fault
KINDS = ("exit", "ranks", "steps", "gradient", "parameters", "lr", "stdout", "print", "file")
# what a note must say to cover another training, and to cover another figure
TRAINS_OTHERWISE = re.compile(
    r"(losses|losses are|it|they are) near|not equal|not exact|order of its own|loss is another|"
    r"in another order|not the notebook's|does not divide|may differ from one process",
    re.IGNORECASE,
)
COUNTS_OTHERWISE = re.compile(
    r"own share|one rank's share|rank 0's share|not what all ranks|does so once", re.IGNORECASE
)
TRAINING = ("ranks", "steps", "gradient", "parameters", "lr")


@dataclass
class Verdict:
    """What came of one program."""

    verdict: str  # same | said | declined | stopped | silent | hang | crash | invalid
    ranks: int = 2
    why: str = ""
    differences: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """The fault in short: programs of one class have the same."""
        if self.verdict in ("crash", "stopped", "declined", "invalid", "hang"):
            why = re.sub("[0-9]+", "#", self.why.replace("nb2ddp", "nb"))
            return f"{self.verdict}: {why[:100]}"
        kinds = {difference["kind"] for difference in self.differences}
        worst = next((kind for kind in KINDS if kind in kinds), "")
        return f"{self.verdict}: {worst}" if worst else self.verdict

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "key": self.key}


def cells_of(features: Features) -> list[str]:
    """The code cells of a program."""
    make = {"trainer": TrainerProgram, "recipe": RecipeProgram}.get(features["family"], LoopProgram)
    cells: list[str] = make(features).cells
    return cells


def write_notebook(path: Path, cells: list[str]) -> None:
    nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)


def plain_code(cells: list[str]) -> str:
    """One script of a notebook's cells; the last expression of a cell is shown, as in a notebook."""
    shown = []
    for cell in cells:
        last = ast.parse(cell).body[-1:]
        rows = cell.split("\n")
        if last and isinstance(last[0], ast.Expr) and not cell.rstrip().endswith(";"):
            start, end = last[0].lineno - 1, (last[0].end_lineno or 1) - 1
            rows[end] = _insert(rows[end], last[0].end_col_offset or 0, "))")
            rows[start] = _insert(rows[start], last[0].col_offset, "__import__('sys').displayhook((")
        shown.append("\n".join(rows))
    return "\n".join(shown)


def _insert(row: str, offset: int, text: str) -> str:
    """Insert a text at an offset in UTF-8, as `ast` counts."""
    code = row.encode()
    return code[:offset].decode() + text + code[offset:].decode()


def changed(features: Features) -> Features:
    """The features that are not the plainest of their family."""
    plain = plainest(features)
    return {name: value for name, value in features.items() if value != plain[name]}


def judge(cells: list[str], seeded: bool, folder: Path, ranks: int = 2, limit: float = LIMIT) -> Verdict:
    """Run a program in all its forms below ``folder``."""
    start = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = _judge(cells, seeded, folder, ranks, limit)
    found.ranks = ranks
    found.seconds = round(time.monotonic() - start, 2)
    return found


def judge_features(features: Features, folder: Path, ranks: int = 2) -> Verdict:
    return judge(cells_of(features), is_seeded(features), folder, ranks)


def _judge(cells: list[str], seeded: bool, folder: Path, ranks: int, limit: float) -> Verdict:
    notebook = folder / "program.ipynb"
    write_notebook(notebook, cells)
    try:
        conversion = convert(notebook)
    except Exception as error:
        return Verdict("crash", why=f"convert: {error!r}", notes=[traceback.format_exc()[-1500:]])
    if conversion.status != "converted":
        return Verdict("declined", why=conversion.declined[0].why)
    notes = [f"{_at(change.place)}{change.why}" for change in conversion.notes]
    single = _run(folder / "plain", {"plain.py": plain_code(cells)}, "plain.py", 0, limit)
    if single.hung or single.code:
        return Verdict(
            "invalid",
            why=single.ranks[0].error or f"it ends with {single.code} and no error",
            notes=[single.ranks[0].stderr[-1500:]],
        )
    files = {name: text for name, text in conversion.files.items() if not name.startswith("kaggle/")}
    alone = _run(folder / "one", files, "train_ddp.py", 1, limit)
    several = _run(folder / f"ranks{ranks}", files, "train_ddp.py", ranks, limit)
    return _compared(single if seeded else alone, alone, several, notes, plain_code(cells).split("\n"))


def _at(place: Any) -> str:
    return f"cell {place.cell}, line {place.line}: " if place is not None else ""


def _run(folder: Path, files: dict[str, str], script: str, ranks: int, limit: float) -> Run:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return run(folder, folder / script, ranks, limit)


def _compared(reference: Run, alone: Run, several: Run, notes: list[str], rows: list[str]) -> Verdict:
    for of in (alone, several):
        if of.hung:
            stacks = [_stack(rank, of.folder) for rank in of.ranks]
            done = [
                {"kind": "hang", "where": f"rank {n}", "what": stack, "line": 0}
                for n, stack in enumerate(stacks)
            ]
            places = sorted({stack.rpartition(" in ")[2] for stack in stacks})
            return Verdict(
                "hang", why=f"{len(of.ranks)} ranks: {' | '.join(places)}", differences=done, notes=notes
            )
        if of.code:
            return _ended(of, notes)
    found: list[Difference] = []
    if alone is not reference:
        found += [
            Difference(d.kind, f"one rank: {d.where}", d.what, d.line) for d in between_runs(reference, alone)
        ]
    found += between_ranks(several) + between_runs(reference, several)
    warned = [line for line in several.text.splitlines() if "nb2ddp" in line and "WARNING" in line]
    if not found:
        return Verdict("same", notes=[*notes, *warned])
    written = [
        {**asdict(d), "code": rows[d.line - 1].strip() if 0 < d.line <= len(rows) else ""} for d in found
    ]
    says = TRAINS_OTHERWISE if {d.kind for d in found} & {*TRAINING} else COUNTS_OTHERWISE
    said = [text for text in [*notes, *warned] if says.search(text) or TRAINS_OTHERWISE.search(text)]
    why = "; ".join(said)[:300]
    return Verdict("said" if said else "silent", differences=written, notes=[*notes, *warned], why=why)


def _stack(rank: Rank, folder: Path) -> str:
    """Where a hanging rank stands: the script's frames, as faulthandler writes them, the outermost first."""
    if rank.noted:
        return f"has ended ({rank.code}) in the end"
    at = rank.stderr.rfind("(most recent call first)")
    frames = re.findall(r'File "([^"]+)", (line \d+ in \S+)', rank.stderr[at:])
    own = [place for file, place in frames if file.startswith(str(folder))]
    return " > ".join(reversed(own)) or rank.stderr[-300:]


def _ended(of: Run, notes: list[str]) -> Verdict:
    """The verdict on a run that ended with an error: with a sentence of nb2ddp's own, or not."""
    first = of.ranks[of.first_failed or 0]
    raised = [rank for rank in of.ranks if rank.error]
    sentences = re.findall(r"^nb2ddp: ERROR: (.*)", of.text, flags=re.M)
    if sentences:  # the watchdog's, or a check's at the end
        return Verdict("stopped", why=sentences[0], notes=[*notes, first.stderr[-2500:]])
    rank = first if first.error else (raised or [first])[0]
    trace = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.*)', rank.stderr)
    own = bool(trace) and trace[-1][3].startswith("raise") and str(of.folder) in trace[-1][0]
    return Verdict(
        "stopped" if own else "crash",
        why=(rank.error or rank.stderr[-200:]).splitlines()[0]
        if (rank.error or rank.stderr)
        else f"exit code {of.code}",
        notes=[*notes, rank.stderr[-2500:]],
    )
