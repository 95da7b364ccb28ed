"""One request on its way through the gateway: what came, the way to answer it, what to log of it."""

from __future__ import annotations

import logging
import re
import secrets
import time

from stages.gateway import logs
from stages.gateway.http import Body, Message, Scope, Send, header

REQUEST_ID = b"x-request-id"
# UUIDs, trace ids and the like. Anything else a client sends could hold what must not be logged.
_GIVEN = re.compile(rb"(?:req_)?[0-9a-fA-F-]{16,64}")
_CLOSE = (b"connection", b"close")


def request_id(sent: bytes) -> str:
    """The client's own id where it is nothing but an id, else a new one."""
    if sent and _GIVEN.fullmatch(sent):
        return sent.decode()
    return f"req_{secrets.token_hex(12)}"


class Exchange:
    """One request and the way to answer it.

    Attributes:
        request_id: in the answer's `X-Request-Id`, in errors, and in the log.
        status: of the answer; 0 until it has begun.
        key_id, generation: whose request it is and what it made, "" until that is known.
        code: of the error that was answered, "".
        closing: the connection is not kept after the answer.
    """

    def __init__(self, scope: Scope, receive: Body, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.request_id = request_id(header(scope, REQUEST_ID))
        self.status = 0
        self.key_id = ""
        self.generation = ""
        self.code = ""
        self.closing = False
        self.began = time.perf_counter()
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass an ASGI message on, noting the status; the answer gets the request's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [(REQUEST_ID, self.request_id.encode())]
            message["headers"] = [*message["headers"], *own, *([_CLOSE] if self.closing else ())]
        await self._send(message)

    def log(self, route: str, seconds: float) -> None:
        """One line: never the path as sent, a user or a session."""
        logs.event(
            logs.REQUEST,
            logging.WARNING if self.status >= 500 else logging.INFO,
            request_id=self.request_id,
            method=self.scope["method"],
            route=route,
            status=self.status,
            ms=round(seconds * 1000, 3),
            key=self.key_id,
            generation=self.generation,
            code=self.code,
        )
