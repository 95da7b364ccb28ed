"""Who is held back while the holdback's engine is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.anchor import move_anchor
from stages.engine.config import EngineConfig
from stages.errors import DependencyDownError
from stages.gateway.arms import Arm, Arms, Canary, Holdback, assigned
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.served import Checkpoint, ServedState
from stages.registry.holdbacks import close_holdback, open_holdback
from stages.serving.extra import ExtraEngine
from stages.serving.holdback import HoldbackEngine
from stages.serving.lines import Lines
from stages.workspace import Workspace
from tests.stages.serving.conftest import StubWorld

USERS = [f"user-{number}" for number in range(50)]
SHARE = 0.3


def arm(name: str, world: StubWorld) -> Arm:
    first = Checkpoint(world.first.digest, world.first.path)
    served = ServedState(line="auto", model="rtrl", checkpoint=first, engine="ready", arm=name)
    return Arm(served, EngineClient("http://127.0.0.1:9", "", "rtrl", GatewayConfig()))


async def test_they_are_no_canarys(tmp_path: Path) -> None:
    """Its engine starts (after a restart, for another anchor), does not start, or is not needed."""
    world = StubWorld(tmp_path)
    world.store.move_alias("auto", "anchor", world.second.digest, reason="test", by="test")
    salt = open_holdback(world.store, "auto", world.second.digest, SHARE, 1, by="test").salt
    arms = Arms(arm("live", world))
    arms.open(Canary(arm("canary", world), "deployment-1", "another", 0.99))
    asked: list[str] = []
    doing = "starts"

    def seen() -> None:
        held = [user for user in USERS if assigned(user, salt, SHARE)]
        assert 5 < len(held) < 30
        assert {arms.of(user) for user in held} == {arms.live}
        asked.append(doing)

    async def start(checkpoint: Checkpoint, *, line: str, arm: str) -> ExtraEngine:
        seen()
        if doing == "fails":
            raise DependencyDownError("no memory")
        return await ExtraEngine.start(
            checkpoint,
            line=line,
            arm=arm,
            engine=EngineConfig(program="stub"),
            gateway=GatewayConfig(),
            log=tmp_path / "log",
            say=print,
            changed=print,
        )

    engine = HoldbackEngine(world.store, arms, SHARE, start, lambda: 1, lambda: None)
    doing = "fails"
    with pytest.raises(DependencyDownError):
        await engine.follow(0.1)
    seen()
    doing = "starts"
    await engine.follow(0.1)
    assert arms.holdback is not None
    assert arms.holdback.arm is not None
    doing = "is not needed"
    move_anchor(world.store, "auto", world.first.ref, reason="far enough")
    await engine.follow(0.1)
    seen()
    close_holdback(world.store, "auto", by="test")
    none = HoldbackEngine(world.store, arms, 0.0, start, lambda: 1, lambda: None)
    await none.follow(0.1)
    assert arms.holdback is None
    assert asked == ["fails", "fails", "starts", "is not needed"]


async def test_without_an_engine_they_are_those_on_record(tmp_path: Path) -> None:
    """Another share in the settings draws nobody before it is on record: `rtrl ab` knows the record alone,
    and whom it did not know to be held back was missing from the canary's arm."""
    world = StubWorld(tmp_path)
    world.store.move_alias("auto", "anchor", world.first.digest, reason="test", by="test")
    salt = open_holdback(world.store, "auto", world.second.digest, 0.1, 1, by="test").salt
    arms = Arms(arm("live", world))

    async def start(checkpoint: Checkpoint, *, line: str, arm: str) -> ExtraEngine:
        raise AssertionError("anchor is live")

    async def follow(share: float) -> Holdback | None:
        await HoldbackEngine(world.store, arms, share, start, lambda: 1, lambda: None).follow(0.1)
        return arms.holdback

    found = await follow(0.2)
    assert found is not None
    assert (found.arm, found.salt, found.share) == (None, salt, 0.1)
    assert await follow(0.0) is None
    assert await follow(0.2) is None, "that one is over, and no other has begun"


async def test_of_a_populations_line_from_its_first_answer_on(tmp_path: Path) -> None:
    """Its holdback is looked after when those of other lines have started: its canary had them meanwhile."""
    world = StubWorld(tmp_path)
    settings = world.workspace.root / "rtrl.toml"
    settings.write_text(
        f"{settings.read_text()}[populations.acme.ab]\nholdback = 0.2\ncollapse = 7\n[ab]\ncollapse = 3\n"
    )
    world.store.move_alias("acme", "live", world.second.digest, reason="test", by="test")
    salt = open_holdback(world.store, "acme", world.first.digest, 0.1, 1, by="test").salt
    main = Arms(arm("live", world))
    lines = Lines(Workspace(world.workspace.root), world.store, main, lambda: 1, print)
    try:
        own = (await lines.require("acme")).arms
        held = own.holdback
    finally:
        await lines.close()
    assert (main.collapse, own.collapse) == (3, 7), "each canary is as slow as its line's settings allow"
    assert held is not None
    assert (held.arm, held.salt, held.share) == (None, salt, 0.1)
