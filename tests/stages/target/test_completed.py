"""A canary's rollback whose record comes later: whatever was decided, or died, in between."""

from __future__ import annotations

import pytest

from stages.deploy.run import DeployStage
from stages.errors import InputMissingError
from stages.registry.deployments import Deployment
from stages.rollback.traffic import intend
from stages.runner import run_stage
from stages.target import completed, switch
from stages.target.completed import complete
from stages.target.intent import read_intent, write_intent
from tests.stages.target.fixtures import Line


class PowerCutError(Exception):
    pass


@pytest.fixture
def canary(line: Line) -> Deployment:
    """b is live after a; c is the open canary."""
    line.report(line.b, line.a)
    line.deploy()
    made = line.store.deployments.create("auto", line.c.digest, by="me", reason="x", previous=line.b.digest)
    for before, after in (("staged", "verifying"), ("verifying", "canary")):
        line.store.deployments.transition(made.id, before, after, canary={"share": 0.1})
    return made


def pending(line: Line, canary: Deployment, to: str = "") -> None:
    """Its users were taken from it while the store was away; with `to` what is live went as well."""
    asked = intend("auto", line.b.digest, to or line.b.digest, "worse", canary.id)
    write_intent(line.workspace.run_dir, asked)


def settled(line: Line) -> bool:
    return complete(line.store, line.workspace.run_dir, "auto")


def test_only_the_canary_ends(line: Line, canary: Deployment) -> None:
    pending(line, canary)
    assert settled(line)
    ended = line.store.deployments.get(canary.id)
    assert (ended.state, ended.data["rollback_reason"]) == ("rolled_back", "worse")
    assert (line.live, line.states()) == (line.b.digest, ["live", "rolled_back"])
    assert not settled(line)


def test_one_that_was_promoted_meanwhile_is_taken_back(line: Line, canary: Deployment) -> None:
    pending(line, canary)
    line.store.move_alias("auto", "live", line.c.digest, reason="A/B", by="rtrl ab", deployment_id=canary.id)
    assert settled(line)
    assert line.live == line.b.digest
    assert line.states() == ["retired", "rolled_back", "live"]


@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("to", [False, True])
@pytest.mark.parametrize(
    "point", ["rollback.canary.recorded", "switch.rolling_back.after", "rollback.recorded"]
)
def test_killed_between_its_steps_it_is_completed_the_next_time(
    line: Line, canary: Deployment, monkeypatch: pytest.MonkeyPatch, point: str, *, promoted: bool, to: bool
) -> None:
    target = line.a if to else line.b
    pending(line, canary, target.digest)
    if promoted:
        line.store.move_alias("auto", "live", line.c.digest, reason="", by="ab", deployment_id=canary.id)
    passed = []

    def cut(name: str) -> None:
        passed.append(name)
        if name == point:
            raise PowerCutError

    with monkeypatch.context() as patch:
        for each in (completed, switch):
            patch.setattr(each.faults, "point", cut)
        try:
            settled(line)
        except PowerCutError:
            assert read_intent(line.workspace.run_dir, "auto") is not None
            patch.undo()
            assert settled(line)
        else:
            assert point not in passed
    assert line.live == target.digest
    assert line.store.deployments.get(canary.id).state == "rolled_back"
    assert read_intent(line.workspace.run_dir, "auto") is None
    unfinished = line.store.deployments.unfinished("auto")
    assert not unfinished


def test_what_is_decided_about_it_then_finds_it_ended(line: Line, canary: Deployment) -> None:
    """By `rtrl ab`, or a cycle, which saw it open before they had the lock."""
    pending(line, canary)
    promotion = DeployStage(promote=True, only=canary.id)
    with pytest.raises(InputMissingError, match="is no open canary"):
        run_stage(line.workspace, line.store, promotion)
    assert (line.live, line.served) == (line.b.digest, line.b.digest)
    assert line.store.deployments.get(canary.id).state == "rolled_back"


def test_another_rollback_finds_what_it_asked_for_done(line: Line, canary: Deployment) -> None:
    pending(line, canary)
    assert line.rollback(asked=canary.id).status == "noop"
    assert line.live == line.b.digest
    pending(line, canary)  # a gateway's note that was not removed
    line.rollback()
    assert line.live == line.a.digest, "asked for after that: one further"
