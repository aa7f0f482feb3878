"""push --sessions: one session after the other, with the real client against a server of ours."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.kaggle import datasets
from tests.support.kaggle_client import converted, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import Answer, KaggleServer, fails, takes

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")


def run_json(code: int, error: str | None = None, step: int | None = None) -> bytes:
    run: dict[str, Any] = {
        "exit_code": code,
        "error": error,
        "phase": "training",
        "world_size": 2,
        "seconds": {},
    }
    return json.dumps(run | ({"stopped": {"step": step, "of": 30}} if step else {})).encode()


def checkpoint(step: int) -> dict[str, bytes]:
    return {f"outputs/checkpoint-{step}/trainer_state.json": json.dumps({"global_step": step}).encode()}


STOPPED = [{"run.json": run_json(0, step=step), **checkpoint(step)} for step in (10, 20)]
DONE = {"run.json": run_json(0), "lora/adapter_config.json": b"{}", **checkpoint(30)}
KILLED = {"run.json": run_json(1, "the kernel was ended from outside"), **checkpoint(5), **checkpoint(12)}


def session(state: str, files: dict[str, bytes], failure: str = "") -> Answer:
    """A push that is taken, and how its session ends."""

    def answer(server: KaggleServer, request: dict[str, Any]) -> dict[str, Any]:
        server.states, server.files, server.failure = ["QUEUED", "RUNNING", state], files, failure
        return takes(server, request)

    return answer


def sources(server: KaggleServer) -> list[tuple[str, list[str], list[str]]]:
    return [
        (push["slug"], push.get("kernelDataSources", []), push.get("datasetDataSources", []))
        for push in server.pushes
    ]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "POLL_SECONDS", 0.01)


def test_it_pushes_until_the_run_is_done(server: KaggleServer, converted: Path) -> None:
    server.answers = [session("COMPLETE", files) for files in (*STOPPED, DONE)]
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 0, result.output
    assert sources(server) == [
        ("ada/tiny-run", [], ["bob/words"]),
        ("ada/tiny-run-part-2", ["ada/tiny-run"], ["bob/words"]),
        ("ada/tiny-run-part-3", ["ada/tiny-run-part-2"], ["bob/words"]),
    ]
    assert 'RESUME_FROM = "ada/tiny-run"' in server.pushes[1]["text"]
    assert "session 1 ended as COMPLETE at step 10 of 30; the next one goes on from there" in result.output
    assert "the run is done after 3 sessions; its output is in tiny-run-part-3_output" in result.output
    assert "The adapter is in tiny-run-part-3_output/lora" in result.output
    assert server.asked.count("GetAcceleratorQuotaStatistics") == 3, "the quota is checked before each"
    assert "this run is done, after 3 sessions" in nb2ddp("push", "tiny", "--sessions", "auto").output
    assert len(server.pushes) == 3


def test_no_more_sessions_than_it_may_have_and_then_it_goes_on(server: KaggleServer, converted: Path) -> None:
    server.answers = [session("COMPLETE", files) for files in (*STOPPED, DONE)]
    first = nb2ddp("push", "tiny", "--sessions", "2")
    assert first.exit_code == 23
    assert "not done after 2 sessions (step 20)" in first.output
    assert len(server.pushes) == 2
    assert nb2ddp("push", "tiny", "--sessions", "3").exit_code == 0
    assert [slug for slug, *_ in sources(server)][2:] == ["ada/tiny-run-part-3"]


@pytest.mark.parametrize(
    "files",
    [KILLED, {name: data for name, data in KILLED.items() if name != "run.json"}],
    ids=["killed", "no record"],
)
def test_a_session_that_is_ended_from_outside_goes_on_from_its_last_whole_checkpoint(
    server: KaggleServer, converted: Path, files: dict[str, bytes]
) -> None:
    """Kaggle attaches only what is complete, so the checkpoint travels as a dataset."""
    torn = {**files, "outputs/checkpoint-15/trainer_state.json": b'{"global'}
    server.answers = [session("ERROR", torn, "timed out"), session("COMPLETE", DONE)]
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 0, result.output
    assert "session 1 ended as ERROR at step 12 (timed out); the next one" in result.output
    (made,) = server.datasets
    assert made.startswith("ada/tiny-run-checkpoint-12-")
    assert set(server.unpacked(made)) == {"outputs/checkpoint-12/trainer_state.json"}
    assert sources(server)[1] == ("ada/tiny-run-part-2", [], ["bob/words", made])
    assert f'RESUME_FROM = "datasets/{made}"' in server.pushes[1]["text"]


@pytest.mark.parametrize(
    ("state", "files", "sentence"),
    [
        (
            "ERROR",
            {"run.json": run_json(1, "rank 1: ValueError: x"), **checkpoint(9)},
            "rank 1: ValueError: x. Change the notebook and convert it again; delete sessions.json",
        ),
        (
            "ERROR",
            {"run.json": run_json(1, "the kernel was ended from outside")},
            "without a checkpoint after step 0",
        ),
        ("CANCEL_ACKNOWLEDGED", {}, "tiny-run"),
    ],
    ids=["its own failure", "no checkpoint", "no output"],
)
def test_what_would_fail_again_is_not_pushed_again(
    server: KaggleServer, converted: Path, state: str, files: dict[str, bytes], sentence: str
) -> None:
    server.answers = [session(state, files)]
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 23, result.output
    assert sentence in result.output
    assert len(server.pushes) == 1


def test_two_sessions_that_end_at_the_same_step_end_the_run(server: KaggleServer, converted: Path) -> None:
    server.answers = [session("COMPLETE", STOPPED[0]), session("ERROR", checkpoint(10))]
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 23
    assert "without a checkpoint after step 10" in result.output


def test_it_goes_on_after_it_was_stopped_anywhere(
    server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever call fails first, the same command ends with the same three pushes."""
    scenario = [session("COMPLETE", files) for files in (*STOPPED, DONE)]
    server.answers = list(scenario)
    codes = []
    methods = ["SaveKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "GetKernel"]
    for method in methods:
        server.calls[method] = [fails(500, "try later")]
        codes.append(nb2ddp("push", "tiny", "--sessions", "auto").exit_code)
        server.calls.pop(method)
        if codes[-1] == 0:
            break
    if codes[-1] != 0:
        assert nb2ddp("push", "tiny", "--sessions", "auto").exit_code == 0
    assert [slug for slug, *_ in sources(server)] == [
        "ada/tiny-run",
        "ada/tiny-run-part-2",
        "ada/tiny-run-part-3",
    ]


def test_a_push_whose_answer_never_came_is_not_made_twice(server: KaggleServer, converted: Path) -> None:
    server.answers = [session("COMPLETE", DONE)]
    assert nb2ddp("push", "tiny", "--sessions", "auto").exit_code == 0
    state = json.loads((converted / "sessions.json").read_text())
    state["sessions"][0]["is_pushed"], state["is_done"] = (
        False,
        False,
    )  # as it stands while the push is under way
    (converted / "sessions.json").write_text(json.dumps(state))
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 0, result.output
    assert "ada/tiny-run was pushed before this command was stopped" in result.output
    assert len(server.pushes) == 1


def test_ctrl_c_says_that_the_same_command_goes_on(
    server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    server.answers = [session("COMPLETE", DONE)]
    monkeypatch.setattr(time, "sleep", interrupt)
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 130
    assert "goes on running on Kaggle. The same command takes up where it was." in result.output


def test_without_gpu_hours_nothing_is_pushed_and_later_it_goes_on(
    server: KaggleServer, converted: Path
) -> None:
    server.answers = [session("COMPLETE", STOPPED[0]), session("COMPLETE", DONE)]
    assert nb2ddp("push", "tiny", "--sessions", "1").exit_code == 23
    server.quota = {"timeUsed": "108000s", "totalTimeAllowed": "108000s"}
    assert nb2ddp("push", "tiny", "--sessions", "auto").exit_code == 19
    assert len(server.pushes) == 1
    server.quota = {"timeUsed": "0s", "totalTimeAllowed": "108000s"}
    assert nb2ddp("push", "tiny", "--sessions", "auto").exit_code == 0
    assert len(server.pushes) == 2


def test_an_edited_script_is_another_run(server: KaggleServer, converted: Path) -> None:
    server.answers = [session("COMPLETE", STOPPED[0])]
    assert nb2ddp("push", "tiny", "--sessions", "1").exit_code == 23
    with (converted / "train_ddp.py").open("a") as file:
        file.write("print('more')\n")
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 1
    assert "was edited since the first session" in result.output
    assert len(server.pushes) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sessions", "0"], "--sessions 0: give the most sessions"),
        (["--sessions", "many"], "or auto"),
        (["--sessions", "2", "--watch"], "leave out --watch and --resume-from"),
    ],
)
def test_wrong_wishes_are_refused(
    server: KaggleServer, converted: Path, arguments: list[str], sentence: str
) -> None:
    result = nb2ddp("push", "tiny", *arguments)
    assert result.exit_code in (1, 2)
    assert sentence in result.output
    assert not server.pushes


def test_a_loop_of_its_own_has_no_checkpoints(server: KaggleServer, converted: Path) -> None:
    (converted / "train_ddp.py").write_text("for step in range(9):\n    pass\n")
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert "this script trains without one" in result.output
    assert not server.pushes


@pytest.mark.parametrize("text", ["{", "[]", '{"script": 1}', '{"script": "x", "sessions": [{"no": 1}]}'])
def test_a_torn_record_is_a_sentence(server: KaggleServer, converted: Path, text: str) -> None:
    (converted / "sessions.json").write_text(text)
    result = nb2ddp("push", "tiny", "--sessions", "auto")
    assert result.exit_code == 1
    assert "sessions.json cannot be read" in result.output
    assert not server.pushes
