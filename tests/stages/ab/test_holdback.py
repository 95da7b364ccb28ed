"""What was gained since the anchor: the bounds by hand, and the arms out of a spool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evals.ab.arms import Users
from evals.ab.confidence_sequence import boundary
from evals.ab.decision import planned_information
from rtrl_cli.commands.ab import benefit_text
from stages.ab.config import GUARDS, METRICS, AbConfig
from stages.ab.holdback import compare, take_look_at_holdback
from stages.ab.observe import ArmSeen
from stages.errors import InputMissingError
from stages.gateway.arms import assigned
from stages.progress import Silent
from stages.registry import gc
from stages.registry.holdbacks import open_holdback
from stages.registry.looks import looks_of
from tests.stages.world import HOUR, World

CONFIG = AbConfig(min_users=10, planned_users=100)


def arm(kept: list[int], edits: int) -> ArmSeen:
    nothing = {name: Users.of([], []) for name in (*METRICS, *GUARDS)}
    return ArmSeen(
        len(kept), len(kept), nothing | {"edit_persistence": Users.of(kept, np.full(len(kept), edits))}
    )


def test_the_bounds_are_those_of_two_confidence_sequences() -> None:
    # held back: 1 or 3 of 4 edits stay, 20 users; live: 3 or 4 of 4, 200 users
    held, live = arm([1, 3] * 10, 4), arm([3, 4] * 100, 4)
    data = compare(CONFIG, 0.1, held, live, [])
    row = data["metrics"]["edit_persistence"]
    assert (row["holdback"], row["live"]) == (0.5, 0.875)
    assert row["gain"] == pytest.approx(0.375)
    # e = +-1 of 4: (20 * 1) / 80^2 * 20 / 19; e = +-0.5: (200 * 0.25) / 800^2 * 200 / 199
    of_held, of_live = 20 / 80**2 * 20 / 19, 50 / 800**2 * 200 / 199
    assert row["standard_error"] == pytest.approx((of_held + of_live) ** 0.5)
    planned = planned_information(live.metrics["edit_persistence"], 100, 0.1)
    assert data["planned"] == {"edit_persistence": planned}
    # the bounds are of two users more in each arm, of whose four edits all stayed, and none
    of_held = float(np.var([0.25, 0.75] * 10 + [0, 1], ddof=1)) / 22
    of_live = float(np.var([0.75, 1] * 100 + [0, 1], ddof=1)) / 202
    gain, variance = 176 / 202 - 0.5, of_held + of_live
    freedom = variance**2 / (of_held**2 / 21 + of_live**2 / 201)  # Welch's
    told = {"gain": gain, "standard_error": variance**0.5, "cautious_error": variance**0.5}
    assert row["bound"] == pytest.approx(told | {"freedom": freedom})
    z = boundary(1 / variance, planned, 0.01 / 2 / len(METRICS))
    width = float(stats.t.isf(stats.norm.sf(z), freedom)) * variance**0.5
    assert (row["at_least"], row["at_most"]) == pytest.approx((gain - width, gain + width))
    assert "edit_persistence is better than on the anchor by" in data["reason"]
    # what is planned stays what it was at the first look
    later = compare(CONFIG, 0.1, held, arm([0, 4] * 100, 4), [data])
    assert later["planned"] == data["planned"]
    assert "no difference" in later["reason"]
    few = compare(CONFIG, 0.1, arm([4] * 9, 4), arm([0, 1] * 40, 4), [])
    assert few["metrics"]["edit_persistence"]["at_least"] is None
    enough = compare(CONFIG, 0.1, arm([3] * 5 + [4] * 5, 4), arm([0, 1] * 45, 4), [])
    assert enough["metrics"]["edit_persistence"]["at_most"] < 0
    assert (enough["sample_ratio_p"], enough["at_horizon"]) == (1.0, False)
    worse = -enough["metrics"]["edit_persistence"]["at_most"]
    words = f"edit_persistence is worse than on the anchor by {worse:.3g} at least, "
    assert enough["reason"] == words + "with 99% confidence over all looks"


def test_a_user_may_be_any_factor_slower_so_that_two_more_of_latency_would_say_nothing() -> None:
    def taking(logs: list[float]) -> ArmSeen:
        seen = arm([0] * len(logs), 1)
        told = {"edit_persistence": Users.of([], []), "latency": Users.of(logs, np.ones(len(logs)))}
        return ArmSeen(len(logs), len(logs), {**seen.metrics, **told})

    data = compare(CONFIG, 0.1, taking([0.4, 0.6] * 10), taking([-0.1, 0.1] * 90), [])
    row = data["metrics"]["latency"]
    assert row["gain"] == pytest.approx(0.5)  # less of it is better
    assert row["bound"]["gain"] == row["gain"]
    assert row["at_least"] > 0
    alike = compare(CONFIG, 0.1, taking([0.4, 0.6] * 10), taking([0.0] * 180), [])
    assert (alike["planned"], alike["metrics"]["latency"]["at_least"]) == ({}, None)  # nothing to plan with


@pytest.mark.parametrize("broken", [0, 1])
def test_that_none_of_a_few_held_back_broke_a_call_is_no_loss_since(broken: int) -> None:
    # 1 and 2 % of five calls each: with these shares 60 users break as few now and then
    def breaking(users: int, bad: int) -> ArmSeen:
        seen, calls = arm([0] * users, 5), [1] * bad + [0] * (users - bad)
        told = {"edit_persistence": Users.of([], []), "invalid_calls": Users.of(calls, np.full(users, 5))}
        return ArmSeen(users, users, {**seen.metrics, **told})

    config = AbConfig(min_users=50)
    data = compare(config, 0.015, breaking(60, broken), breaking(4000, 200 * (1 + broken)), [])
    row = data["metrics"]["invalid_calls"]
    assert row["gain"] == pytest.approx(broken / 300 - 0.01 * (1 + broken))
    assert row["at_least"] < 0 < row["at_most"]
    assert data["reason"] == "no difference to the anchor is certain yet"


def test_the_wrong_numbers_of_users_conclude_nothing() -> None:
    data = compare(CONFIG, 0.1, arm([1, 3] * 50, 4), arm([3, 4] * 100, 4), [])
    assert data["sample_ratio_p"] < 0.001
    assert "find out who is missing" in data["reason"]


def test_the_arms_are_read_over_all_checkpoints_since(tmp_path: Path) -> None:
    world = World(tmp_path, '[collect]\nclock = "events"\n[ab]\nmin_users = 10\n')
    with pytest.raises(InputMissingError, match="held back"):
        take_look_at_holdback(world.workspace, world.store, Silent(), by="test")
    anchor = world.live
    world.shared_key("k1")
    world.generation("before", "before", 0, user="user-0")
    world.writer.flush()
    held = open_holdback(world.store, "auto", anchor, 0.2, 1, by="test")
    users = [f"user-{number}" for number in range(60)]
    mine = {user: assigned(user, held.salt, held.share) for user in users}
    checkpoints = [anchor]
    for _ in range(2):  # two cycles, each trained on what came before
        checkpoints.append(world.checkpoint(checkpoints[-1], consumed=["e-1-user-1"]))
    for round_, checkpoint in enumerate(checkpoints[1:], 1):
        world.promote(checkpoint)
        for user in users:
            arm_, sampler = ("holdback", anchor) if mine[user] else ("live", checkpoint)
            world.generation(
                f"g-{round_}-{user}", f"e-{round_}-{user}", round_ * HOUR,
                user=user, session=f"s-{user}", arm=arm_, checkpoint=sampler,
                duration_ms=200.0 if mine[user] else 100.0,
            )  # fmt: skip
    gone = next(user for user in users if mine[user])  # answered by the live arm while the engine was down
    world.generation("g-gone", "e-gone", 2 * HOUR, user=gone, session="s-gone", checkpoint=checkpoints[-1])
    world.tick(9 * HOUR)
    world.writer.flush()
    seen = take_look_at_holdback(world.workspace, world.store, Silent(), by="test")
    n = sum(mine.values())
    assert seen.data["users"] == {"holdback": n, "live": 60 - n}
    # also what was consumed and what two checkpoints lie between; not what came before
    assert seen.data["episodes"] == {"holdback": 2 * n, "live": 2 * (60 - n)}
    # the anchor's line state has met no request: both arms are held against the same medians all the same
    assert seen.data["metrics"]["latency"]["gain"] == pytest.approx(np.log(2))
    assert looks_of(world.store, held.id)[0]["users"] == seen.data["users"]
    assert "held back" in benefit_text(seen.data)
    assert seen.data["anchor"] == world.store.resolve(anchor, "auto").ref
    assert seen.data["live"] == world.store.resolve(checkpoints[-1], "auto").ref
    world.store.move_alias("auto", "anchor", world.live, reason="test")  # and nobody has served since
    gc.collect(world.store, 0.0, by="test")
    again = take_look_at_holdback(world.workspace, world.store, Silent(), by="test")
    assert again.data["episodes"] == seen.data["episodes"]
    world.close()
