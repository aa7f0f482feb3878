"""`nb2ddp prove` on scripts as people write them: each fault by its line, and none where there is none.

A program of tests/e2e/prove names its notebook in its first line, and has the line of its fault marked with
`# <- KEY`; one without a mark trains what its notebook trains.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from nb2ddp.rehearse import proof
from nb2ddp.rehearse.advice import ADVICE
from nb2ddp.rehearse.evidence import CAUSES
from nb2ddp.rehearse.rehearsal import Rehearsal, rehearse
from nb2ddp.rehearse.runs import Settings
from nb2ddp.rehearse.subject import subject_of_script
from tests.support import ROOT
from tests.support.helpers import notebook
from tests.support.proofs import forked

PROGRAMS = ROOT / "tests" / "e2e" / "prove"
SCRIPTS = [path for path in sorted(PROGRAMS.glob("*.py")) if path.read_text().startswith("# notebook: ")]


def notebook_of(folder: Path, name: str) -> Path:
    """Write a program of cells as a notebook."""
    _, *cells = (PROGRAMS / name).read_text().split("# %%\n")
    path = folder / f"{Path(name).stem}.ipynb"
    nbformat.write(notebook(*(cell.strip() for cell in cells)), path)
    return path


def proved(folder: Path, script: Path) -> Rehearsal:
    name = re.match(r"# notebook: (\S+)", script.read_text())
    assert name is not None
    subject = subject_of_script(notebook_of(folder, name[1]), script)
    return rehearse(subject, Settings(), keep=folder / "runs", start=forked)


def marked(script: Path) -> tuple[str, int] | None:
    """The key of the fault that a program has, and its line."""
    for number, line in enumerate(script.read_text().splitlines(), start=1):
        if found := re.search(r"# <- ([\w-]+)$", line):
            return found[1], number
    return None


@pytest.mark.launch
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_fault_is_named_by_its_line_and_nothing_else(tmp_path: Path, script: Path) -> None:
    result = proved(tmp_path, script)
    expected = marked(script)
    first = result.faults[0] if result.faults else None
    text = "\n".join(proof.lines(result, script, script.read_text()))
    assert (first and (first.key, first.line)) == expected, text


def test_each_fault_has_advice() -> None:
    assert set(ADVICE) == set(CAUSES)
