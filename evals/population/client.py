"""A client of the documented HTTP contract (docs/http.md) and nothing else: chat completions and events.

What simulated people's editors use. Retries while the service is away for a moment; whatever is
refused for good is told apart from whatever was never answered.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import aiohttp

from cursorbench.errors import DependencyDownError, UsageError
from cursorbench.harness.completion import (
    Attribution,
    Completion,
    RefusedError,
    first_model,
    may_be_answered_later,
    read,
    refused,
    root_of,
)

PATIENCE_S = 60.0  # how long a service may be away before the client gives up
FIRST_PATIENCE_S = 5.0  # the same for its first answer: it may never have been there


class Client:
    """An open connection pool to one gateway. Use as an async context manager.

    Args:
        base_url: public address, for example http://127.0.0.1:8100, with or without the /v1 of its API.
        key: API key.
        connections: requests at a time, at most.
        patience_s: see PATIENCE_S.
    """

    def __init__(self, base_url: str, key: str, connections: int, patience_s: float = PATIENCE_S) -> None:
        self._base = root_of(base_url)
        self._headers = {"Authorization": f"Bearer {key}"}
        self._connections = connections
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=180.0),
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def model(self) -> str:
        """The name of the first model served. Asked first: raises UsageError for what is no gateway."""
        try:
            found, _ = await self._call("GET", "/v1/models", None, {}, FIRST_PATIENCE_S)
            return first_model(found)
        except (RefusedError, ValueError) as error:
            raise UsageError(
                f"{self._base}/v1/models names no model: {error}", hint="give the address `rtrl serve` prints"
            ) from error

    async def chat(self, body: Mapping[str, Any], attribution: Attribution) -> Completion:
        """One chat completion. Raises RefusedError, and DependencyDownError for what is no completion."""
        started = time.perf_counter()
        found, headers = await self._call("POST", "/v1/chat/completions", body, attribution.headers())
        try:
            return read(found, headers, time.perf_counter() - started)
        except ValueError as error:
            raise DependencyDownError(f"{self._base}: {error}", hint="is it a `rtrl serve`?") from error

    async def events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Hand in events. Raises UsageError when one is rejected: this client sends none that may be."""
        if not events:
            return
        try:
            found, _ = await self._call("POST", "/v1/events", {"events": list(events)}, {})
        except RefusedError as error:
            raise UsageError(
                f"the gateway takes no events: {error}", hint="is --url the address of a `rtrl serve`?"
            ) from error
        if found.get("rejected"):
            raise UsageError(
                f"the gateway rejected an event: {found['rejected'][0]}", hint="gateway and client differ"
            )

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        patience_s: float = math.inf,
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """Send until answered. Raises RefusedError, UsageError (key), DependencyDownError (patience)."""
        assert self._session is not None, "use `async with`"
        deadline = time.monotonic() + min(self._patience_s, patience_s)
        wait = 0.05
        while True:
            try:
                async with self._session.request(
                    method, self._base + path, json=body, headers=headers
                ) as response:
                    if response.status == 200:
                        return await response.json(), response.headers
                    reason = _judge(response.status, await response.text())
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
                raise UsageError(
                    f"{self._base!r} is no address", hint="for example http://127.0.0.1:8100"
                ) from error
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() + wait > deadline:
                raise DependencyDownError(
                    f"{self._base}{path} does not answer: {reason}", hint="is `rtrl serve` running?"
                )
            await asyncio.sleep(wait)
            wait = min(2.0, wait * 2)


def _judge(status: int, text: str) -> str:
    """Why it was not answered. Raises for a status that trying again will not change."""
    found = refused(status, text)
    if status in (401, 403):
        raise UsageError(f"the gateway refuses the key: {found}", hint="keys/default.key of the workspace")
    if not may_be_answered_later(status):
        raise found
    return str(found)
