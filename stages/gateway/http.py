"""ASGI in a few functions: read a body, send JSON, find headers. No routing, no meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import orjson

from cursorbench.json_values import MAX_VALUES, values
from stages.gateway.errors import ApiError, invalid

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

_ONCE = {
    b"authorization",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"host",
    b"transfer-encoding",
    b"x-api-key",
    b"x-request-id",
}

JSON_TYPE = (b"content-type", b"application/json")
MAX_DEPTH = 200
_CODE = "body_too_large"


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


def header(scope: Scope, name: bytes) -> bytes:
    """The first header of that (lower-case) name, b"" when there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def check_headers(scope: Scope, limit: int, most: int) -> None:
    """One meaning, whoever reads it: a proxy in between may have looked at another of two headers.

    Raises:
        ApiError: 431 when the header section is too long, 400 when it says something twice, names no host, or
            has a body for another protocol, 415 for a body in a transfer coding but chunks.
    """
    seen, size = set[bytes](), 0
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
        if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise ApiError(
                415, "invalid_request_error", "unsupported_encoding", "the only transfer coding is chunked"
            )
        if name in _ONCE or name.startswith(b"x-rtrl"):
            dashed = name.replace(b"_", b"-")
            if dashed in seen:
                place = dashed.decode("ascii", "replace").title()
                raise invalid(f"{place} is sent more than once", param=place, code="repeated_header")
            seen.add(dashed)
    if b"host" not in seen and scope["http_version"] == "1.1":
        raise invalid("HTTP/1.1 wants a Host header", param="Host")
    has_body = header(scope, b"content-length").strip(b"0") or b"transfer-encoding" in seen
    if header(scope, b"upgrade") and has_body:  # it is not read (httptools): nothing can be made of it
        raise invalid(
            "HTTP/1.1 is spoken here: leave Upgrade away", param="Upgrade", code="unsupported_upgrade"
        )
    if size > limit or len(scope["headers"]) > most:
        message = f"headers are limited to {most}, of {limit} bytes together"
        raise ApiError(431, "invalid_request_error", "headers_too_large", message)


class Bodies:
    """Bounds what the bodies of all requests together hold in memory: one limit a body is not enough."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self.coming: set[Body] = set()

    def of(self, receive: Receive) -> Body:
        """A request's body, counted as it comes in."""
        return Body(self, receive)

    def make_room(self, body: Body, size: int) -> None:
        """For `size` more bytes of one that comes in. Where there is none, the largest of those that come in
        are refused: a few that do not end would keep all others out. Raises ApiError 429: that is this one.
        """
        while self.held + size > self.most:
            largest = max(self.coming, key=lambda each: each.held)
            if largest.held <= body.held:
                raise _too_many_bodies()
            largest.refuse()


class Body:
    """`receive` of one request. Raises ApiError 429 when too much is held; `done` lets go of it."""

    def __init__(self, home: Bodies, receive: Receive) -> None:
        self._home, self._receive = home, receive
        self._limit: asyncio.Timeout | None = None  # while it comes in
        self._refused = self._complete = False
        self.held = 0

    async def __call__(self) -> Message:
        """ASGI's receive."""
        if self._complete:  # whether the client is still there
            return await self._receive()
        self._home.coming.add(self)
        self._limit = limit = asyncio.timeout(None)
        try:
            async with limit:
                message = await self._receive()
        except TimeoutError:
            raise _too_many_bodies() from None
        size = len(message.get("body", b""))
        if self._refused:
            raise _too_many_bodies()
        self._home.make_room(self, size)
        self._count(size)
        if not message.get("more_body", False):
            self._complete = True
            self._home.coming.discard(self)
        return message

    def hold(self, size: int) -> None:
        """Count what the body became. Raises ApiError 429 when that is too much beside other requests."""
        if self._home.held > self.held and self._home.held + size > self._home.most:
            raise _too_many_bodies()
        self._count(size)

    def keep(self, size: int) -> None:
        """So much is left of it."""
        self._count(min(size, self.held) - self.held)

    def refuse(self) -> None:
        """Another one needs the room more."""
        self._refused = True
        self.done()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def done(self) -> None:
        """The request is answered."""
        self.keep(0)
        self._home.coming.discard(self)

    def _count(self, size: int) -> None:
        self._home.held += size
        self.held += size


def _too_many_bodies() -> ApiError:
    return ApiError(
        429, "rate_limit_error", "too_many_requests", "too many bodies come in at once", retry_after=2
    )


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises ApiError 413 when it is too long, ClientGoneError when it never ends."""
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


def parse_json(body: bytes, most: int = MAX_VALUES) -> Any:
    """The JSON value in `body`.

    Raises ApiError 413 when it has more than `most` objects, lists and strings, before anything is made of
    them; 400: what is wrong and where, nothing of the content.
    """
    if values(body, most) > most:
        message = f"bodies are limited to {most} objects, lists and strings, names of fields among them"
        raise ApiError(413, "invalid_request_error", _CODE, message)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:  # its texts are fixed
        where = _no_utf8(body) or f"{error.msg}, line {error.lineno} column {error.colno}"
        raise invalid(f"the body is not valid JSON: {where}", code="invalid_json") from None


def _no_utf8(body: bytes) -> str:
    """Where a body is none; "" where it is. orjson speaks of surrogates then, in line 1."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        before = body[: error.start].decode().split("\n")
        return f"no UTF-8, line {len(before)} column {len(before[-1]) + 1}"
    return ""


def is_deep(value: Any) -> bool:
    """Whether JSON has more than MAX_DEPTH levels: it is read to 1024, and could not be written again."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            one
            for each in level
            for one in (each.values() if type(each) is dict else each)
            if type(one) is dict or type(one) is list  # quicker than isinstance, for millions of numbers
        ]
        if not level:
            return False
    return bool(level)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises ApiError 400."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise invalid("the body must be a JSON object", code="invalid_json")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and is_deep(value):
        raise invalid(f"the body is nested more than {MAX_DEPTH} levels deep", code="invalid_json")
    return value


async def read_object(scope: Scope, receive: Receive, limit: int) -> dict[str, Any]:
    """A body's JSON object. Raises as `read_body` and `parse_object`, ApiError 415 when it is compressed."""
    if header(scope, b"content-encoding").strip().lower() not in (b"", b"identity"):
        raise ApiError(
            415, "invalid_request_error", "unsupported_encoding", "send the body without a content encoding"
        )
    return parse_object(await read_body(scope, receive, limit))


async def send_body(send: Send, status: int, body: bytes, headers: Headers = (JSON_TYPE,)) -> None:
    """A complete answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_json(send: Send, status: int, value: Any) -> None:
    """A complete JSON answer."""
    await send_body(send, status, orjson.dumps(value))


async def send_error(send: Send, error: ApiError, body: tuple[bytes, bytes] | None = None) -> None:
    """The answer for an error. `body`: (media type, bytes) in the place of the OpenAI error shape."""
    extra = []
    if error.retry_after is not None:
        extra.append((b"retry-after", str(error.retry_after).encode()))
    if error.allow:
        extra.append((b"allow", error.allow.encode()))
    if error.status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    media, content = body or (JSON_TYPE[1], orjson.dumps(error.body()))
    await send_body(send, error.status, content, ((JSON_TYPE[0], media), *extra))


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, "invalid_request_error", _CODE, f"request bodies are limited to {limit} bytes"
    )  # fmt: skip


async def answer_lifespan(receive: Receive, send: Send) -> None:
    """Yes to whatever the server says of its life; returns when it ends."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
