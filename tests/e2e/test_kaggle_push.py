"""push, status, logs and fetch: the real kaggle client, against a server of ours that speaks its format."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from nb2ddp import errors
from nb2ddp.cli import main
from nb2ddp.kaggle import push as pushing
from nb2ddp.kaggle import watch as watching
from nb2ddp.kaggle.watch import Progress
from tests.support.kaggle_client import (
    NOTEBOOK,
    converted,
    imported_for_loopback,
    nb2ddp,
    server,
    write_notebook,
)
from tests.support.kaggle_server import (
    KEY,
    USER,
    HttpError,
    KaggleServer,
    fails,
    hangs,
    says,
    shows_a_login_page,
    takes,
)

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")

HF = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"


# ---------------------------------------------------------------------------------------------------------
# A push that succeeds


def test_a_push_sends_the_bundle_once(server: KaggleServer, converted: Path) -> None:
    result = nb2ddp(
        "push", "--kaggle", "--timeout", "11h", "--token-dataset", "ada/keys", "--image", "latest"
    )
    assert result.exit_code == 0, result.output
    (request,) = server.pushes
    code = request.pop("text")
    assert request == {
        "slug": "ada/tiny-run",
        "newTitle": "tiny run",
        "language": "python",
        "kernelType": "script",
        "isPrivate": True,
        "enableGpu": True,
        "enableTpu": False,
        "enableInternet": True,
        "machineShape": "NvidiaTeslaT4",
        "sessionTimeoutSeconds": 39600,
        "datasetDataSources": ["bob/words", "ada/keys"],
        "dockerImagePinningType": "latest",
    }
    assert "TRAIN_FOR = 38700 " in code
    assert (converted / "train_ddp.py").read_text() in code
    assert "Pushed ada/tiny-run, version 1: https://www.kaggle.com/code/ada/tiny-run" in result.output
    assert "21.0 of 30 GPU hours are left this week; new ones come on Saturday 28 November" in result.output
    assert (converted / "pushed" / "tiny-run.py").read_text() == code
    assert nb2ddp("convert", "tiny run.ipynb", "-o", "tiny").exit_code == 0, "a push edits nothing"


def test_a_notebook_is_converted_first(server: KaggleServer) -> None:
    write_notebook(Path("nb.ipynb"), NOTEBOOK)
    result = nb2ddp("push", "--kaggle", "nb.ipynb", "--owner", "lab", "--title", "Größe 12")
    assert result.exit_code == 0, result.output
    assert server.pushes[0]["slug"] == "lab/grosse-12"
    assert nb2ddp("status", "nb_ddp").output == "lab/grosse-12: COMPLETE\n"


def test_the_address_that_kaggle_gives_is_remembered(server: KaggleServer, converted: Path) -> None:
    server.answers = [says(ref="/code/ada/tiny-run-2", url="https://www.kaggle.com/code/ada/tiny-run-2")]
    assert nb2ddp("push").exit_code == 0
    assert nb2ddp("status").output == "ada/tiny-run-2: COMPLETE\n"


def test_sources_come_from_the_flags_the_notebook_and_the_metadata(
    server: KaggleServer, converted: Path
) -> None:
    file = converted / "kaggle" / "kernel-metadata.json"
    metadata = json.loads(file.read_text())
    metadata["competition_sources"], metadata["keywords"] = ["titanic"], ["llm"]
    file.write_text(json.dumps(metadata))
    more = ["--dataset", "ada/a", "--dataset", "ada/b/2", "--kernel", "ada/first", "--competition", "digits"]
    assert nb2ddp("push", "tiny", *more, "--model", "google/gemma/transformers/2b/1").exit_code == 0
    (request,) = server.pushes
    assert request["datasetDataSources"] == ["bob/words", "ada/a", "ada/b/2"]
    assert request["kernelDataSources"] == ["ada/first"]
    assert request["competitionDataSources"] == ["titanic", "digits"]
    assert request["modelDataSources"] == ["google/gemma/transformers/2b/1"]
    assert request["categoryIds"] == ["llm"]


def test_a_loop_of_its_own_is_not_stopped_in_time(server: KaggleServer, converted: Path) -> None:
    assert "without a Trainer" not in nb2ddp("push", "--timeout", "2h").output
    (converted / "train_ddp.py").write_text("for step in range(9):\n    pass\n")
    assert (
        "without a Trainer, so --timeout ends it without a checkpoint"
        in nb2ddp("push", "--timeout", "2h").output
    )


def test_edits_of_the_script_are_pushed(server: KaggleServer, converted: Path) -> None:
    with (converted / "train_ddp.py").open("a") as file:
        file.write("print('my own last line')\n")
    assert nb2ddp("push").exit_code == 0
    assert "print('my own last line')\n" in server.pushes[0]["text"]


def test_an_edited_code_file_is_pushed_as_it_is(server: KaggleServer, converted: Path) -> None:
    file = converted / "kaggle" / "tiny-run.py"
    file.write_text(file.read_text() + "# mine\n")
    assert nb2ddp("push").exit_code == 0
    assert server.pushes[0]["text"] == file.read_text()
    assert "cannot be built into it" in nb2ddp("push", "--timeout", "2h").output
    (converted / "train_ddp.py").write_text("x = 1\n")
    assert "were both edited" in nb2ddp("push").output
    assert len(server.pushes) == 1


def test_a_dry_run_shows_the_request_and_sends_nothing(server: KaggleServer, converted: Path) -> None:
    result = nb2ddp("push", "--dry-run", "--timeout", "90m")
    assert result.exit_code == 0, result.output
    assert server.asked == []
    first, _, rest = result.stdout.partition("\n")
    assert first == "POST http://localhost/api/v1/kernels.KernelsApiService/SaveKernel"
    shown = json.loads(rest)
    nb2ddp("push", "--timeout", "90m")
    (sent,) = server.pushes
    assert (converted / "dry_run" / "tiny-run.py").read_text() == sent["text"]
    assert shown | {"text": ""} == sent | {"text": ""}
    assert "dry_run/tiny-run.py" in shown["text"]


def test_the_owner_is_asked_for_where_somebody_can_answer(
    server: KaggleServer, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("nb2ddp.kaggle.credentials.user_known_here", lambda: None)
    monkeypatch.setattr("nb2ddp.cli.push._can_ask", lambda: True)
    asked = CliRunner().invoke(main, ["push", "--dry-run"], input="grace\n")
    assert asked.exit_code == 0, asked.output
    assert "Your Kaggle user name: " in asked.stderr
    assert '"slug": "grace/tiny-run"' in asked.stdout
    for options in (["--yes"], ["--owner", "grace"]):
        result = CliRunner().invoke(main, ["push", "--dry-run", *options], input="")
        assert result.exit_code == 0, result.output
        assert "user name" not in result.stderr
        assert ("--owner names one" in result.stderr) == (options == ["--yes"])


def test_public_asks(server: KaggleServer, converted: Path) -> None:
    refused = nb2ddp("push", "--public", input="n\n")
    assert refused.exit_code == 1
    assert "everyone can see the code" in refused.output
    assert server.pushes == []
    assert nb2ddp("push", "--public", input="y\n").exit_code == 0
    assert nb2ddp("push", "--public", "--yes").exit_code == 0
    assert [request["isPrivate"] for request in server.pushes] == [False, False]


# ---------------------------------------------------------------------------------------------------------
# What is refused here


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["empty"], "empty holds no Kaggle bundle"),
        (["none.ipynb"], "none.ipynb does not exist"),
        ([], "there is no converted folder here"),
        (["tiny", "--timeout", "13h"], "'13h' is not a time limit"),
        (["tiny", "--timeout", "1.2.3h"], "'1.2.3h' is not a time limit"),
        (["tiny", "--timeout", "soon"], "'soon' is not a time limit"),
        (["tiny", "--resume-from", "what"], "'what' is neither OWNER/SLUG nor a folder"),
        (["tiny", "--dataset", "words"], "'words' cannot be attached"),
        (["tiny", "--owner", "a b"], "is no name of a Kaggle user"),
        (["tiny", "--resume-from", "tiny"], "tiny has not been pushed yet"),
        (["tiny", "--resume-from", "ada/tiny-run", "--title", "tiny run"], "cannot continue from itself"),
    ],
)
def test_a_push_that_cannot_be(server: KaggleServer, arguments: list[str], words: str) -> None:
    Path("empty").mkdir()
    if "tiny" in arguments:
        write_notebook(Path("tiny run.ipynb"), NOTEBOOK)
        nb2ddp("convert", "tiny run.ipynb", "-o", "tiny")
    result = nb2ddp("push", "--kaggle", *arguments)
    assert result.exit_code == 1
    assert words in result.output
    assert server.pushes == []


def test_several_folders_are_a_question(server: KaggleServer, converted: Path) -> None:
    nb2ddp("convert", "tiny run.ipynb", "-o", "other")
    assert "there are several converted folders here: name one of other, tiny." in nb2ddp("push").output


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    "change", [{"keywords": "llm"}, {"docker_image_pinning_type": "new"}, {"dataset_sources": 5}]
)
def test_metadata_with_a_wrong_value_is_told(
    server: KaggleServer, converted: Path, change: dict[str, Any], dry: list[str]
) -> None:
    file = converted / "kaggle" / "kernel-metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    result = nb2ddp("push", *dry)
    assert result.exit_code in (errors.BundleError.exit_code, errors.RefusedError.exit_code)
    assert server.pushes == []


@pytest.mark.parametrize("metadata", ["{", "[]", '{"id": "a/b"}', '{"code_file": "x.ipynb"}'])
def test_broken_metadata_is_told(server: KaggleServer, converted: Path, metadata: str) -> None:
    (converted / "kaggle" / "kernel-metadata.json").write_text(metadata)
    result = nb2ddp("push", "tiny")
    assert result.exit_code == 1
    assert "kernel-metadata.json" in result.output


def test_a_bundle_that_is_too_large_is_not_sent(server: KaggleServer, converted: Path) -> None:
    (converted / "train_ddp.py").write_text("x = 1\n" * 120_000)
    assert "Kaggle takes 700 KB" in nb2ddp("push").output
    assert server.pushes == []


WANDB = "wandb.login(key='0123456789abcdef0123456789abcdef01234567')"


@pytest.mark.parametrize(
    ("cell", "place", "kind"),
    [
        (f'token = "{HF}"', "cell 5, line 1", "Hugging Face token (hf_…)"),
        (f"x = 1\nkey = 'KGAT_{KEY}'", "cell 5, line 2", "Kaggle token (KGAT_…)"),
        (WANDB, "cell 5, line 1", "Weights & Biases key"),
        ("k = 'sk-proj-" + "aB3dE5fG7h" * 4 + "'", "cell 5, line 1", "OpenAI key (sk-…)"),
        ("k = 'ghp_" + "aB3dE5fG7h" * 4 + "'", "cell 5, line 1", "GitHub token (ghp_…)"),
        (
            new_markdown_cell(f"my token\nis {HF}"),
            "the text after cell 4, line 2",
            "Hugging Face token (hf_…)",
        ),
        (
            new_code_cell("print(t)", outputs=[new_output("stream", text=f"ok\n{HF}\n")]),
            "the output of cell 5, line 2",
            "Hugging Face token",
        ),
        (
            new_code_cell("t", outputs=[new_output("execute_result", {"text/html": f"<b>{HF}</b>"})]),
            "the output of cell 5, line 1",
            "Hugging Face token",
        ),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_token_stops_the_push(
    server: KaggleServer, cell: Any, place: str, kind: str, dry: list[str]
) -> None:
    write_notebook(Path("nb.ipynb"), [*NOTEBOOK, cell])
    result = nb2ddp("push", "--kaggle", "nb.ipynb", *dry)
    assert result.exit_code == errors.SecretError.exit_code
    assert f"nb.ipynb: {place}: {kind}" in result.output
    for secret in (HF[4:], KEY, "fG7h"):
        assert secret not in result.output
    assert server.pushes == []
    fingerprints = re.findall(r"\[([0-9a-f]{12})\]", result.output)
    other = nb2ddp("push", "nb.ipynb", "--allow-secret", "0" * 12, *dry)
    assert other.exit_code == errors.SecretError.exit_code
    assert nb2ddp("push", "nb.ipynb", "--allow-secret", fingerprints[0], *dry).exit_code == 0


def test_placeholders_are_no_tokens(server: KaggleServer) -> None:
    cell = 'token = "hf_' + "x" * 34 + '"  # or "YOUR_HF_TOKEN", sk-...'
    write_notebook(Path("nb.ipynb"), [*NOTEBOOK, cell])
    assert nb2ddp("push", "nb.ipynb").exit_code == 0


def test_a_token_in_the_edited_script_stops_the_push(server: KaggleServer, converted: Path) -> None:
    (converted / "train_ddp.py").write_text(f'token = "{HF}"\n')
    result = nb2ddp("push")
    assert result.exit_code == errors.SecretError.exit_code
    assert "tiny-run.py, line " in result.output


# ---------------------------------------------------------------------------------------------------------
# What Kaggle refuses

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
        (fails(404, "Notebook not found"), errors.NotFoundError, "there is no such kernel"),
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
        (says(error="Notebook not found"), errors.NotFoundError, "there is no such kernel"),
        (says(error="The machine is on fire"), errors.RefusedError, "'The machine is on fire'"),
        (shows_a_login_page, errors.ServerError, "is there a proxy that asks for a login?"),
        (fails(418, "I am a teapot"), errors.RefusedError, "'I am a teapot': see"),
        (says(code=404, message="Notebook not found"), errors.NotFoundError, "there is no such kernel"),
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


def test_a_time_out_before_the_server_has_acted(server: KaggleServer, converted: Path) -> None:
    server.answers = [hangs()]
    result = nb2ddp("push")
    assert result.exit_code == errors.UnreachableError.exit_code
    assert "so no run has started: push again later" in result.output
    assert (len(server.pushes), len(server.runs)) == (1, 0)


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


# ---------------------------------------------------------------------------------------------------------
# Going on from an earlier kernel


def test_resuming_makes_a_second_kernel_and_then_a_third(server: KaggleServer, converted: Path) -> None:
    assert nb2ddp("push").exit_code == 0
    for number in (2, 3):
        result = nb2ddp("push", "--resume-from", "tiny")
        assert result.exit_code == 0, result.output
        request = server.pushes[-1]
        assert request["slug"] == f"ada/tiny-run-part-{number}"
        before = "ada/tiny-run" if number == 2 else "ada/tiny-run-part-2"
        assert request["kernelDataSources"] == [before]
        assert f'RESUME_FROM = "{before}"' in request["text"]


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (
            "RUNNING",
            errors.RunningError.exit_code,
            "ada/first is RUNNING: continue from it when it has ended",
        ),
        ("ERROR", 0, "ended as ERROR, and Kaggle attaches the output of an earlier version"),
    ],
)
def test_resuming_from_what_has_not_succeeded(
    server: KaggleServer, converted: Path, state: str, code: int, words: str
) -> None:
    server.states = [state]
    result = nb2ddp("push", "--resume-from", "ada/first")
    assert result.exit_code == code
    assert words in result.output


def test_resuming_from_a_dataset(server: KaggleServer, converted: Path) -> None:
    assert nb2ddp("push", "--resume-from", "datasets/ada/partial").exit_code == 0
    (request,) = server.pushes
    assert request["slug"] == "ada/tiny-run"
    assert request["datasetDataSources"] == ["bob/words", "ada/partial"]


# ---------------------------------------------------------------------------------------------------------
# status, logs, watching

LOG = [
    "nb2ddp: 2 processes on Tesla T4, Tesla T4; 20 GB of free disk\n",
    "\rMap:  50%|#####     | 160/320 [00:01<00:01, 99.0 examples/s]",
    "\rLoading weights: 100%|##########| 9/9 [00:00<00:00, 1234.5it/s]\n",
    "\r  0%|          | 0/30 [00:00<?, ?it/s]",
    "\r 10%|#         | 3/30 [00:06<00:54,  2.0",
    "0s/it]{'loss': 2.5, 'grad_norm': 1.0, 'epoch': 0.1}\n",
    "\r 40%|####      | 12/30 [00:06<00:09,  2.00it/s]",
    "{'loss': '1.2345', 'grad_norm': '0.5'}\n",
    "done é\n",
]


def test_progress_is_read_from_the_log() -> None:
    progress = Progress()
    seen = []
    for piece in LOG:
        progress.read(piece)
        seen.append(str(progress))
    assert seen[:5] == [""] * 5
    assert seen[5] == "step 3/30 · loss 2.5 · 2.00 s/step · 0:00:54 left"
    assert seen[-1] == "step 12/30 · loss 1.234 · 0.50 s/step · 0:00:09 left"


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
    assert nb2ddp("logs", "ada/tiny-run").output == "".join(LOG)


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
    assert [line.split(" · ")[1] for line in lines] == ["QUEUED", "RUNNING", "COMPLETE", "COMPLETE"]
    assert "step 12/30 · loss 1.234 · 0.50 s/step" in lines[-1]
    assert len(server.pushes) == 1


def test_watching_a_kernel_that_fails(server: KaggleServer) -> None:
    server.states = ["RUNNING", "CANCEL_ACKNOWLEDGED"]
    result = nb2ddp("status", "ada/tiny-run", "--follow")
    assert result.exit_code == errors.KernelError.exit_code
    assert "ended as CANCEL_ACKNOWLEDGED" in result.output


def test_a_long_queue_is_told(server: KaggleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONG_QUEUE", 0.1)
    server.states = [*["QUEUED"] * 8, "COMPLETE"]
    assert "queued for over 15 minutes" in nb2ddp("status", "ada/tiny-run", "--follow").output


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


# ---------------------------------------------------------------------------------------------------------
# fetch


@pytest.fixture
def output(server: KaggleServer) -> dict[str, bytes]:
    """Five files on three pages."""
    run = {
        "exit_code": 0,
        "phase": "training",
        "error": None,
        "world_size": 2,
        "gpus": ["Tesla T4", "Tesla T4"],
        "peak_memory_mib": [1000, 2000],
        "seconds": {"checks": 1.2, "training": 61.0},
    }
    server.files = {
        "lora/adapter_config.json": b"{}",
        "lora/adapter_model.safetensors": bytes(range(256)) * 4000,
        "outputs/checkpoint-9/adapter_config.json": b"{}",
        "logs/rank0.log": b"step 1\n",
        "run.json": json.dumps(run).encode(),
    }
    server.log = LOG
    return server.files


def test_fetch_brings_all_pages_and_tells_what_there_is(
    server: KaggleServer, output: dict[str, bytes]
) -> None:
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert result.exit_code == 0, result.output
    assert server.asked.count("ListKernelSessionOutput") == 4  # three pages, and the log
    for name, content in output.items():
        assert (Path("home") / name).read_bytes() == content
    assert (Path("home") / "tiny-run.log").read_bytes().decode() == "".join(LOG)
    assert "The adapter is in home/lora.\n" in result.output
    assert "2 processes on Tesla T4, Tesla T4; checks 1 s, training 61 s." in result.output
    assert "1000 MiB, 2000 MiB" in result.output
    assert not list(Path("home").rglob("*partial"))

    served = len(server.served)
    assert nb2ddp("fetch", "ada/tiny-run", "-o", "home").output.count("was here") == len(output)
    assert len(server.served) == served + len(output)  # asked for, and left


def test_a_changed_file_of_the_same_size_is_fetched_again(
    server: KaggleServer, output: dict[str, bytes]
) -> None:
    nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    file = Path("home") / "lora" / "adapter_config.json"
    os.utime(file, (0, 0))
    output["lora/adapter_config.json"] = b"[]"
    nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert file.read_bytes() == b"[]"


def test_a_download_that_breaks_off_goes_on(
    server: KaggleServer, output: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: real_sleep(min(seconds, 0.01)))
    name = "lora/adapter_model.safetensors"
    server.broken_files = [name]
    assert nb2ddp("fetch", "ada/tiny-run", "-o", "home").exit_code == 0
    assert (Path("home") / name).read_bytes() == output[name]
    parts = [(status, size) for served, status, size in server.served if served == name]
    assert [status for status, _ in parts] == [200, 206]
    assert 512_000 <= parts[1][1] < 600_000, "what had come is kept"

    # and in a later command: the file is complete only then
    (Path("home") / name).unlink()
    server.broken_files = [name] * 6
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert result.exit_code == errors.DownloadError.exit_code
    assert f"{name} could not be fetched" in result.output
    assert not (Path("home") / name).exists(), "a file appears when it is complete"
    assert nb2ddp("fetch", "ada/tiny-run", "-o", "home").exit_code == 0
    assert (Path("home") / name).read_bytes() == output[name]


def test_a_name_that_leads_outside_is_left_out(server: KaggleServer, output: dict[str, bytes]) -> None:
    output["../evil.py"] = b"x"
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home")
    assert result.exit_code == errors.DownloadError.exit_code
    assert not Path("evil.py").exists()
    assert (Path("home") / "run.json").exists()


def test_the_partial_output_of_a_failed_run(server: KaggleServer, output: dict[str, bytes]) -> None:
    server.states = ["ERROR"]
    run = json.loads(output["run.json"]) | {
        "exit_code": 1,
        "error": "rank 1: OutOfMemoryError",
        "phase": "training",
    }
    output["run.json"] = json.dumps(run).encode()
    del output["lora/adapter_config.json"]
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == errors.KernelError.exit_code
    assert "the last checkpoint is tiny-run_output/outputs/checkpoint-9" in result.output
    assert "failed with exit code 1 in the phase training: rank 1: OutOfMemoryError" in result.output


def test_a_run_that_was_stopped_in_time_says_how_to_go_on(
    server: KaggleServer, output: dict[str, bytes]
) -> None:
    run = json.loads(output["run.json"]) | {"stopped": {"step": 40, "of": 100}}
    output["run.json"] = json.dumps(run).encode()
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == 0
    assert "step 40 of 100: `nb2ddp push --kaggle --resume-from ada/tiny-run` goes on" in result.output


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"merged/model.safetensors": b"x"}, "The model is in tiny-run_output/merged."),
        ({"m/a.gguf": b"x", "other.txt": b""}, "The model is in tiny-run_output/m."),
        ({"other.txt": b""}, "There is no adapter and no model in the output."),
    ],
)
def test_other_outputs(server: KaggleServer, files: dict[str, bytes], words: str) -> None:
    server.files, server.states = files, ["RUNNING"]
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == 0, result.output
    assert words in result.output
    assert "ada/tiny-run is RUNNING: this is what there is so far" in result.output
    assert "There is no run.json" in result.output


def test_a_folder_that_cannot_be_written(server: KaggleServer, output: dict[str, bytes]) -> None:
    Path("home").write_text("a file")
    result = nb2ddp("fetch", "ada/tiny-run", "-o", "home/sweet")
    assert result.exit_code == errors.DownloadError.exit_code
    assert "home/sweet cannot be written" in result.output


def test_waiting_for_the_end_before_fetching(server: KaggleServer, output: dict[str, bytes]) -> None:
    server.states = ["RUNNING", "RUNNING", "COMPLETE"]
    assert nb2ddp("fetch", "ada/tiny-run", "--follow").exit_code == 0
    assert Path("tiny-run_output/run.json").is_file()


def test_no_output_at_all(server: KaggleServer) -> None:
    server.states = ["ERROR"]
    result = nb2ddp("fetch", "ada/tiny-run")
    assert result.exit_code == errors.KernelError.exit_code
    assert "ada/tiny-run is ERROR and has no output" in result.output


# ---------------------------------------------------------------------------------------------------------
# Credentials, in a process of its own each: they are read when the client is imported


def run(
    tmp_path: Path,
    *arguments: str,
    code: str | None = None,
    stdin: Any = subprocess.DEVNULL,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("KAGGLE")}
    return subprocess.run(
        [sys.executable, *(["-c", code] if code else ["-m", "nb2ddp"]), *arguments],
        env={**clean, "HOME": str(tmp_path), "KAGGLE_CONFIG_DIR": str(tmp_path / ".kaggle"), **environment},
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path, server: KaggleServer, converted: Path) -> str:
    return str(converted.resolve())


def test_no_credentials(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(tmp_path, "push", "--kaggle", folder, **server.environment)
    assert done.returncode == 1
    assert done.stdout == ""
    for word in ("access_token", "KAGGLE_API_TOKEN", "kaggle.json", "KAGGLE_KEY", "kaggle auth login"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert server.asked == []


def test_a_dry_run_needs_no_credentials(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(tmp_path, "push", "--kaggle", folder, "--dry-run", **server.environment)
    assert done.returncode == 0, done.stderr
    assert '"slug": "INSERT_OWNER_SLUG_HERE/tiny-run"' in done.stdout
    assert server.asked == []


def test_the_owner_is_asked_for_at_a_terminal(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    """The client without credentials closes the standard input, which is where the answer comes from."""
    import pty

    ours, theirs = pty.openpty()
    os.write(ours, b"grace\n")
    done = run(tmp_path, "push", "--kaggle", folder, "--dry-run", stdin=theirs, **server.environment)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "Your Kaggle user name: " in done.stderr
    assert '"slug": "grace/tiny-run"' in done.stdout


@pytest.mark.parametrize("kind", ["token", "token file", "kaggle.json", "login"])
def test_each_kind_of_credentials(tmp_path: Path, server: KaggleServer, folder: str, kind: str) -> None:
    home = tmp_path / ".kaggle"
    home.mkdir()
    environment = dict(server.environment)
    if kind == "token":
        environment |= {"KAGGLE_API_TOKEN": f"KGAT_{KEY}", "VERBOSE": "1"}
    elif kind == "token file":
        (home / "access_token").write_text(f"KGAT_{KEY}\n")
    elif kind == "kaggle.json":
        (home / "kaggle.json").write_text(json.dumps({"username": USER, "key": KEY}))
    else:
        login = {"refresh_token": "r", "username": USER, "scopes": []}
        (home / "credentials.json").write_text(json.dumps(login))
    done = run(tmp_path, "push", "--kaggle", folder, **environment)
    assert done.returncode == 0, done.stderr
    assert [request["slug"] for request in server.pushes] == ["ada/tiny-run"]
    assert KEY not in done.stdout + done.stderr


KNOWN_HERE = """
from nb2ddp.errors import CredentialsError
from nb2ddp.kaggle.credentials import credentials_known_here
try:
    assert credentials_known_here() is None
