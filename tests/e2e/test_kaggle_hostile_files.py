"""Hostile names in an output, and the user's own folders: nothing is written elsewhere or over what is not ours."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from nb2ddp import errors
from tests.e2e.test_kaggle_hostile_answers import FETCH, lists, safe
from tests.support.kaggle_client import converted, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import KaggleServer, fails

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")


def tree(root: Path) -> dict[str, bytes | str]:
    """Everything below a folder: contents, and where links lead."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        kind = f"-> {os.readlink(path)}" if path.is_symlink() else "folder" if path.is_dir() else ""
        found[str(path.relative_to(root))] = kind or path.read_bytes()
    return found


NASTY = [
    "../evil.py",
    "../../evil.py",
    "a/../../evil.py",
    "a/..",
    "..",
    ".",
    "",
    "/",
    "/evil.py",
    "//evil.py",
    "{outside}/evil.py",
    "a//b",
    "a/./b",
    "a/",
    "..\\evil.py",
    "a\\..\\..\\evil.py",
    "\\evil.py",
    "\\\\host\\share\\evil.py",
    "C:\\evil.py",
    "C:evil.py",
    "c:/evil.py",
    "nul\0.py",
    "\x1b]0;title\x07\x1b[2Jx",
    "line\nnb2ddp: all is well",
    "\r\x1b[1A\x1b[K",
    "\x9b2J",
    "half\ud800",
    "\u2028",
    "x" * 256,
    "é" * 128,
    "a/" + "x" * 300 + "/b",
    "/".join(["deep"] * 2000),
    ".nb2ddp_fetch",
    ".nb2ddp_fetch/files.json",
    ".NB2DDP_FETCH/x",
    "link/evil.py",
    "link/below/evil.py",
    "loop/evil.py",
    "file.txt",
    "file.txt/below",
    "mine.txt",
    "mine",
    "pipe",
]


def test_fetch_writes_below_its_folder_alone_and_over_nothing(server: KaggleServer, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "victim.txt").write_text("mine")
    home = Path("home")
    (home / "mine").mkdir(parents=True)
    (home / "mine.txt").write_text("mine")
    (home / "link").symlink_to(outside)
    (home / "file.txt").symlink_to(outside / "victim.txt")
    (home / "loop").symlink_to("loop")
    os.mkfifo(home / "pipe")
    before, home_before = tree(outside), sorted(os.listdir(home))
    server.files = {"good.txt": b"good"}
    good = {"url": "http://localhost/signed/good.txt", "fileName": "good.txt"}
    nasty = [good | {"fileName": name.replace("{outside}", str(outside))} for name in NASTY]
    server.calls["ListKernelSessionOutput"] = [lists(*nasty, good)]
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code, result.output
    assert safe(result.output)
    refused = [line for line in result.output.splitlines() if not line.startswith("nb2ddp: [")]
    assert len(refused) == len(NASTY) + 1, "each is named, and the good one is fetched"
    assert tree(outside) == before
    assert sorted(os.listdir(home)) == sorted([*home_before, "good.txt", ".nb2ddp_fetch"])
    assert (home / "mine.txt").read_text() == "mine"
    assert (home / "good.txt").read_bytes() == b"good", "one bad name does not keep the others from coming"
    assert sorted(os.listdir(Path())) == ["home"]


def test_unusual_names_are_fetched(server: KaggleServer) -> None:
    names = ["a b.txt", "ü/ö/☃.bin", "x" * 255, ".hidden", "events.12:30", "a..b", "-rf", "a'\"$(x)`b`"]
    server.files = {"good.txt": b"good"}
    server.calls["ListKernelSessionOutput"] = [
        lists(*({"url": "http://localhost/signed/good.txt", "fileName": name} for name in names))
    ]
    assert nb2ddp(*FETCH).exit_code == 0
    for name in names:
        assert (Path("home") / name).read_bytes() == b"good"


def test_a_fetched_file_that_was_edited_stays(server: KaggleServer) -> None:
    server.files = {"notes.txt": b"from the kernel"}
    assert nb2ddp(*FETCH).exit_code == 0
    file = Path("home/notes.txt")
    file.write_text("from the kernel, and my own words")
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code
    assert "home/notes.txt is here and is not as nb2ddp fetched it" in result.output
    assert file.read_text().endswith("my own words")


def test_a_log_of_the_users_stays(server: KaggleServer) -> None:
    server.files, server.log = {"a.txt": b"a"}, ["printed\n"]
    Path("home").mkdir()
    Path("home/tiny-run.log").write_text("mine")
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code
    assert Path("home/tiny-run.log").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "name"), [(["push", "tiny", "--dry-run"], "dry_run"), (["push", "tiny"], "pushed")]
)
@pytest.mark.parametrize("kind", ["folder", "file", "link", "edited"])
def test_what_is_not_ours_is_neither_deleted_nor_overwritten(
    server: KaggleServer, converted: Path, tmp_path: Path, command: list[str], name: str, kind: str
) -> None:
    place, outside = converted / name, tmp_path / "outside"
    outside.mkdir()
    (outside / "tiny-run.py").write_text("mine")
    if kind == "folder":
        place.mkdir()
        (place / "tiny-run.py").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    elif kind == "link":
        place.symlink_to(outside)
    else:
        assert nb2ddp(*command).exit_code == 0
        server.pushes.clear()
        (place / "tiny-run.py").write_text("mine")
    before = tree(tmp_path)
    result = nb2ddp(*command)
    assert result.exit_code == errors.OutputError.exit_code
    assert "nothing was sent or changed: move that away" in " ".join(result.output.split())
    assert tree(tmp_path) == before
    assert server.pushes == []


@pytest.mark.parametrize(
    ("command", "name"), [(["push", "tiny", "--dry-run"], "dry_run"), (["push", "tiny"], "pushed")]
)
def test_a_folder_of_ours_is_replaced(
    server: KaggleServer, converted: Path, command: list[str], name: str
) -> None:
    (converted / name).mkdir()  # an empty one may be used
    for title in ("first title", "second title"):
        result = nb2ddp(*command, "--title", title)
        assert result.exit_code == 0, result.output
    assert sorted(os.listdir(converted / name)) == ["kernel-metadata.json", "report.json", "second-title.py"]
    assert not [entry for entry in os.listdir(converted) if entry.startswith(f".{name}")]


def test_a_code_file_beyond_the_folder_is_not_sent(server: KaggleServer, converted: Path) -> None:
    Path("private.py").write_text("my_password = 1\n")
    file = converted / "kaggle" / "kernel-metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"code_file": "../../private.py"}))
    result = nb2ddp("push", "tiny")
    assert result.exit_code == errors.BundleError.exit_code
    assert server.pushes == []


def test_a_reason_holds_no_signed_address(server: KaggleServer) -> None:
    server.calls["ListKernelSessionOutput"] = [
        lists({"url": "http://localhost/gone?Signature=abc", "fileName": "a.txt"}),
        fails(404, "no log"),
    ]
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code
    assert "Signature" not in result.output
