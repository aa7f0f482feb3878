"""``nb2ddp status``, ``logs`` and ``fetch``: a kernel that was pushed to Kaggle."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nb2ddp.cli.common import PathName, echo, echo_log, say, to_width, until_interrupted
from nb2ddp.errors import REPOSITORY, KernelError

if TYPE_CHECKING:
    from nb2ddp.kaggle.client import Client, State


KAGGLE_CODES = f"The exit code says what failed: {REPOSITORY}/blob/main/docs/exit_codes.md lists the codes."


@click.command(epilog=KAGGLE_CODES)
@click.argument("target", metavar="[OWNER/SLUG|DIR]", required=False, type=PathName(path_type=str))
@click.option("--follow", is_flag=True, help="Watch until the kernel has ended.")
def status(target: str | None, follow: bool) -> None:
    """Show the state of a kernel on Kaggle; the exit code is not 0 if it failed.

    \b
    Example:
      nb2ddp status finetune_ddp
      nb2ddp status me/finetune --follow
    """
    from nb2ddp.kaggle import bundle, client
    from nb2ddp.kaggle.watch import check

    ref = bundle.kernel_ref(target)
    kaggle = client.connect()
    if follow:
        watch_kernel(kaggle, ref)
    else:
        state = kaggle.state(ref)
        echo(f"{ref}: {state.name}")
        check(ref, state)


@click.command(epilog=KAGGLE_CODES)
@click.argument("target", metavar="[OWNER/SLUG|DIR]", required=False, type=PathName(path_type=str))
@click.option("--follow", is_flag=True, help="Print on until the kernel has ended.")
def logs(target: str | None, follow: bool) -> None:
    """Print the log of a kernel on Kaggle.

    \b
    Example:
      nb2ddp logs finetune_ddp --follow
    """
    from nb2ddp.kaggle import bundle, client
    from nb2ddp.kaggle.watch import check, printed

    ref = bundle.kernel_ref(target)
    kaggle = client.connect()
    states: list[client.State] = []
    with _watching(ref):
        for text in printed(kaggle, ref, states.append if follow else None):
            echo_log(text)
    if follow:
        check(ref, states[-1])


@click.command(epilog=KAGGLE_CODES)
@click.argument("target", metavar="[OWNER/SLUG|DIR]", required=False, type=PathName(path_type=str))
@click.option("--follow", is_flag=True, help="Wait until the kernel has ended.")
@click.option(
    "-o",
    "--output",
    type=PathName(file_okay=False),
    help="Folder for the files.  [default: <slug>_output]",
)
def fetch(target: str | None, follow: bool, output: Path | None) -> None:
    """Download the output of a kernel on Kaggle, except files that are here already.

    If the kernel failed or was stopped, this is what it had written until then.

    \b
    Example:
      nb2ddp fetch finetune_ddp -o result
    """
    from nb2ddp.kaggle import bundle, client
    from nb2ddp.kaggle.fetch import fetch as bring
    from nb2ddp.kaggle.fetch import output_of
    from nb2ddp.kaggle.run_summary import summary

    ref = bundle.kernel_ref(target)
    kaggle = client.connect()
    state = watch_kernel(kaggle, ref, judge=False) if follow else kaggle.state(ref)
    folder = output or output_of(ref)
    if state.is_active:
        say(f"{ref} is {state.name}: this is what there is so far")
    if not bring(kaggle, ref, folder, say):
        raise KernelError(
            f"{ref} is {state.name} and has no output{': ' + state.failure if state.failure else ''}."
        )
    lines, succeeded = summary(folder, ref)
    for line in lines:
        echo(to_width(line, sys.stdout))
    if not succeeded or state.name not in ("COMPLETE", *client.ACTIVE):
        raise KernelError(f"{ref} is {state.name}, and its run did not succeed; its log is in {folder}.")


def watch_kernel(kaggle: Client, ref: str, *, judge: bool = True) -> State:
    """Watch a kernel until it has ended."""
    from nb2ddp.kaggle import watch

    with _watching(ref):
        state = watch.watch(kaggle, ref)
    if judge:
        watch.check(ref, state)
    return state


def _watching(ref: str) -> contextlib.AbstractContextManager[None]:
    return until_interrupted(
        f"{ref} goes on running on Kaggle. To watch it again: nb2ddp status {ref} --follow"
    )
