"""Answers of a hostile server: of another shape, too large, or leading elsewhere. Each is told in a sentence."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from nb2ddp import errors
from nb2ddp.kaggle.untrusted import TerminalFilter, shown
from tests.support.kaggle_client import converted, imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import KaggleServer, RawAnswer, says

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")

REF = "ada/tiny-run"
FETCH = ["fetch", REF, "-o", "home"]


def lists(*files: Any, **more: Any) -> Callable[..., Any]:
    """The listing of an output with these entries."""
    return says(files=list(files), **more)


def answers(value: Any) -> Callable[..., Any]:
    """HTTP 200, with this JSON."""
    return lambda server, request: value


def safe(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


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


@pytest.mark.parametrize("first", [0, *(pytest.param(at, marks=pytest.mark.thorough) for at in (1, 2))])
@pytest.mark.parametrize("method", SHAPES)
def test_an_answer_of_another_shape_is_a_sentence(
    server: KaggleServer, converted: Path, method: str, first: int
) -> None:
    server.files = {"good.txt": b"good"}
    for answer in [*ANSWERS, *SHAPES[method]][first::3]:
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


def test_empty_pages_are_not_followed_without_end(server: KaggleServer) -> None:
    pages = 1000
    server.calls["ListKernelSessionOutput"] = [
        says(files=[], log="[]", nextPageToken=f"page {n}") for n in range(pages)
    ]
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.ServerError.exit_code
    assert "a list of files without an end" in result.output
    assert len(server.calls["ListKernelSessionOutput"]) > pages - 30


def test_an_output_that_is_larger_than_any_is_not_fetched(
    server: KaggleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nb2ddp.kaggle.client._MAX_BYTES", 150_000)
    server.files = {f"{n}.bin": bytes(100_000) for n in range(3)}
    result = nb2ddp(*FETCH)
    assert result.exit_code == errors.DownloadError.exit_code
    assert "the output has over 0 GB" in " ".join(result.output.split())
    assert Path("home/0.bin").exists()
    assert not Path("home/1.bin").exists()


def test_a_retry_takes_no_credentials_along(
    server: KaggleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client makes the requests that go on with a file in a session of its own."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login ada password swordfish\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.files = {"good.txt": b"good" * 100_000}
    server.broken_files = ["good.txt"]
    assert nb2ddp(*FETCH).exit_code == 0
    files = [credentials for path, credentials in server.gets if "/stream/" not in path]
    assert len(files) > 1
    assert set(files) == {None}


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
