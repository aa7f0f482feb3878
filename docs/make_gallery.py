"""Make the gallery: the sample notebooks as folders that are ready for Kaggle, each with its proof.

    python docs/make_gallery.py [FOLDER]

Writes to build/gallery unless told otherwise. The folders are not committed: they are what `nb2ddp convert`
writes of the same revision, and would be out of date with the next change of a rule. The proof is that of
docs/ledger, which benchmarks/ledger.py has measured. docs/gallery.md is made by docs/make_table.py from `page`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nb2ddp.conversion import report
from nb2ddp.conversion.pipeline import convert
from nb2ddp.ddp_folder import write

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LEDGER = DOCS / "ledger"
SAMPLES = {
    "alpaca_sft": "Unsloth, TRL's SFTTrainer: instructions in the form of Alpaca, LoRA",
    "chat_sft": "Unsloth, TRL's SFTTrainer: chats, loss on the answers only",
    "peft_loop": "PEFT, a training loop written by hand",
}
PROOF = "PROOF.md"

_HEAD = """\
# Gallery

<!-- Made by docs/make_gallery.py from the samples and docs/ledger; `make docs` makes it again. -->

Three notebooks that train on one GPU, as folders for Kaggle's two T4s. They are not kept here; one command makes
them from the notebooks in `sample_notebooks/`, to `build/gallery/`:

```
make gallery
nb2ddp push --kaggle build/gallery/alpaca_sft_ddp --dry-run
```

Each folder holds `PROOF.md`: the rows of the [ledger](ledger/index.md), in which the notebook in one process is
measured against its script on several. A verdict of "said" is a difference that the script itself warns of.
"""
_COLUMNS = (
    "stack | ranks | verdict | losses | largest difference of a loss | of a parameter | replicas | files"
)


def rows(name: str) -> list[Mapping[str, Any]]:
    """Return what the ledger has measured of a notebook."""
    ledger = json.loads((LEDGER / "ledger.json").read_text(encoding="utf-8"))
    return [row for row in ledger["rows"] if row["notebook"] == name]


def table(name: str) -> Iterator[str]:
    """Yield the lines of the proof."""
    yield f"| {_COLUMNS} |"
    yield f"|{'---|' * (_COLUMNS.count('|') + 1)}"
    for row in rows(name):
        verdict = f"{row['verdict']}: {row['reason']}" if row["reason"] else row["verdict"]
        cells = [
            row["stack"],
            row["ranks"],
            verdict,
            len(row["losses"] or ()),
            _figure(row["loss_difference"]),
            _figure(row["parameter_difference"]),
            {True: "equal", False: "differ", None: ""}[row["replicas_equal"]],
            {True: "the same", False: "differ", None: ""}[row["files_same"]],
        ]
        yield f"| {' | '.join(map(str, cells))} |"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def measured() -> str:
    """Return when and how the rows of the samples were measured."""
    about = json.loads((LEDGER / "ledger.json").read_text(encoding="utf-8"))["about"]
    dates = {row["date"] for name in SAMPLES for row in rows(name)}
    return f"Measured until {max(dates)} by `{about['command']}` ({about['machine']}); the ledger has the versions."


def page() -> str:
    """Return docs/gallery.md."""
    parts = [_HEAD, measured(), ""]
    for name, what in SAMPLES.items():
        batches = report.batches(convert(ROOT / "sample_notebooks" / f"{name}.ipynb").changes, 2)
        parts += [f"## {name}", "", f"{what}. {f'Its batch: {batches[0]}.' if batches else ''}".strip(), ""]
        parts += [*table(name), ""]
        for row in rows(name):
            if row["ranks"] == 2:
                curve = f"ledger/curves/{name}-{row['stack']}-2.svg"
                parts += [f"![The losses of the notebook and of its script on two processes]({curve})", ""]
    return "\n".join(parts).rstrip() + "\n"


def make(folder: Path) -> None:
    """Write the folders; what lies there from an earlier time is replaced."""
    for name, what in SAMPLES.items():
        notebook = ROOT / "sample_notebooks" / f"{name}.ipynb"
        target = folder / f"{name}_ddp"
        conversion = convert(notebook)
        document = {**report.as_json(conversion), "notebook": notebook.name}
        write(target, conversion.files, document, force=True)
        shutil.copyfile(notebook, target / notebook.name)
        text = "\n".join([f"# {name}", "", f"{what}.", "", measured(), "", *table(name), ""])
        (target / PROOF).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    made = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "gallery"
    make(made)
    print(f"Wrote {', '.join(f'{made}/{name}_ddp' for name in SAMPLES)}")
