"""The loopback port of one vLLM server: its connections, and what its errors are here.

Not here: what is asked of it (`update.py`).
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import httpx

from stages.engine.config import EngineConfig
from stages.engine.diagnose import refused
from stages.errors import DependencyDownError
from stages.trust import trusted


class EnginePort:
    """HTTP to one engine. Use as a context manager, or `close` it.

    Args:
        base_url, key: where it listens, and the bearer token its port wants.
    """

    def __init__(self, base_url: str, key: str, config: EngineConfig) -> None:
        self.base_url = base_url
        self.config = config
        self._headers = {"Authorization": f"Bearer {key}"}
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections. The object can be used again."""
        client, self._client = self._client, None  # at once: who asks while it closes opens another
        if client is not None:
            await client.aclose()

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """What the first worker's `method` returns. Raises IntegrityError (12), DependencyDownError (13)."""
        body = {"method": method, "kwargs": arguments, "timeout": self.config.update_timeout_s}
        results = (await self._post("/collective_rpc", body))["results"]
        return dict(results[0])

    async def _post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        text = await self.send(path, body)
        return dict(json.loads(text)) if text else {}

    async def send(self, path: str, body: dict[str, Any] | None = None) -> str:
        """What a route answers to a POST. Raises IntegrityError (12), DependencyDownError (13)."""
        try:
            answer = await self._open().post(path, json=body, timeout=self.config.update_timeout_s)
        except httpx.HTTPError as error:
            raise DependencyDownError(
                f"the engine at {self.base_url} does not answer {path}: {error or type(error).__name__}",
                hint="`rtrl serve` starts a dead engine again by itself; its log is in store/logs",
            ) from error
        if answer.status_code != 200:
            raise refused(path, answer.status_code, answer.text)
        return answer.text

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                base_url=self.base_url, headers=self._headers, trust_env=False, verify=trusted(self.base_url)
            )
        return self._client
