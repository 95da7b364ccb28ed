"""Users' figures from before a canary: which episodes make them, and what they are worth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evals.ab.arms import Users, difference, unexplained
from evals.ab.decision import planned_information
from stages.ab.observe import SIGNALS, _Episodes, arm_of
from stages.ab.past import Columns, enough, known_before, past_of

KEPT = {"edit_persistence": "edit_persistence", "invalid_calls": "invalid_tool_calls"}


def columns(*rows: tuple[str, str, float | None, float | None]) -> Columns:
    empty = {name: [None] * len(rows) for name in SIGNALS.values()}
    return empty | {
        "episode_id": [row[0] for row in rows],
        **{name: [row[1] for row in rows] for name in ("user", "unit")},
        "edit_persistence": [row[2] for row in rows],
        "invalid_tool_calls": [row[3] for row in rows],
    }


def test_an_episode_counts_once_and_what_is_not_known_nowhere() -> None:
    window = columns(
        ("e1", "ann", 1.0, 0.0), ("e2", "ann", 0.5, 3.0), ("e3", "bob", None, 1.0), ("e4", "bob", None, None)
    )
    earlier = columns(("e2", "ann", 0.0, 0.0), ("e0", "ann", 0.0, 0.0))
    assert past_of([window, earlier], KEPT) == {
        "edit_persistence": {"ann": 0.5},  # 1, 0.5 and 0: e2 is what the window says
        "invalid_calls": {"ann": pytest.approx(1 / 3), "bob": 1.0},  # broken or not, not how many
    }


def test_the_past_is_what_was_settled_before_anybody_was_given_to_the_canary() -> None:
    """It opened after record 5: the first episode since began at 100 ms."""
    seen = _Episodes(
        ["a", "b", "c", "d", "e"], [1, 3, 5, 6, 7], [0, 40, 90, 100, 120], [60, 100, 101, 160, 180]
    )
    assert seen.after(5) == {"d", "e"}
    assert seen.settled_before(5) == {"a", "b"}  # what became of c was seen while the arms were apart
    assert seen.settled_before(7) == {"a", "b", "c", "d", "e"}  # nobody has used it yet


def test_users_who_came_later_have_no_past() -> None:
    now = columns(("n1", "ann", 1.0, 0.0), ("n2", "cid", 0.0, 0.0), ("n3", "ann", 0.0, None))
    seen = arm_of({"n1", "n2", "n3"}, now, {"edit_persistence": {"ann": 0.25}})
    kept = seen.metrics["edit_persistence"]
    assert (seen.users, seen.episodes) == (2, 3)
    assert kept.sums.tolist() == [1.0, 0.0]
    assert kept.counts.tolist() == [2.0, 1.0]
    assert kept.before is not None
    assert kept.before[0] == 0.25
    assert math.isnan(kept.before[1])
    assert seen.metrics["invalid_calls"].before is None


def test_a_past_of_few_users_is_not_used() -> None:
    one = Users.of([1, 0], [1, 1], [0.5, math.nan])
    assert known_before(one) == 1
    assert enough(one, one, 2) == (one, one)
    assert [arm.before for arm in enough(one, one, 3)] == [None, None]
    assert known_before(Users(one.sums, one.counts)) == 0


def test_what_is_left_by_hand() -> None:
    # m = 0.5, e = (0.5, -0.5, 0.5, -0.5), x around its mean (0.4, -0.4, 0, 0) with the newcomers at it:
    # slope 0.4 / 0.32 = 1.25, left (0, 0, 0.5, -0.5)
    arm = Users.of([1, 0, 1, 0], np.ones(4), [0.9, 0.1, math.nan, math.nan])
    assert unexplained(arm).tolist() == pytest.approx([0.0, 0.0, 0.5, -0.5])
    # 100 users in halves: 100 / 4 / (0.5 / 16 * 4); without a past 100 / 4 / (1 / 16 * 4)
    assert planned_information(arm, 100, 0.5) == pytest.approx(200.0)
    assert planned_information(Users(arm.sums, arm.counts), 100, 0.5) == pytest.approx(100.0)
    assert difference(arm, arm).variance_left == pytest.approx(0.5)
