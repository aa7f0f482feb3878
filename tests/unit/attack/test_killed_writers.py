"""A converted folder after its writer was killed, and with two writers at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from nb2ddp.ddp_folder import edited_since, read, settle, write
from nb2ddp.errors import OutputError

OLD = {"train_ddp.py": "print('old')\n", "setup_env.py": "# old\n", "kaggle/old.py": "old\n"}
NEW = {"train_ddp.py": "print('new')\n", "ddp_support.py": "# new\n", "kaggle/new.py": "new\n"}
OPERATIONS = {"open"} | {f"os.{name}" for name in "rename remove mkdir rmdir chmod listdir scandir".split()}
# Writes OLD and NEW in turn, without an end, with a pause in between.
BUSY = """
import itertools, json, sys, time
from pathlib import Path
from nb2ddp import ddp_folder
folder, versions = Path(sys.argv[1]), [json.loads(text) for text in sys.argv[2:4]]
print("ready", flush=True)
for number in itertools.count():
    ddp_folder.write(folder, versions[number % 2], {}, force=False)
    time.sleep(float(sys.argv[4]))
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})


def killed_at(operation: int, folder: Path, files: dict[str, str], *, force: bool = False) -> bool:
    """Write in a process that is killed before its n-th operation on the file system.

    Returns whether that came before its end.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forking beside threads
        child = os.fork()
    if not child:
        try:
            _kill_before(operation, folder.parent)
            write(folder, files, {}, force=force)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def _kill_before(operation: int, folder: Path) -> None:
    left = operation

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in OPERATIONS and str(folder) in str(arguments[0]):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def found(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "report.json"
    }


@pytest.mark.parametrize("before", ["nothing", "empty", "old"])
def test_a_folder_is_whole_after_a_kill_at_any_operation(tmp_path: Path, before: str) -> None:
    for operation in range(200):
        folder = tmp_path / str(operation) / "out"
        if before != "nothing":
            folder.mkdir(parents=True)
        if before == "old":
            write(folder, OLD, {}, force=False)
        alive = not killed_at(operation, folder, NEW)
        assert not folder.exists() or not edited_since(folder)
        if folder.exists() and any(folder.iterdir()):
            settle(folder)
            if (folder / "train_ddp.py").exists():
                script = read(folder).script
                assert found(folder) in ([OLD, NEW] if before == "old" else [NEW])
                assert script in (OLD["train_ddp.py"], NEW["train_ddp.py"])
            else:
                assert before != "old"
        write(folder, OLD, {}, force=False)
        assert found(folder) == OLD
        assert [path.name for path in folder.parent.iterdir()] == ["out"], "nothing hidden is left"
        assert not edited_since(folder)
        if alive:
            break
    assert alive
    assert operation > 10


@pytest.mark.parametrize("name", ["train_ddp.py", "kaggle/old.py", "ddp_support.py"])
def test_an_edit_after_a_kill_is_the_users(tmp_path: Path, name: str) -> None:
    """At every operation of the write: the edited file stays, and the next conversion says so."""
    for operation in range(200):
        folder = tmp_path / str(operation)
        write(folder, OLD, {}, force=False)
        if not killed_at(operation, folder, NEW):
            break
        (folder / name).write_text("mine\n")
        read(folder)
        assert (folder / name).read_text() == "mine\n"
        with pytest.raises(
            OutputError, match=rf"{name} was (changed since nb2ddp wrote it|not written by nb2ddp)"
        ):
            write(folder, {**OLD, **NEW}, {}, force=False)
        assert (folder / name).read_text() == "mine\n"


def test_a_forced_conversion_that_was_killed_is_finished(tmp_path: Path) -> None:
    for operation in range(200):
        folder = tmp_path / str(operation)
        write(folder, OLD, {}, force=False)
        (folder / "train_ddp.py").write_text("mine\n")
        if not killed_at(operation, folder, NEW, force=True):
            break
        read(folder)
        kept = {name: text for name, text in found(folder).items() if name != "train_ddp.py.bak"}
        assert kept in ({**OLD, "train_ddp.py": "mine\n"}, NEW)
        assert kept != NEW or (folder / "train_ddp.py.bak").read_text() == "mine\n"


def test_kills_at_any_time(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    moments = random.Random(3)
    for _ in range(12):
        process = start(BUSY, folder, json.dumps(OLD), json.dumps(NEW), 0)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        process.communicate()
        assert not folder.exists() or not edited_since(folder)
        write(folder, NEW, {}, force=False)
        assert found(folder) == NEW
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    writers = [start(BUSY, folder, json.dumps(files), json.dumps(files), 0.02) for files in (OLD, NEW)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        seen: set[str] = set()
        reads, end = 0, time.monotonic() + 60
        while (reads < 40 or len(seen) < 2) and time.monotonic() < end:
            reads += 1
            time.sleep(0.02)
            assert all(writer.poll() is None for writer in writers), "neither is refused"
            if (folder / "train_ddp.py").exists():
                seen.add(read(folder).script)
        assert seen == {OLD["train_ddp.py"], NEW["train_ddp.py"]}
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    read(folder)
    assert found(folder) in (OLD, NEW)
    write(folder, OLD, {}, force=False)
    assert found(folder) == OLD


def test_a_writer_that_takes_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr("nb2ddp.folder_lock._WAIT_SECONDS", 0.1)
    write(tmp_path, OLD, {}, force=False)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(OutputError, match="another nb2ddp is writing there; try again when it has ended"):
            write(tmp_path, NEW, {}, force=False)
    finally:
        os.close(handle)
    write(tmp_path, NEW, {}, force=False)
    assert found(tmp_path) == NEW


# ---- a folder that somebody else has made ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["../victim", "/{root}/victim", "a/../../victim"])
@pytest.mark.parametrize("staged", [False, True])
def test_a_report_names_no_file_outside_its_folder(tmp_path: Path, name: str, staged: bool) -> None:
    import hashlib

    victim = tmp_path / "victim"
    victim.write_text("precious")
    digest = hashlib.sha256(b"precious").hexdigest()
    name = name.replace("/{root}", str(tmp_path))
    folder = tmp_path / "out"
    write(folder, OLD, {}, force=False)
    report = json.loads((folder / "report.json").read_text())
    report["files"][name] = digest
    (folder / "report.json").write_text(json.dumps(report))
    if staged:
        (folder / ".nb2ddp_staged").mkdir()
        (folder / ".nb2ddp_staged" / "report.json").write_text(json.dumps(report))
    read(folder)
    write(folder, NEW, {}, force=True)
    assert victim.read_text() == "precious"
    assert found(folder) == NEW


def test_a_link_in_the_folder_leads_nowhere(tmp_path: Path) -> None:
    import hashlib

    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "out"
    write(folder, {"train_ddp.py": ""}, {}, force=False)
    (folder / "kaggle").symlink_to(outside)
    staged = folder / ".nb2ddp_staged"
    (staged / "kaggle").mkdir(parents=True)
    (staged / "kaggle" / "x").write_text("owned")
    digests = {n: hashlib.sha256(b).hexdigest() for n, b in (("kaggle/x", b"owned"), ("train_ddp.py", b""))}
    (staged / "report.json").write_text(json.dumps({"files": digests}))
    read(folder)
    with pytest.raises(OutputError, match="a link to elsewhere"):
        write(folder, OLD, {}, force=True)
    assert not list(outside.iterdir())


def test_a_folder_that_was_made_before_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(real)
    write(tmp_path / "link", OLD, {}, force=False)
    assert (tmp_path / "link").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o700
    assert found(real) == OLD


def test_a_new_folder_has_the_usual_mode(tmp_path: Path) -> None:
    write(tmp_path / "out", OLD, {}, force=False)
    (tmp_path / "usual").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode
