"""A gateway with real listeners and spool before the stub engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from stages.collect import plan, window
from stages.errors import IntegrityError
from stages.gateway.admin import Admin
from stages.gateway.app import Gateway, create_app
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.health import Health
from stages.gateway.keys import ApiKeys
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.gateway.swapper import Swapper
from stages.gateway.tls import Certificate
from stages.gateway.writers import open_inbox, open_spool
from stages.inbox.writer import InboxWriter
from stages.populations import Whose
from stages.spool import Spool, SpoolWriter, open_event
from stages.vault import Vault
from stages.verdicts import Verdicts

ADMIN_KEY = "admin-secret"


class Rig:
    """Everything a test wants to look at."""

    root: Path
    stub: StubEngine
    engine_listener: Listener
    public: Listener
    served: ServedState
    gateway: Gateway
    swapper: Swapper
    spool: SpoolWriter
    inbox: InboxWriter
    vault: Vault
    http: httpx.AsyncClient
    admin: httpx.AsyncClient
    key: str
    url: str
    loaded: list[Path]
    load_s: float = 0.0
    may_load: asyncio.Event
    bad: set[Path]  # folders whose weights do not load

    async def chat(self, content: str, **body: Any) -> httpx.Response:
        headers = body.pop("headers", {})
        messages = body.pop("messages", [{"role": "user", "content": content}])
        return await self.http.post(
            "/v1/chat/completions", json={"model": "rtrl", "messages": messages, **body}, headers=headers
        )

    @property
    def waits_for_a_key(self) -> bool:
        """Whether somebody waits for a user's key to be made."""
        return self.gateway._recorder._making is not None

    @property
    def waits_for_a_swap(self) -> bool:
        """Whether a swap waits for the one before it."""
        return bool(self.swapper._busy._waiters)

    def sampled(self, tokens: int) -> bool:
        """Whether the engine has so many tokens of an answer that is not complete."""
        return any(count >= tokens for count in self.stub.steps.counts()["sampled"].values())

    def hold(self, tokens: int) -> str:
        """Words to the stub: so many tokens, and no more before `let_go`."""
        (self.root / "hold").touch()
        return f"stub:after={tokens} stub:hold={self.root / 'hold'}"

    def let_go(self) -> None:
        """Answers that were held go on."""
        (self.root / "hold").unlink()

    def read(self) -> Spool:
        self.spool.flush()
        return Spool.open(self.root / "spool")

    async def event(self, eid: str, gid: str, type: str = "user_message", **fields: Any) -> dict[str, Any]:
        data = fields.pop("data", {"text": "still wrong"} if type == "user_message" else {})
        body = {"id": eid, "generation_id": gid, "type": type, "data": data, **fields}
        answer = await self.http.post("/v1/events", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def events(self) -> list[Any]:
        spool = self.read()
        try:
            return [open_event(e, user, s, self.vault) for _, e, user, s in spool.events(0, 1 << 60)]
        finally:
            spool.close()

    def payload(self, gid: str) -> Any:
        spool = self.read()
        try:
            return spool.chains(self.vault).open(*spool.record(gid))
        finally:
            spool.close()

    def generations(self) -> list[Any]:
        spool = self.read()
        try:
            return [g for _, g, _ in spool.generations(0, 1 << 60)]
        finally:
            spool.close()

    async def update(self, path: Path) -> None:
        if path in self.bad:
            raise IntegrityError("these weights do not load")
        await asyncio.sleep(self.load_s)
        await self.may_load.wait()
        self.loaded.append(path)


async def until(true: Callable[[], bool], timeout: float = 20.0) -> None:
    """Wait for something that is about to happen."""
    async with asyncio.timeout(timeout):
        while not true():
            await asyncio.sleep(0.005)


def url_of(listener: Listener) -> str:
    return "http://{}:{}".format(*listener.address)


@asynccontextmanager
async def running(root: Path, **settings: Any) -> AsyncIterator[Rig]:
    rig = Rig()
    verdicts, context = [Verdicts(settings.pop("metrics", None))], settings.pop("context", None)
    config = GatewayConfig(**({"fsync_ms": 1.0, "shutdown_timeout_s": 1.0} | settings))
    rig.root, rig.loaded, rig.bad, rig.may_load = root, [], set(), asyncio.Event()
    rig.may_load.set()
    rig.stub = StubEngine()
    at_once = config.model_copy(update={"shutdown_timeout_s": 0.0})
    rig.engine_listener = Listener(rig.stub, [bind_tcp("127.0.0.1", 0)], at_once)
    await rig.engine_listener.start()
    rig.vault = Vault.create(root / "keys")
    rig.key = ApiKeys.create(root / "keys", "default")
    rig.spool = open_spool(root / "spool", rig.vault, config)
    rig.inbox = open_inbox(root / "received", rig.vault, config)
    health = Health.of(config.breaker, "live")
    checkpoint = Checkpoint("sha256:aaa", root / "a", "d1")
    rig.served = ServedState("auto", "rtrl", checkpoint, engine="ready", health=health)
    engine = EngineClient(url_of(rig.engine_listener), "", "rtrl", config, health.breaker)
    keys = ApiKeys.open(root / "keys")
    made = config, rig.spool, rig.inbox, rig.vault, keys, engine, rig.served, verdicts
    rig.gateway = create_app(*made, context=context)
    rig.swapper = Swapper(rig.served, rig.update, config.drain_timeout_s)
    admin = Admin(ADMIN_KEY, rig.gateway.arms, rig.swapper, rig.spool, rig.gateway.metrics)
    certificate = Certificate.of(config, root)
    rig.public = public = Listener(rig.gateway, [bind_tcp("127.0.0.1", 0)], config, certificate)
    private = Listener(admin, [bind_tcp("127.0.0.1", 0)], config)
    await asyncio.gather(public.start(), private.start())
    rig.url = url_of(public).replace("http", "https" if certificate else "http")
    headers = {"authorization": f"Bearer {rig.key}"}
    rig.http = httpx.AsyncClient(base_url=rig.url, headers=headers, timeout=20, verify=not certificate)
    rig.admin = httpx.AsyncClient(
        base_url=url_of(private),
        headers={"authorization": f"Bearer {ADMIN_KEY}"},
        timeout=20,
    )
    try:
        yield rig
    finally:
        await rig.http.aclose()
        await rig.admin.aclose()
        await asyncio.gather(public.stop(), private.stop(), rig.engine_listener.stop())
        rig.spool.close()
        rig.inbox.close()
        rig.vault.close()


def follow_ups(root: Path) -> dict[str, str]:
    """What `collect` takes from the rig's spool for the user's next message, "" for none: by the ids of each
    episode's first generation and of the one whose request that is."""
    spool = Spool.open(root / "spool")
    try:
        found, _ = window.read(spool, Whose(("auto",)), 0, 1 << 60)
    finally:
        spool.close()
    rules = plan.Rules(frozenset({"live"}), 1, 0, {}, frozenset())
    decided = plan.plan(found, rules, 0, np.zeros(len(found.g_seq), dtype=np.bool_))
    ids = found.generations["id"].to_pylist()
    rows = zip(decided.first_row, decided.follow_up, strict=True)
    return {ids[first]: ids[row] if row >= 0 else "" for first, row in rows}
