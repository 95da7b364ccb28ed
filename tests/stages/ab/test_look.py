"""Looks over time: promotion once at the horizon, and the end of what is held there. The arms are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evals.ab.arms import Users
from rtrl_cli.commands.ab import text
from stages.ab import look
from stages.ab.act import act
from stages.ab.config import GUARDS, METRICS, AbConfig
from stages.ab.ended import ended
from stages.ab.observe import ArmSeen
from stages.errors import InputMissingError, RolledBackError
from stages.progress import Silent
from stages.registry.looks import looks_of
from stages.target.canary import canary_of
from stages.workspace import Workspace
from tests.stages.serving.conftest import SETTINGS, StubWorld

NAMES = (*METRICS, *GUARDS)


def arm(rate: float, seed: int, users: int = 60) -> ArmSeen:
    """Users with five edits each of which `rate` stay; nothing is told of anything else."""
    random = np.random.default_rng(seed)
    kept = Users.of(random.binomial(5, rate, users), np.full(users, 5))
    return ArmSeen(users, 5 * users, {name: Users.of([], []) for name in NAMES} | {NAMES[0]: kept})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> StubWorld:
    root: Path = tmp_path_factory.mktemp("look")
    made = StubWorld(root)
    (root / "ws" / "rtrl.toml").write_text(SETTINGS)
    made.workspace = Workspace(root / "ws")
    return made


def opened(world: StubWorld) -> str:
    deployments = world.store.deployments
    made = deployments.create(
        "auto", world.second.digest, by="test", reason="r", data={"canary": {"share": 0.5, "opened_seq": 0}}
    )
    deployments.transition(made.id, "staged", "verifying")
    return deployments.transition(made.id, "verifying", "canary").id


def take(world: StubWorld, *settings: str, deciding: bool = True) -> str:
    workspace = world.workspace.with_overrides(settings)
    return look.take_look(workspace, world.store, Silent(), by="test", deciding=deciding).action


def test_what_is_held_at_its_horizon_is_ended_when_nobody_promotes_it(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = (arm(0.6, 1), arm(0.6, 2))  # too few users to exclude a loss of 0.03
    monkeypatch.setattr(look, "observe", lambda *_: arms)
    deployment = opened(world)
    assert take(world, "ab.horizon_s=3600", "ab.hold_s=0") == "hold"  # before the horizon
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=0", deciding=False) == "hold"
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=0") == "hold"  # at it: decided once
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=3600") == "hold"  # somebody may promote it still
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=0", deciding=False) == "hold"  # only shown
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=0") == "end"
    told = looks_of(world.store, deployment)
    assert [each["action"] for each in told] == ["hold"] * 5 + ["end"]
    assert [each["at_horizon"] for each in told] == [False, False, True, False, False, False]
    assert "cannot be excluded" in str(told[-1]["reason"])
    assert [each.get("ends_in_s") for each in told[:3]] == [None] * 3
    assert told[3]["ends_in_s"] == pytest.approx(3600, abs=30)
    assert told[-1]["ends_in_s"] == 0
    world.store.deployments.end_canary(deployment, "not promoted", by="test")


def test_what_people_are_shown(world: StubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = [arm(0.9, 1, 400), arm(0.2, 2, 400)]
    for index, one in enumerate(arms):
        kept = one.metrics[NAMES[0]]
        before = np.random.default_rng(index).random(400)
        arms[index] = replace(one, metrics={**one.metrics, NAMES[0]: replace(kept, before=before)})
    monkeypatch.setattr(look, "observe", lambda *_: arms)
    deployment = opened(world)
    seen = look.take_look(world.workspace, world.store, Silent(), by="test", deciding=False)
    shown = text(seen)
    assert f"{deployment} of line auto" in shown
    assert "edit_persistence 0% less variance, 800 users: taken away of DIFFERENCE and gains" in shown
    assert "natural logarithm" in shown
    seen.data["metrics"][NAMES[0]]["harm_bound"] = 57.971  # of few users: no share can gain as much
    assert next(row for row in text(seen).splitlines() if row.startswith(NAMES[0])).split()[4] == "-"
    assert "not measured  dissatisfied_followup" in shown
    assert shown.splitlines()[-1].startswith("roll back: edit_persistence is worse by")
    assert "since the first look" not in shown
    changed = ["ab.alpha_harm=0.2", "ab.cuped=false", 'ab.margins={"latency": 9}']
    workspace = world.workspace.with_overrides(changed)
    again = look.take_look(workspace, world.store, Silent(), by="test", deciding=False)
    assert "alpha_harm, cuped, margin.latency since the first look" in text(again)
    world.store.deployments.end_canary(deployment, "shown", by="test")


def test_the_arms_are_held_against_the_canarys_share_and_nothing_is_planned_with_few() -> None:
    canary: Any = SimpleNamespace(line="auto", data={"canary": {"share": 0.1}})
    data, _ = look.judge(AbConfig(), canary, arm(0.6, 1, 450), arm(0.6, 2, 50), [], at_horizon=False)
    assert data["sample_ratio_p"] == pytest.approx(1.0)
    assert set(data["planned"]) == {NAMES[0]}
    wrong, found = look.judge(AbConfig(), canary, arm(0.6, 1, 50), arm(0.6, 2, 450), [], at_horizon=True)
    assert wrong["sample_ratio_p"] < 1e-6
    assert (found.action, "find out who is missing" in found.reason) == ("hold", True)
    few, _ = look.judge(AbConfig(), canary, arm(0.6, 1, 49), arm(0.6, 2, 60), [], at_horizon=False)
    assert few["planned"] == {}
    just, _ = look.judge(AbConfig(), canary, arm(0.6, 1, 50), arm(0.6, 2, 5), [few], at_horizon=False)
    assert set(just["planned"]) == {NAMES[0]}
    later, _ = look.judge(AbConfig(), canary, arm(0.6, 3, 90), arm(0.6, 2, 9), [few, just], at_horizon=False)
    assert later["planned"] == just["planned"]  # of the first look that had enough


def test_harm_is_harm_also_while_it_is_held(world: StubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = (arm(0.6, 1), arm(0.6, 2))
    monkeypatch.setattr(look, "observe", lambda *_: arms)
    opened(world)
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=0") == "hold"
    arms = (arm(0.9, 1, 400), arm(0.2, 2, 400))
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=0") == "roll_back"


def end_any(world: StubWorld) -> None:
    if (left := canary_of(world.store, "auto")) is not None:
        world.store.deployments.end_canary(left.id, "over", by="test")


@pytest.fixture
def promised(world: StubWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A canary that was to be promoted at its horizon, and is open still: its promotion failed."""
    end_any(world)
    alike = (arm(0.6, 1, 2000), arm(0.6, 2, 2000))
    monkeypatch.setattr(look, "observe", lambda *_: alike)
    deployment = opened(world)
    assert take(world, *LATE) == "promote"
    yield deployment
    end_any(world)


