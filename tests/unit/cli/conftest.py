"""What the tests of commands share: a command in an empty folder, and notebooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli import main
from tests.support.helpers import notebook

Invoke = Callable[..., Result]


TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4))
trainer.train()
"""


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in an empty folder; an exception that is no exit is a failure."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)

    return run


def save(path: Path, *cells: str, **metadata: Any) -> Path:
    node = notebook(*cells)
    node.metadata.update(metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(node, path)
    return path


def line_of(path: Path, code: str) -> int:
    """Return the line of a notebook's file on which a line of code stands."""
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if json.dumps(code)[:-1] in line)


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
