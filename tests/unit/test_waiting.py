"""What a command says while it waits, on a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nb2ddp import waiting as module
from nb2ddp.waiting import waiting
from tests.support import ROOT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_it_is_a_line_for_each_thing_that_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.2)
    with waiting("loading") as line:
        time.sleep(0.5)
        line.turn_to("checking")
        time.sleep(0.5)
        line.turn_to("ending")
    lines = capsys.readouterr().err.splitlines()
    assert list(dict.fromkeys(line.partition("] ")[2] for line in lines)) == ["loading", "checking"]


def test_it_is_said_while_what_a_library_prints_is_discarded(capsys: pytest.CaptureFixture[str]) -> None:
    line = module.Waiting()
    with contextlib.redirect_stderr(io.StringIO()):
        line.show("signing in", 3, 3)
    assert "signing in" in capsys.readouterr().err


def test_within_another_one_only_the_words_change(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    with waiting("preparing"), waiting("signing in"):
        time.sleep(0.5)
    assert "preparing" not in capsys.readouterr().err
    with waiting("next"):
        time.sleep(0.5)
    assert "next" in capsys.readouterr().err


def test_a_slow_start_of_the_command_counts_as_silence() -> None:
    code = "import time; time.sleep(2)\nfrom nb2ddp.waiting import waiting\nwith waiting('checking'): time.sleep(0.7)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "checking" in done.stderr


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("loading"):
        pass
    assert capsys.readouterr().err == ""


def test_the_log_of_a_long_training_holds_little_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    line = module.Waiting()
    for second in range(600):
        if second % 10 == 9:  # the training prints
            line.clear()
        line.show(f"training: step {second}", second, second % 10)
    line.show("saving", 602, 3)
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["[0:02]", "[10:02]"]


def test_a_long_silence_is_told_at_growing_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    line = module.Waiting()
    for second in range(1200):
        line.show("training", second, second)
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["[0:02]", "[0:17]", "[0:47]", "[1:47]", "[3:47]", "[7:47]", "[12:47]", "[17:47]"]


def test_on_a_terminal_nothing_of_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    with waiting("loading") as line:
        time.sleep(0.7)
        line.turn_to("checking")
        assert "loading" in terminal.getvalue()
        assert terminal.getvalue().endswith(" \r")
    assert terminal.getvalue().endswith(" \r")
    assert "\n" not in terminal.getvalue()


def test_an_install_of_make_shows_that_it_goes_on_and_its_exit_code_counts(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "tests/stacks/newest.txt", "tests/stacks/unsloth.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = ["make", ".venv/.ready", "PYTHON=sleep 4; exit 7;"]
    own = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] in ("..", "...", "....")
    assert "Error 7" in done.stderr
    assert not (tmp_path / ".venv" / ".ready").exists()
