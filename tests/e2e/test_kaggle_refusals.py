"""What Kaggle refuses, and what push makes of it: exit codes, waits, time-outs, quota."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import errors
from nb2ddp.kaggle import calls
from nb2ddp.kaggle import push as pushing
from tests.support.kaggle_client import converted, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import HttpError, KaggleServer, fails, hangs, says, shows_a_login_page, takes

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")

LIMIT = "Maximum batch GPU session count of 2 reached."


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            fails(400, "Kernel source is too large"),
            errors.RefusedError,
            "'Kernel source is too large': move data",
        ),
        (fails(401, "Unauthenticated"), errors.SignInError, "make new ones"),
        (
            fails(403, "Permission 'kernels.update' was denied"),
            errors.ForbiddenError,
            "owner or the name is wrong",
        ),
        (fails(404, "Notebook not found"), errors.NotFoundError, "there is none of that name"),
        (
            fails(409, "The requested title is already in use"),
            errors.TitleError,
            "choose another with --title",
        ),
        (fails(429, "Too many requests", Retry_After="60"), errors.TooManyRequestsError, "Retry-After: 60"),
        (
            fails(500, "Internal error"),
            errors.ServerError,
            "no new version of ada/tiny-run, so no run has started",
        ),
        (fails(503, "Unavailable"), errors.ServerError, "HTTP 503"),
        (fails(400, "Maximum weekly GPU quota of 30 hours reached"), errors.QuotaError, "used up"),
        (says(error="Maximum weekly GPU quota reached"), errors.QuotaError, "used up"),
        (says(error="Notebook not found"), errors.NotFoundError, "there is none of that name"),
        (says(error="The machine is on fire"), errors.RefusedError, "'The machine is on fire'"),
        (shows_a_login_page, errors.ServerError, "is there a proxy that asks for a login?"),
        (fails(418, "I am a teapot"), errors.RefusedError, "'I am a teapot': see"),
        (says(code=404, message="Notebook not found"), errors.NotFoundError, "there is none of that name"),
    ],
)
def test_each_failure_has_its_sentence_and_its_exit_code(
    server: KaggleServer, converted: Path, answer: Any, kind: type[errors.KaggleError], words: str
) -> None:
    server.answers = [answer]
    result = nb2ddp("push")
    assert result.exit_code == kind.exit_code
    assert words in result.output
    assert len(server.pushes) == 1
    assert server.runs == []


def test_exit_codes_are_all_different() -> None:
    codes = [kind.exit_code for kind in errors.KaggleError.__subclasses__()]
    assert len(set(codes)) == len(codes)
    for command in ("push", "status", "logs", "fetch"):
        assert "docs/exit_codes.md" in nb2ddp(command, "--help").output


def test_sources_that_kaggle_turns_down_are_a_failure(server: KaggleServer, converted: Path) -> None:
    server.answers = [lambda s, r: takes(s, r) | {"invalidDatasetSources": ["bob/words"]}]
    result = nb2ddp("push")
    assert result.exit_code == errors.SourcesError.exit_code
    assert "(dataset: bob/words)" in result.output
    assert len(server.pushes) == 1


@pytest.mark.parametrize("limit", [fails(400, LIMIT), fails(429, LIMIT), says(error=LIMIT)])
def test_only_the_session_limit_waits(server: KaggleServer, converted: Path, limit: Any) -> None:
    server.answers = [limit, limit]
    result = nb2ddp("push")
    assert result.exit_code == 0, result.output
    assert len(server.pushes) == 3
    assert len(server.runs) == 1
    assert "all your GPU sessions are in use. Trying again every" in result.output


def test_ctrl_c_ends_the_wait(server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    server.answers = [fails(400, LIMIT)]
    monkeypatch.setattr(time, "sleep", interrupt)
    result = nb2ddp("push")
    assert result.exit_code == 130
    assert "interrupted. `nb2ddp status ada/tiny-run` tells whether" in result.output
    assert server.runs == []


def test_the_wait_has_an_end(server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "WAIT_HOURS", 0)
    server.answers = [fails(400, LIMIT)]
    result = nb2ddp("push")
    assert result.exit_code == errors.SessionLimitError.exit_code
    assert len(server.pushes) == 1


@pytest.fixture
def impatient(server: KaggleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what the server hangs for, and more than an answer takes on a busy machine."""
    monkeypatch.setattr(calls, "TIMEOUT", 2.0)


