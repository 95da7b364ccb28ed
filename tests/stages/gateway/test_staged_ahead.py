"""Weights made ready before anybody asks a swap for them: never in the way of one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stages.errors import DependencyDownError
from stages.gateway import ahead
from stages.gateway.errors import SwapError
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapper

A, B, C = (Checkpoint(name, Path(name)) for name in "abc")


class Engine:
    """Notes what it is asked, in order; `stage` takes until it is let go."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.ready, self.begun = asyncio.Event(), asyncio.Event()
        self.fails = False
        self.served = ServedState("auto", "rtrl", A, engine="ready")
        self.swapper = Swapper(self.served, self.update, 0.05, prepare=self.prepare, stager=lambda: self)

    async def stage(self, checkpoint_dir: Path) -> None:
        self.did.append(f"stage {checkpoint_dir}")
        self.begun.set()
        if self.fails:
            raise DependencyDownError("it is dead", hint="")
        try:
            await self.ready.wait()
        except asyncio.CancelledError:
            self.did.append("stopped")
            raise

    async def unstage(self) -> None:
        self.did.append("unstage")

    async def prepare(self, path: Path) -> None:
        self.did.append(f"prepare {path}")

    async def update(self, path: Path) -> None:
        self.did.append(f"update {path}")


@pytest.mark.parametrize("target", [B, C])
async def test_any_swap_stops_it_first(target: Checkpoint) -> None:
    """Also one to other weights, as a rollback while a deploy begins."""
    engine = Engine()
    assert engine.swapper.stage_ahead(B)
    await engine.begun.wait()
    await engine.swapper.swap(target)
    assert engine.did == ["stage b", "stopped", f"prepare {target.path}", f"update {target.path}"]
    assert engine.served.checkpoint == target


async def test_one_at_a_time_and_only_while_nothing_else_is_done() -> None:
    engine = Engine()
    assert not engine.swapper.stage_ahead(A), "it is served"
    engine.served.engine = "down"
    assert not engine.swapper.stage_ahead(B)
    engine.served.engine = "ready"
    assert engine.swapper.stage_ahead(B)
    assert not engine.swapper.stage_ahead(C), "two deploys at once: the first one's"
    await engine.begun.wait()
    swap = asyncio.create_task(engine.swapper.swap(C))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not engine.swapper.stage_ahead(B)
    await swap
    assert engine.did == ["stage b", "stopped", "prepare c", "update c"]


async def test_what_nobody_came_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "UNWANTED_S", 0.0)
    engine = Engine()
    engine.ready.set()
    assert engine.swapper.stage_ahead(B)
    while "unstage" not in engine.did:
        await asyncio.sleep(0)
    assert engine.did == ["stage b", "unstage"]
    assert engine.swapper.stage_ahead(C), "and another may come"


async def test_an_engine_that_cannot_is_left_to_the_swap() -> None:
    engine = Engine()
    engine.fails = True
    assert engine.swapper.stage_ahead(B)
    await engine.begun.wait()
    await engine.swapper.swap(B)
    assert engine.did == ["stage b", "prepare b", "update b"]


async def test_a_swap_that_gave_up_leaves_them_for_the_next_try() -> None:
    engine = Engine()
    gate = engine.served.gate
    await gate.enter(1)
    with pytest.raises(SwapError, match="still running") as caught:
        await engine.swapper.swap(B)
    gate.leave()
    assert caught.value.code == "drain_timeout"
    await engine.begun.wait()
    assert engine.did == ["prepare b", "stage b"]
    await engine.swapper.swap(B)
    assert engine.did[2:] == ["stopped", "prepare b", "update b"]
