"""``nb2ddp convert``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from nb2ddp.cli.common import (
    PathName,
    Sectioned,
    chosen,
    conversion_options,
    converted,
    echo,
    echo_step,
    say,
    show_report,
    unwritable,
    write_page,
)
from nb2ddp.ddp_folder import REPORT, SCRIPT, SETUP
from nb2ddp.errors import Nb2ddpError
from nb2ddp.options import Options, settings
from nb2ddp.plain_text import json_text, terminal_safe
from nb2ddp.source.inputs import Input, input_of
from nb2ddp.source.notebook import has_cells
from nb2ddp.waiting import is_terminal

if TYPE_CHECKING:
    from nb2ddp.conversion.pipeline import Conversion
    from nb2ddp.conversion.terminal import Detail

_STATES = ("converted", "declined", "failed")

Format = Literal["full", "concise", "json", "github"]


_SECTIONS = {
    "The conversion": [setting.name for setting in settings()],
    "Where it is written": ["output", "html", "force", "check"],
    "What is printed": ["output_format", "as_json", "show_diff", "quiet", "verbose"],
}


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("notebooks", nargs=-1, required=True, metavar="NOTEBOOK...")
@click.option(
    "-o",
    "--output",
    type=PathName(file_okay=False),
    help="Folder for the result; with several notebooks, one folder in it for each.  [default: <stem>_ddp]",
)
@conversion_options
@click.option(
    "--html",
    type=PathName(dir_okay=False),
    help="Write notebook and script side by side, with each change and its reason, as one page.",
)
@click.option(
    "--output-format",
    type=click.Choice(get_args(Format)),
    default="full",
    help="Print a report to read (full), one line per change (concise), JSON, or GitHub annotations.",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output-format json.")
@click.option("--diff", "show_diff", is_flag=True, help="Show a diff from the notebook's code to the script.")
@click.option("--check", is_flag=True, help="Write nothing; report what would be done.")
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite files that were edited since or are not of nb2ddp, and keep them as NAME.bak.",
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print only what was declined, what failed, batches that cannot be kept, and models that do not fit.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print every change on a line of its own, with its line in the notebook.",
)
def convert(
    notebooks: Sequence[str],
    output: Path | None,
    html: Path | None,
    output_format: Format,
    as_json: bool,
    show_diff: bool,
    check: bool,
    force: bool,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Convert notebooks into DDP training scripts, each with a Kaggle bundle.

    NOTEBOOK is a path, a folder (all notebooks in it), a marimo notebook or a script with `# %%` cells (.py),
    `-` for standard input, a link to a page of GitHub, Gist, Colab or Hugging Face, or kaggle:OWNER/SLUG.

    Writes train_ddp.py, ddp_support.py (the runtime module that it imports), setup_env.py (if the notebook
    installs something), report.json and kaggle/.
    Nothing of the notebook is executed. The exit code is 0 when all were converted, 1 when something was
    declined or failed, 2 for a wrong command line.

    \b
    Example:
      nb2ddp convert finetune.ipynb
      nb2ddp convert finetune.ipynb --check --diff
      nb2ddp convert finetune.ipynb --html finetune.html
      nb2ddp convert https://github.com/OWNER/REPO/blob/main/finetune.ipynb
    """
    options = chosen(values)
    if as_json:
        output_format = "json"
    if html is not None:
        _check_page(html, notebooks)
    many = any(Path(name).is_dir() for name in notebooks)
    detail: Detail = "quiet" if quiet else "verbose" if verbose else "brief" if many else "normal"
    silent = quiet or (output_format != "full" and not is_terminal())  # a program reads it
    results = []
    for what, folder in _targets(notebooks, output):
        result = _convert_one(what, folder, options, check=check, force=force, silent=silent)
        results.append(result)
        _print(result, output_format, options, detail)
        if show_diff and output_format != "json" and result.conversion.script is not None:
            _echo_diff(result.conversion)
        if html is not None:
            _write_page(html, result, options, quiet)
    if output_format == "json":
        reports = [result.document for result in results]
        echo(json_text(reports[0] if len(reports) == 1 else reports))
    elif not quiet:
        if many:
            _echo_table(results)
        _echo_summary(results, check, options)
    if any(result.status != "converted" for result in results):
        raise SystemExit(1)


