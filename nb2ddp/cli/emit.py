"""``nb2ddp emit``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from nb2ddp.cli.common import PathName, Sectioned, echo, echo_step, say, script_of, to_width
from nb2ddp.options import settings_of
from nb2ddp.source.notebook import is_notebook
from nb2ddp.targets import TARGETS

_SECTIONS = {
    "The job": ["target", "nodes", "gpus", "cpu", "shared_fs", "save_steps", "output", "force"],
    **{f"For {kind.title}": [option.name for option in settings_of(kind)] for kind in TARGETS.values()},
}
_NO_SHARED_FS = ", ".join(name for name, kind in TARGETS.items() if not kind.shared_fs)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _target_options(command: _Command) -> _Command:
    """Give the command the options of all targets; one that several have is one option."""
    options = {option.name: option for kind in TARGETS.values() for option in settings_of(kind)}
    for option in reversed(options.values()):
        said = option.otherwise or option.default
        default = f"  [default: {said}]" if said not in (None, ()) else ""
        command = click.option(
            option.flag,
            option.name,
            type=option.type,
            multiple=option.several,
            metavar=option.metavar,
            help=option.help + default,
        )(command)
    return command


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("source", metavar="DIR|NOTEBOOK", type=PathName())
@click.option(
    "--target",
    type=click.Choice(list(TARGETS)),
    required=True,
    help="The launcher that starts the script on the cluster.",
)
@click.option(
    "--nodes",
    default="1",
    metavar="N",
    show_default=True,
    help="Number of machines; 1:4 means one to four, for torchrun.",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    default=2,
    metavar="N",
    show_default=True,
    help="Number of GPUs in each machine.",
)
@click.option("--cpu", is_flag=True, help="Start the processes on the CPU, as many as --gpus says.")
@click.option(
    "--shared-fs/--no-shared-fs",
    default=None,
    help="The machines share a disk, or each prepares the data for itself.  "
    f"[default: shared; {_NO_SHARED_FS}: not]",
)
@click.option(
    "--save-steps", type=int, metavar="N", help="Save a checkpoint every N steps, for torchrun and SLURM."
)
@_target_options
@click.option(
    "-o",
    "--output",
    type=PathName(file_okay=False),
    help="Folder for the files.  [default: DIR/<target>]",
)
@click.option(
    "--force", is_flag=True, help="Overwrite files that were edited since, and keep them as NAME.bak."
)
def emit(
    source: Path,
    target: str,
    nodes: str,
    gpus: int,
    cpu: bool,
    shared_fs: bool | None,
    save_steps: int | None,
    output: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Write what a cluster needs to run a converted script: a folder with the script and its launcher.

    \b
    Example:
      nb2ddp emit --target torchrun --nodes 2 --gpus 4 finetune_ddp
      nb2ddp emit --target slurm --nodes 2 --gpus 4 --time 12:00:00 finetune_ddp
      nb2ddp emit --target accelerate --nodes 2 --main-process-ip n1 finetune_ddp
      nb2ddp emit --target kubeflow --nodes 2 --image me/unsloth finetune_ddp
      nb2ddp emit --target skypilot --gpus 8 --accelerator H100 finetune_ddp
    """
    from nb2ddp.ddp_folder import SETUP
    from nb2ddp.targets import emit as emitting

    starter = emitting.target_of(target, options)
    folder = script_of(source, gpus).parent
    job = emitting.job_of(
        folder,
        nodes=nodes,
        gpus=gpus,
        cpu=cpu,
        shared_fs=starter.shared_fs if shared_fs is None else shared_fs,
        save_steps=save_steps,
    )
    place = output or folder / target
    if not is_notebook(source):  # the report on a notebook has named its secrets
        for warning in _secrets_in(folder):
            say(warning)
    for note in emitting.emit(job, target, starter, place, force=force):
        say(note)
    done = f"Wrote {place}/ for {job.machines}. Next, in that folder on the cluster:"
    echo(to_width(done, sys.stderr), err=True)
    if (place / SETUP).is_file() and not starter.installs:
        echo_step(f"python {SETUP}", "once for each Python that trains: what the notebook installs")
    command, _, why = starter.next_command(job).partition("    (")
    echo_step(command, why.removesuffix(")"))


def _secrets_in(folder: Path) -> Iterator[str]:
    """Yield a warning for each secret in a folder's scripts, which are copied to the cluster."""
    from nb2ddp.ddp_folder import SCRIPT, SETUP
    from nb2ddp.launch.cell_map import read_cell_map
    from nb2ddp.secrets import Text, scan

    texts = [
        Text(name, (folder / name).read_text(encoding="utf-8", errors="replace"))
        for name in (SCRIPT, SETUP)
        if (folder / name).is_file()
    ]
    cells = read_cell_map(folder / SCRIPT)
    for secret in scan(texts):
        cell = cells.place(secret.line) if secret.place == SCRIPT else None
        yield (
            f"{secret.place}, line {secret.line}{f' ({cell})' if cell else ''}: a secret, {secret.kind}, is written "
            "here, and so in what goes to the cluster: read it from the environment, and revoke it "
            f"(fingerprint {secret.fingerprint})"
        )
