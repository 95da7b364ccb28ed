from __future__ import annotations

import itertools
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import text

from stages.errors import IntegrityError
from stages.registry import deployments, states
from stages.registry.models import ArtifactRow, DeploymentRow, RunRow
from stages.registry.states import StateError, now, transition
from stages.registry.store import Store
from stages.target.switch import previous_of
from tests.stages.toy import checkpoint

INSERT = "INSERT INTO artifact (kind, line, state, meta, run_id, created_at) VALUES"
ENDED = {"succeeded", "rejected", "inconclusive", "failed", "cancelled", "lost"}


def add_run(store: Store, run_id: str, state: str = "planned", lock: str = "") -> None:
    with store.write() as session:
        session.add(
            RunRow(
                id=run_id,
                stage="train",
                line="auto",
                state=state,
                lock=lock,
                created_at=now(),
                ended_at=now() if state in ENDED else None,
            )
        )


@pytest.mark.parametrize(("old", "new"), list(itertools.product(sorted(states.RUN), repeat=2)))
def test_program_and_database_allow_the_same_transitions_of_runs(store: Store, old: str, new: str) -> None:
    """What `transition` allows the triggers allow, and the other way round."""
    add_run(store, "r", old)
    if new in states.RUN[old]:
        with store.write() as session:
            transition(session, RunRow, "r", old, new, by="test", ended_at=now() if new in ENDED else None)
        assert store.run("r").state == new
        return
    with pytest.raises(StateError), store.write() as session:
        transition(session, RunRow, "r", old, new, by="test")
    if old != new:
        with pytest.raises(IntegrityError), store.write() as session:
            session.connection().execute(text("UPDATE run SET state=:new WHERE id='r'"), {"new": new})


def test_the_triggers_hold_the_same_tables(store: Store, tmp_path: Path) -> None:
    digest = checkpoint(store, tmp_path / "c", "x").digest
    for old, new in itertools.product(states.DEPLOYMENT, states.DEPLOYMENT):
        deployment = store.deployments.create("other", digest, by="me", reason="test")
        with store.write() as session:  # state set at birth: triggers guard updates
            session.connection().execute(text("DELETE FROM deployment"))
            session.add(
                DeploymentRow(
                    id=deployment.id,
                    line="other",
                    artifact_id=1,
                    state=old,
                    by="me",
                    reason="",
                    salt="",
                    created_at=now(),
                    updated_at=now(),
                )
            )
        allowed = old == new or new in states.DEPLOYMENT[old]
        try:
            with store.write() as session:
                session.connection().execute(text("UPDATE deployment SET state=:new"), {"new": new})
        except IntegrityError:
            assert not allowed, (old, new)
        else:
            assert allowed, (old, new)


def test_a_transition_needs_the_expected_state_and_is_recorded(store: Store) -> None:
    add_run(store, "r")
    with store.write() as session:
        transition(session, RunRow, "r", "planned", "running", by="me")
    with pytest.raises(StateError, match="is not planned") as caught, store.write() as session:
        transition(session, RunRow, "r", "planned", "running", by="me")
    assert caught.value.code == 12
    with store.read() as session:
        found = session.connection().execute(text('SELECT entity, from_state, to_state, "by" FROM event'))
        assert [tuple(row) for row in found] == [("run", "planned", "running", "me")]


@pytest.mark.parametrize("statement", ["UPDATE event SET at = ''", "DELETE FROM event"])
def test_events_cannot_be_changed(store: Store, statement: str) -> None:
    add_run(store, "r")
    with store.write() as session:
        transition(session, RunRow, "r", "planned", "running", by="me")
    with pytest.raises(IntegrityError, match="append-only"), store.write() as session:
        session.connection().execute(text(statement))


@pytest.mark.parametrize(
    "statement",
    [
        f"{INSERT} ('nonsense', 'a', 'writing', '{{}}', 'r', '')",
        f"{INSERT} ('report', 'a', 'nonsense', '{{}}', 'r', '')",
        f"{INSERT} ('report', 'a', 'committed', '{{}}', 'r', '')",
        f"{INSERT} ('report', 'a', 'writing', '{{}}', 'nobody', '')",
        "UPDATE run SET state = 'succeeded' WHERE id = 'r'",
    ],
    ids=["kind", "state", "committed without digest", "no such run", "ended without a time"],
)
def test_the_database_refuses_impossible_rows(store: Store, statement: str) -> None:
    add_run(store, "r", "running")
    with pytest.raises(IntegrityError), store.write() as session:
        session.connection().execute(text(statement))


