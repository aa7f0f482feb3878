"""The pre-commit hook and the GitHub Action: what they start does what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT
from tests.unit.cli.conftest import TRAIN, line_of, save

(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def run(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash where ``nb2ddp`` is this checkout's."""
    program = folder / "bin" / "nb2ddp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nb2ddp "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("cell", [TRAIN, "y = ("])
def test_the_hook_fails_for_a_notebook_that_is_declined_and_writes_nothing(tmp_path: Path, cell: str) -> None:
    save(tmp_path / "a b.ipynb", cell)
    done = run(tmp_path, f"{HOOK['entry']} 'a b.ipynb'")
    assert done.returncode == int(cell != TRAIN), done.stderr
    assert ("declined" in done.stdout + done.stderr) == (cell != TRAIN)
    assert {path.name for path in tmp_path.iterdir()} == {"a b.ipynb", "bin"}
    assert (HOOK["language"], HOOK["types"]) == ("python", ["jupyter"])


def test_the_action_annotates_all_notebooks_of_its_paths(tmp_path: Path) -> None:
    save(tmp_path / "notebooks" / "good.ipynb", TRAIN)
    save(tmp_path / "notebooks" / "bad.ipynb", "y = (")
    save(tmp_path / "more" / "third.ipynb", TRAIN)
    save(tmp_path / "other" / "unseen.ipynb", "y = (")
    step = ACTION["runs"]["steps"][-1]
    assert set(step["env"].values()) == {"${{ inputs.paths }}", "${{ inputs.options }}"}
    done = run(tmp_path, step["run"], PATHS="notebooks\nmore\n", OPTIONS="--nproc 4\n--gpu-memory 24")
    assert done.returncode == 1
    line = line_of(tmp_path / "notebooks" / "bad.ipynb", "y = (")
    assert f"::error file=notebooks/bad.ipynb,line={line}," in done.stdout
    assert "::notice file=notebooks/good.ipynb,line=1," in done.stdout
    assert "::notice file=more/third.ipynb,line=1," in done.stdout, "inputs may have several lines"
    assert "unseen" not in done.stdout
    assert not list(tmp_path.glob("*_ddp"))


def test_a_name_is_no_command_for_the_action(tmp_path: Path) -> None:
    step = ACTION["runs"]["steps"][-1]
    done = run(tmp_path, step["run"], PATHS="$(touch${IFS}hit) ;touch hit", OPTIONS="")
    assert done.returncode == 1
    assert not (tmp_path / "hit").exists()


def test_a_folder_is_walked_without_what_convert_has_written(tmp_path: Path) -> None:
    save(tmp_path / "a.ipynb", TRAIN)
    done = run(tmp_path, "nb2ddp convert a.ipynb && cp a.ipynb a_ddp/ && nb2ddp convert . --check")
    assert done.returncode == 0, done.stderr
    assert "1 converted" in done.stderr
