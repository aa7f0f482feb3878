"""A notebook of marimo's is a notebook for every command, and other Python files are what they were."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from nb2ddp.cli import main
from tests.unit.source.test_marimo import END, HEAD, TRAINING


def test_folders_and_commands_take_it(tmp_path: Path) -> None:
    notebook = tmp_path / "in" / "tuning.py"
    notebook.parent.mkdir()
    notebook.write_text(HEAD + "\n\n".join(TRAINING) + END)
    (notebook.parent / "helpers.py").write_text("def helps():\n    pass\n")
    made = CliRunner().invoke(main, ["convert", str(notebook.parent), "-o", str(tmp_path / "out")])
    assert made.exit_code == 0, made.output
    (script,) = (tmp_path / "out").rglob("train_ddp.py")
    assert "ddp.parallelize(model)" in script.read_text()
    refused = CliRunner().invoke(main, ["push", "--kaggle", str(notebook.parent / "helpers.py"), "--dry-run"])
    assert refused.exit_code == 1
    assert "helpers.py is no notebook" in refused.output
