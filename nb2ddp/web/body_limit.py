"""Limit the bytes of a request, before Gradio gathers them in memory or on the disk."""

from __future__ import annotations

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


class _TooLargeError(Exception):
    """More was received than a request may have."""


class BodyLimit:
    """Answer a request that is too large with 413. ASGI middleware."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_upload = scope["path"].rstrip("/").endswith("/upload")
        most = left = limits.MOST_UPLOAD if is_upload else limits.MOST_REQUEST
        has_begun = has_ended = False

        async def limited() -> _Message:
            nonlocal left, has_ended
            message = await receive()
            has_ended = not message.get("more_body")
            left -= len(message.get("body", b""))
            if left < 0:
                raise _TooLargeError
            return message

        async def sent(message: _Message) -> None:
            nonlocal has_begun
            if left >= 0:  # else the app has taken the error for one of its own
                has_begun = True
                await send(message)

        announced = _announced(scope)
        if announced <= most:
            with suppress(_TooLargeError):
                await self._app(scope, limited, sent)
            if left >= 0 or has_begun:
                return
        if not has_ended and announced <= _DISCARDED * most:
            await _discard(receive, _DISCARDED * most)
        await _refuse(send)


def _announced(scope: _Message) -> int:
    """Return the length that a request tells of itself, which it need not."""
    told = dict(scope["headers"]).get(b"content-length", b"")
    return int(told) if told.isdigit() else 0


async def _discard(receive: _Receive, most: int) -> None:
    while most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if not message.get("more_body"):
            return


async def _refuse(send: _Send) -> None:
    text = b"The request is too large.\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send(
        {"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]}
    )
    await send({"type": "http.response.body", "body": text})
