"""`nb2ddp prove` on scripts as people write them: each fault by its line, and none where there is none.

A program of tests/e2e/prove names its notebook in its first line, and has the line of its fault marked with
`# <- KEY`; one without a mark trains what its notebook trains.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

from nb2ddp import convert
from nb2ddp.cli import main
from nb2ddp.errors import RehearsalError
from nb2ddp.rehearse import proof
from nb2ddp.rehearse.evidence import ADVICE
from nb2ddp.rehearse.rehearsal import Rehearsal, rehearse
from nb2ddp.rehearse.runs import Patience, Settings
from nb2ddp.rehearse.subject import subject_of_script
from tests.support import ROOT
from tests.support.helpers import notebook
from tests.support.limits import LONG
from tests.support.proofs import forked

PROGRAMS = ROOT / "tests" / "e2e" / "prove"
SCRIPTS = [path for path in sorted(PROGRAMS.glob("*.py")) if path.read_text().startswith("# notebook: ")]


def notebook_of(folder: Path, name: str) -> Path:
    """Write a program of cells as a notebook."""
    _, *cells = (PROGRAMS / name).read_text().split("# %%\n")
    path = folder / f"{Path(name).stem}.ipynb"
    nbformat.write(notebook(*(cell.strip() for cell in cells)), path)
    return path


def proved(folder: Path, script: Path, of: str = "") -> Rehearsal:
    named = re.match(r"# notebook: (\S+)", script.read_text())
    subject = subject_of_script(notebook_of(folder, named[1] if named else of), script)
    return rehearse(subject, Settings(), keep=folder / "runs", start=forked)


def marked(script: Path) -> tuple[str, int] | None:
    """The key of the fault that a program has, and its line."""
    for number, line in enumerate(script.read_text().splitlines(), start=1):
        if found := re.search(r"# <- ([\w-]+)$", line):
            return found[1], number
    return None


HANGS = "evaluates_on_rank_0"  # judged in processes of its own, which show where they stand
THOROUGH = frozenset(  # like others, or slow
    "device_map_auto_under_torchrun module_in_trainer saves_by_rank device_map_auto no_sampler rank_0_draws "
    "whole_batch_each one_mean one_gpu_for_all averaged_by_hand figures_of_one_rank doubled_batch no_seed on_cuda "
    "rank_0_shuffles module_in_loop in_turns on_accelerate distributed_sampler".split()
)


def cases() -> list[Any]:
    found = []
    for path in SCRIPTS:
        marks = [pytest.mark.thorough] * (path.stem in THOROUGH)
        found += [pytest.param(path, id=path.stem, marks=marks)] * (path.stem != HANGS)
    return found


@pytest.mark.launch
@pytest.mark.parametrize("script", cases())
def test_a_fault_is_named_by_its_line_and_nothing_else(tmp_path: Path, script: Path) -> None:
    result = proved(tmp_path, script)
    expected = marked(script)
    first = result.faults[0] if result.faults else None
    text = "\n".join(proof.lines(result, script, script.read_text()))
    assert (first and (first.key, first.line)) == expected, text


@pytest.mark.launch
@pytest.mark.parametrize(
    "program",
    ["rows_of_numbers", "next_tokens", pytest.param("lightning_module", marks=pytest.mark.thorough)],
)
def test_a_converted_script_trains_what_its_notebook_trains(tmp_path: Path, program: str) -> None:
    """What it computes once more, to compare, counts as no sample; what is changed on its way counts as divided."""
    book = notebook_of(tmp_path, f"{program}.py")
    folder = tmp_path / "converted"
    folder.mkdir()
    for name, text in convert(book).files.items():
        if "/" not in name:
            (folder / name).write_text(text)
    script = folder / "train_ddp.py"
    result = rehearse(subject_of_script(book, script), Settings(), keep=tmp_path / "runs", start=forked)
    assert not result.faults, "\n".join(proof.lines(result, script, script.read_text()))
    (size,) = (point for point in result.points if point.title == "effective batch")
    assert re.match(r"(\d+) = (\d+) \+ \2 samples per step, the notebook's \1$", size.measured), size.measured


@pytest.mark.launch
@pytest.mark.thorough
def test_a_hang_is_ended_and_named(tmp_path: Path) -> None:
    script = PROGRAMS / f"{HANGS}.py"
    subject = subject_of_script(notebook_of(tmp_path, "loop.py"), script)
    result = rehearse(subject, Settings(patience=Patience(LONG, 15, LONG)), keep=tmp_path / "runs")
    report = proof.as_json(result, script, subject.script)
    assert (report["exit_code"], report["outcome"], report["passed"]) == (5, "hangs", False)
    first = report["faults"][0]
    assert (first["key"], first["line"]) == marked(script)
    assert first["code"] == "dist.all_reduce(figures)  # <- hang"
    assert f"rank 0 was at line {first['line']} of the script, waiting in all_reduce" in first["sentence"]
    assert first["advice"] == ADVICE["hang"]
    assert report["verdict"] == f"{script.name} hangs on 2 processes, and was ended."
    assert [rank for rank, _ in result.stacks] == [0, 1]
    mark = f"NB2DDP_REHEARSAL={tmp_path}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert mark not in (process / "environ").read_bytes()


@pytest.mark.launch
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "code"), [("right_loop", 0), ("summed_gradients", 1), ("distributed_sampler", 6)]
)
def test_the_command_as_people_start_it(tmp_path: Path, script: str, code: int) -> None:
    path = PROGRAMS / f"{script}.py"
    book = notebook_of(tmp_path, "loop.py")
    done = CliRunner().invoke(main, ["prove", str(book), str(path), "--json", "--", "--epochs", "3"])
    assert done.exit_code == code, done.output
    report = json.loads(done.stdout)
    assert report["exit_code"] == code
    assert [(fault["key"], fault["line"]) for fault in report["faults"]][:1] == [
        *filter(None, [marked(path)])
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--data", "nothing"], "--data nothing is not of the form NAME=PATH."),
        (["--data", "d=none.jsonl"], "there is no file none.jsonl."),
        (["--python", "no-such-python"], "--python no-such-python is no program that can be started."),
        (["--keep", "."], "is not empty."),
        (["--steps", "0"], "Invalid value for '--steps'"),
        (["--nproc", "1"], "Invalid value for '--nproc'"),
        (["--timeout", "0"], "Invalid value for '--timeout'"),
    ],
)
def test_a_wrong_option_is_said(options: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["prove", "n.ipynb", "train.py", *options])
    assert done.exit_code == 2
    assert said in done.output


def refused(folder: Path, *arguments: object) -> str:
    """What the command says of what it cannot judge, in one line, with exit code 3."""
    done = CliRunner().invoke(main, ["prove", *map(str, arguments)])
    assert done.exit_code == 3, done.output
    assert "Traceback" not in done.output
    return done.output.splitlines()[-1]


def test_what_cannot_be_judged_is_said(tmp_path: Path) -> None:
    book = notebook_of(tmp_path, "loop.py")
    script = tmp_path / "train.py"
    assert f"There is no script {script}." in refused(tmp_path, book, script)
    script.write_text("x = 1\nif x\n")
    assert f"{script}, line 2 is no Python" in refused(tmp_path, book, script)
    script.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refused(tmp_path, book, script)
    script.write_text("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n")
    assert "starts its ranks itself (mp.spawn in line 2)" in refused(tmp_path, book, script)
    assert "no notebook: its name does not end with .ipynb" in refused(tmp_path, script, script)
    assert "is a notebook" in refused(tmp_path, book, book)
    assert "is a folder" in refused(tmp_path, book, tmp_path)
    assert "There is no notebook" in refused(tmp_path, tmp_path / "none.ipynb", script)


@pytest.mark.launch
def test_a_script_that_needs_a_gpu_is_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nassert torch.cuda.is_available(), 'no CUDA device'\n")
    with pytest.raises(RehearsalError, match=r"needs a GPU in line 2, `assert torch\.cuda"):
        proved(tmp_path, script, "loop.py")


@pytest.mark.launch
def test_a_script_that_never_trains_is_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nif len(sys.argv) > 1:\n    print('training')\n")
    result = proved(tmp_path, script, "loop.py")
    assert result.outcome == "fails"
    assert "no-training" in {fault.key for fault in result.faults}
