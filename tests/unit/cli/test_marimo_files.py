"""A notebook of marimo's is a notebook for every command, and a script with cells is one in a folder of notebooks."""

from __future__ import annotations

import json
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


def test_scripts_with_cells_are_notebooks_of_a_folder(tmp_path: Path) -> None:
    """A module is none, nor is what jupytext pairs with a notebook: that is the same once more."""
    folder = tmp_path / "in"
    folder.mkdir()
    cells = "import torch\n# %%\nmodel = torch.nn.Linear(1, 1)\n# %% [markdown]\n# text\n"
    for name, text in {
        "cells.py": cells,
        "close.py": cells.replace("# %%", "#%%"),
        "paired.py": cells,
        "module.py": "def helps():\n    return '# %%'\n",
        "notes.txt": cells,
    }.items():
        (folder / name).write_text(text)
    (folder / "paired.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    made = CliRunner().invoke(main, ["convert", str(folder), "--check", "--json"])
    assert {Path(line["notebook"]).name for line in json.loads(made.stdout)} == {
        "cells.py",
        "close.py",
        "paired.ipynb",
    }
