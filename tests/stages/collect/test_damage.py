"""A damaged segment of the spool: told of once, then counted, and read again when its file is put back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages import schemas, tables
from stages.result import result_of
from stages.spool import Damage, Spool, SpoolDamagedError, SpoolWriter
from stages.spool.verify import told, verify_spool
from stages.stage import Artifact
from tests.stages.spool.spool_records import killed_before_indexing
from tests.stages.world import HOUR, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, '[collect]\nclock = "events"\nmax_lag = 9\n')
    yield world
    world.close()


def taken(artifact: Artifact) -> set[str]:
    found = set()
    for part in tables.parts(artifact.path):
        found |= set(tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES)["id"].to_pylist())
    return found


def cut(world: World, at: str) -> tuple[Path, bytes]:
    """Seal the first segment and cut it in the generation `at`. Returns its file and what it held."""
    world.writer.seal()
    segment = sorted((world.workspace.spool_dir / "segments").glob("*.seg"))[0]
    whole = segment.read_bytes()
    row = world.writer._index.generation(at)
    assert row is not None
    segment.write_bytes(whole[: row.offset + 40])
    return segment, whole


def test_what_was_put_back_is_collected_once(world: World) -> None:
    """Also when the window has moved on past the damaged segment meanwhile."""
    for name in ("a", "b", "c"):
        world.generation(name, f"e-{name}", 0, session=name)
    world.event("b", "thumbs", 1, value=1)
    segment, whole = cut(world, "b")
    world.tick(HOUR)
    with pytest.raises(SpoolDamagedError):
        world.collect()
    assert taken(world.collect().outputs["interactions"]) == {"e-a"}
    world.promote(world.checkpoint(parent=world.live, consumed=["e-a"]))
    world.tick(2 * HOUR)
    second = world.collect().outputs["interactions"]
    assert taken(second) == {f"tick-{HOUR}"}
    world.promote(world.checkpoint(parent=world.live, consumed=["e-a", f"tick-{HOUR}"]))
    world.tick(3 * HOUR)
    third = world.collect().outputs["interactions"]
    assert taken(third) == {f"tick-{2 * HOUR}"}
    assert third.meta["window"]["resume_seq"] > 5, "the damaged segment is behind it"
    segment.write_bytes(whole)
    result = world.collect()
    restored = result.outputs["interactions"]
    assert taken(restored) == {"e-b", "e-c", f"tick-{2 * HOUR}"}, "e-a was trained on"
    assert (restored.meta["quarantined"], restored.meta["lost_events"], result.warnings) == ({}, 0, [])
    counts = restored.meta["counts"]
    assert counts["events"] - counts["derived_messages"] == 1
    assert world.collect().status == "noop"


def test_the_same_window_has_more_when_it_reads_clean_again(world: World) -> None:
    """The newest instant of maturity is the same with and without what was lost."""
    world.generation("a", "e-a", 0)
    world.generation("b", "e-b", 0, session="s2")
    segment, whole = cut(world, "b")
    world.tick(HOUR)
    with pytest.raises(SpoolDamagedError):
        world.collect()
    assert taken(world.collect().outputs["interactions"]) == {"e-a"}
    segment.write_bytes(whole)
    assert taken(world.collect().outputs["interactions"]) == {"e-a", "e-b"}


def test_what_was_not_indexed_when_its_file_was_lost_is_collected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.generation("a", "e-a", 0)
    killed_before_indexing(world.writer, lambda: world.generation("b", "e-b", 0, session="s2"), monkeypatch)
    [segment] = (world.workspace.spool_dir / "segments").glob("*.seg")
    whole = segment.read_bytes()
    segment.unlink()
    world.writer = SpoolWriter(world.workspace.spool_dir, world.vault, fsync_ms=1.0)
    world.tick(HOUR)
    world.tick(2 * HOUR)
    with pytest.raises(SpoolDamagedError):
        world.collect()
    assert taken(world.collect().outputs["interactions"]) == {f"tick-{HOUR}"}
    segment.write_bytes(whole)
    restored = world.collect().outputs["interactions"]
    assert taken(restored) == {"e-a", "e-b", f"tick-{HOUR}"}
    assert restored.meta["quarantined"] == {}


def test_verify_tells_of_damage_once_and_then_warns(world: World) -> None:
    world.generation("a", "e-a", 0)
    world.generation("b", "e-b", 0, session="s2")
    segment, whole = cut(world, "b")
    spool = world.workspace.spool_dir
    first = verify_spool(spool, deep=True)
    assert (len(first.problems), first.warnings) == (1, [])
    assert verify_spool(spool, deep=True).problems == first.problems, "killed before it was shown"
    told(spool, first)
    for deep in (True, False):
        again = verify_spool(spool, deep=deep)
        assert again.problems == []
        [warning] = again.warnings
        assert "1 generations and 0 events (known, in quarantine)" in warning
        assert (again.counts["damaged"], again.counts["quarantined"]) == (0, 1)
    segment.write_bytes(whole)
    for deep in (False, True):
        healed = verify_spool(spool, deep=deep)
        assert (healed.problems, healed.warnings) == ([], [])


def test_a_dry_run_records_nothing_and_leaves_the_alarm_to_the_run(world: World) -> None:
    world.generation("a", "e-a", 0)
    world.generation("b", "e-b", 0, session="s2")
    segment, whole = cut(world, "b")
    world.tick(HOUR)
    spool = world.workspace.spool_dir

    def known() -> list[Damage]:
        reader = Spool.open(spool)
        try:
            return reader.damages()
        finally:
            reader.close()

    assert world.collect(dry_run=True).metrics["extra"]["damaged"] == {"1": 1}
    assert known() == []
    with pytest.raises(SpoolDamagedError) as caught:
        world.collect()
    result = result_of(caught.value)
    assert result is not None
    row = world.store.run(result.run_id)
    assert (row.state, json.loads(row.error)["kind"]) == ("failed", "spool_damaged")
    assert known() == caught.value.damages
    segment.write_bytes(whole)
    assert world.collect(dry_run=True).metrics["extra"]["damaged"] == {}
    assert known() == caught.value.damages
    assert taken(world.collect().outputs["interactions"]) == {"e-a", "e-b"}
    assert known() == []


def test_damage_that_could_not_be_put_on_record_is_told_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.generation("a", "e-a", 0)
    world.generation("b", "e-b", 0, session="s2")
    cut(world, "b")
    world.tick(HOUR)

    def killed(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("stages.collect.window.fail_run", killed)
        with pytest.raises(KeyboardInterrupt):
            world.collect()
    assert len(verify_spool(world.workspace.spool_dir, deep=True).problems) == 1
    with pytest.raises(SpoolDamagedError):
        world.collect()
