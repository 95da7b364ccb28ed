"""An engine that somebody else runs: exchanged behind its address, or given other weights, unseen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.engine.config import EngineConfig
from stages.engine.guard import KEY_VARIABLE, KeyGuard
from stages.errors import IntegrityError
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient, EngineLostError
from stages.gateway.errors import ApiError
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.server import Listener, bind_tcp
from stages.gateway.stub_engine import StubEngine
from stages.serving.outside import OTHER, TAKEN, UNNAMED, Outside
from stages.target.config import TargetConfig

BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "logprobs": True}).encode()


def folder(root: Path, name: str) -> Path:
    path = root / name
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(name.encode())
    document = {
        "schema": "rtrl-fingerprint/1",
        "probes": [[1, 2, 3]],
        "logprobs": {"parent": None, "child": [[-1.0, -3.0]]},
        "tensors": {"w": {"sha256": name, "numel": 4}},
    }
    (path / "served_fingerprint.json").write_text(json.dumps(document))
    return path


class World:
    """Two engines, and an address at which one of them answers: the first of `order`, then the next."""

    outside: Outside
    client: EngineClient
    said: list[str]
    order: list[int]
    live: Path
    engines: list[StubEngine]

    async def ask(self) -> float:
        """One answer; the logprob of its first token."""
        answer = await self.client.post("/v1/chat/completions", BODY, read=json.loads)
        return float(answer["choices"][0]["logprobs"]["content"][0]["logprob"])


@asynccontextmanager
async def world(root: Path, guard: bool = True, helper: str = "") -> AsyncIterator[World]:
    made, config = World(), GatewayConfig()
    root.mkdir(exist_ok=True)
    made.live, other = folder(root, "live"), folder(root, "other")
    made.engines = apps = [StubEngine(folder=path) for path in (made.live, other)]
    listeners = [
        Listener(KeyGuard(app) if guard else app, [bind_tcp("127.0.0.1", 0)], config) for app in apps
    ]
    await asyncio.gather(*(each.start() for each in listeners))
    ports = [each.address[1] for each in listeners]
    made.order = [0]

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = made.order[0] if len(made.order) == 1 else made.order.pop(0)
        behind = await asyncio.open_connection("127.0.0.1", ports[number])
        await asyncio.gather(pipe(reader, behind[1]), pipe(behind[0], writer))

    door = await asyncio.start_server(through, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{door.sockets[0].getsockname()[1]}"
    token = root / "token"
    token.write_text("secret")
    served = ServedState("auto", "rtrl", Checkpoint("sha256:live", made.live))
    made.said = []
    engine = EngineConfig(program="stub", health_every_s=0.05)
    target = TargetConfig(url=url, key_file=str(token), helper=helper)
    made.outside = Outside("far", target, engine, served, made.said.append)
    made.client = EngineClient(url, "secret", "rtrl", config, served.health.breaker)
    made.client.known = made.outside.known
    try:
        yield made
    finally:
        await made.client.close()
        await made.outside.stop()
        door.close()
        await asyncio.gather(*(each.stop() for each in listeners))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")


async def exchange(made: World, number: int) -> None:
    """From now on the other one is behind the address; connections of before are gone."""
    made.order = [number]
    made.client._transport.close()
    await made.outside.control.close()


async def load(made: World, path: Path) -> None:
    """Somebody else loads weights."""
    body = {"method": "rtrl_load", "kwargs": {"path": str(path)}}
    headers = {"authorization": "Bearer secret"}
    async with httpx.AsyncClient(base_url=made.outside.base_url, headers=headers) as somebody:
        assert (await somebody.post("/collective_rpc", json=body)).status_code == 200


async def test_one_that_was_exchanged_gives_no_answer_before_it_is_verified(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        served = made.outside.served
        await made.outside.start()
        assert served.engine == "ready"
        voice = await made.ask()
        await exchange(made, 1)
        with pytest.raises(ApiError) as caught:
            await made.ask()
        assert (caught.value.code, served.engine) == ("engine_unknown", "unknown")
        assert await asyncio.wait_for(made.outside.trouble(), 60) == OTHER
        await made.outside.start()  # loads what it is to hold
        assert served.engine == "ready"
        assert await made.ask() == voice
        assert made.said == []


async def test_one_that_was_exchanged_is_noticed_without_requests(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.outside.start()
        await exchange(made, 1)
        assert await asyncio.wait_for(made.outside.trouble(), 60) == OTHER
        assert made.outside.served.engine == "unknown"


async def test_weights_that_somebody_else_loaded_answer_nobody(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.outside.start()
        voice = await made.ask()
        await load(made, tmp_path / "other")
        with pytest.raises(ApiError, match="engine_unknown"):
            await made.ask()
        assert await asyncio.wait_for(made.outside.trouble(), 60) == TAKEN
        await made.outside.start()
        assert await made.ask() == voice
        await made.outside.update(made.live)  # its own updates are known
        assert (await made.ask(), made.outside.served.engine) == (voice, "ready")


@pytest.mark.parametrize("whose", ["somebody", "its own"])
async def test_an_answer_under_way_ends_where_somebody_else_loads_weights(tmp_path: Path, whose: str) -> None:
    """Another gateway may let what its engine works on go on under its weights: not as answers of ours."""
    async with world(tmp_path) as made:
        await made.outside.start()
        hold = tmp_path / "hold"
        hold.touch()
        message = [{"role": "user", "content": f"stub:tokens=3 stub:hold={hold}"}]
        asked = json.dumps({"messages": message, "logprobs": True, "stream": True}).encode()
        seen = 0
        with pytest.raises(EngineLostError) if whose == "somebody" else nullcontext():
            async for _ in made.client.stream("/v1/chat/completions", asked):
                seen += 1
                if seen == 3:
                    if whose == "somebody":
                        await load(made, tmp_path / "other")
                    else:
                        await made.outside.update(made.live, keep=lambda: None)
                    hold.unlink()  # the last token is sampled now
        assert (seen < 5) == (whose == "somebody")
        assert made.outside.served.engine == ("unknown" if whose == "somebody" else "ready")


async def test_what_was_begun_on_other_weights_is_nobodys_while_it_is_looked_at(tmp_path: Path) -> None:
    """Its answer comes when nothing is proven yet, and its end may be of anybody's weights."""
    async with world(tmp_path) as made:
        await made.outside.start()
        made.outside.control.proven = None  # as within `verify`
        with pytest.raises(ApiError, match="engine_unknown"):
            await made.ask()
    async with world(tmp_path / "plain", guard=False) as made:
        await made.outside.start()
        made.outside.control.proven = None
        await made.ask()


