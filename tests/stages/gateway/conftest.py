"""A gateway with real listeners and spool before the stub engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.errors import IntegrityError
from stages.gateway.admin import Admin
from stages.gateway.app import Gateway, create_app
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.keys import ApiKeys
from stages.gateway.served import Checkpoint, ServedState, Swapper
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.spool import Spool, SpoolWriter
from stages.vault import Vault

ADMIN_KEY = "admin-secret"


class Rig:
    """Everything a test wants to look at."""

    root: Path
    stub: StubEngine
    engine_listener: Listener
    served: ServedState
    gateway: Gateway
    spool: SpoolWriter
    vault: Vault
    http: httpx.AsyncClient
    admin: httpx.AsyncClient
    key: str
    url: str
    loaded: list[Path]
    bad: set[Path]  # folders whose weights do not load

    async def chat(self, content: str, **body: Any) -> httpx.Response:
        headers = body.pop("headers", {})
        messages = body.pop("messages", [{"role": "user", "content": content}])
        return await self.http.post(
            "/v1/chat/completions", json={"model": "rtrl", "messages": messages, **body}, headers=headers
        )

    def read(self) -> Spool:
        self.spool.flush()
        return Spool.open(self.root / "spool")

    def generations(self) -> list[Any]:
        spool = self.read()
        try:
            return [g for _, g, _ in spool.generations(0, 1 << 60)]
        finally:
            spool.close()

    async def update(self, path: Path) -> None:
        if path in self.bad:
            raise IntegrityError("these weights do not load")
        self.loaded.append(path)


@asynccontextmanager
async def running(root: Path, **settings: Any) -> AsyncIterator[Rig]:
    rig = Rig()
    config = GatewayConfig(**({"fsync_ms": 1.0, "shutdown_timeout_s": 1.0} | settings))
    rig.root, rig.loaded, rig.bad = root, [], set()
    rig.stub = StubEngine()
    rig.engine_listener = Listener(rig.stub, [bind_tcp("127.0.0.1", 0)], config)
    await rig.engine_listener.start()
    rig.vault = Vault.create(root / "keys")
    rig.key = ApiKeys.create(root / "keys", "default")
    rig.spool = SpoolWriter(
        root / "spool",
        rig.vault,
        fsync_ms=config.fsync_ms,
        max_pending_events=config.max_pending_events,
    )
    rig.served = ServedState("auto", "rtrl", Checkpoint("sha256:aaa", root / "a", "d1"), engine="ready")
    engine = EngineClient("http://%s:%d" % rig.engine_listener.address, "", "rtrl", config)
    rig.gateway = create_app(config, rig.spool, rig.vault, ApiKeys.open(root / "keys"), engine, rig.served)
    swapper = Swapper(rig.served, rig.update, config.drain_timeout_s)
    admin = Admin(ADMIN_KEY, rig.served, swapper, rig.spool, rig.gateway.metrics)
    public = Listener(rig.gateway, [bind_tcp("127.0.0.1", 0)], config)
    private = Listener(admin, [bind_tcp("127.0.0.1", 0)], config)
    await asyncio.gather(public.start(), private.start())
    rig.url = "http://%s:%d" % public.address
    rig.http = httpx.AsyncClient(base_url=rig.url, headers={"authorization": f"Bearer {rig.key}"}, timeout=20)
    rig.admin = httpx.AsyncClient(
        base_url="http://%s:%d" % private.address, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=20
    )
    try:
        yield rig
    finally:
        await rig.http.aclose()
        await rig.admin.aclose()
        await asyncio.gather(public.stop(), private.stop(), rig.engine_listener.stop())
        rig.spool.close()
        rig.vault.close()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as found:
        yield found
