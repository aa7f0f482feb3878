"""Requests that are too slow, or whose length is not announced."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from nb2ddp.web import limits
from nb2ddp.web.body_limit import BodyLimit

Message = MutableMapping[str, Any]


def answered(pieces: list[tuple[float, bytes]]) -> int:
    """Return the status that a request gets whose body comes in these pieces, each after some seconds."""
    sent: list[Message] = []
    waiting = iter(pieces)

    async def app(scope: Message, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            if not message.get("more_body"):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                return

    async def receive() -> Message:
        seconds, body = next(waiting, (60.0, b""))
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": body, "more_body": body != b"end"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/gradio_api/upload", "headers": []}
    asyncio.run(BodyLimit(app)(scope, receive, send))
    return next(int(message["status"]) for message in sent if "status" in message)


def test_a_body_that_comes_in_time() -> None:
    assert answered([(0.0, b"x"), (0.01, b"end")]) == 200


def test_a_body_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    assert answered([(0.05, b"x")] * 100) == 408


def test_a_body_that_is_larger_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_UPLOAD", 10)
    assert answered([(0.0, b"x" * 6), (0.0, b"x" * 6), (0.0, b"end")]) == 413