async def test_a_look_at_it_during_an_update_waits_for_its_end(tmp_path: Path) -> None:
    """Probes were not answered while it loaded: the look loaded the old weights under the new ones' name."""
    async with world(tmp_path) as made:
        await made.outside.start()
        voice, served = await made.ask(), made.outside.served
        made.engines[0].load_seconds = 0.4

        async def swap() -> None:
            await made.outside.update(tmp_path / "other")
            served.checkpoint, served.engine = Checkpoint("sha256:other", tmp_path / "other"), "ready"

        swapping = asyncio.create_task(swap())
        while made.engines[0].weights.path == made.live:
            await asyncio.sleep(0.01)
        await made.outside.start()
        await swapping
        assert served.engine == "ready"
        assert made.engines[0].weights.path == tmp_path / "other"
        assert await made.ask() != voice


async def test_two_behind_one_address_are_never_ready(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.order = [0, 1]
        control = made.outside.control
        real = control.judged

        async def judged(*arguments: Any) -> Any:
            await control.close()  # the next question goes over another connection
            return await real(*arguments)

        control.judged = judged  # type: ignore[method-assign, assignment]
        with pytest.raises(IntegrityError, match="from one answer to the next"):
            await control.verify(made.live)
        assert control.proven is None


async def test_an_engine_without_the_door_is_said_to_hide_it(tmp_path: Path) -> None:
    async with world(tmp_path, guard=False) as made:
        await made.outside.start()
        assert made.outside.served.engine == "ready"
        assert made.said == [f"engine far: it does not say when it is another process: {UNNAMED}"]
        await made.ask()
