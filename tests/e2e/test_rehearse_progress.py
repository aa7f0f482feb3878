"""What a person sees of a rehearsal while it runs, and that the result is not lost after it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

import nb2ddp.waiting
from nb2ddp.cli import main
from nb2ddp.rehearse import runs
from nb2ddp.rehearse.runs import Following, Run, Settings
from tests.e2e.test_magic import DATA, LOOP, MODEL
from tests.support.helpers import notebook


def test_a_long_phase_says_what_its_processes_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nb2ddp.waiting, "FIRST_SECONDS", 0.0)
    (tmp_path / "notes-0.jsonl").write_text(json.dumps({"kind": "step", "number": 1}) + "\n")
    command = [sys.executable, "-c", "import time; time.sleep(1.5)"]
    monkeypatch.setattr(runs, "_start", lambda *_: subprocess.Popen(command, start_new_session=True))
    run = Run("several", "script", tmp_path, tmp_path, 1, started=time.time())
    runs.execute([run], Settings(), tmp_path, "2 processes")
    assert "] 2 processes: rank 0: step 1" in capsys.readouterr().err
    assert not run.hung


def test_notes_are_read_as_they_are_written(tmp_path: Path) -> None:
    run = Run("several", "script", tmp_path, tmp_path, 2)
    following = Following([run])
    assert following.states() == {"rank 0": "starting", "rank 1": "starting"}
    notes = [
        {"kind": "start", "pid": 1},
        {"kind": "load"},
        {"kind": "batch", "rows": ["{"]},
        {"kind": "step", "number": 1},
        {"kind": "load"},
    ]
    seen = []
    with (tmp_path / "notes-1.jsonl").open("w") as file:
        for note in notes:
            line = json.dumps(note) + "\n"
            for part in (line[:9], line[9:]):  # a rank may be in the midst of a line
                file.write(part)
                file.flush()
                seen.append(following.states()["rank 1"])
    assert seen == ["starting"] * 3 + ["model loaded"] * 4 + ["step 1"] * 3
    assert following.states()["rank 0"] == "starting"


@pytest.mark.launch
@pytest.mark.thorough
def test_a_page_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    """The folder is there when the rehearsal begins, and gone when it ends."""
    pages = tmp_path / "pages"
    pages.mkdir()
    path = tmp_path / "beside" / "tiny.ipynb"
    path.parent.mkdir()
    gone = f"import shutil\nshutil.rmtree({str(pages)!r}, ignore_errors=True)\n"
    nbformat.write(notebook(DATA, MODEL, LOOP, gone), path)
    result = CliRunner().invoke(main, ["rehearse", str(path), "--html", str(pages / "page.html")])
    assert result.exit_code == 1, result.output
    assert "tiny.ipynb passed" in result.stdout
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"nb2ddp: the result is printed, but {pages / 'page.html'} cannot be written: ")
    said = [line.removeprefix("nb2ddp: ") for line in result.stderr.splitlines()[:-1]]
    assert [line for line in said if not line.startswith("[")] == [
        "preparing tiny.ipynb",
        "one process: the notebook's own code, and the script",
        "2 processes: the script",
        "comparing",
    ]


def test_an_existing_page_is_not_touched_by_a_rehearsal_that_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>old")
    nbformat.write(notebook("print(1)"), tmp_path / "plain.ipynb")
    result = CliRunner().invoke(main, ["rehearse", str(tmp_path / "plain.ipynb"), "--html", str(page)])
    assert result.exit_code == 3
    assert page.read_text() == "<!doctype html>old"
    result = CliRunner().invoke(
        main, ["rehearse", str(tmp_path / "plain.ipynb"), "--html", str(tmp_path / "new.html")]
    )
    assert result.exit_code == 3
    assert not (tmp_path / "new.html").exists()