@dataclass
class _Result:
    """What became of one input: its conversion, why it failed, and the folder that was written."""

    what: Input
    conversion: Conversion
    failure: str | None
    folder: Path | None
    document: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.document["status"])


def _convert_one(
    what: Input, folder: Path, options: Options, *, check: bool, force: bool, silent: bool
) -> _Result:
    """Convert one notebook, and write its files unless ``check``; one that lies nowhere here is kept too."""
    conversion, text, failure = converted(what, options, silent=silent)
    from nb2ddp.conversion import report
    from nb2ddp.ddp_folder import kept_name, write

    document = report.as_json(conversion)
    written = None
    if conversion.status == "converted" and not check:
        try:
            kept = {} if text is None else {kept_name(conversion.notebook.name, conversion.files): text}
            write(folder, {**conversion.files, **kept}, document, force=force)
            written = folder
        except Nb2ddpError as error:
            failure = str(error)
    if not what.is_file:
        document["notebook"] = what.text
    if failure is not None:
        document |= {"status": "failed", "script": None, "notes": [*document["notes"], failure]}
    elif conversion.status == "converted":
        document["script"] = str(folder / document["script"])
    return _Result(what, conversion, failure, written, document)


def _print(result: _Result, output_format: Format, options: Options, detail: Detail) -> None:
    """Print the report of one notebook: for people on stderr, for programs on stdout."""
    from nb2ddp.conversion import report

    if output_format == "concise":
        for line in report.lines(result.conversion):
            echo(line)
        if result.failure is not None:
            echo(f"nb2ddp: {terminal_safe(result.failure)}", err=True)
    elif output_format == "github":
        for line in report.github_lines(result.conversion, result.failure):
            echo(line)
    elif output_format == "full":
        show_report(result.conversion, options, detail, result.failure)


def _check_page(html: Path, notebooks: Sequence[str]) -> None:
    """Refuse a page that cannot be written before anything is converted."""
    if len(notebooks) > 1 or Path(notebooks[0]).is_dir():
        raise click.UsageError("--html writes the page of one notebook; name one.")
    if reason := unwritable(html):
        raise click.UsageError(f"--html {html} cannot be written: {reason}.")


def _write_page(html: Path, result: _Result, options: Options, quiet: bool) -> None:
    """Write the page; there is none of a notebook that could not be read."""
    from nb2ddp.page.page import page

    if result.conversion.source is None:
        say(f"{html} was not written: there is nothing to show")
    else:
        write_page(html, page(result.conversion, options))
        if not quiet:
            say(f"wrote {html}")


def _targets(names: Sequence[str], output: Path | None) -> list[tuple[Input, Path]]:
    """Return each notebook with the folder that its conversion goes to."""
    if not all(name.strip() for name in names):
        raise click.UsageError("the name of a notebook is empty.")
    inputs = [input_of(name) for name in names]
    several = len(inputs) > 1 or any(os.path.isdir(what.path) for what in inputs)
    pairs: list[tuple[Input, Path]] = []
    taken: set[Path] = set()
    for what, below in _walked(inputs):
        name = below / f"{what.path.stem}_ddp"
        if output is None:
            folder = Path(name)
        else:
            folder = output / name if several else output
        if folder in taken:
            raise click.UsageError(f"two notebooks would go to {folder}; convert them one by one with -o.")
        taken.add(folder)
        pairs.append((what, folder))
    return pairs


