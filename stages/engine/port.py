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
from stages.engine.guard import NAME, READS
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
        self.named = ""  # by its last answer: see `guard.py`; "" for an engine without that

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

    async def call(self, method: str, *, changes: bool = False, **arguments: Any) -> dict[str, Any]:
        """What the first worker's `method` returns. Raises IntegrityError (12), DependencyDownError (13).

        Args:
            changes: whether it changes the served weights.
        """
        body = {"method": method, "kwargs": arguments, "timeout": self.config.update_timeout_s}
        text = await self.send("/collective_rpc", body, {} if changes else {READS: "1"})
        return dict(json.loads(text)["results"][0])

    async def _post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        text = await self.send(path, body)
        return dict(json.loads(text)) if text else {}

    async def send(
        self, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> str:
        """What a route answers to a POST. Raises IntegrityError (12), DependencyDownError (13)."""
        limit = self.config.update_timeout_s
        try:
            answer = await self._open().post(path, json=body, timeout=limit, headers=headers)
        except httpx.HTTPError as error:
            raise DependencyDownError(
                f"the engine at {self.base_url} does not answer {path}: {str(error) or type(error).__name__}",
                hint="`rtrl serve` starts a dead engine again by itself; its log is in store/logs",
            ) from error
        self._heard(answer)
        if answer.status_code != 200:
            raise refused(path, answer.status_code, answer.text)
        return answer.text

    def _heard(self, answer: httpx.Response) -> None:
        self.named = answer.headers.get(NAME.decode(), "")

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                base_url=self.base_url, headers=self._headers, trust_env=False, verify=trusted(self.base_url)
            )
        return self._client
