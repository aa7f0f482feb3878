"""The ledger's files: ledger.json, the page, a curve for each row, and the claim on the first page of the README."""

from __future__ import annotations

import json
import math
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nb2ddp.errors import REPOSITORY
from nb2ddp.rehearse.ledger import Row
from tests.support import ROOT
from tests.support.runs import GPU, STACKS

README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- ledger: [^\n]*-->\n).*?(<!-- end of ledger -->)", re.DOTALL)
VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate", "unsloth", "unsloth_zoo")
VERDICTS = {
    "same": "the run of one process",
    "said": "another run, and nb2ddp says so",
    "declined": "not converted, with the reason",
    "different": "another run, and nothing says so",
    "failed": "the script ended with an error",
}
ASK_VERSIONS = "import importlib.metadata as m, sys; print(*(m.version(n) for n in sys.argv[1:]))"
GUIDE = """\
**Verdict.** `same`: losses within 1e-5 and parameters within 1e-4 (relative) of the notebook in one process, ranks
equal bit for bit, the same files, written by rank 0 alone, no sample computed twice or left out. `said`: another run,
and a note at conversion or a warning of the run says so.

All runs begin with the same state of the random generators, for a notebook without a seed repeats nothing.

**Families** (`family_...`): one public notebook of a kind, rehearsed on two ranks: four steps of a tiny random model,
with rows made up where its data cannot be had. Losses may differ by 1e-4 there.

**Columns.** Loss: the largest relative difference of a loss. First: the first step whose loss differs by more than
1e-5. Floor: the largest difference of a second run of the notebook in one process. Parameters: the relative difference
of all trained parameters at the end. Checks: equal, the ranks hold the same parameters, bit for bit; once, each sample
of a step is computed by one rank; files and prints, as in one process, by rank 0 alone (numbers may round otherwise).
The number of losses leads to their curve: one process wide and grey, the ranks thin and blue. A dash: not measured, or
none.
"""
AS_IT_IS = """\
Without nb2ddp: the code as it is, started on as many ranks. Where it fails because the ranks write the same files, it
is started again with a working folder for each rank, which shows what it trains. Seconds: the notebook in one process,
the script on the ranks, the notebook's code on the ranks; imports are not in them.
"""


def load(folder: Path) -> tuple[dict[str, Row], dict[str, str]]:
    """Return the published rows by name, and why others are left out."""
    file = folder / "ledger.json"
    held = json.loads(file.read_text()) if file.exists() else {}
    rows = [Row(**values) for values in held.get("rows", [])]
    return {row.name: row for row in rows}, held.get("left_out", {})


def write(rows: Mapping[str, Row], left_out: Mapping[str, str], folder: Path) -> None:
    """Write ledger.json, index.md and the curves; and the README's block, where this is the published ledger."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = [rows[name] for name in sorted(rows)]
    about = {
        "command": "make ledger",
        "machine": f"{platform.machine()}, CPU, gloo; the stack gpu on two GPUs of one host, NCCL",
        "versions": {
            stack: versions(python) for stack, python in STACKS.items() if python.exists() and stack != GPU
        },
    }
    held = {
        "about": about,
        "left_out": dict(sorted(left_out.items())),
        "rows": [asdict(row) for row in ordered],
    }
    (folder / "ledger.json").write_text(json.dumps(held, indent=1) + "\n")
    (folder / "index.md").write_text(page(ordered, left_out, about))
    shutil.rmtree(folder / "curves", ignore_errors=True)
    (folder / "curves").mkdir()
    for row in ordered:
        if len(row.losses) > 1:
            (folder / curve_of(row)).write_text(curve(row))
    if folder.resolve() == ROOT / "docs" / "ledger":
        README.write_text(with_claim(README.read_text(), ordered))


def versions(python: Path) -> dict[str, str]:
    """Return the versions of a stack's packages."""
    asked = subprocess.run(
        [python, "-c", ASK_VERSIONS, *VERSIONS], capture_output=True, text=True, check=True
    )
    return dict(zip(VERSIONS, asked.stdout.split(), strict=True))


def with_claim(readme: str, rows: Sequence[Row]) -> str:
    """Return the README with the ledger's summary in its block."""
    return BLOCK.sub(lambda found: f"{found[1]}{claim(rows)}{found[2]}", readme)


# ---- sentences ------------------------------------------------------------------------------------


