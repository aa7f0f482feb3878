"""The command line: parse, call, print, exit code. Only this package knows click; one command a module."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

import click

from nb2ddp import __version__
from nb2ddp.cli import convert, doctor, emit, init, kernel, prove, push, rehearse, rules, run, web
from nb2ddp.cli.common import say, to_width
from nb2ddp.errors import Nb2ddpError
from nb2ddp.plain_text import terminal_safe

__all__ = ["main"]


_SECTIONS = {
    "Convert a notebook": (convert.convert, web.web, rules.rules, init.init),
    "Run the script": (run.run, rehearse.rehearse, prove.prove, doctor.doctor),
    "On Kaggle": (push.push, kernel.status, kernel.logs, kernel.fetch),
    "On a cluster": (emit.emit,),
}


class _Group(click.Group):
    """Shows our errors as one sentence, and the commands in sections."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # of names that the terminal cannot show
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.ClickException as error:
            shown = to_width(terminal_safe(error.format_message()), sys.stderr, beside=len("Error: "))
            vars(error)["format_message"] = lambda: shown
            raise
        except Nb2ddpError as error:
            say(str(error))
            ctx.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            say("interrupted")
            ctx.exit(130)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with the first sentence of its help as a whole."""
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(str(command.name), _first_sentence(command)) for command in commands])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            _cannot_print(error)
            raise SystemExit(1) from None


def _cannot_print(error: OSError) -> None:
    """Say what the system refuses, such as a full disk behind stdout, and keep Python from trying again."""
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    with contextlib.suppress(OSError, ValueError):
        say(f"{where}{error.strerror or error}")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _first_sentence(command: click.Command) -> str:
    text = " ".join((command.help or "").strip().split("\n\n")[0].split())
    return f"{text.partition('. ')[0].rstrip('.')}."


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="nb2ddp")
def main() -> None:
    """Turn a single-GPU fine-tuning notebook into a script that trains the same run on several GPUs.

    \b
    Example:
      nb2ddp convert notebook.ipynb
      nb2ddp run notebook_ddp

    `nb2ddp COMMAND --help` describes a command and its options. TAB completes both in bash, with
    eval "$(_NB2DDP_COMPLETE=bash_source nb2ddp)" in ~/.bashrc (zsh_source, fish_source for others).
    """


for commands in _SECTIONS.values():
    for command in commands:
        main.add_command(command)
