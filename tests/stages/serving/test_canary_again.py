"""The registry's canary after a restart of the gateway, when its engine cannot be had."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stages.engine.config import EngineConfig
from stages.errors import DependencyDownError, InputMissingError, IntegrityError, LockedError
from stages.gateway.arms import Arm, Arms, Canary
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.served import Checkpoint
from stages.serving import canary as following
from stages.serving import canary_end
from stages.serving.canary import CanaryEngine, keep_canary, reconcile_canary
from stages.serving.supervisor import Supervisor
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_under_fire import served, until, world

__all__ = ["world"]


def live(world: StubWorld) -> Arms:
    return Arms(Arm(served(world), EngineClient("http://127.0.0.1:9", "", "rtrl", GatewayConfig())))


def opened(world: StubWorld, checkpoint: str) -> str:
    """A canary on record; its id."""
    made = world.store.deployments.create("auto", checkpoint, by="test", reason="test")
    world.store.deployments.transition(made.id, "staged", "verifying")
    return world.store.deployments.transition(made.id, "verifying", "canary", canary={"share": 0.5}).id


async def test_what_cannot_be_verified_is_rolled_back(world: StubWorld) -> None:
    """It was started over and over, beside the live engine and for ever."""
    damaged = world.checkpoint("damaged", world.first.digest, fingerprint=False)
    canary, arms = opened(world, damaged.digest), live(world)
    config = EngineConfig(program="stub")
    engine = CanaryEngine(config, GatewayConfig(), arms, world.root / "log", print)
    look = (world.store, engine, arms, 1, print, world.root)
    with pytest.raises(IntegrityError, match="served_fingerprint"):
        await reconcile_canary(*look)
    found = world.store.deployments.get(canary)
    assert (found.state, found.data["ended_as"]) == ("rolled_back", "canary")
    assert "its engine: " in found.data["rollback_reason"]
    assert (arms.canary, engine.supervisor) == (None, None)
    assert not await reconcile_canary(*look)


@pytest.mark.parametrize("away", [False, True])
async def test_one_whose_weights_are_gone_is_rolled_back(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch, *, away: bool
) -> None:
    """It was tried again for ever, until `rtrl ab` ended it; a disk that is away comes back."""
    lost = world.checkpoint("lost", world.first.digest)
    lost.path.chmod(0o755)
    (lost.path / "model.safetensors").unlink()
    canary, arms = opened(world, lost.digest), live(world)
    if away:
        arms.live.served.checkpoint = Checkpoint(world.first.digest, world.root / "not mounted")
    config = EngineConfig(program="stub", restart_backoff_s=1e-9, restart_backoff_max_s=1e-9)
    engine = CanaryEngine(config, GatewayConfig(), arms, world.root / "log", print)

    async def look() -> str:
        with pytest.raises(InputMissingError, match="holds no safetensors weights"):
            await reconcile_canary(world.store, engine, arms, 1, print, world.root)
        return world.store.deployments.get(canary).state

    assert await look() == "canary", "they may be away for a moment"
    monkeypatch.setattr(canary_end, "MISSING_S", 1e-9)
    assert await look() == ("canary" if away else "rolled_back")


async def test_a_rebuilt_copy_without_its_weights_is_made_again(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has what it is made of: nothing is gone."""
    removed: list[str] = []
    monkeypatch.setattr(canary_end, "check_rebuilt", lambda _, found: removed.append(found.digest))
    canary, arms = opened(world, world.second.digest), live(world)
    missing = canary_end.Missing()
    assert not await missing.is_for_good(world.store, arms, world.store.deployments.get(canary))
    assert removed == [world.second.digest]


class Missing(CanaryEngine):
    """An engine that does not start the first `failures` times."""

    failures, tries = 2, 0

    async def open(self, checkpoint: Checkpoint, *, salt: str, share: float) -> None:  # type: ignore[override]
        self.tries += 1
        if self.tries <= self.failures:
            raise DependencyDownError("no memory")


