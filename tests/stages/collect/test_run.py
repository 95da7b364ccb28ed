"""`collect` over a real spool, vault and store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages import rows, schemas, tables
from stages.errors import InconclusiveError, InputMissingError, IntegrityError, UsageError
from stages.linestate import LineState
from stages.owners import own_name
from stages.records import RoutedExperts
from stages.spool import Spool, SpoolDamagedError
from stages.spool.reader import open_event
from stages.stage import Artifact
from stages.tokens import open_payload
from tests.stages.world import HOUR, T0, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def generations(artifact: Artifact) -> dict[str, rows.SealedGeneration]:
    return {
        row.generation.id: row
        for part in tables.parts(artifact.path)
        for batch in tables.batches(part / schemas.GENERATIONS_FILE, schemas.GENERATIONS)
        for row in rows.generations(batch)
    }


def events(artifact: Artifact) -> list[rows.SealedEvent]:
    return [
        row
        for part in tables.parts(artifact.path)
        for batch in tables.batches(part / schemas.EVENTS_FILE, schemas.EVENTS)
        for row in rows.events(batch)
    ]


def quarantine(artifact: Artifact) -> list[dict[str, str]]:
    return tables.read(artifact.path / schemas.QUARANTINE_FILE, schemas.QUARANTINE).to_pylist()


def episodes(artifact: Artifact) -> list[dict[str, object]]:
    found = []
    for part in tables.parts(artifact.path):
        found += tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES).to_pylist()
    return found


def test_an_empty_spool(world: World) -> None:
    with pytest.raises(InputMissingError, match="holds no generation") as caught:
        world.collect()
    assert caught.value.code == 5
    assert "rtrl serve" in caught.value.hint


def test_only_mature_episodes_and_why_not_the_others(world: World) -> None:
    world.generation("a", "e1", 0)
    world.generation("b", "e2", 10 * 60_000, session="s2")
    world.event("b", "edit_applied", 30 * 60_000, path="x.py", before="", after="x")  # matures later
    world.generation("c", "e3", 0, session="s3", no_train=True)
    world.generation("d", "e4", 0, session="s4", arm="canary")
    world.generation("e", "e5", 0, session="s5", checkpoint="sha256:" + "0" * 64)
    world.generation("f", "e6", 0, session="s6", line="other")
    world.tick(HOUR)
    artifact = world.collect().outputs["interactions"]
    assert [row["id"] for row in episodes(artifact)] == ["e1"]
    assert artifact.meta["left_behind"] == {"no_train": 1, "arm": 1, "unrelated": 1, "immature": 2}
    assert artifact.meta["other_lines"] == 1
    assert artifact.meta["window"]["now"] == T0 + HOUR
    assert artifact.meta["checkpoint"] == world.live
    table = {row["exit"]: row for row in artifact.meta["audit"]}
    assert table["taken"] == {
        "exit": "taken", "by": "", "episodes": 1, "share": 0.166667,
        "invalid_calls": 0.0, "edited": 0.0, "output_tokens": 2.0, "calls": 0.0, "turns": 1.0,
    }  # fmt: skip
    assert {name: row["by"] for name, row in table.items() if name != "taken"} == {
        "no_train": "user", "arm": "infrastructure", "unrelated": "infrastructure", "immature": "clock",
    }  # fmt: skip
    assert table["immature"]["edited"] == 0.5
    shift = table["immature"]["shifts"]["edited"]
    assert (shift["removed"], shift["kept"], shift["p"]) == (0.5, 0.0, 1.0)


def test_too_early_says_when(world: World) -> None:
    world.generation("a", "e1", 0)
    with pytest.raises(InconclusiveError) as caught:
        world.collect()
    assert caught.value.code == 4
    assert "1 immature" in caught.value.message
    assert "2027-01-15 09:00:00Z" in caught.value.hint
    world.tick(HOUR)
    with pytest.raises(InconclusiveError, match="1 episode ready, 5 are wanted"):
        world.collect("collect.min_episodes=5")


def test_the_same_spool_again_is_a_no_op(world: World) -> None:
    world.generation("a", "e1", 0)
    world.tick(HOUR)
    first = world.collect()
    again = world.collect()
    assert (first.status, again.status) == ("succeeded", "noop")
    assert again.outputs["interactions"].digest == first.outputs["interactions"].digest
    world.event("a", "thumbs", 2 * HOUR, value=1)
    assert world.collect().status == "succeeded"


def test_the_wall_clock_alone_is_no_change(tmp_path: Path) -> None:
    world = World(tmp_path, "")
    world.generation("a", "e1", -10 * 365 * 24 * HOUR)
    first = world.collect()
    assert first.outputs["interactions"].meta["counts"]["episodes"] == 1
    assert world.collect().status == "noop"
    world.close()


def test_nothing_the_model_writes_removes_a_generation(world: World) -> None:
    world.generation("broken", "e1", 0, answer="<tool_call>{", invalid_tool_calls=1)
    overflow: dict[str, Any] = {"finish_reason": "context_overflow", "spans": ()}
    world.generation("overflow", "e2", 0, session="s2", prompt=(), output=(), answer="", **overflow)
    world.generation("empty", "e3", 0, session="s3", output=(), answer="")
    world.generation("timeout", "e4", 0, session="s4", finish_reason="timeout")
    world.tick(HOUR)
    artifact = world.collect().outputs["interactions"]
    assert {row["id"] for row in episodes(artifact)} == {"e1", "e2", "e3", "e4"}
    assert quarantine(artifact) == []
    assert artifact.meta["left_behind"] == {"immature": 1}


def test_late_events_of_collected_but_unconsumed_episodes_are_picked_up(world: World) -> None:
    world.generation("a", "e1", 0)
    world.tick(HOUR)
    world.collect()
    world.event("a", "edit_survival", 6 * HOUR, path="x.py", horizon_s=3600, now="x")
    artifact = world.collect().outputs["interactions"]
    assert [row.event.type for row in events(artifact)] == ["edit_survival"]
    assert {row["id"] for row in episodes(artifact)} >= {"e1"}


def test_consumed_episodes_stay_out_and_the_scan_resumes_after_them(world: World) -> None:
    world.generation("a", "e1", 0)
    world.tick(HOUR)
    world.collect()
    world.promote(world.checkpoint(parent=world.live, consumed=["e1"]))
    world.generation("b", "e2", HOUR + 1, session="s2")
    world.event("a", "edit_reverted", 2 * HOUR, path="a.py")
    world.tick(3 * HOUR)
    second = world.collect().outputs["interactions"]
    assert {row["id"] for row in episodes(second)} == {"e2", f"tick-{HOUR}"}
    assert second.meta["left_behind"] == {"consumed": 1, "immature": 1}
    lag = {row["id"]: row["lag"] for row in episodes(second)}
    assert lag == {"e2": 0, f"tick-{HOUR}": 1}
    assert second.meta["window"]["resume_seq"] == 2  # seq 1 is e1: consumed for good
    assert second.meta["events_left_behind"] == {"consumed": 1}
    assert second.meta["events_too_late"] == 1
    world.promote(world.checkpoint(parent=world.live, consumed=["e1", "e2"]))
    world.generation("c", "e3", 4 * HOUR, session="s3")
    world.tick(5 * HOUR)
    third = world.collect().outputs["interactions"]  # e1 is not even looked at again
    assert {row["id"] for row in episodes(third)} == {f"tick-{3 * HOUR}", "e3"}
    assert third.meta["left_behind"] == {"consumed": 1, "lag": 1, "immature": 1}
    assert third.meta["events_left_behind"] == {"no_generation": 1}
    assert third.meta["events_too_late"] == 0  # the second has counted it


def test_nothing_is_taken_from_farther_than_what_was_consumed_is_known(world: World) -> None:
    world.generation("a", "e1", 0)
    world.promote(world.checkpoint(parent=world.live, generation=9))
    world.generation("b", "e2", 1000, session="s2")
    state = LineState(consumed_from=9)
    world.promote(world.checkpoint(parent=world.live, state=state, generation=10))
    world.generation("c", "e3", 2000, session="s3")
    world.tick(2 * HOUR)
    near = world.collect("collect.max_lag=1")
    assert (near.outputs["interactions"].meta["left_behind"], near.warnings) == (
        {"lag": 1, "immature": 1},
        [],
    )
    far = world.collect("collect.max_lag=5")
    assert {row["id"] for row in episodes(far.outputs["interactions"])} == {"e2", "e3"}
    assert far.outputs["interactions"].meta["left_behind"] == {"lag": 1, "immature": 1}
    assert "known for the last 1 checkpoint only" in far.warnings[0]


def test_what_a_limit_leaves_waits_for_the_next(world: World) -> None:
    for n in range(4):
        world.generation(f"g{n}", f"e{n}", n, session=f"s{n}")
    world.tick(HOUR + 3)
    first = world.collect("collect.max_episodes=3").outputs["interactions"]
    assert {row["id"] for row in episodes(first)} == {"e1", "e2", "e3"}
    assert first.meta["left_behind"] == {"immature": 1, "limit": 1}
    assert world.collect("collect.max_episodes=3").status == "noop"
    world.promote(world.checkpoint(parent=world.live, consumed=["e1", "e2", "e3"]))
    world.tick(2 * HOUR + 3)
    second = world.collect("collect.max_episodes=3").outputs["interactions"]
    assert {row["id"]: row["lag"] for row in episodes(second)} == {"e0": 1, f"tick-{HOUR + 3}": 1}
    with pytest.raises(UsageError, match="min_episodes 5 wants more"):
        world.collect("collect.max_episodes=3", "collect.min_episodes=5")


def test_what_came_in_time_is_not_told_as_too_late(world: World) -> None:
    """A collect begins with what waited at the one before it, amid events of what was taken then: a's message
    had been taken with it. Of a and b the reverted edits came when they had been trained on; the last message
    is another line's."""
    world.generation("a", "e1", 0)
    world.generation("b", "e2", 50 * 60_000, session="s2")
    world.event("a", "user_message", 55 * 60_000, text="thanks")
    world.tick(HOUR)
    assert world.collect().outputs["interactions"].meta["events_too_late"] == 0
    world.promote(world.checkpoint(parent=world.live, consumed=["e1"]))
    world.tick(2 * HOUR)
    second = world.collect().outputs["interactions"]
    assert second.meta["events_left_behind"] == {"consumed": 1}
    assert second.meta["events_too_late"] == 0
    world.promote(world.checkpoint(parent=world.live, consumed=["e1", "e2", f"tick-{HOUR}"]))
    world.event("a", "edit_reverted", 2 * HOUR, path="a.py")
    world.event("b", "edit_reverted", 2 * HOUR, path="a.py")
    world.generation("other", "e9", 2 * HOUR, session="s9", line="another")
    world.event("other", "user_message", 2 * HOUR, text="thanks")
    world.tick(3 * HOUR)
    third = world.collect().outputs["interactions"]
    assert third.meta["events_left_behind"] == {"consumed": 1, "no_generation": 3}
    assert third.meta["events_too_late"] == 2


