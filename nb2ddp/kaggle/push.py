"""Push a bundle so that one command starts one run: wait for a free session, and never send a bundle twice."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from nb2ddp import errors
from nb2ddp.kaggle.bundle import SESSION_HOURS, Bundle
from nb2ddp.kaggle.client import Client, Pushed, Quota
from nb2ddp.waiting import waiting

Say = Callable[[str], None]

RETRY_SECONDS = 60.0
"""Time between two attempts while all GPU sessions are in use. A refused attempt starts nothing."""

WAIT_HOURS = SESSION_HOURS
"""How long to wait for a free session: no session lasts longer."""

LOOKS, LOOK_SECONDS = 4, 5.0
"""How many times, and at what interval, to check whether a push without an answer has started a run."""


def check_quota(client: Client, timeout: int | None, say: Say, earlier: float | None = None) -> None:
    """Say how many GPU hours are left, and what the run may take; ``earlier``: hours of its last run.

    Raises QuotaError if there are none, and SignInError. A quota that Kaggle does not return is only reported.
    """
    try:
        quota = client.quota()
    except (errors.SignInError, errors.UnreachableError, errors.QuotaError):
        raise
    except errors.KaggleError as error:
        say(f"the GPU quota is unknown ({error})")
        return
    if quota is None:
        return
    if quota.allowed == 0:
        raise errors.QuotaError(
            "Kaggle gives this account no GPU hours, as it does before a phone number is verified: see "
            "https://www.kaggle.com/settings. Nothing was sent."
        )
    if quota.left == 0:
        raise errors.QuotaError(
            f"all {quota.allowed:.0f} GPU hours of this week are used up{_renewal(quota)}. Nothing was sent."
        )
    say(f"{quota.left:.1f} of {quota.allowed:.0f} GPU hours are left this week{_renewal(quota)}")
    if earlier is not None:
        say(f"the last run of this kernel took {earlier:.1f} h")
    longest = timeout / 3600 if timeout else SESSION_HOURS
    if quota.left < (longest if earlier is None else min(longest, 1.2 * earlier)):  # no two take the same
        say(
            f"a run may take {longest:.0f} h, but Kaggle stops it after the {quota.left:.1f} h that are left "
            f"(--timeout {max(1, int(quota.left * 60))}m ends it before that, with a checkpoint)"
        )


def _renewal(quota: Quota) -> str:
    return f"; new ones come on {quota.refresh:%A %d %B, %H:%M} UTC" if quota.refresh else ""


def check_source(client: Client, ref: str, say: Say) -> None:
    """Say so if Kaggle will not attach the output of the latest version of the kernel to continue from.

    Kaggle attaches the output of the last version that succeeded. Raises RunningError if the kernel is running.
    """
    state = client.state(ref)
    if state.is_active:
        raise errors.RunningError(
            f"{ref} is {state.name}: continue from it when it has ended (`nb2ddp status {ref} --follow`)."
        )
    if state.name != "COMPLETE":
        say(
            f"{ref} ended as {state.name}, and Kaggle attaches the output of an earlier version that "
            f"succeeded, if any. To continue from this one: `nb2ddp fetch {ref}`, make a private dataset of the "
            "folder, and give --resume-from datasets/OWNER/SLUG"
        )


def push(client: Client, bundle: Bundle, timeout: int | None, *, again: bool, say: Say) -> Pushed:
    """Send a bundle, once.

    While all GPU sessions are in use it tries again, for up to ``WAIT_HOURS``. If Kaggle does not answer, it
    checks on Kaggle whether a run has started, and never sends the bundle again. again: push even while a run of
    this kernel is active.

    Raises KaggleError.
    """
    ref = bundle.ref
    before = client.version(ref)
    if before is not None and not again:
        _refuse_while_running(client, ref)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "bundle"
        bundle.write(folder)
        try:
            return _at(ref, _push_when_free(client, folder, timeout, say))
        except (errors.UnreachableError, errors.ServerError) as error:
            say(f"{error} Checking whether {ref} has started all the same")
            with waiting(f"checking {ref} on Kaggle"):
                return _look_for(client, ref, before, error)


def _push_when_free(client: Client, folder: Path, timeout: int | None, say: Say) -> Pushed:
    for tries in count():
        try:
            return client.push(folder, timeout)
        except errors.SessionLimitError as error:
            hours = tries * RETRY_SECONDS / 3600
            if hours >= WAIT_HOURS:
                raise errors.SessionLimitError(f"{error} Nothing was started in {hours:.0f} h.") from None
            if tries % 10 == 0:
                say(
                    f"{error} Trying again every {RETRY_SECONDS:.0f} s for up to {WAIT_HOURS} h "
                    f"({hours:.1f} h so far); Ctrl-C stops that, and no run is started"
                )
            with waiting("waiting for a free GPU session on Kaggle"):
                time.sleep(RETRY_SECONDS)
    raise AssertionError("count() has no end")


def _refuse_while_running(client: Client, ref: str) -> None:
    try:
        state = client.state(ref)
    except (errors.NotFoundError, errors.ForbiddenError):  # it has never run
        return
    if state.is_active and state.name != "NEW_SCRIPT":  # a draft
        raise errors.RunningError(
            f"{ref} is {state.name} already, and a second push would run beside it and use GPU hours twice. "
            "--yes pushes all the same; --title NAME pushes to another kernel."
        )


def _look_for(client: Client, ref: str, before: int | None, error: errors.KaggleError) -> Pushed:
    """Return the run that a push without an answer has started.

    Raises the error if there is none, with what to do.
    """
    seen = False
    for look in range(LOOKS):
        time.sleep(LOOK_SECONDS if look else 0)
        with suppress(errors.KaggleError):
            version, seen = client.version(ref), True
            if version != before:
                return Pushed(ref, f"https://www.kaggle.com/code/{ref}", version)
    if seen:
        advice = f"Kaggle has no new version of {ref}, so no run has started: push again later."
    else:
        advice = (
            f"It is not known whether {ref} runs: check with `nb2ddp status {ref}` before you push again."
        )
    raise type(error)(f"{error} {advice}") from None


def _at(ref: str, pushed: Pushed) -> Pushed:
    """Return ``pushed`` with the address that Kaggle gave: it may differ from ``ref``."""
    found = re.search(r"([A-Za-z0-9_-]+/[A-Za-z0-9_-]+)/?$", pushed.ref) or re.search(
        r"/code/([A-Za-z0-9_-]+/[A-Za-z0-9_-]+)", pushed.url
    )
    given = found[1] if found else ref
    return replace(pushed, ref=given, url=pushed.url or f"https://www.kaggle.com/code/{given}")
