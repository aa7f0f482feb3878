"""The arguments of %run_ddp and %%run_ddp."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic
from IPython.core.magic_arguments import argument, magic_arguments

from nb2ddp.options import argparse_options

FOLDER = "run_ddp"
"""Where a run lies, beside the notebook; the next one takes its place."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _process_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"the number of processes must be 1 or more, not {text!r}")
    return int(text)


ARGUMENTS = (
    argument("notebook", nargs="?", help="a notebook file; without it, the cells of this session are run"),
    argument("--nproc", type=_process_count, metavar="N", help="processes; else one for each GPU (--cpu: 2)"),
    argument("--cpu", action="store_true", help="train on the CPU"),
    *(argument(*names, **rest) for names, rest in argparse_options(without={"nproc"})),
    argument("--only", action="store_true", help="run only this cell, without those that ran before"),
    argument("--keep", metavar="DIR", help=f"put script and logs there; without it, in {FOLDER}/"),
    argument("--collect", action="store_true", help="put this cell into the script, do not run it here"),
    argument("--show", action="store_true", help="show the script that would run, and run nothing"),
    argument(
        "--button", action="store_true", help="show a button for JupyterLab that runs this line without it"
    ),
    argument("--free", action="store_true", help="first drop the kernel's objects that hold GPU memory"),
    argument("-h", "--help", action="store_true", help="show this, and run nothing"),
)
"""All of them in the order of ``%run_ddp --help``, those of a conversion among them."""


def with_arguments(function: _Function) -> _Function:
    """Make a function a line and cell magic that takes these arguments."""
    decorated: Any = line_cell_magic(function)
    for option in reversed(ARGUMENTS):
        decorated = option(decorated)
    decorated = magic_arguments()(decorated)
    return cast(_Function, decorated)


def help_text(magic: Any) -> str:
    """Return the usage, the docstring and the options of a magic as plain text."""
    text: str = magic.parser.format_help()
    text = re.sub(r"^( *Examples)\n *-+$", r"\1:", text.replace("``", "`"), flags=re.MULTILINE)
    return "Usage:\n" + text.replace("::\n", ":\n").removeprefix(":").strip("\n")


def check(options: Any, cell: str | None) -> None:
    """Raise UsageError for options that exclude each other."""
    if cell is None:
        for name in ("only", "collect"):
            if getattr(options, name):
                raise UsageError(f"--{name} is for a cell: put %%run_ddp --{name} above it.")
    elif options.button:
        raise UsageError("--button is for a line: %run_ddp --button in a cell of its own.")
    elif options.notebook:
        raise UsageError(f"a notebook is run with %run_ddp {options.notebook}, without a cell below it.")
    elif (options.collect or options.only) and not cell.strip():
        raise UsageError("there is nothing in this cell.")
    if options.collect and (options.only or options.show):
        raise UsageError("--collect runs nothing yet: give the other options with the next %run_ddp.")
