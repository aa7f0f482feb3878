"""``nb2ddp rehearse``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nb2ddp.cli.common import (
    PathName,
    chosen,
    echo,
    option_for,
    say,
    to_width,
    typed_options,
    until_interrupted,
    unwritable,
    write_page,
)
from nb2ddp.options import Options
from nb2ddp.plain_text import json_text

_AS_CONVERTED = "Convert the NOTEBOOK with this, as `nb2ddp convert` does."

steps_option = click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of optimizer steps of a Trainer; loops run whole.",
)
data_option = click.option(
    "--data",
    multiple=True,
    metavar="NAME=PATH",
    help="A local file (JSON, CSV, Parquet, text) in place of the data set NAME; may be repeated.",
)
python_option = click.option(
    "--python", metavar="PATH", help="The Python that has the training packages.  [default: this]"
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Seconds without progress after which a run counts as hanging.  [default: by phase, 2 to 5 minutes]",
)
keep_option = click.option(
    "--keep",
    type=PathName(file_okay=False),
    help="Keep all files that the runs write, in this folder.",
)


@click.command()
@click.argument("target", metavar="DIR|NOTEBOOK", type=PathName())
@steps_option
@option_for("nproc", type=click.IntRange(min=2), help="Number of processes.")
@option_for("strategy", help=_AS_CONVERTED)
@option_for("batch", help=_AS_CONVERTED)
@data_option
@python_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print only the report, as JSON, on stdout.")
@click.option("--html", type=PathName(dir_okay=False), help="Write the report as an HTML page.")
@click.option(
    "--ledger",
    metavar="FILE",
    type=PathName(dir_okay=False),
    help="Append the result to FILE, as a line of JSON with the columns of nb2ddp's own ledger.",
)
@keep_option
def rehearse(
    target: Path,
    steps: int,
    nproc: int,
    data: Sequence[str],
    python: str | None,
    timeout: float | None,
    as_json: bool,
    html: Path | None,
    ledger: Path | None,
    keep: Path | None,
    **conversion: Any,
) -> None:
    """Run a converted script on this CPU for a few steps, and compare it with its notebook.

    DIR is the folder of a conversion; a NOTEBOOK is converted first, with the options that `nb2ddp convert`
    would take, and nothing of that is kept. Models are replaced by tiny random ones, and data sets by their
    first rows: from --data, the local cache or the hub (not with HF_HUB_OFFLINE=1), or made-up rows. The
    report names all that was replaced.

    The exit code is 0 if all checks pass, 1 if one fails, and 3 if this cannot be rehearsed.

    \b
    Example:
      nb2ddp rehearse finetune_ddp
      nb2ddp rehearse finetune.ipynb --data me/set=rows.jsonl --html page.html
    """
    from nb2ddp.errors import RehearsalError
    from nb2ddp.rehearse import report
    from nb2ddp.rehearse.ledger import append, row_of
    from nb2ddp.rehearse.ledger import unwritable as no_rows
    from nb2ddp.rehearse.progress import shown
    from nb2ddp.rehearse.rehearsal import rehearse as run_all
    from nb2ddp.rehearse.runs import Patience, Settings
    from nb2ddp.rehearse.subject import subject_of

    files = data_files(data)
    if html is not None and (reason := unwritable(html)):
        raise click.UsageError(f"--html {html} cannot be written: {reason}.")
    if ledger is not None and (reason := no_rows(ledger)):
        raise click.UsageError(f"--ledger {ledger} cannot be written: {reason}.")
    if not target.exists():
        raise RehearsalError(f"{target} does not exist.")
    options = _options(target, {"nproc": nproc, **conversion})
    if keep is not None:
        empty_folder(keep)
    patience = Patience() if timeout is None else Patience(timeout, timeout, timeout)
    settings = Settings(steps, nproc, files, python_of(python), patience)
    with until_interrupted("interrupted; no process is left"), shown(say) as display:
        display.phase(f"preparing {target.name or target}")
        result = run_all(subject_of(target, options), settings, keep=keep, display=display)
    if as_json:
        echo(json_text(report.as_json(result)))
    else:
        for line in report.lines(result):
            echo(to_width(line, sys.stdout))
    if html is not None:
        write_page(html, report.page(result, _command_line(target)))
        say(f"wrote {html}")
    if ledger is not None:
        append(row_of(result, _command_line(target)), ledger)
        say(f"appended a row to {ledger}")
    if not result.passed:
        raise SystemExit(1)


def _options(target: Path, values: dict[str, Any]) -> Options:
    """Return the options that a notebook is converted with; the folder of a conversion has had its own."""
    source = click.get_current_context().get_parameter_source
    typed = [
        f"--{name}" for name in values if name != "nproc" and source(name) is ParameterSource.COMMANDLINE
    ]
    if target.is_dir() and typed:
        raise click.UsageError(
            f"{typed[0]} is an option of the conversion, and {target} is converted; name its notebook instead."
        )
    return chosen(values)


def data_files(data: Sequence[str]) -> dict[str, Path]:
    """Return the files that stand for data sets; raises UsageError for one that is not there."""
    if wrong := [pair for pair in data if not all(pair.partition("="))]:
        raise click.UsageError(f"--data {wrong[0]} is not of the form NAME=PATH.")
    files = {name: Path(path) for name, _, path in (pair.partition("=") for pair in data)}
    if missing := [path for path in files.values() if not path.is_file()]:
        raise click.UsageError(f"there is no file {missing[0]}.")
    return files


def python_of(wanted: str | None) -> str:
    """Return the Python that trains as a path from anywhere; the runs work in folders of their own."""
    if wanted is None:
        return sys.executable
    found = shutil.which(wanted)
    if found is None:
        raise click.UsageError(f"--python {wanted} is no program that can be started.")
    return os.path.abspath(found)  # a link stays a link: the Python of a virtual environment is one


def empty_folder(folder: Path) -> None:
    """Make the folder of --keep; raises UsageError where it holds something."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.UsageError(f"{folder} is not empty.")
    except OSError as error:
        raise click.UsageError(f"--keep {folder} cannot be made: {error.strerror}.") from None


def _command_line(target: Path) -> str:
    """Return the command that runs, with the options that were given."""
    return shlex.join(["nb2ddp", "rehearse", str(target), *typed_options(click.get_current_context())])