def test_events_before_their_request_are_told(world: World) -> None:
    """New York's half past nine for half past one UTC; a clock that is a minute off is none."""
    world.generation("a", "e1", 5 * HOUR)
    world.event("a", "edit_reverted", HOUR, path="a.py")
    world.event("a", "thumbs", 5 * HOUR - 60_000, value=1)
    world.event("a", "thumbs", 5 * HOUR + 1, value=1)
    world.tick(6 * HOUR + 1)
    done = world.collect()
    assert done.outputs["interactions"].meta["events_early"] == 1
    (warning,) = done.warnings
    assert warning.startswith("1 event dated more than a minute before the request")


def test_a_rejected_candidate_leaves_its_data_usable(world: World) -> None:
    world.generation("a", "e1", 0)
    world.tick(HOUR)
    world.collect()
    world.checkpoint(parent=world.live, consumed=["e1"])  # never promoted
    world.generation("b", "e2", HOUR, session="s2")
    world.tick(2 * HOUR)
    assert {row["id"] for row in episodes(world.collect().outputs["interactions"])} >= {"e1", "e2"}


def test_prompts_extend_only_generations_of_their_own_episode(world: World) -> None:
    first = list(range(100, 140))
    world.generation("a", "e1", 0, prompt=first, output=(1, 2))
    second = [*first, 1, 2, 50, 51]
    world.generation("b", "e1", 1, prompt=second, output=(3,), ordinal=1)
    third = [*second, 3, 60]
    world.generation("c", "e2", 2, prompt=third, output=(4, 5))  # the session goes on: next episode
    world.tick(HOUR + 10)
    found = generations(world.collect().outputs["interactions"])
    assert (found["b"].generation.prompt_base, found["b"].generation.prompt_prefix) == ("a", 42)
    assert (found["c"].generation.prompt_base, found["c"].generation.prompt_prefix) == ("", 0)
    payload = open_payload(world.vault, "ada", "c", found["c"].sealed)
    assert np.frombuffer(payload.prompt, np.int32).tolist() == third
    assert np.frombuffer(payload.output, np.int32).tolist() == [4, 5]


