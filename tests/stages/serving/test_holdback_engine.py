"""When the holdback's engine starts and ends, and what is served meanwhile: steps by hand, no engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stages.errors import LockedError
from stages.gateway.arms import Arm, Arms
from stages.gateway.served import Checkpoint, ServedState
from stages.serving import holdback
from stages.serving.holdback import HoldbackEngine, on_record


def arm(digest: str) -> Arm:
    engine: Any = object()
    return Arm(ServedState("auto", "rtrl", Checkpoint(digest, Path("/")), engine="ready"), engine)


class World:
    """A registry with two aliases, and engines that note what becomes of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, share: float = 0.1) -> None:
        self.steps: list[Any] = []
        self.aliases: dict[str, str | None] = {"anchor": "old", "live": "new"}
        self.record: Any = None
        self.fails = False
        self.arms = Arms(arm("new"))
        store: Any = self
        monkeypatch.setattr(holdback, "holdback_of", lambda _store, _line: self.record)
        monkeypatch.setattr(holdback, "close_holdback", lambda *_, **__: self.steps.append("closed"))
        monkeypatch.setattr(holdback, "open_holdback", self.opened)
        self.engine = HoldbackEngine(
            store, self.arms, share, self.start, lambda: 7, lambda: self.steps.append("changed")
        )

    def alias(self, _line: str, name: str) -> Any:
        digest = self.aliases[name]
        return None if digest is None else SimpleNamespace(digest=digest)

    def checkpoint_folder(self, artifact: Any) -> Path:
        return Path("/weights", artifact.digest)

    def opened(self, _store: Any, *told: Any, by: str) -> Any:
        self.steps.append(("opened", *told, by))
        if self.fails:
            raise LockedError("the registry is busy", hint="again")
        self.record = SimpleNamespace(salt="salt", share=0.1, open=True)
        return self.record

    async def start(self, checkpoint: Checkpoint, *, line: str, arm: str) -> Any:
        self.steps.append(("start", checkpoint.digest, str(checkpoint.path), line, arm))
        made = ServedState(line, "rtrl", checkpoint, engine="ready", arm=arm)

        async def stop(drain_s: float) -> None:
            assert self.arms.holdback is None or self.arms.holdback.arm is None  # its users have left it
            self.steps.append(("stop", checkpoint.digest, drain_s))

        return SimpleNamespace(arm=SimpleNamespace(served=made), stop=stop)

    async def follow(self) -> list[Any]:
        """What was done."""
        self.steps.clear()
        await self.engine.follow(2.0)
        return list(self.steps)


STARTED = [
    ("start", "old", "/weights/old", "auto", "holdback"),
    ("opened", "auto", "old", 0.1, 7, "rtrl serve"),
]


async def test_it_follows_anchor_and_live(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert await world.follow() == [*STARTED, "changed"]
    held = world.arms.holdback
    assert held is not None
    assert held.arm is not None
    assert (held.arm.served.arm, held.salt, held.share) == ("holdback", "salt", 0.1)
    assert await world.follow() == []  # it is as it should be
    assert world.arms.holdback is held
    world.aliases["anchor"] = "older"  # another one: the first ends before that starts
    stopped, changed, started, opened, again = await world.follow()
    assert (stopped, changed, again) == (("stop", "old", 2.0), "changed", "changed")
    assert (started[1], opened[2]) == ("older", "older")
    world.aliases["live"] = "older"  # live is what they would be held back on
    assert await world.follow() == [("stop", "older", 2.0), "changed"]
    back = world.arms.holdback  # those on record stay held back, and the live one answers them
    assert back is not None
    assert (back.arm, back.salt, back.share) == (None, "salt", 0.1)


@pytest.mark.parametrize("missing", ["anchor", "live"])
async def test_without_an_anchor_or_anything_live_there_is_none(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    world = World(monkeypatch)
    world.aliases[missing] = None
    assert await world.follow() == []
    assert world.arms.holdback is None


async def test_one_that_cannot_be_put_on_record_has_no_users(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.fails = True
    with pytest.raises(LockedError):
        await world.follow()
    assert world.steps == [*STARTED, ("stop", "old", 0.1)]
    assert (world.engine.engine, world.arms.holdback) == (None, None)
    world.fails = False
    assert await world.follow() == [*STARTED, "changed"]


async def test_nobody_is_held_back_by_a_share_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, share=0.0)
    world.record = SimpleNamespace(salt="salt", share=0.1, open=True)
    assert await world.follow() == ["closed"]
    assert world.arms.holdback is None
    store: Any = world
    assert on_record(store, "auto", 0.0) is None
    held = on_record(store, "auto", 0.5)  # those on record, whatever the settings say since
    assert held is not None
    assert (held.arm, held.salt, held.share) == (None, "salt", 0.1)
    world.record.open = False
    assert on_record(store, "auto", 0.5) is None


async def test_when_the_gateway_ends_it_ends_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    await world.follow()
    world.steps.clear()
    await world.engine.end(3.0)
    assert world.steps == [("stop", "old", 3.0), "changed"]
    assert (world.arms.holdback, world.engine.engine) == (None, None)
    assert await world.follow() == []
    await world.engine.end(3.0)
    assert world.steps == []
