"""Limit the bytes and the time of a request, before Gradio gathers it in memory or on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from nb2ddp.web import limits

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]


_DISCARDED = 5
"""Times the limit that is received and thrown away: many clients read an answer only when they have sent all."""


class BodyLimit:
    """Answer a request that is too large with 413, and one that is too slow with 408. ASGI middleware."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_upload = scope["path"].rstrip("/").endswith("/upload")
        most = left = limits.MOST_UPLOAD if is_upload else limits.MOST_REQUEST
        has_begun = has_ended = is_late = False
        end = asyncio.get_running_loop().time() + limits.SECONDS

        async def limited() -> _Message:
            nonlocal left, has_ended, is_late
            try:
                async with asyncio.timeout_at(None if has_ended else end):
                    message = await receive()
            except TimeoutError:
                left, has_ended, is_late = -1, True, True
                return {"type": "http.disconnect"}
            has_ended = has_ended or not message.get("more_body")
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        async def sent(message: _Message) -> None:
            nonlocal has_begun
            if left >= 0:  # else it answers a client that it takes for gone
                has_begun = True
                await send(message)

        told = dict(scope["headers"]).get(b"content-length", b"")  # which a request need not tell
        announced = int(told) if told.isdigit() else 0
        if announced <= most:
            try:
                await self._app(scope, limited, sent)
            except Exception:
                if left >= 0:
                    raise
            if left >= 0 or has_begun:
                return
        if not has_ended and announced <= _DISCARDED * most:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await _discard(receive, _DISCARDED * most)
        await _refuse(send, *(_LATE if is_late else _LARGE))


async def _discard(receive: _Receive, most: int) -> None:
    while most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if not message.get("more_body"):
            return


_LARGE = (413, b"The request is too large.\n")
_LATE = (408, b"The request took too long to come in.\n")


async def _refuse(send: _Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]}
    )
    await send({"type": "http.response.body", "body": text})
