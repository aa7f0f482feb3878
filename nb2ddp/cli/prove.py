"""``nb2ddp prove``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from nb2ddp.cli.common import PathName, echo, option_for, say, to_width, until_interrupted
from nb2ddp.cli.rehearse import (
    data_files,
    data_option,
    empty_folder,
    keep_option,
    python_of,
    python_option,
    steps_option,
    timeout_option,
)
from nb2ddp.plain_text import json_text


@click.command()
@click.argument("notebook", type=PathName())
@click.argument("script", type=PathName())
@click.argument("arguments", metavar="[-- ARGUMENTS]", nargs=-1)
@steps_option
@option_for("nproc", type=click.IntRange(min=2), help="Number of processes.")
@data_option
@python_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print only the report, as JSON, on stdout.")
@keep_option
def prove(
    notebook: Path,
    script: Path,
    arguments: Sequence[str],
    steps: int,
    nproc: int,
    data: Sequence[str],
    python: str | None,
    timeout: float | None,
    as_json: bool,
    keep: Path | None,
) -> None:
    """Judge any DDP script against the notebook that it is made from: by hand, by a tool, by an agent.

    The notebook's own code runs in one process, and the SCRIPT in several as torchrun starts it, on this CPU, with
    tiny models in place of downloads. Nothing of nb2ddp has to be in the script; its own arguments stand behind
    `--`. The report names each difference, its line in the script, and what to do.

    The exit code is 0 if the script trains what the notebook trains, 1 if it is another run, 3 if it cannot be
    judged here, 4 if it fails or never trains, 5 if it hangs, and 6 if only the random order of the samples is
    another one.

    \b
    Example:
      nb2ddp prove finetune.ipynb train_ddp.py
      nb2ddp prove finetune.ipynb train.py --nproc 4 --json -- --epochs 2
    """
    from nb2ddp.rehearse import proof
    from nb2ddp.rehearse.progress import shown
    from nb2ddp.rehearse.rehearsal import OUTCOMES, rehearse
    from nb2ddp.rehearse.runs import Patience, Settings
    from nb2ddp.rehearse.subject import subject_of_script

    files = data_files(data)
    if keep is not None:
        empty_folder(keep)
    patience = Patience() if timeout is None else Patience(timeout, timeout, timeout)
    settings = Settings(steps, nproc, files, python_of(python), patience)
    with until_interrupted("interrupted; no process is left"), shown(say) as display:
        display.phase(f"reading {notebook.name or notebook}")
        subject = subject_of_script(notebook, script, arguments)
        result = rehearse(subject, settings, keep=keep, display=display)
    if as_json:
        echo(json_text(proof.as_json(result, script, subject.script)))
    else:
        for line in proof.lines(result, script, subject.script):
            echo(to_width(line, sys.stdout))
    if code := OUTCOMES[result.outcome]:
        raise SystemExit(code)
