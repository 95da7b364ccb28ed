"""Which segments of the spool may be deleted: old ones that no collect, also after a rollback, can need."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cursorbench.errors import UsageError
from stages import schemas, tables
from stages.collect import retention
from stages.collect.retention import ACTIVE, OPEN, WAITING, Retention
from stages.errors import InputMissingError
from stages.registry import gc
from stages.spool import Spool
from stages.spool.verify import verify_spool
from tests.stages.world import HOUR, World

DAY = 86400.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def plan(world: World, days: float = 30.0, after: float = 60 * DAY) -> Retention:
    """The plan as it will be in sixty days."""
    return retention.plan(world.workspace, world.store, days, time.time() + after)


def removable(world: World) -> list[int]:
    return [row.id for row in plan(world).remove]


def serve(world: World, consumed: tuple[str, ...]) -> str:
    """Train on `consumed`, deploy the child with a record of it. Returns the deployment's id."""
    made = world.checkpoint(parent=world.live, consumed=consumed)
    one = world.store.deployments.create("auto", made, by="me", reason="x", previous=world.live)
    world.store.deployments.transition(one.id, "staged", "verifying")
    world.store.move_alias("auto", "live", made, reason="x", deployment_id=one.id)
    world.live = made
    return one.id


def cycle(world: World, name: str, at: int, consumed: tuple[str, ...]) -> tuple[str, ...]:
    """One episode in a segment of its own, collected, trained on, served. Returns all trained on so far."""
    world.generation(name, name, at, session=name)
    world.tick(at + HOUR)
    world.writer.seal()
    world.collect()
    consumed = (*consumed, name, f"tick-{at + HOUR}")
    serve(world, consumed)
    return consumed


def test_what_no_line_collected_stays(world: World) -> None:
    world.generation("a", "e1", 0)
    world.writer.seal()
    world.generation("b", "e2", 0)
    world.writer.flush()
    assert plan(world).kept == {OPEN.format("auto"): 1, ACTIVE: 1}


def test_settled_segments_go_when_they_are_old_and_no_rollback_can_need_them(world: World) -> None:
    """Eight cycles, a segment each. The last three deployments and what they replaced still need 5 to 8."""
    consumed: tuple[str, ...] = ()
    for n in range(8):
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    found = plan(world)
    oldest = found.remove[-1].last_seq
    assert [row.id for row in found.remove] == [1, 2, 3, 4]
    assert found.kept[OPEN.format("auto")] == 4
    assert plan(world, after=29 * DAY).remove == []
    assert plan(world, after=29 * DAY).kept == {"younger than 30 days": 8}

    done = retention.delete(world.workspace, world.store, 30.0, time.time() + 60 * DAY)
    assert done == found
    spool = Spool.open(world.workspace.spool_dir)
    assert spool.range().first_seq == oldest + 1
    spool.close()
    assert verify_spool(world.workspace.spool_dir, deep=True).problems == []
    assert removable(world) == []
    world.generation("new", "new", 40 * HOUR, session="new")
    world.tick(41 * HOUR)
    taken = world.collect().outputs["interactions"]
    assert taken.meta["counts"]["episodes"] >= 1


def test_what_failed_to_be_deployed_is_no_place_to_go_back_to(world: World) -> None:
    """Three failed deployments hid what `rtrl rollback` brings back, and so did canaries taken away."""
    consumed: tuple[str, ...] = ()
    for n in range(8):
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    deployments = world.store.deployments
    for n in range(4):
        made = world.checkpoint(parent=world.live)
        one = deployments.create("auto", made, by="me", reason="x", previous=world.live)
        deployments.transition(one.id, "staged", "verifying")
        if n == 3:
            deployments.transition(one.id, "verifying", "canary")
            deployments.end_canary(one.id, "worse", by="me")
        else:
            deployments.transition(one.id, "verifying", "failed", error="the engine is down")
    assert removable(world) == [1, 2, 3, 4]


