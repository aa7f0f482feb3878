"""``nb2ddp push``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp.cli.common import PathName, echo, option_for, say, script_of, to_width, until_interrupted
from nb2ddp.cli.kernel import KAGGLE_CODES, watch_kernel
from nb2ddp.plain_text import json_text, terminal_safe
from nb2ddp.source.notebook import is_notebook
from nb2ddp.waiting import waiting

if TYPE_CHECKING:
    from nb2ddp.kaggle.bundle import Bundle, Wishes
    from nb2ddp.kaggle.client import Client, Pushed


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


@click.command(epilog=KAGGLE_CODES)
@click.argument("target", metavar="[DIR|NOTEBOOK]", required=False, type=PathName())
@click.option("--kaggle", is_flag=True, default=True, help="Push to Kaggle, the only destination so far.")
@option_for("owner", help="Kaggle user or organisation.  [default: the user who is signed in]")
@option_for("title", help="Title on Kaggle; the kernel's address is made from it.")
@_source_options
@click.option(
    "--token-dataset",
    metavar="OWNER/SLUG",
    help="A private dataset with one file per token, named like the token's variable, such as HF_TOKEN.",
)
@click.option(
    "--allow-secret",
    metavar="FINGERPRINT",
    multiple=True,
    help="Push although this text looks like a token; the message that refuses it gives its fingerprint.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    help="End the session after this time, such as 11h; the training stops before that, with a checkpoint.",
)
@click.option(
    "--accelerator",
    metavar="t4x2|l4x4",
    help="GPUs to run on: two T4s, or four L4s where Kaggle lends them.  [default: t4x2]",
)
@click.option("--image", metavar="NAME", help="Docker image: latest, original or an address.")
@click.option(
    "--public", is_flag=True, help="Make the kernel, its log and its output public.  [default: private]"
)
@click.option(
    "--resume-from",
    metavar="OWNER/SLUG|DIR",
    type=PathName(path_type=str),
    help="Continue from the last checkpoint of that kernel (or of datasets/OWNER/SLUG), in a new kernel.",
)
@click.option(
    "--upload-data/--no-upload-data",
    default=None,
    help="Send the local files and folders that the script reads as a private dataset, or push without them: the "
    "script makes them itself.  [default: refuse, and name them]",
)
@click.option(
    "--sessions",
    metavar="N|auto",
    help="Push one session after the other, each from the last checkpoint, until the run is done; at most N.",
)
@click.option(
    "--rehearse", "rehearsed", is_flag=True, help="Rehearse on this CPU first; push only if that passes."
)
@click.option("--watch", is_flag=True, help="Watch the kernel until it has ended.")
@click.option("--dry-run", is_flag=True, help="Show the request; send nothing.")
@click.option("--yes", is_flag=True, help="Answer yes to every question.")
def push(
    target: Path | None,
    public: bool,
    watch: bool,
    rehearsed: bool,
    dry_run: bool,
    yes: bool,
    token_dataset: str | None,
    allow_secret: tuple[str, ...],
    upload_data: bool | None,
    sessions: str | None,
    **options: Any,
) -> None:
    """Run a notebook, or a converted folder, on Kaggle's GPUs.

    Without an argument, the only converted folder here is pushed. What was sent is kept in DIR/pushed. With
    --sessions the command may be stopped at any time: the same one goes on.

    \b
    Example:
      nb2ddp push --kaggle finetune.ipynb --timeout 11h --watch
      nb2ddp push --kaggle finetune_ddp --token-dataset me/keys --dry-run
      nb2ddp push --kaggle finetune_ddp --upload-data --sessions auto
    """
    with waiting("preparing the push"):
        from nb2ddp.ddp_folder import DRY_RUN, PUSHED
        from nb2ddp.kaggle import bundle, client, credentials
        from nb2ddp.kaggle.push import check_source
        from nb2ddp.kaggle.run_summary import summary
        from nb2ddp.kaggle.sessions import most_sessions, run_all

    most = None if sessions is None else most_sessions(sessions)
    if most is not None and (watch or options["resume_from"]):
        raise click.UsageError(
            "--sessions watches, and goes on by itself: leave out --watch and --resume-from."
        )
    wishes = _wishes(options, public, token_dataset)
    folder = (
        script_of(target, 2).parent if target and is_notebook(target) else bundle.converted_folder(target)
    )
    with waiting("preparing the push"):
        kaggle = None if dry_run else client.connect()
        user = kaggle.user if kaggle else credentials.user_known_here()
        made = bundle.bundle_of(folder, wishes, user)
    if made.is_unowned and not yes and _can_ask():
        wishes = replace(wishes, owner=click.prompt("Your Kaggle user name", err=True))
        made = bundle.bundle_of(folder, wishes, user)
    bundle.refuse_local(made.local, upload_data)
    uploads = bool(upload_data and made.local.names)
    data = replace(wishes, local=("datasets/x/y", made.local.names))
    sent = bundle.bundle_of(folder, data, user) if uploads else made  # which names the data's secrets, too
    sent.refuse_secrets(allow_secret)
    for unknown in sorted({*allow_secret} - {secret.fingerprint for secret in sent.secrets}):
        say(f"--allow-secret {unknown}: no text that looks like a token has this fingerprint")
    for note in made.notes:
        say(note)
    if rehearsed:
        _rehearse_first(folder)
    copy = folder / (DRY_RUN if dry_run else PUSHED)
    made.check(copy)
    if kaggle is None:
        if made.is_unowned:
            say("the owner is not known here: --owner names one, or sign in")
        if uploads:
            say(f"a private dataset would be made of {', '.join(made.local.names)}")
        made.write(copy)
        request = client.request_of(copy, wishes.timeout)
        _echo_request(*request, copy, bundle.SESSION_HOURS)
        return
    if made.is_public:
        _confirm_public(made.ref, yes)
    if uploads:
        wishes = _upload(kaggle, made, wishes)

    def make(wishes: Wishes, number: int = 1) -> Bundle:
        if number > 1:
            wishes = replace(wishes, title=bundle.numbered(str(made.metadata["title"]), number))
        return bundle.bundle_of(folder, wishes, user)

    def send(made: Bundle, wishes: Wishes) -> Pushed:
        pushed = _send(kaggle, made, wishes, again=yes)
        made.write(copy, pushed.ref)
        return pushed

    if most is not None:
        _refuse_without_trainer(folder)
        with until_interrupted(
            "what was pushed goes on running on Kaggle. The same command takes up where it was."
        ):
            output = run_all(kaggle, folder, wishes, most, make, send, say)
        for line in summary(output, "")[0]:
            echo(to_width(line, sys.stdout))
        return
    if wishes.resume_from and not wishes.resume_from.startswith("datasets/"):
        check_source(kaggle, wishes.resume_from, say)
    pushed = send(make(wishes), wishes)
    if watch:
        watch_kernel(kaggle, pushed.ref)
    to_watch = "" if watch else f"  nb2ddp status {pushed.ref} --follow\n"
    echo(f"Next:\n{to_watch}  nb2ddp fetch {pushed.ref}", err=True)


def _upload(kaggle: Client, made: Bundle, wishes: Wishes) -> Wishes:
    """Send the local files; return the wishes with their dataset."""
    from nb2ddp.kaggle import datasets

    owner, _, slug = made.ref.partition("/")
    names = made.local.names
    with until_interrupted("interrupted; no run was started"):
        ref = datasets.upload(kaggle, owner, f"{slug}-data", made.local.base, names, say)
    return replace(wishes, local=(f"datasets/{ref}", names))


def _send(kaggle: Client, made: Bundle, wishes: Wishes, *, again: bool) -> Pushed:
    """Push a bundle, once the quota was looked at."""
    from nb2ddp.kaggle.fetch import output_of
    from nb2ddp.kaggle.push import check_quota, push
    from nb2ddp.kaggle.run_summary import hours_of

    check_quota(kaggle, wishes.timeout, say, hours_of(output_of(made.ref)))
    with until_interrupted(f"interrupted. `nb2ddp status {made.ref}` tells whether anything was started"):
        pushed = push(kaggle, made, wishes.timeout, again=again, say=say)
    echo(f"Pushed {pushed.ref}, version {pushed.version}: {pushed.url}", err=True)
    return pushed


def _refuse_without_trainer(folder: Path) -> None:
    """Raise BundleError for a script that has no checkpoints to go on from."""
    from nb2ddp.ddp_folder import read
    from nb2ddp.errors import BundleError
    from nb2ddp.targets.job import has_trainer

    if not has_trainer(read(folder).script):
        raise BundleError(
            "--sessions goes on from the checkpoints of a Trainer, and this script trains without one: it has to "
            "fit into one session."
        )


def _wishes(options: dict[str, Any], public: bool, token_dataset: str | None) -> Wishes:
    from nb2ddp.kaggle import bundle
    from nb2ddp.targets.kaggle import accelerator_of

    sources = {f"{name}_sources": options.pop(f"{name}_sources") for name in _SOURCE_OPTIONS}
    if token_dataset:
        sources["dataset_sources"] += (token_dataset,)
    timeout, resume = options["timeout"], options["resume_from"]
    accelerator = options["accelerator"]
    return bundle.Wishes(
        owner=options["owner"],
        title=options["title"],
        image=options["image"],
        sources=sources,
        public=public,
        accelerator=None if accelerator is None else accelerator_of(accelerator),
        timeout=None if timeout is None else bundle.seconds(timeout),
        resume_from=resume if resume is None or resume.startswith("datasets/") else bundle.kernel_ref(resume),
    )


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _confirm_public(ref: str, yes: bool) -> None:
    question = f"{ref} will be public: everyone can see the code, its log and its output. Push it?"
    if not yes and not click.confirm(terminal_safe(question), err=True):
        say("nothing was pushed")
        raise SystemExit(1)


def _echo_request(url: str, request: dict[str, Any], place: Path, hours: int) -> None:
    text = request["text"]
    request["text"] = f"<{len(text.encode())} bytes: {place / str(request['slug']).partition('/')[2]}.py>"
    echo(f"POST {url}")
    echo(json_text(request))
    if "sessionTimeoutSeconds" not in request and "\nTRAIN_FOR = " in text:
        say(f"Kaggle ends the session after {hours} h; the training stops before that, with a checkpoint")
    elif "sessionTimeoutSeconds" not in request:
        say(f"Kaggle ends the session after {hours} h, and what the script has not saved then is lost")
    say("nothing was sent")


def _rehearse_first(folder: Path) -> None:
    """Run a conversion on the CPU; one that does not pass is not pushed.

    Raises:
        RehearsalError: it cannot be rehearsed.
    """
    from nb2ddp.rehearse import report
    from nb2ddp.rehearse.rehearsal import rehearse as run_all
    from nb2ddp.rehearse.subject import subject_of

    result = run_all(subject_of(folder), say=say)
    for line in report.lines(result):
        say(line)
    if not result.passed:
        say("nothing was pushed: the rehearsal did not pass")
        raise SystemExit(1)
