"""What several commands share: what they print, and the script that a target stands for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp.ddp_folder import SCRIPT, settle
from nb2ddp.errors import Nb2ddpError, NotebookError
from nb2ddp.plain_text import terminal_safe

if TYPE_CHECKING:
    from nb2ddp.conversion.pipeline import Conversion


def echo(text: str, **options: Any) -> None:
    """Print ``text``; control characters of file names, code and messages become visible escapes."""
    click.secho(terminal_safe(text), **options)


def say(text: str) -> None:
    echo(f"nb2ddp: {text}", err=True)


def converted(path: Path, options: dict[str, Any]) -> tuple[Conversion, str | None]:
    """A notebook's conversion, and why it failed if it did: several notebooks must not stop at the first."""
    from nb2ddp.conversion.pipeline import Conversion, convert

    try:
        return convert(path, **options), None
    except Nb2ddpError as error:
        return Conversion(path, "failed"), str(error)
    except Exception as error:
        sentence = (
            f"{path}: INTERNAL ERROR, {type(error).__name__}: {error}. Please report this notebook at "
            "https://github.com/nb2ddp/nb2ddp/issues"
        )
        return Conversion(path, "failed"), sentence


def script_of(target: Path, nproc: int) -> Path:
    """The script that ``run`` is to start; a notebook is converted first."""
    if os.path.isdir(target):
        settle(target)
        script = target / SCRIPT
        if not script.is_file():
            raise NotebookError(f"{target} holds no {SCRIPT}; `nb2ddp convert` makes one.")
        return script
    if not os.path.exists(target):
        raise NotebookError(f"{target} does not exist.")
    if target.suffix != ".ipynb":
        return target
    from nb2ddp.conversion import report
    from nb2ddp.ddp_folder import write

    conversion, failure = converted(target, {"nproc": nproc})
    for line in report.lines(conversion):
        click.echo(line, err=True)
    if failure is not None or conversion.status != "converted":
        raise NotebookError(failure or f"{target} was not converted.")
    folder = Path(f"{target.stem}_ddp")
    write(folder, conversion.files, report.as_json(conversion), force=False)
    return folder / SCRIPT


@contextlib.contextmanager
def until_interrupted(sentence: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(sentence)
        raise SystemExit(130) from None
