"""The door of the engine's own port: every route wants the engine's key.

vLLM guards only `/v1` with its `--api-key`; the routes that replace weights stay open to every
local user and to every command a model gets to run. This ASGI middleware (`--middleware`) closes
them all. It runs inside vLLM's server process and takes the key from the environment, which other
users cannot read, not from the command line, which they can.

Every answer says in `x-rtrl-engine` which process gave it, and how often it was told what may change its
weights: whoever has proved what it holds sees by that when it is not what was proved any more. A stream of
events says it again, as a comment, before the first piece that was sent after it was told.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

KEY_VARIABLE = "RTRL_ENGINE_KEY"
NAME = b"x-rtrl-engine"
NOTE = b": " + NAME + b" "  # the comment in a stream
READS = "x-rtrl-reads"  # header of a call that leaves the served weights as they are
_EVENTS = b"text/event-stream"
_HARMLESS = ("/v1/", "/tokenize", "/pause", "/resume", "/reset_prefix_cache")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class KeyGuard:
    """401 for every HTTP request without `Authorization: Bearer <key>`. Without a key nobody gets in."""

    def __init__(self, app: App) -> None:
        self.app = app
        key = os.environ.get(KEY_VARIABLE, "")
        self.expected = b"Bearer " + key.encode() if key else None
        self._process, self._changes = secrets.token_hex(8), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if self.expected is not None and hmac.compare_digest(given, self.expected):
            if _may_change(scope):
                self._changes += 1
            await self.app(scope, receive, self._named(send))
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        body = b'{"error": "this port belongs to the gateway"}'
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _named(self, send: Send) -> Send:
        said, events = b"", False

        async def named(message: MutableMapping[str, Any]) -> None:
            nonlocal said, events
            name = f"{self._process}.{self._changes}".encode()
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                events = any(key == b"content-type" and _EVENTS in value for key, value in headers)
                message, said = {**message, "headers": [*headers, (NAME, name)]}, name
            elif events and name != said and message.get("body"):
                message, said = {**message, "body": NOTE + name + b"\n\n" + message["body"]}, name
            await send(message)

        return named


def _may_change(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return False
    if scope["path"].startswith(_HARMLESS):
        return False
    return all(name != READS.encode() for name, _ in scope["headers"])