except CredentialsError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("access_token", "access_token is a folder, and Kaggle's client expects a file there"),
        ("kaggle.json", "kaggle.json is a folder, and Kaggle's client expects a file there"),
        ("KAGGLE_API_TOKEN", "KAGGLE_API_TOKEN names a folder"),
        ("no text", "the Kaggle client cannot start (UnicodeDecodeError)"),
        ("no json", "no Kaggle credentials that work are on this machine"),
        ("no object", "the Kaggle client cannot start (TypeError)"),
        ("config file", "no Kaggle credentials that work are on this machine"),
    ],
)
def test_credentials_of_another_form(
    tmp_path: Path, server: KaggleServer, folder: str, kind: str, words: str
) -> None:
    home, environment = tmp_path / ".kaggle", dict(server.environment)
    if kind == "config file":
        home.write_text("a file")
    elif kind == "KAGGLE_API_TOKEN":
        environment[kind] = str(tmp_path)
    elif kind.startswith("no "):
        home.mkdir()
        name, content = {
            "no text": ("access_token", b"\xff\xfe"),
            "no json": ("kaggle.json", b"{"),
            "no object": ("kaggle.json", b"[5]"),
        }[kind]
        (home / name).write_bytes(content)
    else:
        (home / kind).mkdir(parents=True)
    done = run(tmp_path, "push", folder, **environment)
    assert "Traceback" not in done.stderr, done.stderr
    assert words in done.stderr
    assert done.returncode == errors.CredentialsError.exit_code
    done = run(tmp_path, code=KNOWN_HERE, **environment)
    assert done.returncode == 0, done.stderr