async def test_what_does_not_start_is_tried_again_with_growing_pauses(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "EVERY_S", 0.01)
    canary, arms, said = opened(world, world.second.digest), live(world), list[str]()
    config = EngineConfig(restart_backoff_s=0.4, restart_backoff_max_s=0.6)
    engine = Missing(config, GatewayConfig(), arms, Path("/dev/null"), said.append)
    began = asyncio.get_running_loop().time()
    task = asyncio.create_task(keep_canary(world.store, engine, arms, 1, said.append, world.root))
    await until(lambda: engine.tries == 3)
    task.cancel()
    assert asyncio.get_running_loop().time() - began >= 1.0
    assert sum("no memory" in each for each in said) == 2
    assert world.store.deployments.get(canary).state == "canary", "its machine may have room again"


async def test_one_that_did_not_start_is_being_stopped_while_it_is_closed(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a rollback, or the end of the gateway: it failed with an internal error."""
    stopping, stopped = asyncio.Event(), asyncio.Event()

    async def start(_: Supervisor) -> None:
        raise DependencyDownError("no memory")

    async def stop(_: Supervisor, *, patient: bool) -> None:
        stopping.set()
        await stopped.wait()

    monkeypatch.setattr(Supervisor, "start", start)
    monkeypatch.setattr(Supervisor, "stop", stop)
    engine = CanaryEngine(EngineConfig(), GatewayConfig(), live(world), Path("/dev/null"), print)
    second = Checkpoint(world.second.digest, world.second.path, "deployment-1")
    opening = asyncio.create_task(engine.open(second, salt="salt", share=0.5))
    await stopping.wait()
    engine.hurry()
    closing = asyncio.create_task(engine.close(1))
    await asyncio.sleep(0)
    assert not closing.done()
    stopped.set()
    assert await closing == ""
    with pytest.raises(DependencyDownError, match="no memory"):
        await opening


class Watched:
    """Stands for a canary's engine: `trouble` is how it ends."""

    def __init__(self, arms: Arms, trouble: asyncio.Future[str]) -> None:
        self.arms, self.ends = arms, trouble
        self.supervisor = self
        self.opened = asyncio.Event()
        self.closed: list[tuple[float, bool]] = []

    async def trouble(self) -> str:
        return await self.ends

    async def close(self, drain_s: float, *, patient: bool = True) -> str:
        self.closed.append((drain_s, patient))
        ended = self.arms.close()
        assert ended is not None
        return ended.deployment


@pytest.mark.parametrize("slow", ["its median token takes nine times as long", ""])
async def test_one_that_is_too_slow_may_finish_its_answers_and_one_that_died_is_not_waited_for(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """Both are rolled back without statistics: users first, then the record, until it is there."""
    arms = live(world)
    arms.open(Canary(arms.live, "d3", "salt", 0.5))
    monkeypatch.setattr(arms, "collapsed", lambda: slow)
    ends: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    if not slow:
        ends.set_result("it died")
    engine: Any = Watched(arms, ends)
    recorded, done = list[tuple[str, str, bool]](), asyncio.Event()

    async def record_end(_: object, deployment: str, reason: str) -> None:
        recorded.append((deployment, reason, arms.canary is None))
        if len(recorded) == 1:
            raise LockedError("the registry is busy", hint="again")
        done.set()

    async def reconciled(*_: object) -> bool:
        return False

    monkeypatch.setattr(following, "record_end", record_end)
    monkeypatch.setattr(following, "reconcile_canary", reconciled)
    monkeypatch.setattr(following, "EVERY_S", 0.05)
    said = list[str]()
    keeping = asyncio.create_task(keep_canary(world.store, engine, arms, 7.0, said.append, world.root))
    await asyncio.wait_for(done.wait(), 30)
    keeping.cancel()
    reason = f"its engine: {slow or 'it died'}"
    assert engine.closed == [(7.0, True) if slow else (0.1, False)]
    assert recorded == [("d3", reason, True)] * 2
    assert said == [f"canary d3 is rolled back: {reason}", "canary: the registry is busy; again"]
    assert arms.ended == "d3"
