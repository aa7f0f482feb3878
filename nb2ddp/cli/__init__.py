"""The command line: parse, call, print, exit code. Only this package knows click; one command a module."""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from nb2ddp import __version__
from nb2ddp.cli import convert, doctor, emit, kernel, push, rehearse, rules, run
from nb2ddp.cli.common import say
from nb2ddp.errors import Nb2ddpError
from nb2ddp.plain_text import terminal_safe

__all__ = ["main"]


class _Group(click.Group):
    """Shows our errors as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a terminal in another encoding than UTF-8
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = terminal_safe(error.message)
            raise
        except Nb2ddpError as error:
            say(str(error))
            ctx.exit(error.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nb2ddp")
def main() -> None:
    """Train a single-GPU fine-tuning notebook on several GPUs: the same run, in 1/N of the time.

    \b
    Example:
      nb2ddp convert notebook.ipynb
      nb2ddp run notebook_ddp
    """


for command in (
    *(convert.convert, run.run, rehearse.rehearse, doctor.doctor, emit.emit, rules.rules),
    *(push.push, kernel.status, kernel.logs, kernel.fetch),
):
    main.add_command(command)
