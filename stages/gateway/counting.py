"""How many tokens a conversation's prompt has, by the engine's template. Nothing is generated or recorded.

An engine counts as long as there is text, and makes nobody's prompt meanwhile, so that texts that are far too
long for it never come there. Of what it generates for, it looks at the length by itself.
"""

from __future__ import annotations

from typing import Any

import orjson

from stages.gateway.engine_client import EngineClient
from stages.gateway.errors import invalid
from stages.gateway.refusals import OVERFLOW_CODE
from stages.gateway.request import Request
from stages.gateway.shares import Whose

_RENDERED = ("messages", "tools", "chat_template_kwargs")
_BYTES = 16  # of text for a token, on average: no prompt that fits has as many, but of blanks or rules


async def count_tokens(engine: EngineClient, request: Request, whose: Whose, context: int | None) -> int:
    """Tokens of the prompt of a chat request.

    Args:
        context: how many the engine takes, None where that is not known.

    Raises:
        ApiError: 400 for a prompt that is much longer; as `EngineClient.post`.
    """
    upstream = orjson.loads(request.upstream)
    asked = {"model": engine.model} | {name: upstream[name] for name in _RENDERED if name in upstream}
    body = orjson.dumps(asked)
    if context is not None and len(body) - _images(request) > context * _BYTES:
        message = f"This model's maximum context length is {context} tokens: the prompt is much longer"
        raise invalid(message, code=OVERFLOW_CODE)
    return await engine.post(
        "/tokenize", body, doubtful=request.doubtful, whose=whose, read=read_count, judged=False
    )


def read_count(content: bytes) -> int | None:
    """The count that an engine's answer is; None for what is none."""
    try:
        value: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    count = value.get("count") if isinstance(value, dict) else None
    return count if type(count) is int else None


def _images(request: Request) -> int:
    """Characters of what is no text. A few tokens stand for each image, however long it is."""
    said = (message.get("content") for message in request.messages)
    parts = (part for one in said if isinstance(one, list) for part in one if isinstance(part, dict))
    shown = (part["image_url"] for part in parts if isinstance(part.get("image_url"), dict))
    return sum(len(image["url"]) for image in shown if isinstance(image.get("url"), str))
