"""uvicorn's HTTP protocol with bounds: on what a client may send before it is a request, and on time.

uvicorn alone collects a header without end, waits for ever for the rest of a header section or body, and
for a client that takes nothing of its answer. Here each connection has a deadline that its phase sets; who
misses it is told (408) where that is possible, and cut off. Trailers of chunked bodies are dropped: what
a proxy checked in the header section is what counts.

Not for: meaning of requests (`app.py`), how many connections there are (`accepting.py`).
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from stages.gateway.config import GatewayConfig
from stages.gateway.http import App, Message, Receive, Scope, Send
from stages.gateway.taking import Counted, Flow

HEADER_SLACK = 4  # times the limit that the application answers with 431: here the connection is cut
MOST_AT_ONCE = 64  # requests that wait for the answer of an earlier one of their connection
LINGER_S = 5.0  # for the rest of a body nobody wants, or for a client to take the last of an answer
LITTLE = 1 << 16  # bytes of an answer that are the last of it
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 38\r\nconnection: close\r\n\r\nThe request did not come in in time.\r\n"
)


class Phase(enum.Enum):
    """What a connection waits for."""

    IDLE = "a request"
    HEAD = "the rest of a header section"
    BODY = "the rest of a body"
    ANSWER = "the application"


class GuardedProtocol(HttpToolsProtocol):
    """One connection. `look` is called at all of them, twice a second."""

    limits = GatewayConfig()
    peer = ""
    left: Callable[[], None] | None = None  # called once, when the connection is gone
    below: Counted | None = None  # what is given to the socket; set by who has made TLS above it

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.access_log = False  # also where the root logger has handlers
        self.timeout_keep_alive = 86_400  # the deadlines below take its place
        self.phase = Phase.IDLE
        self.since = self.deadline = self.send_deadline = math.inf
        self._head = self._known = self._body = self._stalled = self._taken = 0  # bytes
        self._headers_done = self._broken = False
        self._answered: RequestResponseCycle | None = None  # `self.cycle` is the last one that came in

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio's call. Who connects is expected to ask."""
        below = self.below or Counted(transport)
        super().connection_made(transport if self.below else below)  # type: ignore[arg-type]
        self.below, self.flow = below, Flow(transport)
        self._enter(Phase.IDLE, self.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's call."""
        for cycle in (self._answered, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)
        self.deadline = self.send_deadline = math.inf
        self.gone()

    def gone(self) -> None:
        """It is counted no more."""
        if self.left is not None:
            self.left()
            self.left = None

    @property
    def idle(self) -> bool:
        """Whether no request of it is being answered."""
        return not self._answering

    @property
    def unsent(self) -> int:
        """Bytes of its answers that the client has not taken yet."""
        return cast(Counted, self.below).unsent(self.transport)

    def data_received(self, data: bytes) -> None:
        """asyncio's call."""
        if self._broken or self.transport.is_closing():
            return
        if self.phase is Phase.IDLE:
            self._begin_head()
        before, body = self.phase, self._body
        super().data_received(data)
        if self.phase is Phase.HEAD:
            self._head += len(data) if before is Phase.HEAD else 0
        elif self.phase is Phase.BODY:  # chunk extensions and trailers: neither header nor body
            self._stalled = self._stalled + len(data) if self._body == body else 0
        if max(self._head, self._stalled) > self._hard_limit:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """A request's first byte; of a pipelined one while another is answered."""
        super().on_message_begin()
        if self.phase is not Phase.HEAD:
            self._begin_head()
        self._known, self._headers_done = 0, False

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, without blanks around its value (RFC 9112, 5.1: httptools leaves those at its end); or
        one trailer, and the list belongs to the application by then."""
        if self._headers_done:
            return
        self._count(len(name) + len(value))
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """The header section is there."""
        self._headers_done = True
        self._head = 0
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("neither HTTP/1.0 nor HTTP/1.1")
        self._enter(Phase.BODY, self.limits.body_timeout_s)
        super().on_headers_complete()
        if len(self.pipeline) > MOST_AT_ONCE:
            self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        if cycle.scope["http_version"] == "1.0":
            _answer_plainly(cycle)
        super()._start_asgi_task(cycle, self._when_taken(app) if self.flow.write_paused else app)

    def _when_taken(self, app: App) -> Any:
        """The request is not looked at before the client has the answers to those before it."""

        async def later(scope: Scope, receive: Receive, send: Send) -> None:
            await cast(Flow, self.flow).taken()
            await app(scope, receive, send)

        return later

    def on_body(self, body: bytes) -> None:
        """A piece of the body. Each byte buys time, as far as a body may be long."""
        self._body += len(body)
        if not self.cycle.response_complete:
            wanted = min(self._body, self.limits.max_body_bytes) / self.limits.body_bytes_per_s
            self.deadline = self.since + self.limits.body_timeout_s + wanted
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        super().on_message_complete()
        if self.cycle.response_complete:
            self._enter(Phase.IDLE, self.limits.idle_timeout_s)
        else:
            self._enter(Phase.ANSWER, math.inf)

    def on_response_complete(self) -> None:
        """The application has answered: this request, or an earlier one of several sent at once."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if not self.cycle.response_complete:
            return
        if self.phase is Phase.ANSWER:
            self._enter(Phase.IDLE, self.limits.idle_timeout_s)
        elif self.phase is Phase.BODY:  # refused before it was all there
            self.deadline = min(self.deadline, self.loop.time() + LINGER_S)

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP. An answer that is under way to an earlier request is not cut into."""
        if self.transport.is_closing():  # cut off for it
            return
        if not self._answering:
            self._broken = True
            super().send_400_response(msg)
        elif self.phase is not Phase.BODY:
            self._end_after_answer()
        elif self.cycle.response_started or self.pipeline:
            self.transport.abort()
        else:
            self._broken = True
            super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """No other protocol is spoken here: the request is answered, and what follows it is not looked at."""
        self._end_after_answer()

    def _end_after_answer(self) -> None:
        self._broken = True
        self.cycle.keep_alive = False
        self.deadline = math.inf
        self.flow.pause_reading()

    def look(self, now: float, stood: float) -> None:
        """Act on a deadline that has passed, by the loop's clock.

        Args:
            stood: seconds by which this look is late. Nobody was listened to meanwhile, so they are given on
                top: what a client sent in time may not have been read yet.
        """
        if self.transport is None:
            return
        self.deadline += stood
        self.send_deadline += stood
        closing, unsent = self.transport.is_closing(), self.unsent
        self._look_whether_taken(now, unsent, closing=closing)
        if closing:
            pass
        elif self.phase is Phase.IDLE and unsent:  # its time begins when it has the answer
            self._enter(Phase.IDLE, self.limits.idle_timeout_s)
        elif self.flow.read_paused and self.phase in (Phase.HEAD, Phase.BODY):  # it is us who do not read
            self._enter(self.phase, self.deadline - self.since)
        elif now >= self.deadline:
            self._expire()
        if now >= self.send_deadline:
            self.reset()

    def _look_whether_taken(self, now: float, unsent: int, *, closing: bool) -> None:
        """Each byte that a client takes buys time for the next."""
        taken = cast(Counted, self.below).taken
        patience = LINGER_S if closing and unsent <= LITTLE else self.limits.send_timeout_s
        if not (unsent or closing):
            self.send_deadline = math.inf
        elif taken != self._taken or self.send_deadline == math.inf:
            self.send_deadline = now + patience
        elif closing:
            self.send_deadline = min(self.send_deadline, now + patience)
        self._taken = taken

    def reset(self) -> None:
        """Close at once; the kernel forgets what nobody takes."""
        cast(Counted, self.below).reset()

    def _expire(self) -> None:
        if self.phase is Phase.HEAD and self._answering:
            self._end_after_answer()
            return
        waits = self._answering and not self.cycle.response_started
        if self.phase is Phase.HEAD or (self.phase is Phase.BODY and waits):
            self.transport.write(_LATE)
        self.transport.close()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_head(self) -> None:
        self._head = self._known = self._body = self._stalled = 0
        self._enter(Phase.HEAD, self.limits.header_timeout_s)

    def _count(self, size: int) -> None:
        self._known += size
        if self._known > self._hard_limit or len(self.headers) > self.limits.max_headers * HEADER_SLACK:
            self.transport.abort()
            raise ValueError("a header section without end")  # what came with it is not read: it may be much

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase = phase
        self.since = self.loop.time()
        self.deadline = self.since + seconds

    @property
    def _hard_limit(self) -> int:
        return self.limits.max_header_bytes * HEADER_SLACK


def _answer_plainly(cycle: RequestResponseCycle) -> None:
    """HTTP/1.0 knows neither chunks (RFC 9112 6.1) nor 100 (RFC 9110 15.2): uvicorn would send both.

    An answer of no told length ends with the connection, which uvicorn closes to such a client.
    """
    send = cycle.send
    cycle.chunked_encoding = cycle.waiting_for_100_continue = False

    async def whole(message: Message) -> None:
        cycle.expected_content_length = len(message.get("body", b""))  # each piece has the length it has
        await send(message)  # type: ignore[arg-type]

    cycle.send = whole  # type: ignore[assignment, method-assign]
