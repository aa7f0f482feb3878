"""The command line: parse, call, print, exit code. The only module that knows click."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp import __version__
from nb2ddp.errors import BundleError, KaggleError, KernelError, Nb2ddpError, NotebookError

if TYPE_CHECKING:
    from nb2ddp.conversion import Conversion
    from nb2ddp.launch import Observer
    from nb2ddp.submit.bundle import Wishes
    from nb2ddp.submit.client import Client, State

_CODES = """\b
Exit codes:
  0  all notebooks were converted
  1  something was declined or failed
  2  the command line is wrong
"""

_REHEARSE_CODES = """\b
Exit codes:
  0  everything that was measured is as it should be
  1  something is not, or the notebook cannot be read
  2  the command line is wrong
  3  this cannot be rehearsed
"""

_DOCTOR_CODES = """\b
Exit codes:
  0  nothing fails; there may be warnings
  1  something fails, or there is nothing to check
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
    help="Keep the notebook's effective batch (the same run), or its per-device numbers (N times the data).",
)
@click.option(
    "--wrap",
    type=click.Choice(["explicit", "trainer"]),
    default="explicit",
    show_default=True,
    help="Wrap the model with DDP in the script, or leave that to the Trainer.",
)
@click.option(
    "--strategy",
    type=click.Choice(["ddp", "balanced"]),
    default="ddp",
    show_default=True,
    help="A copy of the model on each GPU, or one model spread over all of them in one process.",
)
@click.option(
    "--gpu-memory",
    type=click.FloatRange(min=1),
    default=15.0,
    show_default=True,
    metavar="GIB",
    help="Memory of one GPU; a model that does not fit is noted.",
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
    """Convert NOTEBOOKS into DDP scripts with a Kaggle bundle each; of folders, all notebooks in them.

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
    by_task: dict[str, list[str]] = {}
    in_brief = any(path.is_dir() for path in notebooks)
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
        by_task.setdefault(conversion.task or "unread", []).append(document["status"])
        if not as_json:
            for line in report.declines(conversion) if in_brief else report.lines(conversion):
                click.echo(line, err=True)
            if failure is not None:
                click.echo(f"nb2ddp: {failure}", err=True)
            if show_diff and conversion.script is not None:
                _echo_diff(conversion)
    if as_json:
        click.echo(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2, ensure_ascii=False))
    else:
        if in_brief:
            _echo_table(by_task)
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
@click.option(
    "--monitor",
    is_flag=True,
    help="Show each rank's memory and load, and the speed, live; a summary and a plot at the end.",
)
@click.argument("torchrun_options", nargs=-1, type=click.UNPROCESSED)
def run(
    target: Path,
    nproc: int | None,
    cpu: bool,
    log_dir: Path | None,
    setup: bool,
    monitor: bool,
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
            observer=_monitor(script) if monitor else None,
        )
    )


@main.command(epilog=_REHEARSE_CODES)
@click.argument("target", metavar="DIR|NOTEBOOK", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(min=1), default=4, show_default=True, help="Optimizer steps.")
@click.option("--nproc", type=click.IntRange(min=2), default=2, show_default=True, help="Processes.")
@click.option(
    "--data",
    multiple=True,
    metavar="NAME=PATH",
    help="A local file (JSON, CSV, Parquet, text) in place of the data set NAME; may be repeated.",
)
@click.option("--python", metavar="PATH", help="The Python that has the training packages.  [default: this]")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="How long nothing may happen before a run counts as hanging.  [default: by phase, 2 to 5 minutes]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report alone, as JSON, on stdout.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the report as a page.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all that the runs write, here."
)
def rehearse(
    target: Path,
    steps: int,
    nproc: int,
    data: Sequence[str],
    python: str | None,
    timeout: float | None,
    as_json: bool,
    html: Path | None,
    keep: Path | None,
) -> None:
    """Run a converted script on this CPU for a few steps, and compare it with its notebook.

    DIR is the folder of a conversion; a NOTEBOOK is converted first, and nothing of that is kept. Models
    become tiny random ones, data sets their first rows: from --data, the local cache or the hub (which
    HF_HUB_OFFLINE=1 leaves alone), else made-up ones. What was replaced is said.

    \b
    Example:
      nb2ddp rehearse finetune_ddp
      nb2ddp rehearse finetune.ipynb --data yahma/alpaca-cleaned=rows.jsonl --html rehearsal.html
    """
    from nb2ddp.rehearse import report
    from nb2ddp.rehearse.rehearsal import rehearse as run_all
    from nb2ddp.rehearse.runs import Patience, Settings
    from nb2ddp.rehearse.subject import subject_of

    if wrong := [pair for pair in data if not all(pair.partition("="))]:
        raise click.UsageError(f"--data {wrong[0]} is not of the form NAME=PATH.")
    files = {name: Path(path) for name, _, path in (pair.partition("=") for pair in data)}
    if missing := [path for path in files.values() if not path.is_file()]:
        raise click.UsageError(f"there is no file {missing[0]}.")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"{keep} is not empty.")
    patience = Patience() if timeout is None else Patience(timeout, timeout, timeout)
    settings = Settings(steps, nproc, files, python or sys.executable, patience)
    result = run_all(subject_of(target, nproc), settings, keep=keep, say=_say)
    if html is not None:
        html.write_text(report.page(result), encoding="utf-8")
        _say(f"wrote {html}")
    if as_json:
        click.echo(json.dumps(report.as_json(result), indent=2, ensure_ascii=False))
    else:
        for line in report.lines(result):
            click.echo(line)
    if not result.passed:
        raise SystemExit(1)


@main.command(epilog=_DOCTOR_CODES)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--nproc", type=click.IntRange(min=1), help="Processes.  [default: one per GPU; 2 with --cpu]")
@click.option("--cpu", is_flag=True, help="Check for training on the CPU, with gloo.")
@click.option("--python", metavar="PATH", help="The Python that has the training packages.  [default: this]")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="How long torch may take to start, and then the all-reduce.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report alone, as JSON, on stdout.")
def doctor(
    folder: Path | None, nproc: int | None, cpu: bool, python: str | None, timeout: float, as_json: bool
) -> None:
    """Check whether this machine can train on several GPUs, and say what to do about what cannot.

    GPUs, driver, CUDA and torch, NCCL with a real all-reduce, port, shared memory, disk, versions, Kaggle's
    credentials; with DIR, whether that conversion's script finds its packages. Nothing is installed or sent.

    \b
    Example:
      nb2ddp doctor
      nb2ddp doctor finetune_ddp --nproc 2 --python venv/bin/python
    """
    from nb2ddp.doctor import examination
    from nb2ddp.doctor.machine import Settings, look
    from nb2ddp.doctor.script import imports_of

    if folder is not None and not folder.is_dir():
        raise click.UsageError(f"{folder} is no folder of a conversion; `nb2ddp convert` makes one.")
    imports = () if folder is None else imports_of(folder)
    machine = look(Settings(nproc, cpu, python or sys.executable, folder, imports, timeout))
    results = []

    def told() -> Iterator[tuple[str, Any]]:
        for result in examination.examine(machine):
            results.append(result)
            yield result

    for name, outcome in told() if as_json else examination.grouped(told()):
        if as_json:
            continue
        color = {"ok": "green", "warn": "yellow", "fail": "red"}.get(outcome.status)
        first, *more = examination.lines(name, outcome)
        click.echo(f"{click.style(outcome.status.ljust(4), fg=color)}  {first}")
        for line in more:
            click.echo(f"      {line}")
    report = examination.as_json(results, machine)
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        click.echo(examination.verdict([outcome for _, outcome in results]))
    if not report["passed"]:
        raise SystemExit(1)


@main.command()
@click.argument("source", metavar="DIR|NOTEBOOK", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=click.Choice(["torchrun", "slurm", "accelerate", "kubeflow"]),
    required=True,
    help="What starts it there.",
)
@click.option("--nodes", default="1", show_default=True, help="Machines; 1:4 for torchrun is one to four.")
@click.option(
    "--gpus", type=click.IntRange(min=1), default=2, show_default=True, help="GPUs of each machine."
)
@click.option("--cpu", is_flag=True, help="Processes on the CPU, as many as --gpus says.")
@click.option(
    "--shared-fs/--no-shared-fs",
    default=None,
    help="The machines share the disk, or each one prepares the data for itself.  [default: kubeflow: no]",
)
@click.option("--save-steps", type=int, help="torchrun, slurm: a checkpoint every so many steps.")
@click.option("--rdzv-port", type=int, help="torchrun: port of the rendezvous.  [default: 29500]")
@click.option("--max-restarts", type=int, help="torchrun: starts after a failure.  [default: 3]")
@click.option("--time", help="slurm: time limit.  [default: 08:00:00]")
@click.option("--partition", metavar="NAME", help="slurm: partition.")
@click.option("--account", metavar="NAME", help="slurm: account.")
@click.option("--job-name", metavar="NAME", help="slurm: name of the job.")
@click.option("--mem", help="slurm: memory of a node, such as 64G.")
@click.option("--cpus-per-task", type=int, help="slurm: cores of a node.")
@click.option(
    "--signal-seconds", type=int, help="slurm: stop this long before the time limit.  [default: 300]"
)
@click.option(
    "--module", "modules", multiple=True, metavar="NAME", help="slurm: a module to load; repeatable."
)
@click.option("--container-image", metavar="IMAGE", help="slurm: image for srun (the Pyxis plugin).")
@click.option("--main-process-ip", metavar="HOST", help="accelerate: the first machine.")
@click.option("--main-process-port", type=int, help="accelerate: its port.  [default: 29500]")
@click.option("--name", metavar="NAME", help="kubeflow: name of the TrainJob.")
@click.option("--namespace", metavar="NAME", help="kubeflow: namespace.")
@click.option("--runtime", metavar="NAME", help="kubeflow: training runtime.  [default: torch-distributed]")
@click.option("--image", metavar="IMAGE", help="kubeflow: container image.  [default: the runtime's]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files.  [default: DIR/<target>]",
)
@click.option("--force", is_flag=True, help="Overwrite files that were edited since.")
def emit(
    source: Path,
    target: str,
    nodes: str,
    gpus: int,
    cpu: bool,
    shared_fs: bool | None,
    save_steps: int | None,
    output: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Write what a cluster needs to run a converted script: a folder with the script and its launcher.

    \b
    Example:
      nb2ddp emit --target torchrun --nodes 2 --gpus 4 finetune_ddp
      nb2ddp emit --target slurm --nodes 2 --gpus 4 --time 12:00:00 --partition gpu finetune_ddp
      nb2ddp emit --target accelerate --nodes 2 --main-process-ip node1 finetune_ddp
      nb2ddp emit --target kubeflow --nodes 2 --image me/unsloth finetune_ddp
    """
    from nb2ddp import emit as emitting

    starter = emitting.target_of(target, options)
    folder = _script(source, gpus).parent
    job = emitting.job_of(
        folder,
        nodes=nodes,
        gpus=gpus,
        cpu=cpu,
        shared_fs=starter.shared_fs if shared_fs is None else shared_fs,
        save_steps=save_steps,
    )
    place = output or folder / target
    for note in emitting.emit(job, target, starter, place, force=force):
        _say(note)
    click.echo(f"Wrote {place}/ for {job.machines}. Next, in that folder on the cluster:", err=True)
    click.echo(f"  {starter.next_command(job)}", err=True)


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


def _kaggle_codes() -> str:
    """The exit codes of the commands that talk to Kaggle, by the error classes."""
    codes = {0: "done", 2: "the command line is wrong", 130: "interrupted with Ctrl-C"}
    kinds: list[type[Nb2ddpError]] = [NotebookError, BundleError, *KaggleError.__subclasses__()]
    for kind in kinds:
        text = str(kind.__doc__).splitlines()[0].rstrip(".")
        codes[kind.exit_code] = f"{codes[kind.exit_code]}; {text}" if kind.exit_code in codes else text
    return "\b\nExit codes:\n" + "\n".join(f"  {code:3}  {codes[code]}" for code in sorted(codes))


_SOURCE_OPTIONS = {
    "dataset": "OWNER/SLUG",
    "competition": "SLUG",
    "model": "OWNER/MODEL/FRAMEWORK/VARIATION/VERSION",
    "kernel": "OWNER/SLUG",
}


def _source_options(command: Callable[..., None]) -> Callable[..., None]:
    for name, form in reversed(_SOURCE_OPTIONS.items()):
        text = f"A {name} to attach; may be repeated."
        command = click.option(f"--{name}", f"{name}_sources", multiple=True, metavar=form, help=text)(
            command
        )
    return command


@main.command(epilog=_kaggle_codes())
@click.argument("target", metavar="[DIR|NOTEBOOK]", required=False, type=click.Path(path_type=Path))
@click.option("--kaggle", is_flag=True, default=True, help="Push to Kaggle, the only place so far.")
@click.option("--owner", metavar="NAME", help="Kaggle user or organisation.  [default: who signs in]")
@click.option("--title", metavar="TEXT", help="Title on Kaggle, which makes the address.")
@_source_options
@click.option(
    "--token-dataset",
    metavar="OWNER/SLUG",
    help="A private dataset whose files, named like HF_TOKEN, hold tokens.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    help="End the session after this time, such as 11h; the training stops before, with a checkpoint.",
)
@click.option("--image", metavar="NAME", help="Docker image: latest, original or an address.")
@click.option(
    "--public", is_flag=True, help="Let everybody see the kernel and its output.  [default: private]"
)
@click.option(
    "--resume-from",
    metavar="OWNER/SLUG|DIR",
    help="Go on from the last checkpoint of that kernel (or of datasets/OWNER/SLUG), in a new kernel.",
)
@click.option(
    "--rehearse", "rehearsed", is_flag=True, help="Rehearse it on this CPU first; push what passes."
)
@click.option("--watch", is_flag=True, help="Watch the kernel until it has ended.")
@click.option("--dry-run", is_flag=True, help="Show the request; send nothing.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
def push(
    target: Path | None,
    public: bool,
    watch: bool,
    rehearsed: bool,
    dry_run: bool,
    yes: bool,
    token_dataset: str | None,
    **options: Any,
) -> None:
    """Run a notebook, or a converted folder, on two T4 GPUs of Kaggle.

    Without a target it is the only converted folder here. What was sent is kept in DIR/pushed.

    \b
    Example:
      nb2ddp push --kaggle finetune.ipynb --timeout 11h --watch
      nb2ddp push --kaggle finetune_ddp --token-dataset me/keys --dry-run
    """
    from nb2ddp.submit import bundle, client
    from nb2ddp.submit.push import check_quota, check_source
    from nb2ddp.submit.push import push as send
    from nb2ddp.submit.secrets import refuse_secrets

    is_notebook = target is not None and target.suffix == ".ipynb"
    wishes = _wishes(options, public, token_dataset)
    folder = _script(target, 2).parent if target and is_notebook else bundle.converted_folder(target)
    kaggle = None if dry_run else client.connect()
    user = kaggle.user if kaggle else client.user_known_here()
    made = bundle.bundle_of(folder, wishes, user)
    refuse_secrets(made.secrets)
    for note in made.notes:
        _say(note)
    if rehearsed:
        _rehearse_first(folder)
    if kaggle is None:
        made.write(folder / "dry_run")
        request = client.request_of(folder / "dry_run", wishes.timeout)
        _echo_request(*request, folder / "dry_run", bundle.SESSION_HOURS)
        return
    if made.is_public:
        _confirm_public(made.ref, yes)
    if wishes.resume_from and not wishes.resume_from.startswith("datasets/"):
        check_source(kaggle, wishes.resume_from, _say)
    check_quota(kaggle, wishes.timeout, _say)
    with _until_interrupted(f"interrupted. `nb2ddp status {made.ref}` tells whether anything was started"):
        pushed = send(kaggle, made, wishes.timeout, again=yes, say=_say)
    made.write(folder / bundle.PUSHED, pushed.ref)
    click.echo(f"Pushed {pushed.ref}, version {pushed.version}: {pushed.url}", err=True)
    if watch:
        _watch(kaggle, pushed.ref)
    else:
        click.echo(f"Next:\n  nb2ddp status {pushed.ref} --follow\n  nb2ddp fetch {pushed.ref}", err=True)


@main.command(epilog=_kaggle_codes())
@click.argument("target", metavar="[OWNER/SLUG|DIR]", required=False)
@click.option("--follow", is_flag=True, help="Watch until the kernel has ended.")
def status(target: str | None, follow: bool) -> None:
    """Say how a kernel on Kaggle is; a failed one gives a failing exit code.

    \b
    Example:
      nb2ddp status finetune_ddp
      nb2ddp status me/finetune --follow
    """
    from nb2ddp.submit import bundle, client
    from nb2ddp.submit.watch import check

    ref = bundle.kernel_ref(target)
    kaggle = client.connect()
    if follow:
        _watch(kaggle, ref)
    else:
        state = kaggle.state(ref)
        click.echo(f"{ref}: {state.name}")
        check(ref, state)


@main.command(epilog=_kaggle_codes())
@click.argument("target", metavar="[OWNER/SLUG|DIR]", required=False)
@click.option("--follow", is_flag=True, help="Go on until the kernel has ended.")
def logs(target: str | None, follow: bool) -> None:
    """Show what a kernel on Kaggle prints.

    \b
    Example:
      nb2ddp logs finetune_ddp --follow
    """
    from nb2ddp.submit import bundle, client
    from nb2ddp.submit.watch import check
    from nb2ddp.submit.watch import follow as pieces

    ref = bundle.kernel_ref(target)
    kaggle = client.connect()
    if not follow:
        click.echo(kaggle.log(ref), nl=False)
        return
    states: list[client.State] = []
    with _watching(ref):
        for _, text in pieces(kaggle, ref, states.append):
            click.echo(text, nl=False)
    check(ref, states[-1])


@main.command(epilog=_kaggle_codes())
@click.argument("target", metavar="[OWNER/SLUG|DIR]", required=False)
@click.option("--follow", is_flag=True, help="Wait until the kernel has ended.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files.  [default: <slug>_output]",
)
def fetch(target: str | None, follow: bool, output: Path | None) -> None:
    """Bring the output of a kernel on Kaggle home; what is here already is not fetched again.

    A failed or stopped kernel's output comes as far as there is any.

    \b
    Example:
      nb2ddp fetch finetune_ddp -o result
    """
    from nb2ddp.submit import bundle, client
    from nb2ddp.submit.fetch import fetch as bring
    from nb2ddp.submit.fetch import summary

    ref = bundle.kernel_ref(target)
    kaggle = client.connect()
    state = _watch(kaggle, ref, judge=False) if follow else kaggle.state(ref)
    folder = output or Path(f"{ref.partition('/')[2]}_output")
    if state.is_active:
        _say(f"{ref} is {state.name}: this is what there is so far")
    if not bring(kaggle, ref, folder, _say):
        raise KernelError(
            f"{ref} is {state.name} and has no output{': ' + state.failure if state.failure else ''}."
        )
    lines, succeeded = summary(folder, ref)
    for line in lines:
        click.echo(line)
    if not succeeded or state.name not in ("COMPLETE", *client.ACTIVE):
        raise KernelError(f"{ref} is {state.name}, and its run did not succeed; its log is in {folder}.")


def _wishes(options: dict[str, Any], public: bool, token_dataset: str | None) -> Wishes:
    from nb2ddp.submit import bundle

    sources = {f"{name}_sources": options.pop(f"{name}_sources") for name in _SOURCE_OPTIONS}
    if token_dataset:
        sources["dataset_sources"] += (token_dataset,)
    timeout, resume = options["timeout"], options["resume_from"]
    return bundle.Wishes(
        owner=options["owner"],
        title=options["title"],
        image=options["image"],
        sources=sources,
        public=public,
        timeout=None if timeout is None else bundle.seconds(timeout),
        resume_from=resume if resume is None or resume.startswith("datasets/") else bundle.kernel_ref(resume),
    )


def _confirm_public(ref: str, yes: bool) -> None:
    question = f"{ref} will be public: everybody sees the code, its log and its output. Go on?"
    if not yes and not click.confirm(question, err=True):
        raise click.Abort


def _echo_request(url: str, request: dict[str, Any], place: Path, hours: int) -> None:
    text = request["text"]
    request["text"] = f"<{len(text.encode())} bytes: {place / str(request['slug']).partition('/')[2]}.py>"
    click.echo(f"POST {url}")
    click.echo(json.dumps(request, indent=2, ensure_ascii=False))
    if "sessionTimeoutSeconds" not in request:
        _say(f"without --timeout Kaggle ends the session after {hours} h, and what is not saved then is lost")
    _say("nothing was sent")


def _watch(kaggle: Client, ref: str, *, judge: bool = True) -> State:
    from nb2ddp.submit import watch

    with _watching(ref):
        state = watch.watch(kaggle, ref, sys.stderr)
    if judge:
        watch.check(ref, state)
    return state


@contextlib.contextmanager
def _until_interrupted(sentence: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _say(sentence)
        raise SystemExit(130) from None


def _watching(ref: str) -> contextlib.AbstractContextManager[None]:
    return _until_interrupted(f"{ref} goes on without you. To come back: nb2ddp status {ref} --follow")


def _say(text: str) -> None:
    click.echo(f"nb2ddp: {text}", err=True)


def _targets(notebooks: Sequence[Path], output: Path | None) -> list[tuple[Path, Path]]:
    """Each notebook with the folder that its conversion goes to."""
    several = len(notebooks) > 1 or any(path.is_dir() for path in notebooks)
    pairs: list[tuple[Path, Path]] = []
    taken: set[Path] = set()
    for path, below in _walked(notebooks):
        name = below / f"{path.stem}_ddp"
        if output is None:
            folder = Path(name)
        else:
            folder = output / name if several else output
        if folder in taken:
            raise click.UsageError(f"two notebooks would go to {folder}; convert them one by one with -o.")
        taken.add(folder)
        pairs.append((path, folder))
    return pairs


def _walked(paths: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """The notebooks, those of folders too; each with the folder below its own where it lay."""
    for path in paths:
        if not path.is_dir():
            yield path, Path()
            continue
        found = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
        if not found:
            raise click.UsageError(f"there are no notebooks in {path}.")
        for notebook in found:
            yield notebook, notebook.parent.relative_to(path)


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


def _monitor(script: Path) -> Observer:
    from nb2ddp.monitor import Monitor

    return Monitor(script.name)


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


def _rehearse_first(folder: Path) -> None:
    """Run a conversion on the CPU; one that does not pass is not pushed.

    Raises:
        RehearsalError: it cannot be rehearsed.
    """
    from nb2ddp.rehearse import report
    from nb2ddp.rehearse.rehearsal import rehearse as run_all
    from nb2ddp.rehearse.subject import subject_of

    result = run_all(subject_of(folder, 2), say=_say)
    for line in report.lines(result):
        _say(line)
    if not result.passed:
        _say("nothing was pushed: the rehearsal did not pass")
        raise SystemExit(1)


def _echo_table(by_task: dict[str, list[str]]) -> None:
    """How many notebooks of each task became what."""
    width = max(len("task"), *map(len, by_task))
    states = ("converted", "declined", "failed")
    click.echo("  ".join(["task".ljust(width), *states]), err=True)
    for task, statuses in sorted(by_task.items(), key=lambda item: (-len(item[1]), item[0])):
        counts = [str(statuses.count(state)).rjust(len(state)) for state in states]
        click.echo("  ".join([task.ljust(width), *counts]), err=True)


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
        click.echo(
            f"  nb2ddp rehearse {_quoted(folder)}    (a few steps on this CPU, before it costs GPU time)",
            err=True,
        )
        click.echo(f"  nb2ddp push --kaggle {_quoted(folder)}", err=True)


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


if __name__ == "__main__":
    sys.exit(main())
