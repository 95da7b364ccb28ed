"""A canary's engine: what is opened, given up, ended and tried again. Its process is a double."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from stages.engine.config import EngineConfig
from stages.errors import DependencyDownError, LockedError
from stages.gateway.arms import Arm, Arms
from stages.gateway.config import GatewayConfig
from stages.gateway.served import Checkpoint, ServedState
from stages.serving import canary
from stages.serving.canary import CanaryEngine

NEW = Checkpoint("sha256:new", Path("/new"), "d3")


class Process:
    """Stands for a supervisor; `begins` says when, and whether, its engine is ready."""

    base_url, key = "http://127.0.0.1:9", ""

    def __init__(self, config: EngineConfig, served: ServedState, *_: Any) -> None:
        self.config, self.served = config, served
        self.verification: Any = "verified"
        self.stopped: list[bool] = []
        self.begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        Process.made.append(self)

    async def start(self) -> None:
        await self.begins
        self.served.engine = "ready"

    async def stop(self, *, patient: bool = True) -> None:
        self.stopped.append(patient)

    made: ClassVar[list[Process]] = []


class World:
    """An engine that is to be opened, and what is told of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silence_s: float = 120.0) -> None:
        monkeypatch.setattr(canary, "Supervisor", Process)
        Process.made.clear()
        engine: Any = SimpleNamespace(close=self.closed)
        live = ServedState("acme", "rtrl", Checkpoint("sha256:old", Path("/")), engine="ready", arm="live")
        self.arms = Arms(Arm(live, engine))
        self.told: list[tuple[str, str]] = []
        self.changed: list[Any] = []
        config = EngineConfig(
            program="stub", port=8123, silence_s=silence_s, restart_backoff_s=1.0, restart_backoff_max_s=3.0
        )
        self.engine = CanaryEngine(
            config, GatewayConfig(), self.arms, Path("/log"), print, self.changed.append
        )
        self.engine.told = lambda outcome, of: self.told.append((outcome, of.deployment))

    async def closed(self) -> None:
        pass

    async def begin(self, share: float = 0.5, *, again: bool = False) -> tuple[asyncio.Task[Any], Process]:
        """An engine that starts."""
        open_ = self.engine.open_again if again else self.engine.open
        opening = asyncio.create_task(open_(NEW, salt="s", share=share))
        await asyncio.sleep(0)
        return opening, Process.made[-1]


@pytest.mark.parametrize(("silence_s", "patience"), [(120.0, 30.0), (5.0, 5.0)])
async def test_it_is_opened_once_and_ends_with_its_users_gone(
    monkeypatch: pytest.MonkeyPatch, silence_s: float, patience: float
) -> None:
    world = World(monkeypatch, silence_s)
    opening, process = await world.begin()
    assert (process.config.port, process.config.silence_s) == (0, patience)
    assert (process.served.line, process.served.model, process.served.arm) == ("acme", "rtrl", "canary")
    assert (world.arms.opening, world.arms.canary, world.engine.opened.is_set()) == ("d3", None, False)
    with pytest.raises(LockedError, match="a canary is open"):  # it starts
        await world.engine.open(NEW, salt="s", share=0.5)
    process.begins.set_result(None)
    assert await opening == "verified"
    made = world.arms.canary
    assert made is not None
    assert (made.deployment, made.salt, made.share, made.arm.served) == ("d3", "s", 0.5, process.served)
    assert (world.arms.opening, world.engine.opened.is_set(), world.told) == ("", True, [("opened", "d3")])
    with pytest.raises(LockedError, match="a canary is open"):  # and now it is
        await world.engine.open(NEW, salt="s", share=0.5)
    assert await world.engine.close(0.1) == "d3"
    assert (world.arms.canary, world.arms.ended, process.served.engine) == (None, "d3", "down")
    assert (process.stopped, world.engine.supervisor, world.changed) == ([True], None, [None])
    assert (world.engine.opened.is_set(), world.told[1:]) == (False, [("closed", "d3")])
    assert await world.engine.close(0.1) == ""
    assert len(world.told) == 2


async def test_one_that_does_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    opening, process = await world.begin()
    process.begins.set_exception(DependencyDownError("no memory", hint=""))
    with pytest.raises(DependencyDownError, match="no memory"):
        await opening
    assert (world.arms.opening, world.arms.canary, world.engine.supervisor) == ("", None, None)
    assert (process.stopped, world.told) == ([False], [("failed", "d3")])
    opening, process = await world.begin()  # the next may try
    process.begins.set_result(None)
    assert await opening == "verified"


async def test_a_rollback_gives_up_what_has_no_users_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.engine.hurry()  # there is none
    opening, process = await world.begin(share=0.0)
    assert world.arms.opening == ""  # nobody waits for it
    world.engine.hurry()
    with pytest.raises(LockedError, match="a rollback came before"):
        await opening
    assert process.stopped == [False]
    opening, process = await world.begin(share=0.0)
    process.begins.set_result(None)
    await opening
    world.engine.hurry()
    world.engine.hurry()
    assert world.arms.overtaken == "d3"
    assert world.engine._ending is not None
    assert await world.engine._ending == "d3"
    assert (world.arms.canary, process.stopped, world.arms.ended) == (None, [False], "")
    opening, process = await world.begin(share=0.5)
    process.begins.set_result(None)
    await opening
    world.arms.overtaken = ""
    world.engine.hurry()  # has users: it is ended by who rolls it back
    assert (world.arms.canary is not None, world.arms.overtaken) == (True, "")


async def test_a_gateway_that_ends_opens_none_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    opening, _ = await world.begin(again=True)
    world.engine.end()
    await opening  # no failure, and nothing to rest from
    assert not world.engine.rests
    with pytest.raises(DependencyDownError, match="`rtrl serve` is ending"):
        await world.engine.open(NEW, salt="s", share=0.5)
    assert len(Process.made) == 1


async def test_what_did_not_start_is_left_alone_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """1, 2 and 3 seconds, as 4 are more than the most; from 1 on anew once it has started."""
    world = World(monkeypatch)
    now = [100.0]
    monkeypatch.setattr(canary, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for pause in (1.0, 2.0, 3.0, 3.0, None, 1.0):
        opening, process = await world.begin(again=True)
        if pause is None:
            process.begins.set_result(None)
            await opening
            await world.engine.open_again(NEW, salt="s", share=0.5)  # one is open: no failure
            await world.engine.close(0.1)
            assert not world.engine.rests
            continue
        process.begins.set_exception(DependencyDownError("no memory", hint=""))
        with pytest.raises(DependencyDownError):
            await opening
        assert world.engine.rests
        now[0] += pause - 0.01
        assert world.engine.rests
        now[0] += 0.01
        assert not world.engine.rests
