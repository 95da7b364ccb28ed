"""A swap that cannot wait, behind one that was asked for before and that nobody waits for any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stages.gateway.errors import SwapError
from stages.gateway.gate import Gate
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper
from tests.stages.gateway.rig import Rig, until
from tests.stages.gateway.test_pool import NEW, OLD, fleet
from tests.stages.gateway.test_swap import swap

EVER = 3600.0
BACK = Checkpoint("sha256:back", Path("/back"), "d-back")
NOW: dict[str, Any] = {"drain_timeout_s": 0.05, "cut": True, "limit_s": 5.0}


async def begun(gate: Gate) -> asyncio.Task[None]:
    """A generation that samples until it is cut short."""

    async def sample() -> None:
        await gate.enter(1)
        try:
            async with gate.sampling():
                await asyncio.sleep(EVER)
        finally:
            gate.leave()

    task = asyncio.create_task(sample())
    await until(lambda: gate.in_flight == 1)
    return task


async def test_a_rollback_does_not_wait_for_the_drain_before_it(rig: Rig) -> None:
    long = asyncio.create_task(rig.chat(rig.hold(0)))
    await until(lambda: len(rig.stub.requests) == 1)
    deploy = asyncio.create_task(swap(rig, "bbb", drain_timeout_s=EVER))
    await until(lambda: rig.served.gate.closed)
    back = await swap(rig, "ccc", drain_timeout_s=0.2, cut=True, limit_s=30)
    assert back.status_code == 200, back.text
    assert rig.loaded == [rig.root / "ccc"]
    left = await deploy
    assert (left.status_code, left.json()["error"]["code"]) == (409, "overtaken")
    assert (await long).json()["error"]["code"] == "weights_updating"
    assert (await rig.chat("x")).json()["system_fingerprint"] == "ccc"


async def test_of_several_engines_those_that_had_the_weights_give_them_back() -> None:
    engines, rolling = fleet(2)
    long = await begun(engines[1].served.gate)
    deploy = asyncio.create_task(rolling.swap(NEW, drain_timeout_s=EVER))
    await until(lambda: engines[1].served.gate.closed)
    await rolling.swap(BACK, **NOW)
    with pytest.raises(SwapError) as left:
        await deploy
    assert left.value.code == "overtaken"
    assert [each.loads for each in engines] == [[NEW.path, OLD.path, BACK.path], [BACK.path]]
    assert {each.served.checkpoint for each in engines} == {BACK}
    await asyncio.gather(long, return_exceptions=True)


async def test_an_engine_that_hangs_in_a_swap_is_started_anew_on_what_the_rollback_wants() -> None:
    served = ServedState("auto", "rtrl", OLD, engine="ready")
    loads: list[Path] = []

    async def update(path: Path) -> None:
        loads.append(path)
        await asyncio.sleep(EVER)

    swapper = Swapper(served, update, 1.0)
    deploy = asyncio.create_task(swapper.swap(NEW))
    await until(lambda: loads == [NEW.path])
    done = await swapper.swap(BACK, **NOW | {"limit_s": 0.1})
    assert (done.restarting, served.checkpoint, served.engine) == (True, BACK, "unknown")
    with pytest.raises(SwapError, match="took long") as left:
        await deploy
    assert left.value.code == "engine_unknown"
    assert loads == [NEW.path]


async def test_weights_that_are_still_on_their_way_are_not_waited_for() -> None:
    served = ServedState("auto", "rtrl", OLD, engine="ready")
    loads: list[Path] = []
    fetching = asyncio.Event()

    async def update(path: Path) -> None:
        loads.append(path)

    async def prepare(path: Path) -> None:
        if path == NEW.path:
            fetching.set()
            await asyncio.sleep(EVER)

    swapper = Swapper(served, update, 1.0, prepare=prepare)
    deploy = asyncio.create_task(swapper.swap(NEW))
    await fetching.wait()
    await swapper.swap(BACK, **NOW)
    with pytest.raises(SwapError) as left:
        await deploy
    assert (left.value.code, loads, served.checkpoint) == ("overtaken", [BACK.path], BACK)


async def test_another_deploy_waits_its_turn() -> None:
    engines, rolling = fleet(1)
    gate = engines[0].served.gate
    await gate.enter(1)
    first = asyncio.create_task(rolling.swap(NEW))
    await until(lambda: gate.closed)
    second = asyncio.create_task(rolling.swap(BACK))
    await until(lambda: bool(rolling._busy._waiters))
    gate.leave()
    await asyncio.gather(first, second)
    assert engines[0].loads == [NEW.path, BACK.path]


async def test_answers_keep_the_time_that_a_rollback_gave_them() -> None:
    gate = Gate()
    await gate.enter(1)

    async def leave() -> None:
        await asyncio.sleep(0.1)
        gate.hurry(EVER)
        await asyncio.sleep(0.1)
        gate.leave()

    leaving = asyncio.create_task(leave())
    async with gate.exclusive(EVER, cut=True):
        assert leaving.done()
