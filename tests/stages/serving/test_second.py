"""Weights that the running engine cannot take: a second engine and a traffic switch, or a restart."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from stages.deploy.run import DeployStage
from stages.engine.config import EngineConfig
from stages.engine.process import EngineProcess
from stages.errors import IntegrityError
from stages.gateway.errors import ApiError, SwapError
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.serving import second, supervisor
from stages.serving.detach import start_detached, stop
from stages.serving.supervisor import Supervisor
from stages.stage import Artifact
from tests.stages.serving.conftest import StubWorld
from tests.stages.serving.test_lifecycle import gone
from tests.stages.serving.test_running import wait_for

WIDER = '{"hidden_size": 8}'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubWorld]:
    made = StubWorld(tmp_path_factory.mktemp("second"))
    start_detached(made.workspace)
    yield made
    stop(made.workspace)


@pytest.fixture(scope="module")
def wider(world: StubWorld) -> Artifact:
    """A checkpoint of another configuration, which passed."""
    made = world.checkpoint("wider", world.first.digest, config=WIDER)
    world.report(made, world.first)
    return made


def test_traffic_goes_to_a_second_engine_and_nobody_is_refused(world: StubWorld, wider: Artifact) -> None:
    before, voice = world.endpoint.engine, world.voice()
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(world.ask, f"stub:delay=0.05 {n}") for n in range(60)]
        result = run_stage(world.workspace, world.store, DeployStage(), [wider.ref])
        assert {each.result().status_code for each in asking} == {200}
    (engine,) = result.metrics["engines"]
    assert engine["way"] == "second engine and traffic switch"
    assert "config.json" in engine["why"]
    assert world.endpoint.engine.url != before.url
    assert wait_for(lambda: gone(before.pid))
    assert world.voice() != voice
    run_stage(world.workspace, world.store, RollbackStage())
    assert world.voice() == voice


def test_a_second_engine_that_does_not_start_changes_nothing(world: StubWorld) -> None:
    before, voice = world.endpoint.engine, world.voice()
    broken = world.checkpoint("broken", world.first.digest, config=WIDER, fingerprint=False)
    world.report(broken, world.first)
    with pytest.raises(IntegrityError, match=r"served_fingerprint\.json"):
        run_stage(world.workspace, world.store, DeployStage(), [broken.ref])
    assert (world.endpoint.engine, world.voice()) == (before, voice)


async def test_without_memory_for_two_it_is_started_anew_and_goes_back_likewise(
    world: StubWorld, wider: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "too_small", lambda _pid: "no memory")
    first, then = (Checkpoint(each.digest, each.path) for each in (world.first, wider))
    served = ServedState("auto", "rtrl", first)
    config = EngineConfig(program="stub")
    one = Supervisor(config, served, tmp_path / "log", lambda _: None)
    await one.start()
    try:
        port, pid = one.base_url, one.pid
        swapper = Swapper(served, one.update, 5, prepare=one.prepare)
        await swapper.swap(then)
        assert (one.way.way, one.base_url) == ("restart", port)
        assert "no memory" in one.way.why
        assert one.pid != pid
        assert (served.checkpoint, served.engine) == (then, "ready")
        await swapper.swap(first)
        assert served.checkpoint == first
    finally:
        await one.stop(patient=False)


@pytest.mark.parametrize("why", ["drain_timeout", "overtaken", "engine_down"])
async def test_a_second_engine_that_is_not_used_ends_with_the_swap(
    world: StubWorld, wider: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Nobody may come again, and its memory is wanted. A next try has another one."""
    started: list[EngineProcess] = []

    async def noted(*arguments: Any) -> EngineProcess:
        started.append(await second.start_second(*arguments))
        return started[-1]

    monkeypatch.setattr(supervisor, "start_second", noted)
    monkeypatch.setattr(supervisor, "too_small", lambda _pid: "")
    first, then = (Checkpoint(each.digest, each.path) for each in (world.first, wider))
    served = ServedState("auto", "rtrl", first)
    one = Supervisor(EngineConfig(program="stub"), served, tmp_path / "log", lambda _: None)
    swapper = Swapper(served, one.update, 60, prepare=one.prepare, release=one.release)
    await one.start()
    try:
        await served.gate.enter(1)  # an answer that is under way
        swap = asyncio.create_task(swapper.swap(then, drain_timeout_s=0.05 if why == "drain_timeout" else 60))
        while not served.gate.closed and not swap.done():
            await asyncio.sleep(0.01)
        if why == "overtaken":
            swapper.hurry(0.05, 1)
        if why == "engine_down":
            served.engine = "down"
            served.gate.leave()
        with pytest.raises((SwapError, ApiError)) as caught:
            await swap
        assert (caught.value.code, served.checkpoint) == (why, first)
        async with asyncio.timeout(10):
            while started[0].exit_status() is None:
                await asyncio.sleep(0.01)
        if why != "engine_down":
            served.gate.leave()
        served.engine = "ready"
        await swapper.swap(then)
        assert one.way.way == "second engine and traffic switch"
        assert [engine.pid for engine in started[1:]] == [one.pid]
    finally:
        await one.stop(patient=False)
    assert {engine.exit_status() for engine in started} == {-signal.SIGKILL}


def test_memory_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has ended" in second.too_small(2**22 + 1) or "GPU" in second.too_small(2**22 + 1)
    memory = psutil.virtual_memory()._replace(available=1)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert second.too_small(psutil.Process().pid)