def _walked(inputs: Sequence[Input]) -> Iterator[tuple[Input, Path]]:
    """Yield the notebooks, those of folders too; each with the folder below its own where it lay."""
    for what in inputs:
        path = what.path
        if not what.is_file or not os.path.isdir(path):
            yield what, Path()
            continue
        if path.resolve().parent == path.resolve():
            raise click.UsageError(f"{path} is the whole disk; name a folder of notebooks.")
        found = [p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts]
        found += [p for p in path.rglob("*.py") if not _is_of_an_environment(p, path) and has_cells(p)]
        found.sort()
        made = {script.parent for script in path.rglob(SCRIPT) if script.with_name(REPORT).is_file()} - {path}
        found = [p for p in found if made.isdisjoint(p.parents)]
        if not found:
            raise click.UsageError(f"there are no notebooks in {path}.")
        for notebook in found:
            yield Input(str(notebook), "file", notebook), notebook.parent.relative_to(path)


def _is_of_an_environment(file: Path, above: Path) -> bool:
    """Return whether a file lies in a hidden folder or among installed packages."""
    return any(part.startswith(".") or part == "site-packages" for part in file.relative_to(above).parts)


def _echo_diff(conversion: Conversion) -> None:
    from nb2ddp.conversion.terminal import diff

    for line in diff(conversion):
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        echo(line, fg=color)


def _echo_table(results: Sequence[_Result]) -> None:
    """Print how many notebooks of each task became what."""
    by_task: dict[str, list[str]] = {}
    for result in results:
        task = {"": "(cannot be read)", "none": "(no training)"}.get(
            result.conversion.task, result.conversion.task
        )
        by_task.setdefault(task, []).append(result.status)
    width = max(len("task"), *map(len, by_task))
    echo("  ".join(["task".ljust(width), *_STATES]), err=True)
    for task, statuses in sorted(by_task.items(), key=lambda item: (-len(item[1]), item[0])):
        counts = [str(statuses.count(state)).rjust(len(state)) for state in _STATES]
        echo("  ".join([task.ljust(width), *counts]), err=True)


def _echo_summary(results: Sequence[_Result], check: bool, options: Options) -> None:
    """Print how many notebooks were converted, and what can be done next."""
    counts = {state: sum(result.status == state for result in results) for state in _STATES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    echo(f"{said}{' (nothing written)' if check else ''}.", err=True)
    written = [result for result in results if result.folder is not None]
    if len(written) == 1:
        echo(f"Wrote {_quoted(f'{written[0].folder}/')}. Next:", err=True)
        for command, why in _next_steps(written[0], options):
            echo_step(command, why)
    elif written:
        echo(f"Wrote {len(written)} folders, such as {_quoted(f'{written[0].folder}/')}.", err=True)


def _next_steps(result: _Result, options: Options) -> Iterator[tuple[str, str]]:
    """Yield the commands that fit, with their purpose: none that starts a run which cannot work."""
    from nb2ddp.conversion.report import attention, too_large

    folder = _quoted(result.folder)
    setup = (result.folder / SETUP).exists() if result.folder else False
    if options.strategy == "balanced":
        if setup:
            yield f"python {folder}/{SETUP}", ""
        yield f"python {folder}/{SCRIPT}", "one process holds the model, spread over all GPUs"
    elif (large := too_large(result.conversion)) is not None:
        again = f"nb2ddp convert {_quoted(result.what.text)}"
        if large.strategy == "fsdp":
            yield f"{again} --strategy fsdp", "a share of the model on each GPU"
        yield f"{again} --strategy balanced", "one model over all GPUs of a machine"
        yield f"{again} --gpu-memory GIB", "GIB: the memory of your larger GPUs"
        yield f"nb2ddp rehearse {folder}", "a few steps on this CPU, with a tiny model"
    else:
        yield f"nb2ddp run {folder} --nproc {options.nproc}{' --setup' if setup else ''}", ""
        yield f"nb2ddp rehearse {folder}", "a few steps on this CPU, before it costs GPU time"
        if not attention(result.conversion):  # push refuses what holds a secret
            yield f"nb2ddp push --kaggle {folder}", ""


def _quoted(path: Path | str | None) -> str:
    import shlex

    return shlex.quote(str(path))
