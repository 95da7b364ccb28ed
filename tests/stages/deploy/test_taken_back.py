"""deploy by hand of what was taken back, and of what was trained from it."""

from __future__ import annotations

import pytest

from stages.errors import GateRejectedError
from tests.stages.target.fixtures import Line

WHY = "answers leak customer names"


def taken_back(line: Line) -> None:
    """b was live, and was rolled back; its child c has passed against a, which is live."""
    line.report(line.b, line.a)
    line.deploy(line.b.ref)
    line.rollback(reason=WHY)
    line.report(line.c, line.a)


def test_a_child_of_what_was_rolled_back_is_served_to_whoever_asks_with_a_warning(line: Line) -> None:
    """As what was rolled back itself: the gate let it through, and whoever asks may know better by now."""
    taken_back(line)
    result = line.deploy()
    assert line.live == line.c.digest
    assert result.warnings == [f"{line.c.ref} was trained from {line.b.ref}, which was rolled back: {WHY}"]


def test_a_child_of_a_canary_that_was_taken_back_has_to_be_named(line: Line) -> None:
    deployments = line.store.deployments
    made = deployments.create("auto", line.b.digest, by="test", reason="r", data={"canary": {"share": 0.1}})
    deployments.transition(made.id, "staged", "verifying")
    deployments.transition(made.id, "verifying", "canary")
    deployments.end_canary(made.id, WHY, by="test")
    line.report(line.c, line.a)
    expected = f"{line.c.ref} passed, and was trained from {line.b.ref}, which was rolled back: {WHY}"
    with pytest.raises(GateRejectedError) as caught:
        line.deploy()
    assert (str(caught.value), line.live) == (expected, line.a.digest)
    assert f"rtrl deploy --input {line.c.ref}" in caught.value.hint
    assert line.deploy(line.c.ref).status == "succeeded"


def test_a_deploy_that_was_killed_does_not_make_it_forgotten(line: Line) -> None:
    """It had got nowhere: whoever comes before its end is on record heard nothing of the rollback."""
    taken_back(line)
    killed = line.store.deployments.create("auto", line.b.digest, by="test", reason="killed")
    for state in ("staged", "verifying", "failed"):
        found = line.store.deployments.rolled_back("auto", line.b.digest)
        assert found is not None, state
        assert found.data["rollback_reason"] == WHY
        if state != "failed":
            after = {"staged": "verifying", "verifying": "failed"}[state]
            line.store.deployments.transition(killed.id, state, after)


def test_what_is_live_was_trained_from_it_too(line: Line) -> None:
    """Somebody has answered for c, with all that it was trained from: its children are no news."""
    taken_back(line)
    line.deploy(line.c.ref)
    line.report(child := line.checkpoint("d", line.c.digest), line.c)
    assert line.deploy().warnings == []
    assert line.live == child.digest
