"""push: the real kaggle client, against a server of ours that speaks its format."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from nb2ddp import errors
from nb2ddp.cli import main
from tests.support.kaggle_client import (
    NOTEBOOK,
    converted,
    imported_for_loopback,
    nb2ddp,
    server,
    write_notebook,
)
from tests.support.kaggle_server import KEY, KaggleServer, says

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


def test_four_l4s_are_pushed_to_and_other_kinds_are_refused(server: KaggleServer, converted: Path) -> None:
    refused = nb2ddp("push", "tiny", "--accelerator", "p100")
    assert refused.exit_code == 1
    assert "'p100' cannot be used: a P100 is one GPU" in refused.output
    assert nb2ddp("push", "tiny", "--accelerator", "l4x4").exit_code == 0
    (push,) = server.pushes
    assert push["machineShape"] == "NvidiaL4"
    assert "\nNPROC = 4\n" in push["text"]


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
        assert ('"slug": "INSERT_OWNER_SLUG_HERE/tiny-run"' in result.stdout) == (options == ["--yes"])


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
def test_a_push_that_cannot_be(
    server: KaggleServer, request: pytest.FixtureRequest, arguments: list[str], words: str
) -> None:
    Path("empty").mkdir()
    if "tiny" in arguments:
        request.getfixturevalue("converted")
    result = nb2ddp("push", "--kaggle", *arguments)
    assert result.exit_code == (2 if {"--owner", "--timeout"}.intersection(arguments) else 1)
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
@pytest.mark.parametrize("dry", [[], pytest.param(["--dry-run"], marks=pytest.mark.thorough)])
def test_a_token_stops_the_push(
    server: KaggleServer, cell: Any, place: str, kind: str, dry: list[str]
) -> None:
    write_notebook(Path("nb.ipynb"), [*NOTEBOOK, cell])
    result = nb2ddp("push", "--kaggle", "nb.ipynb", "--allow-secret", "0" * 12, *dry)
    assert result.exit_code == errors.SecretError.exit_code
    assert f"nb.ipynb: {place}: {kind}" in result.output
    assert "no text that looks like a token has" not in result.output
    for secret in (HF[4:], KEY, "fG7h"):
        assert secret not in result.output
    assert server.pushes == []
    fingerprints = re.findall(r"\[([0-9a-f]{12})\]", result.output)
    assert nb2ddp("push", "nb_ddp", "--allow-secret", fingerprints[0], *dry).exit_code == 0


def test_placeholders_are_no_tokens(server: KaggleServer) -> None:
    cell = 'token = "hf_' + "x" * 34 + '"  # or "YOUR_HF_TOKEN", sk-...'
    write_notebook(Path("nb.ipynb"), [*NOTEBOOK, cell])
    result = nb2ddp("push", "nb.ipynb", "--allow-secret", "0" * 12)
    assert result.exit_code == 0
    assert f"--allow-secret {'0' * 12}: no text that looks like a token has this fingerprint" in result.output


def test_a_token_in_the_edited_script_stops_the_push(server: KaggleServer, converted: Path) -> None:
    (converted / "train_ddp.py").write_text(f'token = "{HF}"\n')
    result = nb2ddp("push")
    assert result.exit_code == errors.SecretError.exit_code
    assert "tiny-run.py, line " in result.output


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
