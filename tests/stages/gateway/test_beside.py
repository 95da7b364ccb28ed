"""Swaps that hold nobody: answers go on, new ones are another checkpoint's; failures change none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stages.errors import DependencyDownError, IntegrityError, RtrlError
from stages.gateway.errors import SwapError
from stages.gateway.served import Checkpoint
from stages.gateway.swapper import RESTARTING, Swapper
from tests.stages.gateway.rig import Rig, until


class Engine:
    """What can be asked for several checkpoints. `wrong` says what goes wrong with which."""

    def __init__(self) -> None:
        self.wrong: dict[str, RtrlError] = {}
        self.attached: list[str] = []
        self.hangs = False

    async def takes(self, path: Path) -> bool:
        return path.name != "whole"

    async def attach(self, path: Path) -> tuple[str, str]:
        self.attached.append(path.name)
        if self.hangs:
            await asyncio.Event().wait()
        if path.name in self.wrong:
            raise self.wrong[path.name]
        return f"proof of {path.name}", f"adapter-{path.name}"


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def swapper(rig: Rig, engine: Engine) -> Swapper:
    return Swapper(rig.served, rig.update, 5, beside=engine)


def checkpoint(name: str) -> Checkpoint:
    return Checkpoint(f"sha256:{name}", Path("/store") / name, f"d-{name}")


def models(rig: Rig) -> list[str]:
    return [body["model"] for body in rig.stub.requests]


def spans(rig: Rig) -> list[list[str]]:
    return [[span.checkpoint for span in each.spans] for each in rig.generations()]


@pytest.mark.parametrize("stream", [False, True])
async def test_nobody_waits_and_each_answer_is_its_own_checkpoints(
    rig: Rig, swapper: Swapper, stream: bool
) -> None:
    old = asyncio.create_task(rig.chat(rig.hold(4), stream=stream))
    await until(lambda: len(rig.stub.requests) == 1)
    done = await swapper.swap(checkpoint("one"))
    assert (done.verification, done.drained_s, old.done()) == ("proof of one", 0.0, False)
    assert (await rig.chat("x")).status_code == 200
    assert not old.done()
    assert rig.served.turns.on(""), "it is still written with the base"
    rig.let_go()
    assert (await old).status_code == 200
    assert models(rig) == ["rtrl", "adapter-one"]
    assert sorted(spans(rig)) == [["sha256:aaa"], ["sha256:one"]]
    assert {each.deployment for each in rig.generations()} == {"d1", "d-one"}
    assert rig.loaded == [], "no weights were replaced"
    assert not rig.served.turns.on("adapter-one")


async def test_a_failure_leaves_what_was_served_and_proves_that_again(
    rig: Rig, swapper: Swapper, engine: Engine
) -> None:
    await swapper.swap(checkpoint("one"))
    engine.wrong = {"two": IntegrityError("it is not what it says")}
    with pytest.raises(SwapError, match="the previous weights are served") as caught:
        await swapper.swap(checkpoint("two"))
    assert (caught.value.code, type(caught.value.cause)) == ("swap_failed", IntegrityError), "exit 12"
    assert engine.attached == ["one", "two", "one"]
    assert (rig.served.checkpoint.digest, rig.served.engine) == ("sha256:one", "ready")
    await rig.chat("x")
    assert models(rig) == ["adapter-one"]


async def test_when_what_was_served_is_damaged_too_its_weights_are_loaded_again(
    rig: Rig, swapper: Swapper, engine: Engine
) -> None:
    engine.wrong = {name: IntegrityError("the base has changed") for name in ("one", "a")}
    with pytest.raises(SwapError) as caught:
        await swapper.swap(checkpoint("one"))
    assert (caught.value.code, rig.served.engine) == ("swap_failed", "ready")
    assert rig.loaded == [rig.root / "a"]


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_rollback_does_not_wait_for_an_engine_that_does_not_answer(
    rig: Rig, swapper: Swapper, engine: Engine, hangs: bool
) -> None:
    engine.hangs, engine.wrong = hangs, {"one": DependencyDownError("no answer")}
    done = await swapper.swap(checkpoint("one"), limit_s=0.05, cut=True)
    assert (done.verification, done.restarting) == (RESTARTING, True)
    assert (rig.served.checkpoint.digest, rig.served.engine) == ("sha256:one", "unknown")


async def test_other_weights_are_loaded_as_ever(rig: Rig, swapper: Swapper, engine: Engine) -> None:
    await swapper.swap(checkpoint("whole"))
    assert (rig.loaded, engine.attached) == ([Path("/store/whole")], [])


@pytest.mark.parametrize("where", ["one", "whole"])
async def test_one_that_a_rollback_came_before_changes_nothing(
    rig: Rig, engine: Engine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Its command had died while the engine was made ready: after the rollback everybody got it."""
    swapper, goes_on, waits = Swapper(rig.served, rig.update, 5, beside=engine), asyncio.Event(), []

    async def held(path: Path) -> bool:
        waits.append(path)
        await goes_on.wait()
        return path.name != "whole"

    async def attached(path: Path) -> tuple[str, str]:
        await held(path)
        return "proof", "adapter"

    if where == "whole":
        monkeypatch.setattr(engine, "takes", held)
    else:
        monkeypatch.setattr(engine, "attach", attached)
    promotion = asyncio.create_task(swapper.swap(checkpoint(where)))
    await until(lambda: bool(waits))
    swapper.hurry(None, None)
    goes_on.set()
    with pytest.raises(SwapError, match="a rollback came before") as caught:
        await promotion
    assert caught.value.code == "overtaken"
    assert (rig.served.checkpoint.digest, rig.served.route, rig.loaded) == ("sha256:aaa", "", [])
    swapper.hurry(None, None)  # nobody is there
    for cut in (False, True):  # nor is the next one meant, nor one that cannot wait itself
        asked = asyncio.create_task(swapper.swap(checkpoint(where), cut=cut))
        await asyncio.sleep(0)
        if cut:
            swapper.hurry(None, None)
        await asked
        assert rig.served.checkpoint.digest == f"sha256:{where}"
