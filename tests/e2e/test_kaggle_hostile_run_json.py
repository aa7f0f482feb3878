"""Whatever run.json holds, it is told in a sentence or not at all."""
# ruff: noqa: F401, F811 (fixtures are imported by name)

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from tests.e2e.test_kaggle_hostile_answers import DEEP, FETCH, HUGE, REF, safe
from tests.support.kaggle_client import imported_for_loopback, nb2ddp, server
from tests.support.kaggle_server import KaggleServer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kaggle") is None, reason="needs the extra [kaggle]")


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