def test_a_token_that_was_revoked(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(tmp_path, "push", "--kaggle", folder, **server.environment, KAGGLE_API_TOKEN="KGAT_old")
    assert done.returncode == 1
    assert "expired or was revoked" in done.stderr
    assert server.pushes == []


WITHOUT_KAGGLE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kaggle", "kagglesdk", "requests"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import nb2ddp
from nb2ddp.cli import main
main()
"""


def test_without_the_client_everything_else_works(tmp_path: Path, server: KaggleServer, folder: str) -> None:
    done = run(
        tmp_path, "convert", f"{folder}/../tiny run.ipynb", "-o", str(tmp_path / "out"), code=WITHOUT_KAGGLE
    )
    assert done.returncode == 0, done.stderr
    for arguments in (["push", folder], ["push", folder, "--dry-run"], ["status", "ada/tiny-run"]):
        done = run(tmp_path, *arguments, code=WITHOUT_KAGGLE)
        assert done.returncode == 1
        assert (
            "the Kaggle client is not installed; install it with `pip install 'nb2ddp[kaggle]'`"
            in done.stderr
        )
        assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------------------------
# A kernel as input


def test_a_kernel_is_converted_by_its_name(server: KaggleServer) -> None:
    write_notebook(Path("there.ipynb"), NOTEBOOK)
    text = Path("there.ipynb").read_text()
    server.versions["ada/their-run"], server.blob = 3, {"source": text, "language": "python"}
    assert nb2ddp("convert", "kaggle:ada/their-run").exit_code == 0
    assert Path("their-run_ddp", "their-run.ipynb").read_text() == text


def test_a_kernel_that_is_not_there_is_told(server: KaggleServer) -> None:
    result = nb2ddp("convert", "kaggle:ada/no-such-run")
    assert result.exit_code == 1
    assert "Permission 'kernels.get' was denied" in " ".join(result.stderr.split())


def test_what_cannot_be_rehearsed_is_not_pushed(server: KaggleServer, converted: Path) -> None:
    Path("tiny run.ipynb").unlink()
    result = nb2ddp("push", str(converted), "--rehearse")
    assert result.exit_code == 3
    assert "is not found; rehearse that" in " ".join(result.stderr.split())
    assert not server.runs
