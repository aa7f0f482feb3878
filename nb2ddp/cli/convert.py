"""``nb2ddp convert``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp.cli.common import converted, echo, say
from nb2ddp.ddp_folder import SCRIPT, SETUP
from nb2ddp.errors import Nb2ddpError
from nb2ddp.plain_text import json_text

if TYPE_CHECKING:
    from nb2ddp.conversion.pipeline import Conversion


_CODES = """\b
Exit codes:
  0  all notebooks were converted
  1  something was declined or failed
  2  the command line is wrong
"""


@click.command(epilog=_CODES)
@click.argument("notebooks", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the result; with several notebooks, one folder in it for each.  [default: <stem>_ddp]",
)
@click.option(
    "--nproc", type=click.IntRange(min=1), default=2, show_default=True, help="GPUs to write commands for."
)
@click.option(
    "--batch",
    type=click.Choice(["preserve", "scale"]),
    default="preserve",
    show_default=True,
    help="Keep the notebook's effective batch (the same run), or its per-device numbers (N times the data).",
)
@click.option(
    "--wrap",
    type=click.Choice(["explicit", "trainer"]),
    default="explicit",
    show_default=True,
    help="Wrap the model with DDP in the script, or leave that to the Trainer.",
)
@click.option(
    "--strategy",
    type=click.Choice(["ddp", "balanced"]),
    default="ddp",
    show_default=True,
    help="A copy of the model on each GPU, or one model spread over all of them in one process.",
)
@click.option(
    "--gpu-memory",
    type=click.FloatRange(min=1),
    default=15.0,
    show_default=True,
    metavar="GIB",
    help="Memory of one GPU; a model that does not fit is noted.",
)
@click.option("--owner", metavar="NAME", help="Your Kaggle user name, for the bundle.")
@click.option("--title", metavar="TEXT", help="Title on Kaggle.  [default: the notebook's name]")
@click.option("--json", "as_json", is_flag=True, help="Print the report alone, as JSON, on stdout.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the notebook's code against the script.")
@click.option("--check", is_flag=True, help="Write nothing; tell what would be done.")
@click.option("--force", is_flag=True, help="Overwrite outputs that were edited since.")
def convert(
    notebooks: Sequence[Path],
    output: Path | None,
    as_json: bool,
    show_diff: bool,
    check: bool,
    force: bool,
    **options: Any,
) -> None:
    """Convert NOTEBOOKS into DDP scripts with a Kaggle bundle each; of folders, all notebooks in them.

    Writes train_ddp.py, setup_env.py (if the notebook installs something), report.json and kaggle/.
    Nothing of the notebook is executed.

    \b
    Example:
      nb2ddp convert finetune.ipynb
      nb2ddp convert finetune.ipynb --check --diff
    """
    from nb2ddp.conversion import report
    from nb2ddp.ddp_folder import write

    reports, folders = [], []
    by_task: dict[str, list[str]] = {}
    in_brief = any(map(os.path.isdir, notebooks))
    for path, folder in _targets(notebooks, output):
        conversion, failure = converted(path, options)
        document = report.as_json(conversion)
        if conversion.status == "converted" and not check:
            try:
                write(folder, conversion.files, document, force=force)
                folders.append(folder)
            except Nb2ddpError as error:
                failure = str(error)
        if failure is not None:
            document |= {"status": "failed", "script": None, "notes": [*document["notes"], failure]}
        elif conversion.status == "converted":
            document["script"] = str(folder / document["script"])
        reports.append(document)
        by_task.setdefault(conversion.task or "unread", []).append(document["status"])
        if not as_json:
            for line in report.declines(conversion) if in_brief else report.lines(conversion):
                click.echo(line, err=True)
            if failure is not None:
                say(failure)
            if show_diff and conversion.script is not None:
                _echo_diff(conversion)
    if as_json:
        click.echo(json_text(reports[0] if len(reports) == 1 else reports))
    else:
        if in_brief:
            _echo_table(by_task)
        _echo_summary(reports, folders, check, options["nproc"])
    if any(document["status"] != "converted" for document in reports):
        raise SystemExit(1)


def _targets(notebooks: Sequence[Path], output: Path | None) -> list[tuple[Path, Path]]:
    """Each notebook with the folder that its conversion goes to."""
    several = len(notebooks) > 1 or any(map(os.path.isdir, notebooks))
    pairs: list[tuple[Path, Path]] = []
    taken: set[Path] = set()
    for path, below in _walked(notebooks):
        name = below / f"{path.stem}_ddp"
        if output is None:
            folder = Path(name)
        else:
            folder = output / name if several else output
        if folder in taken:
            raise click.UsageError(f"two notebooks would go to {folder}; convert them one by one with -o.")
        taken.add(folder)
        pairs.append((path, folder))
    return pairs


def _walked(paths: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """The notebooks, those of folders too; each with the folder below its own where it lay."""
    for path in paths:
        if not os.path.isdir(path):  # False where it cannot be looked at: reading it says why
            yield path, Path()
            continue
        found = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
        if not found:
            raise click.UsageError(f"there are no notebooks in {path}.")
        for notebook in found:
            yield notebook, notebook.parent.relative_to(path)


def _echo_diff(conversion: Conversion) -> None:
    import difflib

    assert conversion.source is not None
    assert conversion.script is not None
    before = "\n".join(cell.source for cell in conversion.source.cells if cell.kind == "code").splitlines()
    name = conversion.notebook.name
    after = conversion.script.text.splitlines()
    for line in difflib.unified_diff(before, after, name, SCRIPT, lineterm=""):
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        echo(line, fg=color)


def _echo_table(by_task: dict[str, list[str]]) -> None:
    """How many notebooks of each task became what."""
    width = max(len("task"), *map(len, by_task))
    states = ("converted", "declined", "failed")
    click.echo("  ".join(["task".ljust(width), *states]), err=True)
    for task, statuses in sorted(by_task.items(), key=lambda item: (-len(item[1]), item[0])):
        counts = [str(statuses.count(state)).rjust(len(state)) for state in states]
        click.echo("  ".join([task.ljust(width), *counts]), err=True)


def _echo_summary(reports: list[dict[str, Any]], folders: list[Path], check: bool, nproc: int) -> None:
    counts = {
        status: sum(r["status"] == status for r in reports) for status in ("converted", "declined", "failed")
    }
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    click.echo(f"{said}{' (nothing written)' if check else ''}.", err=True)
    if len(folders) == 1:
        folder = folders[0]
        echo(f"Wrote {folder}/. Next:", err=True)
        setup = " --setup" if (folder / SETUP).exists() else ""
        echo(f"  nb2ddp run {_quoted(folder)} --nproc {nproc}{setup}", err=True)
        echo(
            f"  nb2ddp rehearse {_quoted(folder)}    (a few steps on this CPU, before it costs GPU time)",
            err=True,
        )
        echo(f"  nb2ddp push --kaggle {_quoted(folder)}", err=True)


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
