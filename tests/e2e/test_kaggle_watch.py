"""status, logs and watching, through the real kaggle client."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import errors, waiting
from nb2ddp.kaggle import watch as watching
from nb2ddp.kaggle.watch import Progress
from tests.support.kaggle_client import LOG, converted, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import Answer, KaggleServer, fails, says, takes

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")


def test_progress_is_read_from_the_log() -> None:
    progress = Progress()
    seen = []
    for piece in LOG:
        progress.read(piece)
        seen.append(progress.said())
    assert seen[5] == "step 3 of 30 · 0:54 left · loss 2.5 · 0.5 steps/s"
    assert seen[-1] == "step 12 of 30 · 0:09 left · loss 1.234 · 2 steps/s"


def test_status(server: KaggleServer) -> None:
    server.states = ["RUNNING"]
    result = nb2ddp("status", "https://www.kaggle.com/code/ada/tiny-run")
    assert (result.exit_code, result.output) == (0, "ada/tiny-run: RUNNING\n")
    server.states, server.failure = ["ERROR"], "out of memory"
    result = nb2ddp("status", "ada/tiny-run")
    assert result.exit_code == errors.KernelError.exit_code
    assert "ended as ERROR: out of memory. `nb2ddp logs ada/tiny-run` shows why" in result.output


@pytest.mark.parametrize(("status", "kind"), [(403, errors.ForbiddenError), (404, errors.NotFoundError)])
def test_the_status_of_a_kernel_that_is_not_there(
    server: KaggleServer, status: int, kind: type[errors.KaggleError]
) -> None:
    server.calls["GetKernelSessionStatus"] = [fails(status, "Permission 'kernels.get' was denied")]
    result = nb2ddp("status", "ada/nothing")
    assert result.exit_code == kind.exit_code
    assert "Permission 'kernels.get' was denied" in result.output


def test_logs(server: KaggleServer) -> None:
    server.log = LOG
    assert nb2ddp("logs", "ada/tiny-run").stdout == "".join(LOG)


def test_a_broken_stream_is_taken_up_without_repeating(server: KaggleServer) -> None:
    server.log, server.cuts = LOG, [3, 0, 6]
    server.states = [*["QUEUED"] * 2, *["RUNNING"] * 5, "COMPLETE"]
    result = nb2ddp("logs", "ada/tiny-run", "--follow")
    assert (result.exit_code, result.output) == (0, "".join(LOG))
    assert server.streams >= 4


def test_push_and_watch_to_the_end(server: KaggleServer, converted: Path) -> None:
    server.log = LOG
    server.states = ["QUEUED", "QUEUED", "RUNNING", "RUNNING", "COMPLETE"]
    server.calls["GetKernelSessionStatus"] = [says(status="QUEUED"), fails(502, "Bad gateway")]
    result = nb2ddp("push", "--watch")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("ada/tiny-run · ")]
    assert [line.split(" · ")[1] for line in lines] == ["QUEUED", "RUNNING", "COMPLETE"]
    assert lines[-1].endswith(" · step 12 of 30 · loss 1.234 · 2 steps/s")
    assert result.output.endswith("Next:\n  nb2ddp fetch ada/tiny-run\n")
    assert len(server.pushes) == 1


def test_whoever_waits_for_kaggle_is_told_so(
    server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(answer: Answer) -> Answer:
        def wait(server: KaggleServer, request: dict[str, Any]) -> dict[str, Any] | str:
            time.sleep(0.6)
            return answer(server, request)

        return wait

    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.2)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.6)
    server.answers = [late(takes)]
    assert "] waiting for Kaggle: the push" in nb2ddp("push").output
    server.calls["GetKernelSessionStatus"] = [late(says(status="COMPLETE"))]
    assert "] waiting for Kaggle: ada/tiny-run" in nb2ddp("status").output
    server.states, server.log = ["QUEUED", "QUEUED", "COMPLETE"], LOG
    assert "] waiting for the log of ada/tiny-run" in nb2ddp("logs", "--follow").output


def test_watching_a_kernel_that_fails(server: KaggleServer) -> None:
    server.states = ["RUNNING", "CANCEL_ACKNOWLEDGED"]
    result = nb2ddp("status", "ada/tiny-run", "--follow")
    assert result.exit_code == errors.KernelError.exit_code
    assert "ended as CANCEL_ACKNOWLEDGED" in result.output


def test_a_watched_failure_says_why(server: KaggleServer) -> None:
    server.log = [
        "nb2ddp: rank 1 failed first:\nboom\n",
        "nb2ddp: training failed: rank 1: Value",
        "Error: x\x1b[2J\n",
    ]
    server.states = ["RUNNING", "ERROR"]
    result = nb2ddp("status", "ada/tiny-run", "--follow")
    assert "ended as ERROR: training failed: rank 1: ValueError: x\\x1b[2J. `nb2ddp logs" in result.output
    assert result.exit_code == errors.KernelError.exit_code


def test_a_long_queue_is_told(server: KaggleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONG_QUEUE", 0.1)
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.3)
    server.states = [*["QUEUED"] * 20, "COMPLETE"]
    output = nb2ddp("status", "ada/tiny-run", "--follow").output
    assert "ada/tiny-run · QUEUED: waits for free GPUs, starts by itself" in output


def test_watching_gives_up_when_nothing_is_heard(
    server: KaggleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "GIVE_UP_AFTER", 0.2)
    server.states = ["QUEUED"]
    server.calls["GetKernelSessionStatus"] = [says(status="QUEUED"), *[fails(500, "down")] * 50]
    assert nb2ddp("status", "ada/tiny-run", "--follow").exit_code == errors.ServerError.exit_code


@pytest.mark.parametrize("command", [["logs", "--follow"], ["status", "--follow"], ["fetch", "--follow"]])
def test_ctrl_c_stops_watching_and_not_the_kernel(
    server: KaggleServer, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    server.states = ["QUEUED"]
    monkeypatch.setattr(time, "sleep", interrupt)
    result = nb2ddp(*command, "ada/tiny-run")
    assert result.exit_code == 130
    assert (
        "ada/tiny-run goes on running on Kaggle. To watch it again: nb2ddp status ada/tiny-run --follow"
        in result.output
    )
