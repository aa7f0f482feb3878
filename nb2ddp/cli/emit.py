"""``nb2ddp emit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nb2ddp.cli.common import echo, say, script_of


@click.command()
@click.argument("source", metavar="DIR|NOTEBOOK", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=click.Choice(["torchrun", "slurm", "accelerate", "kubeflow"]),
    required=True,
    help="What starts it there.",
)
@click.option("--nodes", default="1", show_default=True, help="Machines; 1:4 for torchrun is one to four.")
@click.option(
    "--gpus", type=click.IntRange(min=1), default=2, show_default=True, help="GPUs of each machine."
)
@click.option("--cpu", is_flag=True, help="Processes on the CPU, as many as --gpus says.")
@click.option(
    "--shared-fs/--no-shared-fs",
    default=None,
    help="The machines share the disk, or each one prepares the data for itself.  [default: kubeflow: no]",
)
@click.option("--save-steps", type=int, help="torchrun, slurm: a checkpoint every so many steps.")
@click.option("--rdzv-port", type=int, help="torchrun: port of the rendezvous.  [default: 29500]")
@click.option("--max-restarts", type=int, help="torchrun: starts after a failure.  [default: 3]")
@click.option("--time", help="slurm: time limit.  [default: 08:00:00]")
@click.option("--partition", metavar="NAME", help="slurm: partition.")
@click.option("--account", metavar="NAME", help="slurm: account.")
@click.option("--job-name", metavar="NAME", help="slurm: name of the job.")
@click.option("--mem", help="slurm: memory of a node, such as 64G.")
@click.option("--cpus-per-task", type=int, help="slurm: cores of a node.")
@click.option(
    "--signal-seconds", type=int, help="slurm: stop this long before the time limit.  [default: 300]"
)
@click.option(
    "--module", "modules", multiple=True, metavar="NAME", help="slurm: a module to load; repeatable."
)
@click.option("--container-image", metavar="IMAGE", help="slurm: image for srun (the Pyxis plugin).")
@click.option("--main-process-ip", metavar="HOST", help="accelerate: the first machine.")
@click.option("--main-process-port", type=int, help="accelerate: its port.  [default: 29500]")
@click.option("--name", metavar="NAME", help="kubeflow: name of the TrainJob.")
@click.option("--namespace", metavar="NAME", help="kubeflow: namespace.")
@click.option("--runtime", metavar="NAME", help="kubeflow: training runtime.  [default: torch-distributed]")
@click.option("--image", metavar="IMAGE", help="kubeflow: container image.  [default: the runtime's]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files.  [default: DIR/<target>]",
)
@click.option("--force", is_flag=True, help="Overwrite files that were edited since.")
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
      nb2ddp emit --target slurm --nodes 2 --gpus 4 --time 12:00:00 --partition gpu finetune_ddp
      nb2ddp emit --target accelerate --nodes 2 --main-process-ip node1 finetune_ddp
      nb2ddp emit --target kubeflow --nodes 2 --image me/unsloth finetune_ddp
    """
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
    for note in emitting.emit(job, target, starter, place, force=force):
        say(note)
    echo(f"Wrote {place}/ for {job.machines}. Next, in that folder on the cluster:", err=True)
    click.echo(f"  {starter.next_command(job)}", err=True)
