"""``nb2ddp run``."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nb2ddp.cli.common import PathName, say, script_of, script_place, typed_options
from nb2ddp.ddp_folder import SETUP
from nb2ddp.errors import LaunchError

if TYPE_CHECKING:
    from nb2ddp.monitor.listener import Listener
    from nb2ddp.monitor.observer import Monitor

_TORCHRUN = "torchrun options"


class _Command(click.Command):
    """Keep what follows ``--`` for torchrun, and nothing else."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- TORCHRUN_OPTIONS...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_TORCHRUN] = args[end + 1 :]
        try:
            return super().parse_args(ctx, args[:end])
        except click.NoSuchOption as error:
            name = error.option_name
            message = f"No such option: {name}. Options of torchrun follow a --: nb2ddp run TARGET -- {name}."
            raise click.NoSuchOption(name, message, error.possibilities, ctx) from None


@click.command(cls=_Command)
@click.argument("target", type=PathName())
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes.  [default: one per GPU; 2 with --cpu]",
)
@click.option("--cpu", is_flag=True, help="Run on the CPU, with gloo; needs no GPU.")
@click.option(
    "--log-dir",
    type=PathName(file_okay=False),
    help="Folder for the ranks' output; two runs of several machines need one each.  "
    "[default: logs, beside the script]",
)
@click.option("--setup", is_flag=True, help=f"Run the install step ({SETUP}) once first.")
@click.option("--resume", is_flag=True, help="Go on from the Trainer's last checkpoint, where there is one.")
@click.option(
    "--monitor",
    is_flag=True,
    help="Show each rank's memory, its load and the speed, live; a summary and a plot at the end.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only rank 0's output, and errors.")
@click.pass_context
def run(
    ctx: click.Context,
    target: Path,
    nproc: int | None,
    cpu: bool,
    log_dir: Path | None,
    setup: bool,
    resume: bool,
    monitor: bool,
    quiet: bool,
) -> None:
    """Run a converted script under torchrun. TARGET is a script, a converted folder or a notebook.

    Rank 0's output is shown, the other ranks' goes to files; the exit code is the first failing rank's.
    What follows `--` goes to torchrun. A run that was stopped goes on with `--resume`: each training of a
    Trainer from the newest whole checkpoint in its output folder.

    \b
    Example:
      nb2ddp run finetune_ddp
      nb2ddp run finetune.ipynb --cpu --nproc 2
      nb2ddp run finetune_ddp --resume
      nb2ddp run finetune_ddp -- --max-restarts=1
    """
    from nb2ddp.launch.run import Launch, default_log_dir, launch, refuse_beside_another

    if monitor and quiet:
        raise click.UsageError("--monitor shows what --quiet leaves out: give one of them.")
    logs = default_log_dir(script_place(target)) if log_dir is None else log_dir
    refuse_beside_another(logs, ctx.meta[_TORCHRUN])
    used = ctx.with_resource(contextlib.ExitStack())
    script = script_of(target, nproc or 2, used)
    text = script.read_text(encoding="utf-8", errors="replace") if script.is_file() else ""
    if nproc != 1:
        _refuse_one_process(script, text)
        _say_if_not_converted(script, text)
    step = script.with_name(SETUP)
    if setup and not step.exists() and not quiet:
        say(f"there is no {SETUP}: the notebook installs nothing")
    observer = _observer(script, monitor=monitor, quiet=quiet)
    began = time.time()
    with _runner(script, text, resume) as runner:
        plan = Launch(
            script,
            nproc=nproc,
            cpu=cpu,
            log_dir=log_dir,
            setup=step if setup and step.exists() else None,
            runner=runner,
            torchrun_options=ctx.meta[_TORCHRUN],
            quiet=quiet,
            resume=_again(ctx, script, text),
        )
        code = launch(plan, observer)
    if code == 0 and not quiet:
        _close(observer, text, began, logs)
    raise SystemExit(code)


def _refuse_one_process(script: Path, text: str) -> None:
    """Raise LaunchError for a script of --strategy balanced: on ranks each would train all of it, on all GPUs."""
    from nb2ddp.ddp_folder import spreads

    if spreads(text):
        raise LaunchError(
            f"{script} is for one process that spreads the model over all GPUs (--strategy balanced): run it with "
            "--nproc 1, or convert the notebook without --strategy."
        )


# What divides a training over processes, or asks which of them this one is.
_DIVIDES = re.compile(
    r"ddp_support|distributed|accelerate|transformers|lightning|deepspeed|horovod|\bray\b|RANK\b"
)


def _say_if_not_converted(script: Path, text: str) -> None:
    """Warn of a ``# %%`` script in which nothing divides the training over processes."""
    if re.search(r"^# %%", text, re.MULTILINE) and _DIVIDES.search(text) is None:
        say(
            f"{script} has cells and nothing that divides its work: every process does all of it. "
            f"`nb2ddp convert {shlex.quote(str(script))}` makes a script that divides the training."
        )


def _again(ctx: click.Context, script: Path, text: str) -> str | None:
    """Return the command that goes on from a checkpoint, with the options of this run; None without a Trainer.

    A notebook's is that of the script which it was converted into: converting again could change it.
    """
    from nb2ddp.targets.job import has_trainer

    if not has_trainer(text):
        return None
    torchrun = ["--", *ctx.meta[_TORCHRUN]] if ctx.meta[_TORCHRUN] else []
    typed = typed_options(ctx, without=("setup", "resume"))
    return shlex.join(["nb2ddp", "run", str(script), *typed, "--resume", *torchrun])


@contextlib.contextmanager
def _runner(script: Path, text: str, resume: bool) -> Iterator[Path | None]:
    """Write the program that goes on from a checkpoint, for as long as the run lasts.

    Raises:
        LaunchError: the script has no Trainer, whose checkpoints hold all that a run goes on from.
    """
    if not resume:
        yield None
        return
    from nb2ddp.targets.job import has_trainer, resuming_runner

    if text and not has_trainer(text):
        raise LaunchError(
            f"--resume goes on from the checkpoints of a Trainer, and {script} trains without one; run it "
            "without --resume, or load what it has saved in the notebook itself."
        )
    with tempfile.TemporaryDirectory(prefix="nb2ddp-", ignore_cleanup_errors=True) as folder:
        runner = Path(folder, "resume.py")
        runner.write_text(resuming_runner(), encoding="utf-8")
        yield runner


def _observer(script: Path, *, monitor: bool, quiet: bool) -> Listener | Monitor:
    if monitor:
        from nb2ddp.monitor.observer import Monitor

        return Monitor(script.name)
    from nb2ddp.monitor.listener import Listener

    return Listener(quiet=quiet)


def _close(observer: Listener | Monitor, text: str, began: float, logs: Path) -> None:
    """Print the closing block."""
    from nb2ddp.launch.outputs import Outputs, files_written
    from nb2ddp.monitor.closing import closing_facts
    from nb2ddp.monitor.terminal import print_closing

    ours = [os.fstat(1), os.fstat(2)]  # `> train.log` is no file of the run
    files = [
        file
        for file in files_written(Path.cwd(), began, without=[logs.absolute()])
        if not any(os.path.samestat(file.stat(), own) for own in ours)
    ]
    facts = closing_facts(
        observer.progress,
        time.time() - began,
        Outputs(files, text),
        nproc=observer.nproc,
        peak_memory=observer.peak_memory,
        logs=logs if any(logs.glob("*")) else None,
    )
    print_closing(facts)
