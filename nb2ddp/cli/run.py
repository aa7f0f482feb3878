"""``nb2ddp run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nb2ddp.cli.common import script_of
from nb2ddp.ddp_folder import SETUP

if TYPE_CHECKING:
    from nb2ddp.launch.run import Observer


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--nproc", type=click.IntRange(min=1), help="Processes.  [default: one per GPU; 2 with --cpu]")
@click.option("--cpu", is_flag=True, help="Run on the CPU, with gloo; needs no GPU.")
@click.option(
    "--log-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the ranks' output goes."
)
@click.option("--setup", is_flag=True, help=f"Run the install step ({SETUP}) once first.")
@click.option(
    "--monitor",
    is_flag=True,
    help="Show each rank's memory and load, and the speed, live; a summary and a plot at the end.",
)
@click.argument("torchrun_options", nargs=-1, type=click.UNPROCESSED)
def run(
    target: Path,
    nproc: int | None,
    cpu: bool,
    log_dir: Path | None,
    setup: bool,
    monitor: bool,
    torchrun_options: Sequence[str],
) -> None:
    """Run a converted script under torchrun. TARGET is a script, a converted folder or a notebook.

    Rank 0's output is shown, the other ranks' goes to files; the exit code is the first failing rank's.
    What follows `--` goes to torchrun.

    \b
    Example:
      nb2ddp run finetune_ddp
      nb2ddp run finetune.ipynb --cpu --nproc 2
    """
    from nb2ddp.launch.run import launch

    script = script_of(target, nproc or 2)
    step = script.with_name(SETUP)
    if setup and not step.exists():
        click.echo(f"nb2ddp: there is no {SETUP}: the notebook installs nothing", err=True)
    raise SystemExit(
        launch(
            script,
            nproc=nproc,
            cpu=cpu,
            log_dir=log_dir,
            setup=step if setup and step.exists() else None,
            torchrun_options=torchrun_options,
            observer=_monitor(script) if monitor else None,
        )
    )


def _monitor(script: Path) -> Observer:
    from nb2ddp.monitor.observer import Monitor

    return Monitor(script.name)
