"""HTTP/1.1 to one engine: kept connections, one request at a time on each, nothing more.

A general client (aiohttp) takes 145 us of the event loop's time for one exchange with the stub engine,
this 50 us (`scripts/bench.py gateway` measures the whole): at 500 requests/s that is the largest single
part of what the gateway adds. Parsing is httptools', as in uvicorn.

Not for: anything but engines. No redirects, cookies, proxies or compression.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import cast
from urllib.parse import urlsplit

import httptools

from stages.engine.guard import NAME
from stages.gateway.shares import NOBODY, Slots, Whose


class EngineUnreachableError(Exception):
    """No connection, or it was closed before anything of the answer came."""


class EngineRefusedError(EngineUnreachableError):
    """Nobody listens there."""


class EngineBrokeOffError(Exception):
    """The connection was closed, or what came was no HTTP, after the answer had begun."""


class Response:
    """One answer while it comes in. `status`, and what the engine names itself (`engine/guard.py`), are set
    once `started` has returned."""

    def __init__(self, connection: Connection) -> None:
        self.status, self.engine = 0, ""
        self._connection = connection
        self._parts: deque[bytes] = deque()
        self._done = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def started(self) -> None:
        """Wait for the status.

        Raises:
            EngineUnreachableError: none came.
        """
        while not self.status:
            if self._error is not None:
                raise EngineUnreachableError(str(self._error)) from self._error
            await self._wait()

    async def read(self) -> bytes:
        """The whole body."""
        while not self._done:
            await self._wait()
        self._check()
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while True:
            while self._parts:
                yield self._parts.popleft()
            if self._done:
                self._check()
                return
            await self._wait()

    def close(self) -> None:
        """Done with it. An answer that is not complete takes its connection down, which stops the engine."""
        if not self._done:
            self._connection.abort()

    def _check(self) -> None:
        if self._error is not None:
            raise EngineBrokeOffError(str(self._error)) from self._error

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def begin(self, status: int) -> None:
        """The header section is complete."""
        self.status = status
        self._wake()

    def feed(self, part: bytes) -> None:
        """A piece of the body."""
        self._parts.append(part)
        self._wake()

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more will come."""
        if not self._done:
            self._done = True
            self._error = error
            self._wake()


class Connection(asyncio.Protocol):
    """One connection; in `Transport`'s idle list, or busy with one response."""

    def __init__(self, home: Transport) -> None:
        self._home = home
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.used = False

    def request(self, data: bytes) -> Response:
        """Send a request, headers and all."""
        assert self._transport is not None
        self._response = Response(self)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(data)
        return self._response

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's call."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """asyncio's call."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's call."""
        self._transport = None
        self._home.drop(self)
        self._end(exc or ConnectionError("the engine closed the connection"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools' call."""
        if self._response is not None and name.lower() == NAME:
            self._response.engine = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """httptools' call."""
        if self._response is not None:
            self._response.begin(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        """httptools' call."""
        if self._response is not None:
            self._response.feed(body)

    def on_message_complete(self) -> None:
        """httptools' call."""
        keep = self._parser.should_keep_alive()
        self._end(None)
        if keep and self.open:
            self.used = True
            self._home.give_back(self)
        else:
            self.abort()

    def _end(self, error: Exception | None) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.finish(error)


class Transport:
    """Connections to one engine, at most `limit` at a time."""

    def __init__(self, base_url: str, headers: dict[str, str], limit: int) -> None:
        parts = urlsplit(base_url)
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._headers = f" HTTP/1.1\r\nhost: {parts.netloc}\r\n{self._headers}"
        self._idle: list[Connection] = []
        self._slots = Slots(limit)
        self._all: set[Connection] = set()

    @property
    def waiting(self) -> int:
        """Requests that have no connection yet."""
        return self._slots.waiting

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: str = "", whose: Whose = NOBODY
    ) -> Response:
        """Send a request and wait for the status; an idle connection that turns out closed is replaced.

        The caller reads the response or closes it, and then calls `release`, always.

        Raises:
            EngineUnreachableError: there is no answer.
        """
        head = f"{method} {self._prefix}{path}{self._headers}{headers}content-length: {len(body)}\r\n\r\n"
        data = head.encode() + body
        await self._slots.acquire(whose)
        try:
            while True:
                connection = self._take() or await self._connect()
                response = connection.request(data)
                try:
                    await response.started()
                except EngineUnreachableError:
                    if not connection.used:
                        raise
                except BaseException:
                    response.close()
                    raise
                else:
                    return response
        except BaseException:
            self._slots.release(whose)
            raise

    def release(self, whose: Whose = NOBODY) -> None:
        """One response of `send` is done with."""
        self._slots.release(whose)

    def give_back(self, connection: Connection) -> None:
        """The connection can be used again."""
        self._idle.append(connection)

    def drop(self, connection: Connection) -> None:
        """The connection is closed."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._all):
            connection.abort()
        self._idle.clear()

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self), self._host, self._port, ssl=self._tls or None
            )
        except ConnectionRefusedError as error:
            raise EngineRefusedError(str(error)) from error
        except OSError as error:
            raise EngineUnreachableError(str(error)) from error
        self._all.add(connection)
        return connection
