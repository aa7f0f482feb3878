"""The command line: parse, call, print, exit code. The only module that knows click."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp import __version__
from nb2ddp.errors import Nb2ddpError, NotebookError

if TYPE_CHECKING:
    from nb2ddp.conversion import Conversion

_CODES = """\b
Exit codes:
  0  all notebooks were converted
  1  something was declined or failed
  2  the command line is wrong
"""


class _Group(click.Group):
    """Shows our errors as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Nb2ddpError as error:
            click.echo(f"nb2ddp: {error}", err=True)
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


@main.command(epilog=_CODES)
@click.argument("notebooks", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the result; with several notebooks, one folder in it for each.  [default: <stem>_ddp]",
)
@click.option(
    "--nproc", type=click.IntRange(min=1), default=2, show_default=True, help="GPUs to write commands for."
)
@click.option(
    "--batch",
    type=click.Choice(["preserve", "scale"]),
    default="preserve",
    show_default=True,
    help="Keep the notebook's effective batch (the same run), or its per-device numbers (N times the data a step).",
)
@click.option(
    "--wrap",
    type=click.Choice(["explicit", "trainer"]),
    default="explicit",
    show_default=True,
    help="Wrap the model with DDP in the script, or leave that to the Trainer.",
)
@click.option("--owner", metavar="NAME", help="Your Kaggle user name, for the bundle.")
@click.option("--title", metavar="TEXT", help="Title on Kaggle.  [default: the notebook's name]")
@click.option("--json", "as_json", is_flag=True, help="Print the report alone, as JSON, on stdout.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the notebook's code against the script.")
@click.option("--check", is_flag=True, help="Write nothing; tell what would be done.")
@click.option("--force", is_flag=True, help="Overwrite outputs that were edited since.")
def convert(
    notebooks: Sequence[Path],
    output: Path | None,
    as_json: bool,
    show_diff: bool,
    check: bool,
    force: bool,
    **options: Any,
) -> None:
    """Convert NOTEBOOKS into DDP scripts with a Kaggle bundle each.

    Writes train_ddp.py, setup_env.py (if the notebook installs something), report.json and kaggle/.
    Nothing of the notebook is executed.

    \b
    Example:
      nb2ddp convert finetune.ipynb
      nb2ddp convert finetune.ipynb --check --diff
    """
    from nb2ddp import report
    from nb2ddp.output import write

    reports, folders = [], []
    for path, folder in _targets(notebooks, output):
        conversion, failure = _convert(path, options)
        document = report.as_json(conversion)
        if conversion.status == "converted" and not check:
            try:
                write(folder, conversion.files, document, force=force)
                folders.append(folder)
            except Nb2ddpError as error:
                failure = str(error)
        if failure is not None:
            document |= {"status": "failed", "script": None, "notes": [*document["notes"], failure]}
        elif conversion.status == "converted":
            document["script"] = str(folder / document["script"])
        reports.append(document)
        if not as_json:
            for line in report.lines(conversion):
                click.echo(line, err=True)
            if failure is not None:
                click.echo(f"nb2ddp: {failure}", err=True)
            if show_diff and conversion.script is not None:
                _echo_diff(conversion)
    if as_json:
        click.echo(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2, ensure_ascii=False))
    else:
        _echo_summary(reports, folders, check, options["nproc"])
    if any(document["status"] != "converted" for document in reports):
        raise SystemExit(1)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--nproc", type=click.IntRange(min=1), help="Processes.  [default: one per GPU; 2 with --cpu]")
