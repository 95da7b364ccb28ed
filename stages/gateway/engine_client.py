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

from stages.gateway.breaker import Breaker
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
        breaker: says whether the engine is asked; None for one of its own.
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

    async def post(self, path: str, body: bytes, name: str = "") -> dict[str, Any]:
        """The engine's JSON answer. `name`: what the engine is to call the request.

        Raises:
            ApiError: 4xx as the engine said; 503 when it does not answer, or the breaker is open; 504 when
                it is too slow.
        """
        with self.breaker.attempt() as attempt:
            try:
                async with asyncio.timeout(self._timeout), self._sent(path, body, name) as response:
                    content = await response.read()
            except TimeoutError:
                attempt.ok = False
                raise _too_slow(self._timeout) from None
            except (EngineUnreachableError, EngineBrokeOffError):
                attempt.ok = False
                raise _down() from None
            if response.status != 200:
                attempt.ok = not _to_blame(response.status)
                raise refused(response.status, content)
            value = _object(content)
            attempt.ok = value is not None
        if value is None:
            raise _down()
        return value

    async def stream(self, path: str, body: bytes, name: str = "") -> AsyncGenerator[dict[str, Any], None]:
        """The engine's events, decoded, without the final [DONE]. Close it to stop the engine. As `post`.

        Raises:
            ApiError: as `post`, also for an error event that comes first.
            EngineLostError: the connection broke later, or an error event came later.
        """
        first = True
        with self.breaker.attempt() as attempt:
            try:
                async with asyncio.timeout(self._timeout), self._sent(path, body, name) as response:
                    if response.status != 200:
                        attempt.ok = not _to_blame(response.status)
                        raise refused(response.status, await response.read())
                    async for event in _events(response):
                        if "error" in event:
                            attempt.ok = first and not _to_blame(_status(event["error"]))
                            raise _stream_error(event["error"], first=first)
                        first, attempt.ok = False, True
                        yield event
            except TimeoutError:
                attempt.ok = False
                raise (_too_slow(self._timeout) if first else EngineLostError(timeout=True)) from None
            except (EngineUnreachableError, EngineBrokeOffError, orjson.JSONDecodeError):
                attempt.ok = False
                raise (_down() if first else EngineLostError(timeout=False)) from None

    @asynccontextmanager
    async def _sent(self, path: str, body: bytes, name: str) -> AsyncIterator[Response]:
        transport = self._transport  # another one after `move`
        response = await transport.send("POST", path, body, f"x-request-id: {name}\r\n" if name else "")
        try:
            yield response
        finally:
            response.close()
            transport.release()


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
    return refused(_status(error), orjson.dumps({"error": error}))


def _status(error: Any) -> int:
    """The HTTP status in an error event."""
    status = error.get("code") if isinstance(error, dict) else None
    return status if isinstance(status, int) else 500


def _to_blame(status: int) -> bool:
    """Whether a status that is not 200 says that the engine fails, and not that the request is wrong."""
    return status in (401, 403, 404, 405) or status >= 500


def _object(content: bytes) -> dict[str, Any] | None:
    """The JSON object in `content`; None when there is none."""
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


# parts of vLLM's refusals that name no field, and what they mean in words of ours: theirs repeat values
_REASONS: tuple[tuple[str, str, str | None], ...] = (
    ("is not a multimodal model", "the model takes text only, and messages hold something else", "messages"),
    ("may be provided in one prompt", "messages hold more images or sounds than the model takes", "messages"),
    ("out of vocabulary", "the prompt holds an id that is not in the model's vocabulary", "prompt"),
    ("grammar", "the schema or grammar of the request cannot be applied", None),
    ("Grammar", "the schema or grammar of the request cannot be applied", None),
    ("JSON schema", "the schema or grammar of the request cannot be applied", None),
)
_NO_REASON = ("the engine refused the request", None)


def refused(status: int, content: bytes) -> ApiError:
    """The client's error for an engine's answer that is not 200.

    The engine's own words are never passed on, since they repeat values and names of the request.
    """
    if _to_blame(status):
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
    elif field := _known_field(param) or _known_field(said):
        result = invalid(f"the engine refused {field}", param=field, code="engine_refused")
    else:
        told, field = next(((why, of) for words, why, of in _REASONS if words in said), _NO_REASON)
        result = invalid(told, param=field, code="engine_refused")
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
