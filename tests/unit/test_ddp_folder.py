"""Writing a conversion: all or nothing, and never over somebody's edits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nb2ddp import folder_lock
from nb2ddp.ddp_folder import SCRIPT, edited_since, in_use, read, write
from nb2ddp.errors import FolderError, OutputError

FIRST = {"train_ddp.py": "print(1)\n", "kaggle/a.py": "é\n"}
SECOND = {"train_ddp.py": "print(2)\n", "kaggle/a.py": "è\n"}
REPORT = {"status": "converted"}


def put(folder: Path, files: dict[str, str], *, force: bool = False) -> None:
    write(folder, files, REPORT, force=force)


def found(folder: Path) -> dict[str, str]:
    """Every file below the folder, hidden ones too, without the report."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.name != "report.json"
    }


def test_files_and_report_are_written(tmp_path: Path) -> None:
    put(tmp_path / "new" / "out", FIRST)
    assert found(tmp_path / "new" / "out") == FIRST
    report = json.loads((tmp_path / "new" / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["status"] == "converted"
    assert set(report["files"]) == set(FIRST)


def test_what_nobody_edited_is_replaced(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    assert not edited_since(tmp_path)
    put(tmp_path, SECOND)
    assert found(tmp_path) == SECOND


@pytest.mark.parametrize("name", FIRST)
def test_an_edited_file_stops_everything(tmp_path: Path, name: str) -> None:
    put(tmp_path, FIRST)
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(OutputError, match=rf"{name} was changed since.*--force"):
        put(tmp_path, SECOND)
    assert found(tmp_path) == {**FIRST, name: "mine\n"}
    assert edited_since(tmp_path) == [name]


def test_force_overwrites_edits_and_keeps_them(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    (tmp_path / "train_ddp.py").write_text("mine\n")
    put(tmp_path, SECOND, force=True)
    assert found(tmp_path) == {**SECOND, "train_ddp.py.bak": "mine\n"}
    (tmp_path / "train_ddp.py").write_text("mine too\n")
    put(tmp_path, FIRST, force=True)
    kept = {"train_ddp.py.bak": "mine\n", "train_ddp.py.bak2": "mine too\n"}
    assert found(tmp_path) == {**FIRST, **kept}
    put(tmp_path, SECOND)


def test_a_deleted_file_comes_back(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    (tmp_path / "train_ddp.py").unlink()
    put(tmp_path, SECOND)
    assert found(tmp_path) == SECOND


def test_a_script_of_the_users_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train_ddp.py").write_text("mine\n")
    with pytest.raises(OutputError, match=r"train_ddp\.py was not written by nb2ddp"):
        put(tmp_path, FIRST)
    assert found(tmp_path) == {"train_ddp.py": "mine\n"}


def test_nor_is_one_that_came_between_two_conversions(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    (tmp_path / "setup_env.py").write_text("mine\n")
    with pytest.raises(OutputError, match=r"setup_env\.py was not written by nb2ddp"):
        put(tmp_path, {**SECOND, "setup_env.py": "ours\n"})
    assert found(tmp_path) == {**FIRST, "setup_env.py": "mine\n"}


@pytest.mark.parametrize("report", ["", "[]", "{}", '{"files": []}', '{"files": null}', "no JSON", '"text"'])
def test_somebody_elses_report_is_not_overwritten(tmp_path: Path, report: str) -> None:
    (tmp_path / "report.json").write_text(report)
    with pytest.raises(OutputError, match=r"report\.json was not written by nb2ddp"):
        put(tmp_path, FIRST)
    put(tmp_path, FIRST, force=True)
    assert found(tmp_path) == {**FIRST, "report.json.bak": report}


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notebook.ipynb").write_text("{}")
    put(tmp_path, FIRST)
    put(tmp_path, SECOND)
    assert found(tmp_path) == {**SECOND, "notebook.ipynb": "{}"}


def test_what_is_no_longer_made_goes(tmp_path: Path) -> None:
    put(tmp_path, {**FIRST, "setup_env.py": "old\n"})
    put(tmp_path, SECOND)
    assert found(tmp_path) == SECOND


def test_what_is_no_longer_made_stays_if_it_was_edited(tmp_path: Path) -> None:
    put(tmp_path, {**FIRST, "setup_env.py": "old\n"})
    (tmp_path / "setup_env.py").write_text("mine\n")
    put(tmp_path, SECOND, force=True)
    assert found(tmp_path) == {**SECOND, "setup_env.py": "mine\n"}


@pytest.mark.parametrize("in_the_way", ["train_ddp.py", "report.json"])
def test_a_folder_in_the_way_leaves_all_as_it_was(tmp_path: Path, in_the_way: str) -> None:
    (tmp_path / "kaggle").mkdir()
    (tmp_path / "kaggle" / "a.py").write_text("old\n")
    (tmp_path / in_the_way).mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        put(tmp_path, FIRST, force=True)
    assert found(tmp_path) == {"kaggle/a.py": "old\n"}


def test_a_file_where_a_folder_belongs_leaves_all_as_it_was(tmp_path: Path) -> None:
    put(tmp_path, {"train_ddp.py": "print(1)\n"})
    (tmp_path / "kaggle").write_text("no folder")
    with pytest.raises(OutputError, match="cannot be written"):
        put(tmp_path, SECOND)
    assert found(tmp_path) == {"train_ddp.py": "print(1)\n", "kaggle": "no folder"}


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        put(tmp_path / "out", FIRST)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    texts = ["a" * 2_000_000, "b" * 2_000_000]
    put(tmp_path, {"train_ddp.py": texts[0]})
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add((tmp_path / "train_ddp.py").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(10):
            put(tmp_path, {"train_ddp.py": texts[number % 2]})
    finally:
        done.set()
        reader.join()
    assert seen <= set(texts)


def test_others_may_read_the_files(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    assert (tmp_path / "train_ddp.py").stat().st_mode & 0o777 == 0o644


# ---- reading it back ----------------------------------------------------------------------------------


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    files = {"train_ddp.py": "é\n", "setup_env.py": "2\n", "ddp_support.py": "3\n", "kaggle/a.py": "4\n"}
    write(tmp_path / "out", files, {"notebook": str(notebook)}, force=False)
    folder = read(tmp_path / "out")
    assert (folder.script, folder.setup, folder.support) == ("é\n", "2\n", "3\n")
    assert folder.source == folder.notebook == notebook
    assert set(folder.report["files"]) == set(files)


def test_the_users_edits_are_read(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    (tmp_path / "train_ddp.py").write_text("mine\n")
    assert read(tmp_path).script == "mine\n"
    assert read(tmp_path).setup is None
    assert read(tmp_path).support is None


@pytest.mark.parametrize("place", ["out/a.ipynb", "a.ipynb"])
def test_a_notebook_that_moved_with_its_folder_is_found(tmp_path: Path, place: str) -> None:
    write(
        tmp_path / "out",
        FIRST,
        {"notebook": "gone/a.ipynb" if place == "a.ipynb" else "a.ipynb"},
        force=False,
    )
    assert read(tmp_path / "out").notebook is None
    (tmp_path / place).write_text("{}")
    assert read(tmp_path / "out").notebook == tmp_path / place


@pytest.mark.parametrize(
    "report", [b"", b"[]", b'{"notebook": 3}', b'{"notebook": "\\u0000"}', b"\xff", b"[" * 100_000]
)
def test_a_report_that_cannot_be_read_names_no_notebook(tmp_path: Path, report: bytes) -> None:
    put(tmp_path, FIRST)
    (tmp_path / "report.json").write_bytes(report)
    assert read(tmp_path).source is None
    assert read(tmp_path).notebook is None


def test_a_folder_without_a_script_is_no_converted_folder(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"holds no train_ddp\.py; `nb2ddp convert` makes one"):
        read(tmp_path)


def test_a_script_in_another_encoding_is_named(tmp_path: Path) -> None:
    put(tmp_path, FIRST)
    (tmp_path / "train_ddp.py").write_bytes(b"\xff")
    with pytest.raises(FolderError, match=r"train_ddp\.py cannot be read"):
        read(tmp_path)


USES = """
import sys, time
from pathlib import Path
from nb2ddp.ddp_folder import in_use
with in_use(Path(sys.argv[1])):
    print("used", flush=True)
    time.sleep(100)
"""


def test_files_that_a_run_uses_are_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "_WAIT_SECONDS", 0.3)
    folder = tmp_path / "out"
    write(folder, {SCRIPT: "one"}, {}, force=False)
    with subprocess.Popen([sys.executable, "-c", USES, str(folder)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        write(folder, {SCRIPT: "one"}, {}, force=False)  # the same: nothing is to be replaced
        with in_use(folder, {SCRIPT: "one"}):  # by another run
            for force in (False, True):
                with pytest.raises(
                    OutputError, match="a run goes on with the script there, which stays as it is"
                ):
                    write(folder, {SCRIPT: "two"}, {}, force=force)
        run.kill()
    assert (folder / SCRIPT).read_text() == "one"
    write(folder, {SCRIPT: "two"}, {}, force=False)
    for other in ({SCRIPT: "one"}, {SCRIPT: "two", "gone.py": ""}):
        with pytest.raises(OutputError, match="has written there meanwhile"):
            in_use(folder, other).__enter__()
