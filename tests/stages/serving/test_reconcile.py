"""The alias is the truth: a deploy that died in between is undone by the running gateway."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from stages import locks
from stages.errors import IntegrityError, LockedError
from stages.gateway.arms import Arm, Arms
from stages.gateway.errors import SwapError
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper
from stages.serving.lines import Lines
from stages.serving.reconcile import live_checkpoint, reconcile_once, target_lock
from tests.stages.gateway.rig import until
from tests.stages.serving.conftest import StubWorld


class Loads:
    """An engine that remembers what it was told to load."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.broken = False

    async def update(self, path: Path) -> None:
        self.paths.append(path)
        if self.broken and len(self.paths) == 1:
            raise IntegrityError("damaged")


@pytest.fixture
def engine() -> Loads:
    return Loads()


def state(world: StubWorld) -> ServedState:
    """The second checkpoint is served, as after a deploy killed before it moved the alias."""
    second = Checkpoint(world.second.digest, world.second.path, "deployment-x")
    return ServedState(line="auto", model="rtrl", checkpoint=second, engine="ready")


async def test_traffic_follows_the_alias(stub_world: StubWorld, engine: Loads, tmp_path: Path) -> None:
    served, said = state(stub_world), list[str]()
    swapper = Swapper(served, engine.update, 1)
    dangling = stub_world.store.deployments.create(
        "auto", stub_world.second.digest, by="test", reason="killed"
    )
    assert await reconcile_once(stub_world.store, served, swapper, said.append, tmp_path)
    assert served.checkpoint.digest == stub_world.first.digest
    assert engine.paths == [stub_world.first.path]
    assert dangling.id in said[0]
    assert stub_world.store.deployments.get(dangling.id).state == "failed"
    assert not await reconcile_once(stub_world.store, served, swapper, said.append, tmp_path)


async def test_a_deploy_that_is_going_on_is_left_alone(
    stub_world: StubWorld, engine: Loads, tmp_path: Path
) -> None:
    served = state(stub_world)
    with locks.hold(stub_world.store.lock_path("target-auto"), what="target-auto"):
        swapper = Swapper(served, engine.update, 1)
        assert not await reconcile_once(stub_world.store, served, swapper, print, tmp_path)
    assert engine.paths == []


async def test_an_engine_that_is_not_ready_waits(
    stub_world: StubWorld, engine: Loads, tmp_path: Path
) -> None:
    served = state(stub_world)
    served.engine = "down"
    assert not await reconcile_once(
        stub_world.store, served, Swapper(served, engine.update, 1), print, tmp_path
    )


async def test_a_swap_that_fails_is_an_error_to_say(
    stub_world: StubWorld, engine: Loads, tmp_path: Path
) -> None:
    served = state(stub_world)
    engine.broken = True
    with pytest.raises(SwapError, match="damaged"):
        await reconcile_once(stub_world.store, served, Swapper(served, engine.update, 1), print, tmp_path)
    assert served.checkpoint.digest == stub_world.second.digest


async def test_a_rollback_can_have_the_line_while_answers_in_flight_end(
    stub_world: StubWorld, engine: Loads, tmp_path: Path
) -> None:
    served = state(stub_world)
    await served.gate.enter(1)
    swapper = Swapper(served, engine.update, 60)
    following = asyncio.create_task(reconcile_once(stub_world.store, served, swapper, print, tmp_path))
    await until(lambda: served.gate.closed)
    lock = await asyncio.to_thread(locks.acquire, stub_world.store.lock_path("target-auto"), what="rollback")
    lock.release()
    assert not following.done()
    served.gate.leave()
    assert await following


async def test_who_is_cancelled_while_the_line_is_locked_keeps_no_lock(stub_world: StubWorld) -> None:
    path = stub_world.store.lock_path("target-auto")
    held = locks.acquire(path, what="deploy")
    asking = asyncio.create_task(target_lock(stub_world.store, "auto"))
    await asyncio.sleep(locks.POLL_S)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    held.release()
    await asyncio.sleep(2 * locks.GRACE_S)  # whoever still waits has it by now
    assert asking.cancelled()
    assert locks.is_free(path)


async def test_answers_go_on_while_the_line_is_locked(
    stub_world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds it taken waits a moment, in a thread."""
    store, threads = stub_world.store, list[threading.Thread]()
    store.move_alias("acme", "live", stub_world.second.digest, reason="test", by="test")
    workspace = stub_world.workspace.with_overrides(['populations.acme={"labels": ["acme-ide"]}'])
    first = Checkpoint(stub_world.first.digest, stub_world.first.path, "d")
    arms = Arms(Arm(ServedState("auto", "rtrl", first, engine="ready"), None))  # type: ignore[arg-type]

    def taken(*_: object, **__: object) -> locks.FileLock:
        threads.append(threading.current_thread())
        raise LockedError("somebody deploys it")

    monkeypatch.setattr("stages.locks.acquire", taken)
    await Lines(workspace, store, arms, lambda: 0, print)._follow("acme")
    assert threads
    assert threads[0] is not threading.main_thread()


def test_the_deployment_is_named_only_when_it_is_of_what_is_live(stub_world: StubWorld) -> None:
    live = live_checkpoint(stub_world.store, "auto")
    assert live is not None
    assert (live.digest, live.deployment) == (stub_world.first.digest, "")
    assert live_checkpoint(stub_world.store, "other") is None
