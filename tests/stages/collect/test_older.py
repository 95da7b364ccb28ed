"""A spool put back from an older copy, or begun anew: its new records were passed over, then deleted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtrl_cli.main import run
from stages import schemas, tables
from stages.collect import retention
from stages.collect.older import WAY_OUT, number_on
from stages.errors import InputMissingError, IntegrityError
from stages.registry import counted
from stages.registry.holdbacks import open_holdback
from stages.result import StageResult
from stages.spool import Spool, SpoolWriter
from tests.stages.collect.test_retention import DAY, cycle, plan, serve
from tests.stages.world import HOUR, World

LATER = 60 * HOUR


@pytest.fixture(scope="module")
def nine_cycles(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Closed; `copy` is the spool after the first."""
    root = tmp_path_factory.mktemp("nine")
    world = World(root)
    consumed = cycle(world, "e0", 0, ())
    world.writer.close()
    shutil.copytree(world.workspace.spool_dir, root / "copy")
    world.writer = writer(world)
    for n in range(1, 9):
        consumed = cycle(world, f"e{n}", 3 * n * HOUR, consumed)
    world.close()
    return world


@pytest.fixture
def world(nine_cycles: World, tmp_path: Path) -> Iterator[World]:
    """Nine cycles; a copy of the spool after the first."""
    world = nine_cycles.copied(tmp_path / "world")
    yield world
    world.close()


def writer(world: World) -> SpoolWriter:
    return SpoolWriter(world.workspace.spool_dir, world.vault, fsync_ms=1.0)


def put_back(world: World, copy: bool) -> None:
    """The disk of the spool is lost; of what was on it there is an old copy, or nothing."""
    world.writer.close()
    shutil.rmtree(world.workspace.spool_dir)
    if copy:
        shutil.copytree(world.root / "copy", world.workspace.spool_dir)
    world.writer = writer(world)


def serve_again(world: World) -> list[str]:
    """What a start of `rtrl serve` does with the spool, and says."""
    world.writer.close()
    world.writer = writer(world)
    said: list[str] = []
    number_on(world.writer, world.store, said.append)
    return said


def use(world: World, *names: str, at: int = LATER) -> None:
    for name in names:
        world.generation(name, name, at, session=name)
    world.tick(at + 2 * HOUR)
    world.writer.seal()


def taken(made: StageResult) -> set[str]:
    parts = tables.parts(made.outputs["interactions"].path)
    found = [tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES)["id"].to_pylist() for part in parts]
    return {name for names in found for name in names}


def last_seq(world: World) -> int:
    world.writer.flush()
    spool = Spool.open(world.workspace.spool_dir)
    try:
        return spool.range().last_seq
    finally:
        spool.close()


