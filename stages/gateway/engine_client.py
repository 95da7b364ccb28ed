"""The gateway's side of the engine's API: one call, one stream, and what can go wrong.

Not for: starting engines or changing their weights (`stages/engine`), HTTP itself (`engine_transport.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from stages.gateway.config import GatewayConfig
from stages.gateway.engine_transport import (
    EngineBrokeOffError,
    EngineUnreachableError,
    Response,
    Transport,
)
from stages.gateway.errors import ApiError, invalid, unavailable
from stages.gateway.request import FIELDS

DONE = b"[DONE]"
_FIELD = re.compile(r"(?:body\.)?(\w+)")


class EngineLostError(Exception):
    """The engine stopped in the middle of an answer. `timeout` says that it took too long."""

    def __init__(self, *, timeout: bool) -> None:
        super().__init__("timeout" if timeout else "lost")
        self.timeout = timeout


class EngineClient:
    """Talks to one engine.

    Args:
        base_url: for example `http://127.0.0.1:8001`, without `/v1`.
        key: bearer token of the engine's port, "" for none.
        model: the name the engine serves its model under.
    """

    def __init__(self, base_url: str, key: str, model: str, config: GatewayConfig) -> None:
        self.model = model
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._transport = Transport(base_url, headers, config.engine_connections)
        self._timeout = config.engine_timeout_s

    async def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    async def post(self, path: str, body: bytes) -> dict[str, Any]:
        """The engine's JSON answer.

        Raises:
            ApiError: 4xx as the engine said; 503 when it does not answer; 504 when it is too slow.
        """
        try:
            async with asyncio.timeout(self._timeout), self._sent("POST", path, body) as response:
                content = await response.read()
        except TimeoutError:
            raise _too_slow(self._timeout) from None
        except (EngineUnreachableError, EngineBrokeOffError):
            raise _down() from None
        if response.status != 200:
            raise refused(response.status, content)
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            raise _down() from None
        if not isinstance(value, dict):
            raise _down()
        return value

    async def stream(self, path: str, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """The engine's events, decoded, without the final [DONE]. Close it to stop the engine.

        Raises:
            ApiError: as `post`, also for an error event that comes first.
            EngineLostError: the connection broke later, or an error event came later.
        """
        first = True
        try:
            async with asyncio.timeout(self._timeout), self._sent("POST", path, body) as response:
                if response.status != 200:
                    raise refused(response.status, await response.read())
                async for event in _events(response):
                    if "error" in event:
                        raise _stream_error(event["error"], first=first)
                    first = False
                    yield event
        except TimeoutError:
            raise (_too_slow(self._timeout) if first else EngineLostError(timeout=True)) from None
        except (EngineUnreachableError, EngineBrokeOffError, orjson.JSONDecodeError):
            raise (_down() if first else EngineLostError(timeout=False)) from None

    @asynccontextmanager
    async def _sent(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[Response]:
        response = await self._transport.send(method, path, body)
        try:
            yield response
        finally:
            response.close()
            self._transport.release()


async def _events(response: Response) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events. Raises EngineBrokeOffError when the stream ends without [DONE]."""
    rest = b""
    async for part in response.parts():
        lines = (rest + part).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == DONE:
                    return
                yield orjson.loads(data)
    raise EngineBrokeOffError("the stream ended early")


def _stream_error(error: Any, *, first: bool) -> Exception:
    if not first:
        return EngineLostError(timeout=False)
    status = error.get("code") if isinstance(error, dict) else None
    return refused(status if isinstance(status, int) else 500, orjson.dumps({"error": error}))


def refused(status: int, content: bytes) -> ApiError:
    """The client's error for an engine's answer that is not 200.

    The engine's own words are never passed on, since they repeat values and names of the request.
    """
    if status in (401, 403, 404, 405) or status >= 500:
        return unavailable("engine_error", f"the engine answered {status}")
    try:
        error = orjson.loads(content)["error"]
        said, param = str(error["message"]), error.get("param")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        said, param = "", None
    if is_overflow(said):
        result = invalid(
            "prompt and max_tokens do not fit the model's context", code="context_length_exceeded"
        )
    else:
        field = _known_field(param) or _known_field(said)
        result = invalid(f"the engine refused {field or 'the request'}", param=field, code="engine_refused")
    result.status = status
    return result


def is_overflow(message: str) -> bool:
    """Whether an engine's refusal means that prompt (and answer) do not fit its context."""
    return any(
        words in message
        for words in (
            "maximum context length",
            "max_model_len",
            "max_tokens must be at least 1",  # what a prompt leaves that fills it: the gateway sends no less
        )
    )


def _known_field(words: Any) -> str | None:
    """The field of a request that `words` begin with (`body.stop[0]`, `top_k must be...`), if it is one."""
    found = _FIELD.match(words) if isinstance(words, str) else None
    return found[1] if found and found[1] in FIELDS else None


def _down() -> ApiError:
    return unavailable("engine_down", "the engine does not answer")


def _too_slow(timeout: float) -> ApiError:
    return ApiError(504, "timeout", "engine_timeout", f"the engine took longer than {timeout:g} s")