def test_experts_that_extend_another_episodes_are_sealed_again_in_full(world: World) -> None:
    def rows(ids: list[int]) -> np.ndarray:
        return np.array(ids[:-1], np.uint8).reshape(-1, 1, 1)

    first = [*range(100, 140), 1, 2]
    world.generation("a", "e1", 0, prompt=first[:-2], output=(1, 2), experts=rows(first))
    second = [*first, 50, 51, 3]
    world.generation("b", "e1", 1, prompt=second[:-1], output=(3,), ordinal=1, experts=rows(second))
    third = [*second, 60, 4, 5]
    world.generation("c", "e2", 2, prompt=third[:-2], output=(4, 5), experts=rows(third))
    world.tick(HOUR + 10)
    found = generations(world.collect().outputs["interactions"])
    kept = {gid: open_payload(world.vault, "ada", gid, found[gid].sealed).experts for gid in "abc"}
    assert kept["b"] == RoutedExperts(bytes(second[41:-1]), 41, 1, 1, 1)
    assert kept["c"] == RoutedExperts(bytes(third[:-1]), 0, 1, 1, 1)


def test_the_next_request_is_the_message_a_client_did_not_send(world: World) -> None:
    world.generation("a", "e1", 0)
    world.generation("b", "e2", 60_000, request="still wrong")
    world.generation("c", "e3", 120_000, request="now the docs")
    world.event("b", "user_message", 121_000, text="told by the client")
    world.tick(2 * HOUR)
    found = events(world.collect().outputs["interactions"])
    opened = {
        row.episode: (open_event(row.event, row.user, row.sealed, world.vault).data["text"], row.derived)
        for row in found
    }
    assert opened == {"e1": ("still wrong", True), "e2": ("told by the client", False)}
    derived = next(row for row in found if row.derived)
    assert (derived.event.generation_id, derived.event.at) == ("a", T0 + 60_000)


