"""What several commands share: what they print, and the script that a target stands for."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from click.core import ParameterSource

from nb2ddp import output_file
from nb2ddp.ddp_folder import REPORT, SCRIPT, in_use, settle
from nb2ddp.errors import PLEASE_REPORT, Nb2ddpError, NotebookError, OptionError, OutputError
from nb2ddp.options import Options, Setting, file_defaults, settings
from nb2ddp.plain_text import terminal_safe, wrapped
from nb2ddp.source.inputs import Input, input_of
from nb2ddp.source.notebook import is_notebook
from nb2ddp.waiting import waiting

if TYPE_CHECKING:
    from nb2ddp.conversion.pipeline import Conversion
    from nb2ddp.conversion.terminal import Detail


_PAGE = b"<!doctype html>"
_Command = TypeVar("_Command", bound=Callable[..., Any])


class PathName(click.Path):
    """A path on the command line; an empty one, as of a shell's unset variable, would be the working folder."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"path_type": Path, **more})

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


def option_for(name: str, **other: Any) -> Callable[[_Command], _Command]:
    """Make the click option of one conversion option; ``other`` goes before what `Options` says of it."""
    (setting,) = (setting for setting in settings() if setting.name == name)
    flag = f"{setting.flag}/--no-{setting.flag[2:]}" if setting.type is bool else setting.flag
    return click.option(flag, setting.name, **{**_arguments(setting), **other})


def conversion_options(command: _Command) -> _Command:
    """Give a command all the conversion options."""
    for setting in reversed(settings()):
        command = option_for(setting.name)(command)
    return command


class Sectioned(click.Command):
    """A command whose `--help` shows its options in sections: title, and names of the parameters."""

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section; what is in none of them comes last."""
        title_of = {name: title for title, names in self.sections.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*self.sections, "Other options")}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                rows[title_of.get(str(parameter.name), "Other options")].append(record)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def chosen(values: dict[str, Any]) -> Options:
    """Return the conversion options: those on the command line, then those of nb2ddp.toml or pyproject.toml.

    Raises OptionError for a file with a key that is no option, or with a wrong value.
    """
    context = click.get_current_context()
    default = ParameterSource.DEFAULT
    typed = {name: value for name, value in values.items() if context.get_parameter_source(name) != default}
    return file_defaults(Path.cwd()).with_(**typed)


def typed_options(context: click.Context, without: Collection[str] = ()) -> Iterator[str]:
    """Yield the options that were given on the command line, as they can be typed again."""
    for option in context.command.params:
        name = str(option.name)
        is_typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or not is_typed or name in without:
            continue
        value = context.params[name]
        for one in value if isinstance(value, tuple) else [value]:
            yield from [option.opts[-1]] if one is True else [option.opts[-1], str(one)]


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


def echo_log(text: str) -> None:
    """Print a piece of a log as `nb2ddp.kaggle.untrusted.TerminalFilter` has left it: its colours stay."""
    click.echo(text, nl=False)


def echo_step(command: str, why: str = "") -> None:
    """Print a command, and its purpose behind it, or below it where the line is too short for both."""
    line = f"  {command}    ({why})" if why else f"  {command}"
    if why and len(line) > shutil.get_terminal_size().columns:
        line = f"  {command}\n      ({why})"
    echo(line, err=True)


def say(text: str) -> None:
    echo(to_width(f"nb2ddp: {text}", sys.stderr), err=True)


def to_width(text: str, stream: TextIO, beside: int = 0) -> str:
    """Break the lines of a text between words where ``stream`` is a terminal, of which ``beside`` columns are taken."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns - beside
    return "\n".join(wrapped(line, width) for line in text.split("\n"))