def claim(rows: Sequence[Row]) -> str:
    """Return the summary for a first page, with a link to the ledger."""
    page = f"{REPOSITORY}/blob/main/docs/ledger/index.md"
    return f"{summary(rows)} [Every row]({page}), with how it was measured.\n"


def summary(rows: Sequence[Row]) -> str:
    """Return the ledger in some sentences."""
    counts = Counter(row.verdict for row in rows)
    same = [row for row in rows if row.verdict == "same"]
    names = {row.notebook for row in rows}
    families = sum(name.startswith("family_") for name in names)
    ranks = " and ".join(sorted({str(row.ranks) for row in rows}))
    of = f"{len(names) - families} notebooks and programs of this repository"
    gpus = sum(row.stack == GPU for row in rows)
    where = f"CPU, gloo; {gpus} of the rows on GPUs, NCCL" if gpus else "CPU, gloo"
    rehearsed = [row for row in rows if row.notebook.startswith("family_")]
    silent = f"{counts['different']} differ silently" if counts["different"] else "none differs silently"
    text = [
        f"Measured with the real libraries: {of}, on {ranks} ranks ({where}), {len(rows)} rows"
        + f", {len(rehearsed)} of them rehearsals of public notebooks (4 steps, a tiny model)"
        * bool(rehearsed)
        + ".",
        f"{counts['same']} are the run of one process: losses within {largest(same, 'loss_difference')}, "
        "ranks equal bit for bit, the same files.",
        f"{counts['said']} are another run, and nb2ddp says why; {counts['declined']} are declined; "
        f"{counts['failed']} {'ends' if counts['failed'] == 1 else 'end'} with an error; **{silent}**.",
    ]
    if started := [row for row in rows if row.as_it_is]:
        text.append(without_us(started))
    return "\n".join(text)


def without_us(rows: Sequence[Row]) -> str:
    """Return in two lines what becomes of the notebooks' own code under torchrun."""
    failed = [row for row in rows if row.as_it_is.startswith(("fails", "hangs"))]
    trained = [row for row in rows if row.as_it_is_losses and row not in failed]
    alike = [
        row for row in trained if row.as_it_is_difference is not None and row.as_it_is_difference <= 1e-5
    ]
    return (
        f"The same code under torchrun without nb2ddp, in {len(rows)} rows: {len(failed)} fail, "
        f"{len(trained) - len(alike)} train something else,\nand in {len(alike)} every rank trains the whole notebook "
        "by itself."
    )


def largest(rows: Sequence[Row], column: str) -> str:
    """Return the largest value of a column, rounded up to one digit."""
    value = max((getattr(row, column) or 0.0 for row in rows), default=0.0)
    if value == 0:
        return "0"
    unit = 10.0 ** math.floor(math.log10(value))
    return f"{math.ceil(value / unit - 1e-9) * unit:.0e}"