def test_no_train_requests_are_not_read_as_messages(world: World) -> None:
    world.generation("a", "e1", 0)
    world.generation("b", "e2", 60_000, request="secret", no_train=True)
    world.tick(2 * HOUR)
    assert events(world.collect().outputs["interactions"]) == []


def test_an_episode_with_a_no_train_request_stays_out_whatever_window_the_others_are_in(
    world: World,
) -> None:
    """A client names it, so it goes on for days: the third collect begins after that request."""
    mine = own_name("mine", "default", "ada")
    world.generation("told", mine, 0, no_train=True)
    world.generation("other", "other", 60_000, session="s2")
    world.tick(2 * HOUR)
    world.collect()
    world.promote(world.checkpoint(world.live, consumed=["other"]))
    for gid, episode in (("again", mine), ("more", "more")):
        world.generation(gid, episode, 3 * HOUR, session=episode, user="ada")
    world.tick(5 * HOUR)
    found = world.collect()
    assert found.outputs["interactions"].meta["window"]["resume_seq"] > 1
    world.promote(world.checkpoint(world.live, consumed=["other", "more", f"tick-{2 * HOUR}"]))
    world.generation("late", mine, 6 * HOUR)
    world.tick(9 * HOUR)
    again = world.collect()
    assert again.metrics["left_behind"]["no_train"] == 1
    assert again.metrics["episodes"] == 1, "the clock's"


