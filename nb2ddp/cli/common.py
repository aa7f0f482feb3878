"""What several commands share: what they print, and the script that a target stands for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nb2ddp.ddp_folder import SCRIPT, settle
from nb2ddp.errors import Nb2ddpError, NotebookError
from nb2ddp.options import Options, Setting, settings
from nb2ddp.plain_text import terminal_safe

if TYPE_CHECKING:
    from nb2ddp.conversion.pipeline import Conversion
    from nb2ddp.conversion.terminal import Detail


_Command = TypeVar("_Command", bound=Callable[..., Any])


def option_for(name: str, **other: Any) -> Callable[[_Command], _Command]:
    """Make the click option of one conversion option; ``other`` goes before what `Options` says of it."""
    (setting,) = (setting for setting in settings() if setting.name == name)
    return click.option(setting.flag, setting.name, **{**_arguments(setting), **other})


def conversion_options(command: _Command) -> _Command:
    """Give a command all the conversion options."""
    for setting in reversed(settings()):
        command = option_for(setting.name)(command)
    return command


def _arguments(setting: Setting) -> dict[str, Any]:
    """Return what `click.option` has to know of a conversion option."""
    otherwise = f"  [default: {setting.otherwise}]" if setting.otherwise else ""
    known: dict[str, Any] = {"help": setting.help + otherwise, "default": setting.default}
    if setting.type is bool:
        return {**known, "is_flag": True}
    known |= {"metavar": setting.metavar, "show_default": setting.default is not None}
    if setting.choices:
        return {**known, "type": click.Choice(setting.choices)}
    if setting.minimum is not None:
        span = click.IntRange if setting.type is int else click.FloatRange
        return {**known, "type": span(min=setting.minimum)}
    return {**known, "type": setting.type}


def echo(text: str, **options: Any) -> None:
    """Print ``text``; control characters of file names, code and messages become visible escapes."""
    click.secho(terminal_safe(text), **options)


def say(text: str) -> None:
    echo(f"nb2ddp: {text}", err=True)


def converted(path: Path, options: Options) -> tuple[Conversion, str | None]:
    """A notebook's conversion, and why it failed if it did: several notebooks must not stop at the first."""
    from nb2ddp.conversion.pipeline import Conversion, convert

    try:
        return convert(path, options=options), None
    except Nb2ddpError as error:
        return Conversion(path, "failed"), str(error)
    except Exception as error:
        sentence = (
            f"{path}: INTERNAL ERROR, {type(error).__name__}: {error}. Please report this notebook at "
            "https://github.com/nb2ddp/nb2ddp/issues"
        )
        return Conversion(path, "failed"), sentence


def show_report(conversion: Conversion, options: Options, detail: Detail, failure: str | None = None) -> None:
    """Print a conversion's report for people, on stderr."""
    from nb2ddp.conversion.terminal import console_for, show

    show(console_for(sys.stderr), conversion, options.processes, detail, failure)


def script_of(target: Path, nproc: int) -> Path:
    """The script that ``run`` is to start; a notebook is converted first."""
    if target.is_dir():
        settle(target)
        script = target / SCRIPT
        if not script.is_file():
            raise NotebookError(f"{target} holds no {SCRIPT}; `nb2ddp convert` makes one.")
        return script
    if not target.is_file():
        raise NotebookError(f"{target} does not exist.")
    if target.suffix != ".ipynb":
        return target
    from nb2ddp.conversion import report
    from nb2ddp.ddp_folder import write

    options = Options(nproc=nproc)
    conversion, failure = converted(target, options)
    show_report(conversion, options, "normal")
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
