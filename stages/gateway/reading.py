"""Requests taken apart without keeping others waiting.

What a body costs is bounded before anything is made of it (`http.py`). A set of tools that is new is compiled
in a thread, which may take seconds: one set at a time, since each of them would slow down the answers of all,
and by turns of the keys that wait for theirs.
Not for: what a request is (`request.py`).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from functools import partial
from typing import Any

from stages.gateway.config import DefaultSampling
from stages.gateway.offered_tools import NewToolsError, known_tools
from stages.gateway.request import Api, Request, parse_request
from stages.gateway.shares import Slots, Whose


class Reader:
    """Of one gateway.

    Args:
        drafts: whether engines draft tokens.
    """

    def __init__(self, model: str, defaults: DefaultSampling, *, drafts: bool) -> None:
        self._parse = partial(parse_request, model=model, defaults=defaults, drafts=drafts)
        self._salts = Salts()
        self._compiling = Slots(1)

    async def read(self, api: Api, body: dict[str, Any], population: str, whose: Whose) -> Request:
        """The request in `body` of a key of that population. Raises ApiError 400 or 404."""
        parse = partial(self._parse, api, body, cache_salt=self._salts.of(population))
        try:
            return parse(tools_of=known_tools)
        except NewToolsError:
            await self._compiling.acquire(whose)
            try:
                return await asyncio.to_thread(parse)
            finally:
                self._compiling.release(whose)


class Salts:
    """Of the engine's prefix cache, a secret one for each population: how soon an answer comes tells nobody
    what another population has asked before."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, population: str) -> str:
        """That of a population; "" without one: what such keys ask they share."""
        return hmac.digest(self._secret, population.encode(), "sha256").hex() if population else ""