def test_one_running_run_per_lock_one_live_and_one_canary_per_line(store: Store, tmp_path: Path) -> None:
    add_run(store, "a", "running", lock="train-auto")
    with pytest.raises(IntegrityError, match="UNIQUE"):
        add_run(store, "b", "running", lock="train-auto")
    digest = checkpoint(store, tmp_path / "c", "x").digest
    for state in ("live", "canary"):
        deployments = [store.deployments.create("auto", digest, by="me", reason="x") for _ in range(2)]
        for one in deployments:
            store.deployments.transition(one.id, "staged", "verifying")
        store.deployments.transition(deployments[0].id, "verifying", state)
        with pytest.raises(IntegrityError, match="UNIQUE"):
            store.deployments.transition(deployments[1].id, "verifying", state)


def test_going_live_moves_alias_and_deployments_together(store: Store, tmp_path: Path) -> None:
    one = checkpoint(store, tmp_path / "c", "one").digest
    two = checkpoint(store, tmp_path / "c", "two", one).digest

    def deploy(digest: str) -> str:
        made = store.deployments.create("auto", digest, by="me", reason="better", report="sha256:r")
        store.deployments.transition(made.id, "staged", "verifying", probes=3)
        store.move_alias("auto", "live", digest, reason="better", by="me", deployment_id=made.id)
        return made.id

    first, second = deploy(one), deploy(two)
    assert store.resolve("checkpoint@live").digest == two
    assert store.deployments.get(first).state == "retired"
    current = store.deployments.current("auto")
    assert current is not None
    assert (current.id, current.checkpoint, current.data["probes"]) == (second, two, 3)
    store.deployments.transition(second, "live", "rolling_back")
    third = deploy(one)
    assert [d.state for d in store.deployments.history("auto")] == ["live", "rolled_back", "retired"]
    assert store.deployments.history("auto")[0].id == third
    with pytest.raises(StateError):  # of another checkpoint: nothing moves
        store.move_alias("auto", "live", two, reason="x", deployment_id=third)
    assert store.resolve("checkpoint@live").digest == one


def test_deployments_keep_their_order_when_the_clock_was_set_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was served before, a rollback must not ask the clock."""
    digests = [checkpoint(store, tmp_path / "c", "0").digest]
    for name in "123":
        digests.append(checkpoint(store, tmp_path / "c", name, digests[-1]).digest)
    made = []
    for day, (previous, digest) in zip((20, 22, 19), pairwise(digests), strict=True):
        monkeypatch.setattr(deployments, "now", lambda day=day: f"2026-11-{day}T00:00:00.000000+00:00")
        one = store.deployments.create("auto", digest, by="me", reason="x", previous=previous)
        made.append(one.id)
    assert [each.id for each in store.deployments.history("auto")] == made[::-1]
    again = store.deployments.create("auto", digests[1], by="me", reason="x", previous=digests[3])
    assert previous_of(store, "auto", digests[1]) == digests[0]
    assert store.deployments.of(digests[1])[-1].id == again.id


def test_a_canary_that_ended_was_never_live(store: Store, tmp_path: Path) -> None:
    """A second rollback skipped what was really served before, for what was on the day of the canary."""
    first = checkpoint(store, tmp_path / "c", "0").digest
    tried, good = (checkpoint(store, tmp_path / "c", name, first).digest for name in "12")
    canary = store.deployments.create("auto", tried, by="me", reason="x", previous=first)
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        store.deployments.transition(canary.id, before, after)
    store.deployments.end_canary(canary.id, "harm", by="ab")
    store.deployments.create("auto", good, by="me", reason="x", previous=first)
    assert previous_of(store, "auto", tried) is None
    store.deployments.create("auto", tried, by="me", reason="x", previous=good)
    assert previous_of(store, "auto", tried) == good


def test_rows_of_artifacts_follow_their_table(store: Store) -> None:
    assert set(states.ARTIFACT) == {"writing", "committed", "tombstoned", "abandoned"}
    with pytest.raises(StateError), store.write() as session:
        transition(session, ArtifactRow, 1, "abandoned", "committed", by="me")
