"""How many tokens a conversation's prompt has, by the engine's template. Nothing is generated or recorded."""

from __future__ import annotations

from typing import Any

import orjson

from stages.gateway.engine_client import EngineClient
from stages.gateway.request import Request
from stages.gateway.shares import Whose

_RENDERED = ("messages", "tools", "chat_template_kwargs")


async def count_tokens(engine: EngineClient, request: Request, whose: Whose) -> int:
    """Tokens of the prompt of a chat request. Raises ApiError as `EngineClient.post`."""
    upstream = orjson.loads(request.upstream)
    asked = {"model": engine.model} | {name: upstream[name] for name in _RENDERED if name in upstream}
    told = await engine.post(
        "/tokenize", orjson.dumps(asked), doubtful=request.doubtful, whose=whose, is_answer=is_count
    )
    return int(told["count"])


def is_count(value: Any) -> bool:
    """Whether that is what an engine answers."""
    return isinstance(value, dict) and type(value.get("count")) is int