@pytest.mark.parametrize("copy", [True, False])
def test_an_older_spool_is_refused_and_a_start_of_serve_is_the_way_out(
    world: World, copy: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that got old numbers, from a gateway of before, are collected too; nothing is deleted."""
    settled = counted.settled_up_to(world.store)
    put_back(world, copy)
    use(world, "new0", "new1")
    assert last_seq(world) < settled
    with pytest.raises(IntegrityError, match="the spool is older than the registry") as refused:
        world.collect()
    assert refused.value.hint == WAY_OUT
    assert run(["verify", "-w", str(world.workspace.root)], debug=False) == 12
    assert "start `rtrl serve` (again)" in capsys.readouterr().err
    kept = plan(world)
    assert (kept.remove, kept.kept) == ([], {retention.OLDER: 1 + copy})

    [said] = serve_again(world)
    assert "the next collect reads all that is there" in said
    assert plan(world).remove == [], "not collected yet, for any checkpoint"
    made = world.collect()
    assert {"new0", "new1"} <= taken(made)
    assert not {f"e{n}" for n in range(9)} & taken(made), "what was trained on is not taken again"
    assert run(["verify", "-w", str(world.workspace.root)], debug=False) == 0

    use(world, "next", at=LATER + 3 * HOUR)
    assert last_seq(world) > settled
    assert "next" in taken(world.collect())
    assert serve_again(world) == [], "told and put on record once"


def test_what_is_captured_after_a_start_is_all_collected_however_much_it_is(world: World) -> None:
    """The new numbers had passed the old ones before anybody looked: half of the records were behind.

    They begin a gap behind what is settled, no longer right behind it: those are numbers of a disk that may
    come back.
    """
    settled = counted.settled_up_to(world.store)
    put_back(world, copy=False)
    assert len(serve_again(world)) == 1
    with pytest.raises(InputMissingError, match="holds no generation"):
        world.collect()
    assert len(serve_again(world)) == 0, "without a record in between"
    names = [f"new{n}" for n in range(2 * settled)]
    use(world, *names)
    spool = Spool.open(world.workspace.spool_dir)
    assert spool.range().first_seq == settled + counted.GAP + 1
    spool.close()
    assert set(names) <= taken(world.collect())


def test_segments_go_again_once_the_new_spool_is_settled(world: World) -> None:
    put_back(world, copy=False)
    serve_again(world)
    consumed: tuple[str, ...] = ()
    for n in range(8):
        consumed = cycle(world, f"new{n}", LATER + 3 * n * HOUR, consumed)
    now = time.time() + 60 * DAY
    assert [row.id for row in retention.plan(world.workspace, world.store, 30.0, now).remove] == [1, 2, 3, 4]


@pytest.mark.parametrize("away", [True, False])
def test_a_disk_that_was_only_away_for_a_while_comes_back_and_nothing_of_it_is_lost(
    tmp_path: Path, away: bool
) -> None:
    """What had been captured and not collected was passed over: its numbers had been used again meanwhile.

    With `away`, a start without the disk begins anew, and three cycles go by. The same without, to compare.
    """
    world = World(tmp_path, '[collect]\nclock = "events"\nmax_lag = 8\n')
    done: list[str] = []
    for n in range(3):
        done = [*cycle(world, f"e{n}", 3 * n * HOUR, tuple(done))]
    names = [f"real{n}" for n in range(6)]
    use(world, *names)
    folder = world.workspace.spool_dir
    if away:
        world.writer.close()
        folder.rename(world.root / "away")
        folder.mkdir()
        world.writer = writer(world)
        assert len(serve_again(world)) == 1
        for n in range(3):
            use(world, f"meanwhile{n}", at=LATER + 3 * n * HOUR)
            done += sorted(taken(world.collect()))
            serve(world, tuple(done))
        world.writer.close()
        shutil.rmtree(folder)
        (world.root / "away").rename(folder)
        world.writer = writer(world)
        with pytest.raises(IntegrityError, match="the spool is older than the registry"):
            world.collect()
        assert plan(world).remove == []
        assert len(serve_again(world)) == 1

    use(world, "later", at=LATER + 12 * HOUR)
    assert {*names, "later"} <= taken(world.collect())
    assert run(["verify", "--full", "-w", str(world.workspace.root)], debug=False) == 0
    world.close()


def test_numbers_that_no_record_has_are_no_lag(world: World) -> None:
    """`rtrl_spool_unsynced` told of as many records as the gap is wide until the first one came."""
    put_back(world, copy=False)
    serve_again(world)
    assert world.writer.last_seq > counted.GAP
    assert world.writer.lag == (0, 0.0)
    assert world.writer.flush() == world.writer.last_seq


def test_a_spool_of_now_is_left_as_it_is(world: World) -> None:
    before = last_seq(world)
    assert serve_again(world) == []
    world.generation("new", "new", LATER)
    assert last_seq(world) == before + 1
    assert counted.begun_after(world.store) == 0


def test_a_comparison_that_is_open_sees_who_comes_after(world: World) -> None:
    """Its users began after record 1,000; of a spool with lower numbers it saw nobody any more."""
    one = world.store.deployments.create("auto", world.live, by="me", reason="x")
    world.store.deployments.transition(one.id, "staged", "verifying")
    world.store.deployments.transition(one.id, "verifying", "canary", canary={"opened_seq": 1000})
    serve_again(world)
    use(world, "new")
    assert last_seq(world) == 1002
    open_holdback(world.store, "auto", world.live, 0.1, 2000, by="me")
    serve_again(world)
    use(world, "newer")
    assert last_seq(world) == 2002
