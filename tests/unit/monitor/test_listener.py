"""What the listener prints of its own, beside what rank 0 prints."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from nb2ddp.monitor.listener import Listener
from tests.unit.test_waiting import Terminal


@pytest.mark.parametrize(("last", "added"), [("\r 50%|#####     | 5/10", "\n"), ("done\n", ""), (None, "")])
def test_what_is_said_after_a_bar_has_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], last: str | None, added: str
) -> None:
    listener = Listener()
    if last is not None:
        listener._hear(last, False)
    listener.end()
    assert capsys.readouterr().err == added


def silent(listener: Listener, seconds: float) -> None:
    listener._silent_since = time.monotonic() - seconds
    listener._tick()


def test_a_stage_is_told_once_and_again_after_a_long_silence(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Listener()
    for seconds in (1, 2.1, 3, 4.7, 16, 17.2):
        silent(listener, seconds)
    listener._waiting.clear()
    listener._hear("epoch 0: loss 1.5\n", False)
    silent(listener, 2.1)
    listener.ended(0, 0)
    silent(listener, 6)
    said = [line.partition("] ")[2].partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["starting", "starting", "training", "ending"]


@pytest.mark.parametrize("code", [0, 1, -2])
def test_the_end_of_rank_0_is_told_and_no_verdict(capsys: pytest.CaptureFixture[str], code: int) -> None:
    listener = Listener()
    listener.ended(0, code)
    silent(listener, 6)
    assert "] ending: rank 0 has ended, and the other processes end\n" in capsys.readouterr().err


def test_a_bar_that_stands_on_the_line_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Listener()
    listener._hear("\r 50%|#####     | 5/10", False)
    silent(listener, 20)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_the_line_is_gone_before_rank_0_prints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    listener = Listener()
    out, _ = listener.begin(tmp_path, cpu=True, stopped=lambda: False)
    listener._silent_since = time.monotonic() - 5
    while "starting" not in terminal.getvalue():
        time.sleep(0.05)
    os.write(out, b"hello\n")
    while "hello" not in capfd.readouterr().out:
        time.sleep(0.05)
    assert terminal.getvalue().endswith(" \r")
    listener.end()
