"""What a command says while it waits, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys
import time

import pytest

from nb2ddp import waiting as module
from nb2ddp.waiting import waiting


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


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("loading"):
        pass
    assert capsys.readouterr().err == ""


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
