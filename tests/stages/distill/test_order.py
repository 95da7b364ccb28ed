"""Events with one time: what came first is first, whatever its id. Clients send a turn as one list."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from stages import tables
from stages.distill.explain import _events
from stages.distill.facts import PartReader
from stages.distill.order import in_order
from stages.distill.own import OwnSignal
from stages.distill.signals.completion_accepted import completion_accepted
from stages.distill.signals.dissatisfied_followup import EXPLICIT_NO, EXPLICIT_YES, followup
from stages.distill.signals.edit_persistence import edit_persistence
from stages.distill.signals.edits import edits_of
from stages.distill.signals.task_outcome import task_outcome
from stages.records import Event
from stages.spool import Spool, SpoolWriter
from stages.vault import Vault
from tests.stages.distill.distill_world import a_click, distilled, rewarded
from tests.stages.distill.events import HOUR, event
from tests.stages.distill.test_own import episode
from tests.stages.world import World

FIRST, SECOND, THIRD = "a = 1\n", "a = 2\n", "a = 3\n"
IDS = [list(ids) for ids in permutations(["x", "y", "z"])]


def edit(before: str, after: str, eid: str) -> Event:
    return event("edit_applied", 0, eid, path="a.py", before=before, after=after)


def stands(now: str) -> Event:
    return event("edit_survival", HOUR, "s", path="a.py", horizon_s=3600, now=now)


def persistence(events: list[Event]) -> float | None:
    return edit_persistence(events, HOUR, edits_of(events, 0, HOUR))


@pytest.mark.parametrize("ids", IDS)
def test_edits_of_one_time_follow_one_another(ids: list[str]) -> None:
    """By their ids they were one that changed nothing: what the user kept was not rewarded."""
    assert persistence([edit(FIRST, SECOND, ids[0]), edit(SECOND, THIRD, ids[1]), stands(THIRD)]) == 1.0


@pytest.mark.parametrize("ids", IDS)
def test_an_edit_after_a_revert_of_the_same_time_makes_it_good(ids: list[str]) -> None:
    undone = event("edit_reverted", 0, ids[1], path="a.py")
    events = [edit(FIRST, SECOND, ids[0]), undone, edit(FIRST, THIRD, ids[2]), stands(THIRD)]
    assert persistence(events) == 1.0
    assert not edits_of(events, 0, HOUR).undone
    last = [events[0], events[2], undone, events[3]]
    assert (persistence(last), edits_of(last, 0, HOUR).undone) == (0.0, True)


@pytest.mark.parametrize("ids", IDS)
def test_the_last_verdict_of_one_time_counts(ids: list[str]) -> None:
    thumbs = [event("thumbs", 0, eid, value=value) for eid, value in zip(ids, (-1, 1), strict=False)]
    assert followup(thumbs, "", "", False, False, 0, HOUR) == EXPLICIT_YES
    assert followup(thumbs[::-1], "", "", False, False, 0, HOUR) == EXPLICIT_NO
    outcomes = [event("outcome", 0, eid, value=value) for eid, value in zip(ids, (1, -1), strict=False)]
    assert (task_outcome(outcomes, 0, HOUR), task_outcome(outcomes[::-1], 0, HOUR)) == (-1.0, 1.0)
    kinds = ("completion_rejected", "completion_accepted")
    ends = [event(kind, 0, eid) for eid, kind in zip(ids, kinds, strict=False)]
    assert (completion_accepted(ends, 0, HOUR), completion_accepted(ends[::-1], 0, HOUR)) == (1.0, 0.0)
    told = [event("edit_survival", HOUR, eid, path="a.py", horizon_s=3600, now=now)
            for eid, now in zip(ids, (SECOND, FIRST), strict=False)]  # fmt: skip
    assert persistence([edit(FIRST, SECOND, "e"), *told]) == 1.0, "the first measurement"


@pytest.mark.parametrize("ids", IDS)
def test_own_signals_see_them_in_order(ids: list[str]) -> None:
    told = episode("x")
    told.events[:] = [event("thumbs", at, eid) for at, eid in zip((5, 5, 1), ids, strict=True)]
    seen: list[list[str]] = []
    OwnSignal("own", "own:own", "", lambda one: seen.append([e.id for e in one.events])).values([told])
    assert seen[0] == [ids[2], ids[0], ids[1]]


@pytest.mark.parametrize("restart", [False, True])
def test_the_order_of_arrival_goes_through_the_spool(tmp_path: Path, restart: bool) -> None:
    """An event that waited for its generation was received before those that came while it waited."""
    world = World(tmp_path)
    a_click(world)
    for gid, eid in (("g1", "z"), ("g3", "y"), ("g1", "x"), ("g3", "w"), ("g1", "v")):
        world.event(gid, "thumbs", 90_000, eid=eid, value=1)
    if restart:
        world.close()
        world = _again(world)
    world.generation("g3", "e1", 2_000, ordinal=2)
    world.event("g3", "thumbs", 90_000, eid="u", value=-1)
    world.tick(3 * HOUR)
    artifact = world.collect().outputs["interactions"]
    (part,) = tables.parts(artifact.path)
    found = [event for one in PartReader(world.vault).episodes(part) for event in one.events]
    assert [e.id for e in found if e.type == "thumbs"] == ["z", "y", "x", "w", "v", "u"]
    told = in_order(_events(artifact, "e1"))
    assert [e.id for e in told if e.type == "thumbs"] == ["z", "y", "x", "w", "v", "u"]
    world.close()
    spool = Spool.open(world.workspace.spool_dir)
    assert len([e for _, e, _, _ in spool.events(0, 1 << 60) if e.type == "thumbs"]) == 6
    spool.close()


def _again(world: World) -> World:
    """The same workspace after a restart of the gateway."""
    world.vault = Vault.open(world.workspace.keys_dir)
    world.writer = SpoolWriter(world.workspace.spool_dir, world.vault, fsync_ms=1.0)
    return world


def test_horizons_begin_with_the_last_request_of_those_side_by_side(world: World) -> None:
    """The request of 0:30 was answered before that of 0:00: what came at 1:20 was within the hour."""
    world.generation("g2", "e1", HOUR // 2)
    world.generation("g1", "e1", 0)
    late = HOUR * 4 // 3
    for kind, data in (("thumbs", {"value": -1}), ("edit_rejected", {"path": "a.py"})):
        world.event("g1", kind, late, **data)
    row = rewarded(distilled(world).outputs["experience"])["e1"]
    assert (row["edit_persistence"], row["edit_rejected"]) == (0.0, 1.0)
    assert row["dissatisfied_followup"] == EXPLICIT_NO