def converted(
    what: Input, options: Options, *, silent: bool = False
) -> tuple[Conversion, str | None, str | None]:
    """Convert what the user named; return the conversion, its text if it lies in no file, and why it failed.

    A failure is a sentence and no exception: several notebooks must not stop at the first.
    """
    with contextlib.nullcontext() if silent else waiting(f"converting {what.text}"):
        from nb2ddp.conversion.pipeline import Conversion, convert_notebook
        from nb2ddp.source.inputs import read_input

        try:
            notebook, text = read_input(what, _kernel_source)
            return convert_notebook(notebook, options=options), text, None
        except OptionError:  # it would be wrong for the next notebook too
            raise
        except Nb2ddpError as error:
            failure = str(error)
        except Exception as error:
            failure = f"{what.text}: INTERNAL ERROR, {type(error).__name__}: {error}. {PLEASE_REPORT}"
        return Conversion(what.path, "failed"), None, failure


def _kernel_source(ref: str) -> str:
    """Return the source of a kernel on Kaggle, through the official client."""
    from nb2ddp.kaggle import client

    return client.connect().source(ref)


def show_report(conversion: Conversion, options: Options, detail: Detail, failure: str | None = None) -> None:
    """Print a conversion's report for people, on stderr."""
    from nb2ddp.conversion.terminal import console_for, show

    show(console_for(sys.stderr), conversion, options.processes, detail, failure)


def script_place(target: Path) -> Path:
    """Return where the script of a target lies, or will lie."""
    if os.path.isdir(target):
        return target / SCRIPT
    return Path(f"{target.stem}_ddp", SCRIPT) if is_notebook(target) else target


def script_of(target: Path, nproc: int, used: contextlib.ExitStack | None = None) -> Path:
    """Return the script that a target stands for; a notebook is converted first.

    ``used``: for as long as this is open, no conversion replaces the files of the script's folder.
    """
    if str(target).startswith(("http:/", "https:/", "kaggle:")) and not os.path.exists(target):
        raise NotebookError("a link is converted first: `nb2ddp convert LINK` writes a folder to name here.")
    if os.path.isdir(target):
        settle(target)
        script = target / SCRIPT
        if not script.is_file():
            raise NotebookError(f"{target} holds no {SCRIPT}; `nb2ddp convert` makes one.")
        if used is not None:
            used.enter_context(in_use(target))
        return script
    if not os.path.exists(target):
        raise NotebookError(f"{target} does not exist.")
    if not is_notebook(target):
        if used is not None and target.name == SCRIPT and target.with_name(REPORT).is_file():
            used.enter_context(in_use(target.parent))
        return target
    from nb2ddp.conversion import report
    from nb2ddp.ddp_folder import write

    options = file_defaults(Path.cwd()).with_(nproc=nproc)
    conversion, _, failure = converted(input_of(str(target)), options)
    show_report(conversion, options, "normal")
    if failure is not None or conversion.status != "converted":
        raise NotebookError(failure or f"{target} was not converted.")
    script = script_place(target)
    folder = script.parent
    write(folder, conversion.files, report.as_json(conversion), force=False)
    if used is not None:
        used.enter_context(in_use(folder, conversion.files))
    return script


@contextlib.contextmanager
def until_interrupted(sentence: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(sentence)
        raise SystemExit(130) from None


def unwritable(path: Path) -> str:
    """Return why a page cannot be written here; empty when it can. What the file holds stays as it is.

    A page may replace a page, and nothing else: a slip of the hand must not cost a notebook.
    """
    otherwise = "there is a file of this name that is no page; name another"
    return output_file.unwritable(path, lambda line: line.lower().startswith(_PAGE), otherwise)


def write_page(path: Path, text: str) -> None:
    """Write the page, last of all: what was printed by then is not lost with it.

    Raises:
        OutputError: it cannot be written, and what was there before stays.
    """
    whole = path.resolve()
    part = whole.parent / f".nb2ddp-{os.getpid()}.part"
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(whole)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise OutputError(
            f"the result is printed, but {path} cannot be written: {error.strerror or error}."
        ) from None