@click.option("--cpu", is_flag=True, help="Run on the CPU, with gloo; needs no GPU.")
@click.option(
    "--log-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the ranks' output goes."
)
@click.option("--setup", is_flag=True, help="Run the install step (setup_env.py) once first.")
@click.argument("torchrun_options", nargs=-1, type=click.UNPROCESSED)
def run(
    target: Path,
    nproc: int | None,
    cpu: bool,
    log_dir: Path | None,
    setup: bool,
    torchrun_options: Sequence[str],
) -> None:
    """Run a converted script under torchrun. TARGET is a script, a converted folder or a notebook.

    Rank 0's output is shown, the other ranks' goes to files; the exit code is the first failing rank's.
    What follows `--` goes to torchrun.

    \b
    Example:
      nb2ddp run finetune_ddp
      nb2ddp run finetune.ipynb --cpu --nproc 2
    """
    from nb2ddp.launch import launch

    script = _script(target, nproc or 2)
    step = script.with_name("setup_env.py")
    if setup and not step.exists():
        click.echo("nb2ddp: there is no setup_env.py: the notebook installs nothing", err=True)
    raise SystemExit(
        launch(
            script,
            nproc=nproc,
            cpu=cpu,
            log_dir=log_dir,
            setup=step if setup and step.exists() else None,
            torchrun_options=torchrun_options,
        )
    )


@main.command()
@click.argument("name", metavar="[RULE]", required=False)
def rules(name: str | None) -> None:
    """List the rules, or show what one of them does.

    \b
    Example:
      nb2ddp rules
      nb2ddp rules batch
    """
    from nb2ddp.rules import RULES

    if name is None:
        width = max(len(rule.name) for rule in RULES)
        for rule in RULES:
            click.echo(f"{rule.name.ljust(width)}  {rule.doc.strip().splitlines()[0]}")
        return
    for rule in RULES:
        if rule.name == name:
            click.echo(rule.doc.strip())
            return
    raise click.UsageError(f"there is no rule {name!r}; `nb2ddp rules` lists them.")


def _targets(notebooks: Sequence[Path], output: Path | None) -> list[tuple[Path, Path]]:
    """Each notebook with the folder that its conversion goes to."""
    several = len(notebooks) > 1
    pairs: list[tuple[Path, Path]] = []
    taken: set[Path] = set()
    for path in notebooks:
        name = f"{path.stem}_ddp"
        if output is None:
            folder = Path(name)
        else:
            folder = output / name if several else output
        if folder in taken:
            raise click.UsageError(f"two notebooks would go to {folder}; convert them one by one with -o.")
        taken.add(folder)
        pairs.append((path, folder))
    return pairs


def _convert(path: Path, options: dict[str, Any]) -> tuple[Conversion, str | None]:
    from nb2ddp.conversion import Conversion, convert

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


def _script(target: Path, nproc: int) -> Path:
    """The script that ``run`` is to start; a notebook is converted first."""
    if target.is_dir():
        script = target / "train_ddp.py"
        if not script.is_file():
            raise NotebookError(f"{target} holds no train_ddp.py; `nb2ddp convert` makes one.")
        return script
    if not target.is_file():
        raise NotebookError(f"{target} does not exist.")
    if target.suffix != ".ipynb":
        return target
    from nb2ddp import report
    from nb2ddp.output import write

    conversion, failure = _convert(target, {"nproc": nproc})
    for line in report.lines(conversion):
        click.echo(line, err=True)
    if failure is not None or conversion.status != "converted":
        raise NotebookError(failure or f"{target} was not converted.")
    folder = Path(f"{target.stem}_ddp")
    write(folder, conversion.files, report.as_json(conversion), force=False)
    return folder / "train_ddp.py"


def _echo_diff(conversion: Conversion) -> None:
    import difflib

    assert conversion.source is not None
    assert conversion.script is not None
    before = "\n".join(cell.source for cell in conversion.source.cells if cell.kind == "code").splitlines()
    name = conversion.notebook.name
    after = conversion.script.text.splitlines()
    for line in difflib.unified_diff(before, after, name, "train_ddp.py", lineterm=""):
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        click.secho(line, fg=color)


def _echo_summary(reports: list[dict[str, Any]], folders: list[Path], check: bool, nproc: int) -> None:
    counts = {
        status: sum(r["status"] == status for r in reports) for status in ("converted", "declined", "failed")
    }
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    click.echo(f"{said}{' (nothing written)' if check else ''}.", err=True)
    if len(folders) == 1:
        folder = folders[0]
        click.echo(f"Wrote {folder}/. Next:", err=True)
        setup = " --setup" if (folder / "setup_env.py").exists() else ""
        click.echo(f"  nb2ddp run {_quoted(folder)} --nproc {nproc}{setup}", err=True)


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


if __name__ == "__main__":
    sys.exit(main())