def test_requests_without_consent_are_looked_up_only_where_a_client_named_an_episode(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derived episodes are never of both kinds; a million such requests would be read for nothing."""
    read, record = list[str](), Spool.record
    monkeypatch.setattr(Spool, "record", lambda self, gid: read.append(gid) or record(self, gid))
    for gid, episode in (("told", "s_1/1-no-train"), ("also", own_name("e", "default", "ada"))):
        world.generation(gid, episode, 0, no_train=True)
    world.generation("other", "other", 60_000, session="s2")
    world.tick(2 * HOUR)
    world.collect()
    world.promote(world.checkpoint(world.live, consumed=["other"]))
    world.generation("again", "s_1/2", 3 * HOUR)
    world.tick(5 * HOUR)
    world.collect()
    assert not {"told", "also"} & {*read}
    world.generation("named", own_name("f", "default", "ada"), 6 * HOUR)
    world.tick(9 * HOUR)
    world.collect()
    assert {"told", "also"} <= {*read}


def test_forgotten_users(world: World) -> None:
    world.generation("a", "e1", 0)
    world.generation("b", "e2", 0, user="bob", session="s2")
    world.tick(HOUR)
    world.writer.flush()
    world.vault.forget("bob")
    world.generation("c", "e3", 1, user="bob", session="s3")  # bob is back
    world.tick(HOUR + 2)
    artifact = world.collect().outputs["interactions"]
    assert {row["id"] for row in episodes(artifact)} == {"e1", "e3"}
    assert artifact.meta["left_behind"]["forgotten"] == 1


def test_defects_are_quarantined_by_name_and_their_episode_stays(world: World) -> None:
    world.generation("a", "e1", 0, logprobs=[-1.0], defect="logprobs_length")
    world.generation("b", "e1", 1, ordinal=1)
    world.tick(HOUR + 1)
    artifact = world.collect().outputs["interactions"]
    assert quarantine(artifact) == [{"id": "a", "episode": "e1", "reason": "logprobs_length"}]
    assert set(generations(artifact)) == {"a", "b"}
    assert artifact.meta["quarantined"] == {"logprobs_length": 1}


def test_a_truncated_segment_is_reported_once_and_then_counted(world: World) -> None:
    world.generation("a", "e1", 0)
    world.generation("b", "e2", 0, session="s2")
    world.event("b", "thumbs", 1, value=1)
    world.writer.seal()
    world.tick(HOUR)
    world.writer.flush()
    segment = sorted((world.workspace.spool_dir / "segments").glob("*.seg"))[0]
    row = world.writer._index.generation("b")
    assert row is not None
    segment.write_bytes(segment.read_bytes()[: row.offset + 40])
    with pytest.raises(SpoolDamagedError) as caught:
        world.collect()
    assert caught.value.code == 12
    assert "run the command again" in caught.value.hint
    result = world.collect()
    artifact = result.outputs["interactions"]
    assert {row["id"] for row in episodes(artifact)} == {"e1"}
    assert {"id": "b", "episode": "", "reason": "spool_truncated"} in quarantine(artifact)
    assert artifact.meta["quarantined"] == {"spool_truncated": 1}
    assert artifact.meta["lost_events"] == 1
    assert any("quarantined" in warning for warning in result.warnings)


def test_a_flipped_byte_in_the_artifact(world: World) -> None:
    world.generation("a", "e1", 0)
    world.tick(HOUR)
    artifact = world.collect().outputs["interactions"]
    path = tables.parts(artifact.path)[0] / schemas.GENERATIONS_FILE
    data = bytearray(path.read_bytes())
    data[data.index(generations(artifact)["a"].sealed) + 20] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        generations(artifact)
    assert caught.value.code == 12
    assert "rtrl verify" in caught.value.hint


def test_a_recorded_run_is_repeated_with_its_window(world: World) -> None:
    parent = world.live
    world.generation("a", "e1", 0, checkpoint=parent)
    world.promote(world.checkpoint(parent=parent))
    world.generation("b", "e2", 1, session="s2")
    world.tick(HOUR + 1)
    first = world.collect()
    world.tick(9 * HOUR)  # goes on: not a part of what is repeated
    again = world.collect(from_run=first.run_id)
    assert again.outputs["interactions"].meta == first.outputs["interactions"].meta
    assert episodes(again.outputs["interactions"]) == episodes(first.outputs["interactions"])
    assert {row["lag"] for row in episodes(again.outputs["interactions"])} == {0, 1}