def test_what_a_rolled_back_checkpoint_sampled_waits_for_it(world: World) -> None:
    """A rollback, a collect, and the checkpoint again: its episodes lay before the window, and could go.

    Of checkpoints that were imported: what they were trained on is not settled after a rollback either.
    """
    first = world.live
    for _ in range(2):
        serve(world, ())
    last = world.live
    world.generation("e2", "e2", 6 * HOUR, session="e2")  # two steps from `first`
    world.writer.seal()
    world.store.move_alias("auto", "live", first, reason="rolled back", deployment_id=None)
    world.live = first
    world.generation("e3", "e3", 10 * HOUR, session="e3")
    world.tick(12 * HOUR)
    world.collect()
    world.store.move_alias("auto", "live", last, reason="again", deployment_id=None)
    world.live = last
    world.tick(14 * HOUR)
    taken = world.collect().outputs["interactions"]
    found = [tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES) for part in tables.parts(taken.path)]
    assert "e2" in {name for table in found for name in table["id"].to_pylist()}


def test_positions_outlive_the_artifacts_they_come_from(world: World) -> None:
    consumed: tuple[str, ...] = ()
    for n in range(8):
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    expected = removable(world)
    gc.collect(world.store, 0.0, by="me")
    assert len(list(world.store.all_of("interactions"))) < 8
    assert removable(world) == expected == [1, 2, 3, 4]


def test_a_segment_with_a_waiting_event_stays(world: World) -> None:
    consumed: tuple[str, ...] = ()
    for n in range(8):
        if n == 1:
            assert world.event("later", "user_message", 0, text="still wrong") == "pending"
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    assert removable(world) == [1, 3, 4]
    assert plan(world).kept[WAITING] == 1


def test_a_recorded_run_is_not_repeated_with_less_than_it_read(world: World) -> None:
    world.generation("a", "e1", 0)
    world.tick(HOUR)
    world.writer.seal()
    run = world.collect()
    spool = Spool.open(world.workspace.spool_dir)
    spool.delete([1])
    spool.close()
    with pytest.raises(InputMissingError, match="this run read it from record 1 on"):
        world.collect(from_run=run.run_id)


def test_a_workspace_that_never_served_has_nothing_to_delete(world: World) -> None:
    world.writer.close()
    shutil.rmtree(world.workspace.spool_dir)
    assert plan(world) == Retention()
    world.workspace.spool_dir.mkdir()
    world.writer = type(world.writer)(world.workspace.spool_dir, world.vault)


def test_a_population_whose_line_is_to_begin_yet_finds_its_records(tmp_path: Path) -> None:
    """It was named in the settings, and gc of the workspace's own line deleted what its users had done."""
    world = World(tmp_path, '[collect]\nclock = "events"\n[populations.acme]\n')
    consumed: tuple[str, ...] = ()
    for n in range(8):
        of_acme = {"user": "bob", "key_id": "acme", "features": {"population": "acme"}}
        world.generation(f"acme{n}", f"acme{n}", 3 * n * HOUR, session=f"acme{n}", **of_acme)
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    assert plan(world).remove == []
    assert plan(world).kept == {OPEN.format("acme"): 8}
    world.workspace = world.workspace.on_line("acme")
    taken = world.collect("collect.max_lag=9").outputs["interactions"]
    assert taken.meta["counts"]["episodes"] == 8
    assert plan(world).remove == [], "nothing is trained on yet"
    world.close()


def test_a_line_that_is_over_holds_the_spool_until_it_is_told_so(world: World) -> None:
    """A population that left the settings: nobody collects on its line again, and its record stays."""
    world.store.move_alias("old", "live", world.live, reason="a population's")
    consumed: tuple[str, ...] = ()
    for n in range(8):
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    assert removable(world) == []
    assert plan(world).kept == {OPEN.format("old"): 8}
    now = time.time() + 60 * DAY
    assert [row.id for row in retention.plan(world.workspace, world.store, 30.0, now, ("old",)).remove] == [
        1, 2, 3, 4,
    ]  # fmt: skip
    retention.require_retired(world.workspace, world.store, ("old",))
    for line, why in (("auto", "line auto is worked on"), ("odl", "nothing was ever deployed on line 'odl'")):
        with pytest.raises(UsageError, match=why):
            retention.require_retired(world.workspace, world.store, ("old", line))
    with pytest.raises(UsageError, match="line old is worked on"):
        retention.require_retired(
            world.workspace.with_overrides(["populations.old.parent=checkpoint@live"]), world.store, ("old",)
        )
