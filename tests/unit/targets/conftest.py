"""What the tests of targets share: a job, the files of a target, and the command in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli import main
from nb2ddp.targets import TARGETS
from nb2ddp.targets.job import Job
from tests.support import ROOT

SCRIPT = '"""Train it with torchrun."""\nprint("Trainer()", 1)\n'
NOTEBOOK = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"


def job(script: str = SCRIPT, setup: str | None = None, **numbers: Any) -> Job:
    return Job("tiny run.ipynb", script, setup, **numbers)


def files(target: str, what: Job | None = None, **options: Any) -> dict[str, str]:
    return TARGETS[target](**options).files(what or job())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conversion, in the current folder."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["convert", str(NOTEBOOK), "-o", "tiny_ddp"]).exit_code == 0
    return tmp_path / "tiny_ddp"


def emit(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["emit", *arguments])
