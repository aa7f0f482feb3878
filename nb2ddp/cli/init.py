"""``nb2ddp init``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import click

from nb2ddp.cli.common import echo, echo_step
from nb2ddp.errors import OutputError
from nb2ddp.options import Setting, settings

FILE = "nb2ddp.toml"


@click.command()
@click.option("--force", is_flag=True, help=f"Overwrite a {FILE} that is there.")
def init(force: bool) -> None:
    """Write a configuration with every option of a conversion, its help and its default, as comments.

    nb2ddp.toml gives defaults for `nb2ddp convert` and the other commands that convert, in this folder and those
    below it. Take the # away from the lines that you want.

    \b
    Example:
      nb2ddp init
    """
    path = Path(FILE)
    if path.exists() and not force:
        raise OutputError(f"{FILE} is here already: edit it, or overwrite it with --force.")
    try:
        path.write_text(text(), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{FILE} cannot be written here: {error.strerror or error}.") from None
    echo(f"Wrote {FILE}. Next:", err=True)
    echo_step("nb2ddp convert NOTEBOOK", "takes its defaults from there")


def text() -> str:
    """Return the file: valid TOML that changes nothing until a line is taken out of its comment."""
    head = "# Defaults of nb2ddp in this folder and those below it; the command line goes before them.\n"
    return head + "".join(map(_entry, settings()))


def _entry(setting: Setting) -> str:
    choices = f" One of: {', '.join(setting.choices)}." if setting.choices else ""
    lines = textwrap.wrap(setting.help + choices, 98)
    value = "..." if setting.default is None else setting.default
    otherwise = f"    # default: {setting.otherwise or 'none'}" if setting.default is None else ""
    key = setting.flag.removeprefix("--")
    return "\n" + "".join(f"# {line}\n" for line in lines) + f"# {key} = {json.dumps(value)}{otherwise}\n"
