"""Commands as people start them: `run` and `rules`, and the command itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.cli.common import say
from nb2ddp.cli.rules import page_of
from nb2ddp.rules import RULES
from tests.support import SAMPLES
from tests.unit.cli.conftest import Invoke, save

# ---- run, rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["missing.ipynb", "missing", "missing.py", "empty", "broken.ipynb"])
def test_run_of_what_cannot_be_run(invoke: Invoke, tmp_path: Path, target: str) -> None:
    (tmp_path / "empty").mkdir()
    save(tmp_path / "broken.ipynb", "x = (")
    result = invoke("run", target)
    assert result.exit_code == 1
    assert target in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["convert", ""],
        ["convert", "a.ipynb", "-o", ""],
        ["convert", "/"],
        *(["run", ""], ["rehearse", " "], ["push", "--kaggle", ""], ["emit", "--target", "slurm", ""]),
        *(["status", ""], ["logs", " "], ["fetch", ""], ["push", "--resume-from", ""]),
        *(["prove", "", "a.py"], ["doctor", ""], ["run", "a_ddp", "--log-dir", ""]),
    ],
    ids=" ".join,
)
def test_a_path_that_cannot_be_meant_is_a_usage_error(
    invoke: Invoke, tmp_path: Path, words: list[str]
) -> None:
    save(tmp_path / "a.ipynb", "x = 1")
    result = invoke(*words)
    assert result.exit_code == 2, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.ipynb"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, click.Abort])
def test_ctrl_c_says_so_with_its_exit_code(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def stopped(*_: object) -> None:
        raise stop

    monkeypatch.setattr("nb2ddp.doctor.machine.look", stopped)
    result = invoke("doctor", "--cpu")
    assert (result.exit_code, result.stderr) == (130, "nb2ddp: interrupted\n")


def test_a_sentence_breaks_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    say("this sentence is longer than the line, and `nb2ddp run a_ddp --cpu` is to be copied")
    lines = capsys.readouterr().err.splitlines()
    assert all(len(line) <= 30 or "`nb2ddp run a_ddp --cpu`" in line for line in lines)
    assert any("`nb2ddp run a_ddp --cpu`" in line for line in lines)


@pytest.mark.parametrize(
    "words", [["rules"], ["rules", "batch"], ["rules", "nothing-of-this-name"], ["run", "a", "-x"]]
)
def test_nothing_is_longer_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        main(words)
    lines = re.sub(r"\x1b\[\d*m", "", "".join(capsys.readouterr())).splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80 and line[:3] not in ("  +", "  -", "   ")] == [], (
        "not code"
    )


def test_run_starts_the_script_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a_ddp").mkdir()
    script = tmp_path / "a_ddp" / "train_ddp.py"
    script.write_text(
        "import os, sys\nprint('rank', os.environ['RANK'])\nsys.exit(3 * (os.environ['RANK'] == '0'))"
    )
    command = [sys.executable, "-m", "nb2ddp", "run", "a_ddp", "--cpu", "--nproc", "1"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 3, result.stderr
    assert "rank 0" in result.stdout


def test_the_rules_are_listed_in_their_order(invoke: Invoke) -> None:
    listed = [line.split()[0] for line in invoke("rules").stdout.splitlines()]
    assert listed == [rule.name for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_shows_its_diff(invoke: Invoke, rule: Any) -> None:
    result = invoke("rules", rule.name)
    assert result.exit_code == 0
    assert "``" not in result.stdout
    assert "code-block" not in result.stdout
    shown = [line.removeprefix("  ") for line in result.stdout.splitlines()]
    assert [line for line in page_of(rule.doc).diff if line.rstrip() not in shown] == []
    assert page_of(rule.doc).diff


def test_the_diff_of_a_rule_is_coloured_on_a_terminal() -> None:
    shown = CliRunner().invoke(main, ["rules", "device-map"], color=True).stdout
    assert "\x1b[32m  +" in shown
    assert "\x1b" not in CliRunner().invoke(main, ["rules", "device-map"]).stdout


def test_near_names_are_suggested(invoke: Invoke) -> None:
    assert "Did you mean 'batch'?" in invoke("rules", "batsh").stderr


# ---- as people start it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [[sys.executable, "-m", "nb2ddp"], [str(Path(sys.executable).with_name("nb2ddp"))]]
)
def test_as_a_module_and_as_a_command(tmp_path: Path, start: list[str]) -> None:
    path = SAMPLES / "alpaca_sft.ipynb"
    environment = {**os.environ, "PYTHONWARNINGS": "error::SyntaxWarning"}
    result = subprocess.run(
        [*start, "convert", str(path), "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["status"] == "converted"
    assert (tmp_path / "alpaca_sft_ddp" / "train_ddp.py").is_file()


def test_the_version(invoke: Invoke) -> None:
    from nb2ddp import __version__

    assert invoke("--version").stdout == f"nb2ddp, version {__version__}\n"


def test_a_rehearsal_of_what_is_not_there_says_only_that() -> None:
    done = CliRunner().invoke(main, ["rehearse", "missing.ipynb"])
    assert (done.exit_code, done.stderr) == (3, "nb2ddp: missing.ipynb does not exist.\n")
