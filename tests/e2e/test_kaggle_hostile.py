"""A hostile server, a hostile run.json and the user's own folders: nothing is lost or shown raw."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import gzip
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from nb2ddp import errors
from nb2ddp.kaggle.untrusted import TerminalFilter, shown
from tests.support.kaggle_client import (
    converted,
    imported_for_loopback,
    nb2ddp,
    server,
)
from tests.support.kaggle_server import KaggleServer, RawAnswer, fails, says

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")

REF = "ada/tiny-run"
FETCH = ["fetch", REF, "-o", "home"]


def lists(*files: Any, **more: Any) -> Callable[..., Any]:
    """The listing of an output with these entries."""
    return says(files=list(files), **more)


def answers(value: Any) -> Callable[..., Any]:
    """HTTP 200, with this JSON."""
    return lambda server, request: value


def tree(root: Path) -> dict[str, bytes | str]:
    """Everything below a folder: contents, and where links lead."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        kind = f"-> {os.readlink(path)}" if path.is_symlink() else "folder" if path.is_dir() else ""
        found[str(path.relative_to(root))] = kind or path.read_bytes()
    return found


def safe(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


# ---------------------------------------------------------------------------------------------------------
# Names of files

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


@pytest.mark.parametrize("name", NASTY)
def test_fetch_writes_below_its_folder_alone_and_over_nothing(
    server: KaggleServer, tmp_path: Path, name: str
) -> None:
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
    nasty = good | {"fileName": name.replace("{outside}", str(outside))}
    server.calls["ListKernelSessionOutput"] = [lists(nasty, good)]
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code, result.output
    assert safe(result.output)
    assert tree(outside) == before
    assert sorted(os.listdir(home)) == sorted([*home_before, "good.txt", ".nb2ddp_fetch"])
    assert (home / "mine.txt").read_text() == "mine"
    assert (home / "good.txt").read_bytes() == b"good", "one bad name does not keep the others from coming"
    assert sorted(os.listdir(Path())) == ["home"]


@pytest.mark.parametrize(
    "name", ["a b.txt", "ü/ö/☃.bin", "x" * 255, ".hidden", "events.12:30", "a..b", "-rf", "a'\"$(x)`b`"]
)
def test_unusual_names_are_fetched(server: KaggleServer, name: str) -> None:
    server.files = {"good.txt": b"good"}
    server.calls["ListKernelSessionOutput"] = [
        lists({"url": "http://localhost/signed/good.txt", "fileName": name})
    ]
    assert nb2ddp(*FETCH).exit_code == 0
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


# ---------------------------------------------------------------------------------------------------------
# Answers of another shape

DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
HUGE = 10**400
FILE = {"url": "http://localhost/signed/good.txt", "fileName": "good.txt"}
ANSWERS: list[Any] = [
    [],
    5,
    None,
    True,
    [1],
    [{}],
    DEEP,
    HUGE,
    "<html>",
    '{"a": ',
    {"error": []},
    {"error": {}},
]
STRANGE_TIMES: list[Any] = [5, "", "s", "xs", "-5s", "1e9s", "9" * 5000 + "s", "9" * 30 + "s", "0s", []]


def each(key: str, *values: Any, **others: Any) -> list[dict[str, Any]]:
    """One JSON object for each value of a key."""
    return [{**others, key: value} for value in values]


SHAPES: dict[str, list[Any]] = {
    "ListKernelSessionOutput": [
        *each("files", 5, "x", {}, [5], [None], [[]], DEEP, HUGE),
        *({"files": [file]} for file in each("fileName", 5, None, [], {}, HUGE, True, url=FILE["url"])),
        *(
            {"files": [file]}
            for file in each("url", 5, [], "", "file:///etc/passwd", "http://[", fileName="a")
        ),
        *each("nextPageToken", 5, [], {}, True, files=[FILE]),
        *each("log", 5, [], {}, "[5]", '[{"data": 5}]', "[[[", "\x1b[2J", files=[FILE]),
    ],
    "GetKernelSessionStatus": [
        *each("status", 5, None, [], {}, "NO_SUCH", "", HUGE, "\x1b[2J"),
        *each("failureMessage", 5, [], {}, "\x1b]0;x\x07", "x" * 10**5, status="ERROR"),
    ],
    "GetKernel": each("metadata", 5, "x", [], {"currentVersionNumber": "\x1b"}, DEEP),
    "GetAcceleratorQuotaStatistics": [
        *each("gpuQuota", 5, [], "x", {}),
        *(
            {"gpuQuota": quota}
            for quota in each("timeUsed", *STRANGE_TIMES, totalTimeAllowed="108000s")
            + each("totalTimeAllowed", *STRANGE_TIMES, timeUsed="1s")
        ),
        *each(
            "quotaRefreshTime",
            *(5, "", "never", "\x1b[2J", [], "9999999-01-01T00:00:00Z"),
            gpuQuota={"timeUsed": "1s", "totalTimeAllowed": "10s"},
        ),
    ],
    "SaveKernel": [
        *each("error", 5, [], {}, "\x1b[2J", "x" * 10**5, HUGE),
        *each("ref", 5, [], "\x1b[2J", "/code/../../x", "a/b/c/d", url="u"),
        *each("url", 5, [], "\x1b[2J", "http://x/\n\ry", ref=f"/code/{REF}"),
        *each("versionNumber", "x", [], HUGE, "\x1b[2J", ref=f"/code/{REF}"),
        *each("invalidDatasetSources", 5, "x", [5], ["\x1b[2J"], {"a": 1}),
    ],
}
COMMANDS = {
    "ListKernelSessionOutput": [FETCH, ["logs", REF]],
    "GetKernelSessionStatus": [["status", REF], FETCH],
    "GetKernel": [["push", "tiny"]],
    "GetAcceleratorQuotaStatistics": [["push", "tiny"]],
    "SaveKernel": [["push", "tiny"]],
}


@pytest.mark.parametrize("method", SHAPES)
def test_an_answer_of_another_shape_is_a_sentence(server: KaggleServer, converted: Path, method: str) -> None:
    server.files = {"good.txt": b"good"}
    for answer in [*ANSWERS, *SHAPES[method]]:
        for command in COMMANDS[method]:
            server.calls[method] = [answers(answer)]
            result = nb2ddp(*command)  # it fails on a traceback
            assert safe(result.output), (command, shown(answer))
            assert len(result.output) < 5_000
            assert not server.calls[method], "the answer was given"


@pytest.mark.parametrize("tokens", [["1", "1", "1"], ["1", "2", "1"]])
def test_a_listing_without_an_end(server: KaggleServer, tokens: list[str]) -> None:
    server.files = {"good.txt": b"good"}
    server.calls["ListKernelSessionOutput"] = [lists(FILE, nextPageToken=token) for token in tokens]
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.ServerError.exit_code
    assert "a list of files without an end" in result.output


@pytest.mark.parametrize(
    "event",
    [5, None, [], {"data": 5}, {"time": "x", "data": "a"}, {"time": HUGE, "data": "a"}, {"time": True}],
)
def test_events_of_another_shape(server: KaggleServer, event: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.states = ["RUNNING", "RUNNING", "COMPLETE"]
    monkeypatch.setattr(server, "events", lambda: [event, {"data": "end\n", "time": 1.0}])
    server.cuts = [2]
    assert nb2ddp("logs", REF, "--follow").output.endswith("end\n")
    server.states, server.cuts = ["RUNNING", "RUNNING", "COMPLETE"], [2]
    assert nb2ddp("status", REF, "--follow").exit_code == 0


def test_a_log_commands_no_terminal(server: KaggleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    server.log = [
        "a\x1b]0;ti",
        "tle\x07b\x1b[",
        "2Jc\x1b[31mred\x1b[0m\x9b1A\x07\x08\n",
        "50%|#| 1/2\rdone\x1b",
    ]
    assert nb2ddp("logs", REF).output in (
        "abc\x1b[31mred\x1b[0m1A\n50%|#| 1/2\rdone",
        "abcred1A\n50%|#| 1/2\rdone",  # click takes colours away where there is no terminal
    )
    kept = TerminalFilter()
    pieces = [kept(character) for character in "".join(server.log)]
    assert "".join([*pieces, kept.end()]) == "abc\x1b[31mred\x1b[0m1A\n50%|#| 1/2\rdone"


@pytest.mark.parametrize(
    "line",
    [
        f"\r 50%|#####     | {'9' * 5000}/{'9' * 5000} [00:01<00:01,  2.00s/it]",
        "\r 50%|#####     | 1/2 [00:01<00:01,  1.2.3s/it]",
        "\r 50%|#####     | 1/999999999 [00:01<00:01,  999999999s/it]",
        "{'loss': 1e-e}\n{'loss': 1.2.3}\n{'loss': 1e999}\n{'loss': ----}",
        "\r 50%|#####     | \u0663/\u0664 [00:01<00:01,  \u0663s/it]",
        "\r 50%|#####     | 3/2 [00:01<00:01,  0.00it/s]",
    ],
)
def test_progress_that_makes_no_sense(server: KaggleServer, line: str) -> None:
    server.log, server.states = [line + "\n"], ["RUNNING", "RUNNING", "COMPLETE"]
    assert nb2ddp("status", REF, "--follow").exit_code == 0


def raw(status: int, body: bytes, **headers: str) -> Callable[..., Any]:
    """This answer, byte by byte."""

    def answer(server: KaggleServer, request: dict[str, Any]) -> Any:
        raise RawAnswer(status, body, **headers)

    return answer


@pytest.mark.parametrize("method", ["ListKernelSessionOutput", "GetKernelSessionStatus", "SaveKernel"])
def test_an_answer_that_unpacks_to_more_than_there_is_memory_for(
    server: KaggleServer, converted: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nb2ddp.kaggle.calls.MOST_BYTES", 1_000_000)
    bomb = gzip.compress(b'{"log": "' + b" " * 3_000_000 + b'"}')
    server.answers = [raw(200, bomb, Content_Encoding="gzip")]
    server.calls[method] = [raw(200, bomb, Content_Encoding="gzip")]
    result = nb2ddp(*COMMANDS[method][0])
    assert result.exit_code == errors.ServerError.exit_code
    assert "over 1 MB in one answer" in result.output


@pytest.mark.parametrize("body", [b"\x1f\x8b broken", b"\xff" * 100, b"", b"0" * 10_000])
def test_an_answer_that_is_not_as_it_says(server: KaggleServer, body: bytes) -> None:
    server.calls["GetKernelSessionStatus"] = [raw(200, body, Content_Encoding="gzip")]
    result = nb2ddp("status", REF)
    assert result.exit_code != 0
    assert safe(result.output)


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://localhost/x", "http://[", "http://localhost/away/x"]
)
def test_an_answer_that_leads_elsewhere(server: KaggleServer, to: str) -> None:
    server.calls["GetKernelSessionStatus"] = [raw(307, b"", Location=to)]
    result = nb2ddp("status", REF)
    assert result.exit_code != 0
    assert safe(result.output)
    server.calls["ListKernelSessionOutput"] = [
        lists({"url": f"http://localhost/away/{quote(to, safe='')}", "fileName": "a.txt"})
    ]
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code
    assert safe(result.output)
    assert not Path("home/a.txt").exists()


def test_a_download_takes_no_credentials_along(
    server: KaggleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that the server names may be any host of ~/.netrc."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login ada password swordfish\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.files = {"good.txt": b"good"}
    server.calls["ListKernelSessionOutput"] = [
        lists(
            {"url": "http://localhost/away/http%3A%2F%2Flocalhost%2Fsigned%2Fgood.txt", "fileName": "a.txt"}
        )
    ]
    assert nb2ddp(*FETCH).exit_code == 0
    assert Path("home/a.txt").read_bytes() == b"good"
    files = [credentials for path, credentials in server.gets if "/stream/" not in path]
    assert files == [None, None]


# ---------------------------------------------------------------------------------------------------------
# run.json

RUN = {"exit_code": 0, "phase": "training", "error": None, "world_size": 2, "gpus": ["T4"]}
STRANGE: list[Any] = [
    None,
    5,
    -1,
    HUGE,
    1.5,
    True,
    "x",
    "\x1b[2J",
    "x" * 10**4,
    [],
    [5],
    [[]],
    {},
    {"a": 1},
    DEEP,
]


@pytest.mark.parametrize(
    "key", [*RUN, "peak_memory_mib", "seconds", "stopped", "versions", "step", "of", "checks", "mib"]
)
def test_whatever_run_json_holds(server: KaggleServer, key: str) -> None:
    for value in STRANGE:
        run: dict[str, Any] = RUN | {"exit_code": 1, "error": "why", key: value}
        if key in ("step", "of"):
            run["stopped"] = {"step": 1, "of": 2, key: value}
        elif key == "checks":
            run["seconds"] = {"checks": value, "\x1b[2J": 1.0}
        elif key == "mib":
            run["peak_memory_mib"] = [value, 5]
        server.files = {"run.json": json.dumps(run).encode()}
        result = nb2ddp("fetch", REF, "-o", f"home{STRANGE.index(value)}")
        assert safe(result.output)
        assert len(result.output) < 10_000


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"{",
            b"[]",
            b"5",
            b"null",
            b'"x"',
            b"\xff\xfe",
            b"{}",
            b"\x1b[2J",
            b"NaN",
            b'{"exit_code": NaN}',
        ),
        *(
            b"9" * 5000,
            b"[" * 100_000,
            b'{"a": "' + b"x" * 2_000_000 + b'"}',
            b'\xef\xbb\xbf{"exit_code": 0}',
        ),
    ],
)
def test_a_run_json_that_is_none(server: KaggleServer, content: bytes) -> None:
    server.files = {"run.json": content}
    result = nb2ddp(*FETCH)
    assert result.exit_code == 0
    assert "run.json does not have the shape that a bundle of nb2ddp gives it" in result.output
    assert safe(result.output)


def test_checkpoints_without_a_number(server: KaggleServer) -> None:
    names = ["checkpoint-best", "checkpoint-", "checkpoint-9", "checkpoint-10", "checkpoint-" + "9" * 200]
    server.files = {f"out/{name}/adapter_config.json": b"{}" for name in names}
    assert "the last checkpoint is home/out/checkpoint-10." in nb2ddp(*FETCH).output


# ---------------------------------------------------------------------------------------------------------
# Folders of the user's


@pytest.mark.parametrize(
    ("command", "name"), [(["push", "tiny", "--dry-run"], "dry_run"), (["push", "tiny"], "pushed")]
)
@pytest.mark.parametrize("kind", ["folder", "file", "link", "edited", "added", "nested"])
def test_what_is_not_ours_is_neither_deleted_nor_overwritten(
    server: KaggleServer, converted: Path, tmp_path: Path, command: list[str], name: str, kind: str
) -> None:
    place, outside = converted / name, tmp_path / "outside"
    outside.mkdir()
    (outside / "tiny-run.py").write_text("mine")
    if kind == "folder":
        place.mkdir()
        (place / "results.csv").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    elif kind == "link":
        place.symlink_to(outside)
    else:
        assert nb2ddp(*command).exit_code == 0
        server.pushes.clear()
        if kind == "edited":
            (place / "tiny-run.py").write_text("mine")
        elif kind == "added":
            (place / "notes.txt").write_text("mine")
        else:
            (place / "runs").mkdir()
    before = tree(tmp_path)
    result = nb2ddp(*command)
    assert result.exit_code == errors.OutputError.exit_code
    assert "Nothing was sent or changed; move that away" in result.output
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
    assert sorted(os.listdir(converted / name)) == [".nb2ddp.json", "kernel-metadata.json", "second-title.py"]
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
