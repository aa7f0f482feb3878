"""``nb2ddp rehearse``, and the options that it shares with ``nb2ddp prove``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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
from nb2ddp.waiting import waiting

if TYPE_CHECKING:
    from nb2ddp.rehearse.runs import Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])

_AS_CONVERTED = "Convert the NOTEBOOK with this, as `nb2ddp convert` does."
_OF_RUNS = (
    click.option(
        "--steps",
        type=click.IntRange(min=1),
        default=4,
        show_default=True,
        help="Number of optimizer steps of a Trainer; loops run whole.",
    ),
    option_for("nproc", type=click.IntRange(min=2), help="Number of processes."),
    click.option(
        "--data",
        multiple=True,
        metavar="NAME=PATH",
        help="A local file (JSON, CSV, Parquet, text) in place of the data set NAME; may be repeated.",
    ),
    click.option(
        "--python", metavar="PATH", help="The Python that has the training packages.  [default: this]"
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="Seconds without progress after which a run counts as hanging.  [default: by phase, 2 to 5 minutes]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print only the report, as JSON, on stdout."),
    click.option(
        "--keep",
        type=PathName(file_okay=False),
        help="Keep all files that the runs write, in this folder.",
    ),
)


def run_options(command: _Command) -> _Command:
    """Give a command the options of what is run; `run_settings` takes all but --json and --keep."""
    for option in reversed(_OF_RUNS):
        command = option(command)
    return command


@click.command()
@click.argument("target", metavar="DIR|NOTEBOOK", type=PathName())
@run_options
@option_for("strategy", help=_AS_CONVERTED)
@option_for("batch", help=_AS_CONVERTED)
@click.option("--html", type=PathName(dir_okay=False), help="Write the report as an HTML page.")
@click.option(
    "--ledger",
    metavar="FILE",
    type=PathName(dir_okay=False),
    help="Append the result to FILE, as a line of JSON with the columns of nb2ddp's own ledger.",
)
def rehearse(
    target: Path,
    as_json: bool,
    keep: Path | None,
    strategy: str,
    batch: str,
    html: Path | None,
    ledger: Path | None,
    **runs: Any,
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
    from nb2ddp.rehearse.rehearsal import rehearse as run_all
    from nb2ddp.rehearse.subject import subject_of

    if html is not None and (reason := unwritable(html)):
        raise click.UsageError(f"--html {html} cannot be written: {reason}.")
    if ledger is not None and (reason := no_rows(ledger)):
        raise click.UsageError(f"--ledger {ledger} cannot be written: {reason}.")
    if not target.exists():
        raise RehearsalError(f"{target} does not exist.")
    options = _options(target, {"nproc": runs["nproc"], "strategy": strategy, "batch": batch})
    settings = run_settings(keep, **runs)
    with until_interrupted("interrupted; no process is left"):
        say(title := f"preparing {target.name or target}")
        with waiting(title):
            subject = subject_of(target, options)
        result = run_all(subject, settings, keep=keep, say=say)
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


def run_settings(
    keep: Path | None,
    steps: int,
    nproc: int,
    data: Sequence[str],
    python: str | None,
    timeout: float | None,
) -> Settings:
    """Return what the options of `run_options` ask for, and make the folder of --keep.

    Raises UsageError for a file or a Python that is not there, and for a folder that holds something.
    """
    from nb2ddp.rehearse.runs import Patience, Settings

    if wrong := [pair for pair in data if not all(pair.partition("="))]:
        raise click.UsageError(f"--data {wrong[0]} is not of the form NAME=PATH.")
    files = {name: Path(path) for name, _, path in (pair.partition("=") for pair in data)}
    if missing := [path for path in files.values() if not path.is_file()]:
        raise click.UsageError(f"there is no file {missing[0]}.")
    if (found := shutil.which(python or sys.executable)) is None:
        raise click.UsageError(f"--python {python} is no program that can be started.")
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.iterdir()):
                raise click.UsageError(f"{keep} is not empty.")
        except OSError as error:
            raise click.UsageError(f"--keep {keep} cannot be made: {error.strerror}.") from None
    patience = Patience() if timeout is None else Patience(timeout, timeout, timeout)
    # the runs work in folders of their own; a link stays a link: the Python of a virtual environment is one
    return Settings(steps, nproc, files, os.path.abspath(found), patience)


def _command_line(target: Path) -> str:
    """Return the command that runs, with the options that were given."""
    return shlex.join(["nb2ddp", "rehearse", str(target), *typed_options(click.get_current_context())])
