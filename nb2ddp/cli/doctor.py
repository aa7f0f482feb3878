"""``nb2ddp doctor``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp.cli.common import PathName, echo, to_width
from nb2ddp.plain_text import json_text
from nb2ddp.waiting import waiting

if TYPE_CHECKING:
    from nb2ddp.doctor.outcome import Outcome

_STATUS = 6  # columns


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, type=PathName(exists=True))
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes.  [default: one per GPU; 2 with --cpu]",
)
@click.option("--cpu", is_flag=True, help="Check for training on the CPU, with gloo.")
@click.option("--python", metavar="PATH", help="The Python that has the training packages.  [default: this]")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that torch may take to start, and then the all-reduce.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the report, as JSON, on stdout.")
def doctor(
    folder: Path | None, nproc: int | None, cpu: bool, python: str | None, timeout: float, as_json: bool
) -> None:
    """Check whether this machine can train on several GPUs, and say what to do if it cannot.

    Checks the GPUs, driver, CUDA and torch, NCCL with a real all-reduce, the rendezvous port, shared memory, disk,
    versions and Kaggle's credentials; with DIR, also whether the packages that its script imports are installed.
    Nothing is installed or sent. The exit code is 1 if a check fails; a warning leaves it at 0.

    \b
    Example:
      nb2ddp doctor
      nb2ddp doctor finetune_ddp --nproc 2 --python venv/bin/python
    """
    with waiting("starting"):
        from nb2ddp.doctor import examination
        from nb2ddp.doctor.machine import Settings, look
        from nb2ddp.doctor.script import imports_of

    if folder is not None and not folder.is_dir():
        raise click.UsageError(f"{folder} is no folder of a conversion; `nb2ddp convert` makes one.")
    imports = () if folder is None else imports_of(folder)
    settings = Settings(nproc, cpu, python or sys.executable, folder, imports, timeout)
    results = []
    with waiting("starting Python with torch, to ask for its GPUs") as line:
        machine = look(settings)

        def told() -> Iterator[tuple[str, Any]]:
            for result in examination.examine(machine, lambda name: line.turn_to(f"checking: {name}")):
                results.append(result)
                yield result

        for name, outcome in told() if as_json else examination.grouped(told()):
            if not as_json:
                line.turn_to("checking")
                _echo_result(name, outcome)
    report = examination.as_json(results, machine)
    if as_json:
        echo(json_text(report))
    else:
        echo(examination.verdict([outcome for _, outcome in results]))
    if not report["passed"]:
        raise SystemExit(1)


def _echo_result(name: str, outcome: Outcome) -> None:
    from nb2ddp.doctor.examination import lines

    color = {"ok": "green", "warn": "yellow", "fail": "red"}.get(outcome.status)
    said = to_width("\n".join(lines(name, outcome)), sys.stdout, beside=_STATUS)
    echo(outcome.status.ljust(_STATUS), fg=color, nl=False)
    echo(said.replace("\n", "\n" + " " * _STATUS))