LATE = ("ab.horizon_s=0.001", "ab.hold_s=0")


def test_what_was_to_be_promoted_is_promoted_by_a_later_look(world: StubWorld, promised: str) -> None:
    """Every look is on record: also that one, with what it saw. It may come late, promotion is decided."""
    assert take(world, *LATE, deciding=False) == "hold"  # only shown
    assert take(world, *LATE) == "promote"
    told = looks_of(world.store, promised)
    assert [each["action"] for each in told] == ["promote", "hold", "promote"]
    assert [each["at_horizon"] for each in told] == [True, False, False]
    assert told[-1]["reason"] == "at its horizon no metric is worse by its margin or more"
    assert "ends_in_s" not in told[-1]


def test_harm_that_came_since_is_looked_at_before_a_promise_is_kept(
    world: StubWorld, promised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alarm at the horizon, harm overnight, the acknowledgement in the morning: nobody gets it then."""
    worse = (arm(0.9, 1, 2000), arm(0.2, 2, 2000))
    monkeypatch.setattr(look, "observe", lambda *_: worse)
    assert take(world, *LATE) == "roll_back"
    told = looks_of(world.store, promised)
    assert [each["action"] for each in told] == ["promote", "roll_back"]
    assert str(told[-1]["reason"]).startswith("edit_persistence is worse by")


def test_a_promise_waits_for_the_users_who_were_assigned(
    world: StubWorld, promised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (arm(0.6, 1, 2000), arm(0.6, 2, 1000))
    monkeypatch.setattr(look, "observe", lambda *_: others)
    assert take(world, "ab.horizon_s=0.001", "ab.hold_s=3600") == "hold"
    assert take(world, *LATE) == "end"
    told = looks_of(world.store, promised)
    assert told[-2]["ends_in_s"] == pytest.approx(3600, abs=30)
    assert "to be promoted at its horizon, and now the arms have 2000" in str(told[-1]["reason"])


def test_a_decision_is_about_the_canary_that_was_looked_at(
    world: StubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployments, live = world.store.deployments, world.store.alias("auto", "live")
    end_any(world)
    deployment = opened(world)
    looked = {
        action: look.Seen(deployment, action, "worse", {}) for action in ("roll_back", "end", "promote")
    }

    def taken_away(*_: object) -> tuple[ArmSeen, ArmSeen]:
        deployments.end_canary(deployment, "its engine: it died", by="rtrl serve")
        return arm(0.9, 1), arm(0.1, 2)

    monkeypatch.setattr(look, "observe", taken_away)  # it ends while somebody looks
    seen = look.take_look(world.workspace, world.store, Silent(), by="test", deciding=True)
    assert seen.action == "roll_back"
    for each in (seen, *looked.values()):
        with pytest.raises(RolledBackError, match=r"was rolled back at .*: its engine: it died"):
            act(world.workspace, world.store, each, Silent())
    with pytest.raises(InputMissingError, match=rf"last one: {deployment} was rolled back at .*: its engine"):
        take(world)
    other = opened(world)  # the next one is not theirs
    for each in looked.values():
        with pytest.raises(RolledBackError, match=deployment):
            act(world.workspace, world.store, each, Silent())
    assert deployments.get(other).state == "canary"
    assert world.store.alias("auto", "live") == live
    assert not ended(world.store, other)
    deployments.end_canary(other, "over", by="test")
