"""The gateway's side of the engine's API: one call, one stream, and what can go wrong.

Not for: starting engines or changing their weights (`stages/engine`), HTTP itself (`engine_transport.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import orjson

from stages.engine.guard import NOTE
from stages.gateway.breaker import Breaker
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_answer import is_event
from stages.gateway.engine_transport import (
    EngineBrokeOffError,
    EngineRefusedError,
    EngineUnreachableError,
    Response,
    Transport,
)
from stages.gateway.errors import ApiError, unavailable
from stages.gateway.refusals import refused, to_blame
from stages.gateway.shares import NOBODY, Whose

DONE = b"[DONE]"
T = TypeVar("T")


class EngineLostError(Exception):
    """The engine stopped in the middle of an answer. `late` is what to tell where it took too long."""

    def __init__(self, late: ApiError | None = None) -> None:
        super().__init__("timeout" if late else "lost")
        self.late = late


class _UnknownError(Exception):
    """In the middle of its answer the engine was told what may change its weights, by somebody else."""


class EngineClient:
    """Talks to one engine.

    Args:
        base_url: for example `http://127.0.0.1:8001`, without `/v1`.
        key: bearer token of the engine's port, "" for none.
        model: the name the engine serves its model under.
        breaker: says whether the engine is asked; None for one of its own.
        known: (attribute) whether an engine of this name (`engine/guard.py`) holds what was proven.
    """

    def __init__(
        self, base_url: str, key: str, model: str, config: GatewayConfig, breaker: Breaker | None = None
    ) -> None:
        self.model = model
        self.breaker = breaker or Breaker(config.breaker)
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._headers, self._connections = headers, config.engine_connections
        self._transport = Transport(base_url, headers, config.engine_connections)
        self._timeout = config.engine_timeout_s
        self.known: Callable[[str], bool] = lambda _name: True

    def move(self, base_url: str, key: str) -> None:
        """Ask another engine from now on; requests that are under way go on at the old one."""
        headers = {**self._headers, **({"authorization": f"Bearer {key}"} if key else {})}
        self._transport = Transport(base_url, headers, self._connections)

    @property
    def waiting(self) -> int:
        """Requests that wait because `engine_connections` are at the engine."""
        return self._transport.waiting

    async def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    async def post(
        self,
        path: str,
        body: bytes,
        name: str = "",
        *,
        doubtful: bool = False,
        whose: Whose = NOBODY,
        read: Callable[[bytes], T | None],
        judged: bool = True,
    ) -> T:
        """The engine's answer, as `read` takes it.

        Args:
            name: what the engine is to call the request.
            doubtful: the request may be what the engine answers 500 to: that says nothing of the engine.
            whose: by whom those who wait for a connection take turns.
            read: gives the answer that a body is, None for what is none.
            judged: whether what it answers says that it generates, or fails to; the breaker counts those.

        Raises:
            ApiError: 4xx as the engine said; 503 when it does not answer, or the breaker is open; 504 when
                it is too slow.
        """
        with self.breaker.attempt() as attempt:
            try:
                async with asyncio.timeout(self._timeout), self._sent(path, body, name, whose) as response:
                    content = await response.read()
            except TimeoutError:
                attempt.ok = False
                raise _too_slow(self._timeout) from None
            except (EngineUnreachableError, EngineBrokeOffError):
                attempt.ok = False
                raise _down() from None
            if response.status != 200:
                attempt.ok = _is_well(response.status, doubtful) if judged else None
                raise refused(response.status, content)
            value = read(content)
            attempt.ok = value is not None if judged else None
        if value is None:
            raise unavailable("engine_error", "what the engine answered is no answer")
        return value

    async def stream(
        self, path: str, body: bytes, name: str = "", *, doubtful: bool = False, whose: Whose = NOBODY
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The engine's events, decoded, without the final [DONE]. Close it to stop the engine. As `post`.

        Raises:
            ApiError: as `post`, also for an error event that comes first.
            EngineLostError: the connection broke later, or an error event came later.
        """
        first = True
        with self.breaker.attempt() as attempt:
            try:
                async with asyncio.timeout(self._timeout), self._sent(path, body, name, whose) as response:
                    if response.status != 200:
                        attempt.ok = _is_well(response.status, doubtful)
                        raise refused(response.status, await response.read())
                    async for event in _events(response, self.known):
                        if "error" in event:
                            judged = (
                                first or doubtful
                            )  # vLLM tells of a grammar after the piece with the role
                            attempt.ok = judged and _is_well(_status(event["error"]), doubtful)
                            raise _stream_error(event["error"], first=first)
                        first, attempt.ok = False, True
                        self.breaker.answering(attempt)
                        yield event
            except _UnknownError:  # what comes now may be of anybody's weights
                raise (_unknown() if first else EngineLostError()) from None
            except TimeoutError:
                attempt.ok = False
                late = _too_slow(self._timeout)
                raise (late if first else EngineLostError(late)) from None
            except (EngineUnreachableError, EngineBrokeOffError, orjson.JSONDecodeError):
                attempt.ok = False
                raise (_down() if first else EngineLostError()) from None

    def _sent(self, path: str, body: bytes, name: str, whose: Whose) -> _Sent:
        headers = f"x-request-id: {name}\r\n" if name else ""
        sent = partial(self._transport.send, "POST", path, body, headers, whose)
        return _Sent(self, sent, partial(self._transport.release, whose))  # which is another one after `move`


class _Sent:
    """A block within which the engine answers a request. No generator: each of all goes through here."""

    def __init__(
        self, client: EngineClient, send: Callable[[], Awaitable[Response]], release: Callable[[], None]
    ) -> None:
        self._client, self._send, self._release = client, send, release
        self._response: Response | None = None

    async def __aenter__(self) -> Response:
        try:
            self._response = response = await self._send()
        except EngineRefusedError:
            self._client.breaker.nobody_listens()
            raise
        if not self._client.known(response.engine):
            await self.__aexit__(None, None, None)
            raise _unknown()
        return response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._response is not None:
            self._response.close()
            self._release()


async def _events(response: Response, known: Callable[[str], bool]) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events. Raises EngineBrokeOffError for what is none, and an end without [DONE].

    _UnknownError: the engine says that it was told what may change its weights, and `known` denies it.
    """
    rest = b""
    async for part in response.parts():
        lines = (rest + part).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == DONE:
                    return
                event = orjson.loads(data)
                if not is_event(event):
                    raise EngineBrokeOffError("what the engine streams is no answer")
                yield event
            elif line.startswith(NOTE) and not known(line.removeprefix(NOTE).strip().decode("latin-1")):
                raise _UnknownError
    raise EngineBrokeOffError("the stream ended early")


def _stream_error(error: Any, *, first: bool) -> Exception:
    if not first:
        return EngineLostError()
    return refused(_status(error), orjson.dumps({"error": error}))


def _status(error: Any) -> int:
    """The HTTP status in an error event."""
    status = error.get("code") if isinstance(error, dict) else None
    return status if isinstance(status, int) else 500


def _is_well(status: int, doubtful: bool) -> bool | None:
    """What a status that is not 200 says of the engine; None for nothing."""
    return None if doubtful and status == 500 else not to_blame(status)


def _unknown() -> ApiError:
    return unavailable("engine_unknown", "the engine is another one than was verified")


def _down() -> ApiError:
    return unavailable("engine_down", "the engine does not answer")


def _too_slow(timeout: float) -> ApiError:
    return ApiError(504, "timeout", "engine_timeout", f"the engine took longer than {timeout:g} s")
