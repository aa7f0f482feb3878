"""``nb2ddp prove``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nb2ddp.cli.common import PathName, echo, say, to_width, until_interrupted
from nb2ddp.cli.rehearse import run_options, run_settings
from nb2ddp.plain_text import json_text


@click.command()
@click.argument("notebook", type=PathName())
@click.argument("script", type=PathName())
@click.argument("arguments", metavar="[-- ARGUMENTS]", nargs=-1)
@run_options
def prove(
    notebook: Path, script: Path, arguments: Sequence[str], as_json: bool, keep: Path | None, **runs: Any
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
    from nb2ddp.rehearse.rehearsal import OUTCOMES, rehearse
    from nb2ddp.rehearse.subject import subject_of_script

    settings = run_settings(keep, **runs)
    with until_interrupted("interrupted; no process is left"):
        say(f"reading {notebook.name or notebook}")
        subject = subject_of_script(notebook, script, arguments)
        result = rehearse(subject, settings, keep=keep, say=say)
    if as_json:
        echo(json_text(proof.as_json(result, script, subject.script)))
    else:
        for line in proof.lines(result, script, subject.script):
            echo(to_width(line, sys.stdout))
    if code := OUTCOMES[result.outcome]:
        raise SystemExit(code)