def made(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """Return how the ledger was made."""
    dates = sorted({row.date for row in rows if row.date})
    installed: Mapping[str, Mapping[str, str]] = about["versions"]
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        of = row.versions or installed.get(row.stack, {})
        known = [f"{name} {of[name]}" for name in (*VERSIONS, "GPU") if name in of]
        counts[row.stack, ", ".join(known)] += bool(known)
    stacks = "\n".join(
        f"- {stack}: {known} ({count} row{'s' * (count != 1)})"
        for (stack, known), count in sorted(counts.items())
        if count
    )
    loads = [row.load for row in rows if row.load is not None and row.stack != GPU]
    busy = (
        f" While it was measured on CPUs, other work kept the machine's two cores busy (load average {min(loads)} to "
        f"{max(loads)}), so the seconds tell little: compare them within a row, if at all."
        if loads and max(loads) > 1
        else ""
    )
    return (
        f"Made by `{about['command']}`, {' to '.join(dict.fromkeys((dates or [''])[:1] + (dates or [''])[-1:]))}, "
        f"{about['machine']}.{busy}\n\n{stacks}"
    )


# ---- the page -------------------------------------------------------------------------------------


def page(rows: Sequence[Row], left_out: Mapping[str, str], about: Mapping[str, Any]) -> str:
    """Return the page: the summary, how it was made, and the tables."""
    counts = Counter(row.verdict for row in rows)
    kinds = [f"| {kind} | {counts[kind]} | {means} |" for kind, means in VERDICTS.items()]
    parts = [
        "# Ledger",
        "<!-- Made by benchmarks/ledger.py; not edited by hand. -->",
        summary(rows),
        "\n".join(["| verdict | rows | meaning |", "|---|--:|---|", *kinds]),
        made(rows, about),
        "[ledger.json](ledger.json) holds every figure. "
        "`nb2ddp rehearse NOTEBOOK --ledger FILE` measures a row of your own.",
        GUIDE.strip(),
        "## Rows",
        table(
            "notebook, stack, ranks|verdict|loss:|floor:|parameters:|first:|checks|losses:",
            [cells(row) for row in rows],
        ),
        "## Other runs, and what is said of them",
        table("what nb2ddp says|rows", reasons(rows)),
        "## The notebook's own code under torchrun",
        AS_IT_IS.strip(),
        table(
            "notebook, stack, ranks|what happens|loss:|s, one:|s, script:|s, as it is:",
            [cells_as_it_is(row) for row in rows if row.as_it_is],
        ),
    ]
    if left_out:
        parts += [
            "## Left out",
            "The notebook itself fails on this stack, or cannot be rehearsed on a CPU.",
            table("row|why", [[escaped(name), escaped(why)] for name, why in sorted(left_out.items())]),
        ]
    return "\n\n".join(parts) + "\n"


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a column whose name ends with a colon is aligned right."""
    names = head.split("|")
    lines = [
        [name.rstrip(":") for name in names],
        ["--:" if name.endswith(":") else "---" for name in names],
        *rows,
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def line(row: Row) -> str:
    """Return a row as one line of text, for the terminal."""
    found = {"reason": row.reason, "as it is": row.as_it_is, **row.notes}
    return "  ".join(
        [row.name, *cells(row)[1:], *(f"{name}: {text}" for name, text in found.items() if text)]
    )


def cells(row: Row) -> list[str]:
    count = str(len(row.losses) or "-")
    return [
        named(row),
        row.verdict,
        figure(row.loss_difference),
        figure(row.floor),
        figure(row.parameter_difference),
        str(row.first_step or "-"),
        checks(row),
        f"[{count}]({curve_of(row)})" if len(row.losses) > 1 else count,
    ]


def named(row: Row) -> str:
    """Return the row's name; a long one may be broken after each of its words."""
    words = [escaped(word) for word in row.notebook.split("_")]
    return f"{(chr(92) + '_<wbr>').join(words)} {row.stack} x{row.ranks}"


def checks(row: Row) -> str:
    """Return which checks did not hold, and which saw nothing."""
    found = {
        "equal": row.replicas_equal,
        "once": row.samples_once,
        "files": row.files_same,
        "prints": row.prints_same,
    }
    if set(found.values()) == {None}:
        return "-"
    lacking = [name for name, value in found.items() if value is False]
    unseen = [name for name, value in found.items() if value is None]
    said = f"not {', '.join(lacking)}" if lacking else "all"
    return f"{said}; {', '.join(unseen)} not seen" if unseen else said


def cells_as_it_is(row: Row) -> list[str]:
    seconds = (row.seconds_one, row.seconds_ranks, row.as_it_is_seconds)
    whole = row.as_it_is_difference is not None and row.as_it_is_difference <= 1e-5
    happens = re.sub(
        "trains$", "every rank trains the whole" if whole else "trains something else", row.as_it_is
    )
    return [
        named(row),
        escaped(happens),
        figure(row.as_it_is_difference),
        *(str(value or "-") for value in seconds),
    ]


def reasons(rows: Sequence[Row]) -> list[list[str]]:
    """Return each sentence with the rows that it is said of; where its numbers differ, N stands for them."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.verdict != "same":
            key = re.sub(r"\d+", "#", f"{row.verdict}: {row.reason}")
            found.setdefault(key, []).append(row)
    return [
        [escaped(f"{of[0].verdict}: {_common(of)}"), "; ".join(map(named, of))]
        for of in sorted(found.values(), key=len, reverse=True)
    ]


def _common(rows: Sequence[Row]) -> str:
    alike = len({row.reason for row in rows}) == 1
    return rows[0].reason if alike else re.sub(r"\d+", "N", rows[0].reason)


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"


def escaped(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", " ".join(text.split()))


# ---- curves ---------------------------------------------------------------------------------------


def curve_of(row: Row) -> str:
    return f"curves/{row.name.replace(' ', '-')}.svg"


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
