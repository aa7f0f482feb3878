"""``jupyter nbconvert --to ddp``, with the real nbconvert."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbconvert.exporters import get_exporter

from nb2ddp import convert
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import NotebookError
from tests.support import SAMPLES
from tests.support.helpers import notebook

NOTEBOOKS = [path for path in sorted(SAMPLES.glob("*.ipynb")) if "magic" not in path.name]


@pytest.mark.thorough
def test_the_command_gives_the_same_script(tmp_path: Path) -> None:
    for path in NOTEBOOKS:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    names = [path.name for path in NOTEBOOKS]
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "ddp", *names]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for path in NOTEBOOKS:
        assert (tmp_path / f"{path.stem}.py").read_text() == convert(path).files[SCRIPT]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_exporter_gives_the_same_script(path: Path) -> None:
    text, resources = get_exporter("ddp")().from_filename(str(path))
    assert text == convert(path).files[SCRIPT]
    assert resources["output_extension"] == ".py"


def test_the_notebook_itself_is_left_alone() -> None:
    node = nbformat.read(NOTEBOOKS[0], as_version=4)
    before = json.dumps(node)
    get_exporter("ddp")().from_notebook_node(node)
    assert json.dumps(node) == before


def test_what_cannot_be_converted_says_where() -> None:
    with pytest.raises(NotebookError, match=r"cell 2, line 1.*Python"):
        get_exporter("ddp")().from_notebook_node(notebook("x = 1", "y = ("))
