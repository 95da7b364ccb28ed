"""The gateway's side of the engine's HTTP: one call, one stream, and what can go wrong.

Not for: starting engines or changing their weights (`stages/engine`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from stages.gateway.config import GatewayConfig
from stages.gateway.errors import ApiError, invalid, unavailable

DONE = b"[DONE]"


class EngineLostError(Exception):
    """The connection broke after the engine had begun to answer."""


class EngineClient:
    """Talks to one engine.

    Args:
        base_url: for example `http://127.0.0.1:8001`, without `/v1`.
        key: bearer token of the engine's port, "" for none.
        model: the name the engine serves its model under.
    """

    def __init__(self, base_url: str, key: str, model: str, config: GatewayConfig) -> None:
        self.model = model
        self._base = base_url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._timeout = config.engine_timeout_s
        self._connections = config.engine_connections
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, path: str, body: bytes) -> dict[str, Any]:
        """The engine's JSON answer.

        Raises:
            ApiError: 4xx as the engine said; 503 when it does not answer; 504 when it is too slow.
        """
        answer = await self._post(path, body)
        try:
            async with answer:
                content = await answer.read()
        except TimeoutError:
            raise _too_slow(self._timeout) from None
        except aiohttp.ClientError:
            raise _down() from None
        if answer.status != 200:
            raise refused(answer.status, content)
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            raise _down() from None
        if not isinstance(value, dict):
            raise _down()
        return value

    @asynccontextmanager
    async def stream(self, path: str, body: bytes) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The engine's events, decoded, without the final [DONE].

        Raises:
            ApiError: as `post`, also for an error event that comes first.
            EngineLostError: (while iterating) the connection broke, or an error event came later.
        """
        response = await self._post(path, body)
        try:
            if response.status != 200:
                raise refused(response.status, await response.read())
            yield _events(response, self._timeout)
        finally:
            response.close()

    async def healthy(self) -> bool:
        """Whether the engine says that it is up."""
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with self._open().get(
                self._base + "/health", headers=self._headers, timeout=timeout
            ) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _post(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        """The answer's beginning. Asked again once when an idle connection turns out to be closed."""
        try:
            try:
                return await self._open().post(self._base + path, data=body, headers=self._headers)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                return await self._open().post(self._base + path, data=body, headers=self._headers)
        except TimeoutError:
            raise _too_slow(self._timeout) from None
        except aiohttp.ClientError:
            raise _down() from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=1 << 18,
            )
        return self._session


async def _events(response: aiohttp.ClientResponse, timeout: float) -> AsyncIterator[dict[str, Any]]:
    first = True
    rest = b""
    try:
        async for part in response.content.iter_any():
            lines = (rest + part).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == DONE:
                    return
                event = orjson.loads(data)
                if "error" in event:
                    raise _stream_error(event["error"], first=first)
                first = False
                yield event
    except TimeoutError:
        if first:
            raise _too_slow(timeout) from None
        raise EngineLostError("timeout") from None
    except (aiohttp.ClientError, orjson.JSONDecodeError) as error:
        if first:
            raise _down() from None
        raise EngineLostError(type(error).__name__) from None
    if first:
        raise _down()
    raise EngineLostError("the stream ended early")


def _stream_error(error: Any, *, first: bool) -> Exception:
    if not first:
        return EngineLostError("the engine reported an error")
    status = error.get("code") if isinstance(error, dict) else None
    return refused(status if isinstance(status, int) else 500, orjson.dumps({"error": error}))


def refused(status: int, content: bytes) -> ApiError:
    """The client's error for an engine's answer that is not 200."""
    if status in (401, 403, 404, 405) or status >= 500:
        return unavailable("engine_error", f"the engine answered {status}")
    try:
        error = orjson.loads(content)["error"]
        message, param = str(error["message"]), error.get("param")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        message, param = "the engine refused the request", None
    code = "context_length_exceeded" if is_overflow(message) else "engine_refused"
    result = invalid(message, param=param if isinstance(param, str) else None, code=code)
    result.status = status
    return result


def is_overflow(message: str) -> bool:
    """Whether an engine's refusal means that prompt (and answer) do not fit its context."""
    return "maximum context length" in message or "max_model_len" in message


def _down() -> ApiError:
    return unavailable("engine_down", "the engine does not answer")


def _too_slow(timeout: float) -> ApiError:
    return ApiError(504, "timeout", "engine_timeout", f"the engine took longer than {timeout:g} s")