@pytest.mark.usefixtures("impatient")
def test_a_time_out_before_the_server_has_acted(server: KaggleServer, converted: Path) -> None:
    server.answers = [hangs()]
    result = nb2ddp("push")
    assert result.exit_code == errors.UnreachableError.exit_code
    assert "so no run has started: push again later" in result.output
    assert (len(server.pushes), len(server.runs)) == (1, 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("version", [None, 3])
def test_a_time_out_after_the_server_has_acted(
    server: KaggleServer, converted: Path, version: int | None
) -> None:
    if version:
        server.versions["ada/tiny-run"] = version
    server.answers = [hangs(takes)]
    result = nb2ddp("push")
    assert result.exit_code == 0, result.output
    assert f"Pushed ada/tiny-run, version {(version or 0) + 1}" in result.output
    assert (len(server.pushes), len(server.runs)) == (1, 1)


@pytest.mark.usefixtures("impatient")
def test_a_time_out_that_stays_in_the_dark(server: KaggleServer, converted: Path) -> None:
    server.answers = [hangs()]
    server.calls["GetKernel"] = [fails(403, "no"), *[fails(500, "down")] * pushing.LOOKS]
    result = nb2ddp("push")
    assert result.exit_code == errors.UnreachableError.exit_code
    assert (
        "It is not known whether ada/tiny-run runs: check with `nb2ddp status ada/tiny-run`" in result.output
    )
    assert len(server.pushes) == 1


def test_nobody_there(server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    result = nb2ddp("push")
    assert result.exit_code == errors.UnreachableError.exit_code
    assert "Kaggle cannot be reached" in result.output


def test_a_kernel_that_runs_is_not_pushed_over(server: KaggleServer, converted: Path) -> None:
    server.versions["ada/tiny-run"], server.states = 1, ["RUNNING"]
    result = nb2ddp("push")
    assert result.exit_code == errors.RunningError.exit_code
    assert "ada/tiny-run is RUNNING already" in result.output
    assert server.pushes == []
    assert nb2ddp("push", "--yes").exit_code == 0


def test_no_quota_is_found_out_before(server: KaggleServer, converted: Path) -> None:
    server.quota = {"timeUsed": "100000s", "timeReserved": "8000s", "totalTimeAllowed": "108000s"}
    result = nb2ddp("push")
    assert result.exit_code == errors.QuotaError.exit_code
    assert "all 30 GPU hours of this week are used up; new ones come on Saturday" in result.output
    server.quota = {"timeUsed": "0s", "totalTimeAllowed": "0s"}
    result = nb2ddp("push")
    assert result.exit_code == errors.QuotaError.exit_code
    assert "Kaggle gives this account no GPU hours" in result.output
    assert server.pushes == []


def test_little_quota_is_told(server: KaggleServer, converted: Path) -> None:
    server.quota = {"timeUsed": "100800s", "totalTimeAllowed": "108000s"}
    result = nb2ddp("push", "--timeout", "11h")
    assert result.exit_code == 0
    assert "--timeout 120m ends it before that" in result.output


def test_what_an_earlier_run_took_is_told(server: KaggleServer, converted: Path) -> None:
    server.quota = {"timeUsed": "86400s", "totalTimeAllowed": "108000s"}  # 6 hours are left
    Path("tiny-run_output").mkdir()
    run_json = Path("tiny-run_output", "run.json")
    for hours, ends_in_time in ((2, True), (5.5, False)):
        run_json.write_text(
            json.dumps({"exit_code": 0, "seconds": {"setup": 600, "train": hours * 3600 - 600}})
        )
        result = nb2ddp("push")
        assert result.exit_code == 0
        assert f"the last run of this kernel took {hours:.1f} h" in result.output
        assert ("--timeout 360m ends it before that" in result.output) != ends_in_time
    for text in (
        "[",
        '{"exit_code": 1, "seconds": {"train": 7}}',
        '{"exit_code": 0, "seconds": {"train": "x"}}',
    ):
        run_json.write_text(text)
        result = nb2ddp("push")
        assert "the last run" not in result.output
        assert "--timeout 360m ends it before that" in result.output


def test_a_quota_that_kaggle_does_not_tell_is_no_obstacle(server: KaggleServer, converted: Path) -> None:
    server.quota = HttpError(404, "Not found")
    result = nb2ddp("push")
    assert result.exit_code == 0
    assert "the GPU quota is unknown" in result.output
