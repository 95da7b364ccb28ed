"""The audit on made columns: what is sure stays sure, however much is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stages.exclusion import ExclusionError, audit, differing, refuse, warnings
from stages.parts import Parts

LOST = "logprobs_length"


def test_many_values_and_exits_hide_no_difference() -> None:
    """Three exits of the infrastructure take 60 of 1,500 episodes each, by chance but for one value of one.

    20 values: 60 tests, so that what 1,999 draws alone can say (1 in 2,000) would never be sure.
    """
    random = np.random.default_rng(5)
    names = ["arm", "quarantined", "reward_unknown"]
    reasons = np.array([""] * 1500, dtype=object)
    for name in names:
        reasons[random.permutation(1500)[:60]] = name
    users = np.arange(1500) % 30
    values = {f"v{n}": random.normal(size=1500) for n in range(20)}
    values["v3"] = values["v3"] - 1.0 * (reasons == names[1])
    rows = {row["exit"]: row for row in audit(list(reasons), users, values, kept="kept")}
    assert [rows[name]["verdict"] for name in names] == ["same", "differs", "same"]
    told = warnings(list(rows.values()))
    assert len(told) == 1
    assert "v3" in told[0]


def naive(accepted: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Two users with 10 episodes each, of which a filter takes the 4 that broke a call; one is greedy."""
    broken = np.array(([1.0] * 4 + [0.0] * 6) * 2 + [np.nan])
    reasons = ["drop:invalid_tool_calls" if one == 1 else "" for one in broken[:-1]] + ["greedy"]
    values = {"reward": 1.0 - broken, "broken": broken}
    users = np.repeat([0, 1], [10, 11])
    return audit(reasons, users, values, kept="trainable", accepted=accepted, exits=("arm",))


def test_an_audit_by_hand() -> None:
    arm, taken, greedy, kept = naive()
    assert {name: arm[name] for name in ("exit", "by", "episodes", "share", "broken", "verdict")} == {
        "exit": "arm",
        "by": "infrastructure",
        "episodes": 0,
        "share": 0.0,
        "broken": None,
        "verdict": "same",
    }
    assert (taken["by"], taken["episodes"], taken["share"]) == ("policy", 8, round(8 / 21, 6))
    assert (taken["reward"], taken["broken"], taken["verdict"]) == (0.0, 1.0, "refused")
    # C(10, 4) = 210 choices of each user's four, of which one is as extreme; the two differ by as much, and
    # of greedy nothing is known: four tests
    assert [shift["p"] for shift in taken["shifts"].values()] == [round(1 / 210**2, 6)] * 2
    assert [shift["p_holm"] for shift in taken["shifts"].values()] == pytest.approx([4 / 210**2] * 2)
    assert (greedy["exit"], greedy["by"], greedy["verdict"], greedy["broken"]) == (
        "greedy",
        "user",
        "same",
        None,
    )
    assert (kept["exit"], kept["by"], kept["episodes"], kept["reward"]) == ("trainable", "", 12, 1.0)
    assert "shifts" not in kept


def test_a_filter_that_took_all_is_held_against_nothing() -> None:
    left, kept = audit(["arm"], np.array([0]), {"edited": np.ones(1)}, kept="trainable")
    assert (left["share"], left["edited"], left["shifts"], left["verdict"]) == (1.0, 1.0, {}, "same")
    assert (kept["episodes"], kept["share"], kept["edited"]) == (0, 0.0, None)
    (nobody,) = audit([], np.array([], dtype=np.int64), {}, kept="trainable")
    assert (nobody["episodes"], nobody["share"]) == (0, 0.0)


def test_what_is_refused_is_told_with_its_numbers_and_what_is_accepted_is_not() -> None:
    with pytest.raises(ExclusionError) as caught:
        refuse(naive())
    told = caught.value.message
    assert "drop:invalid_tool_calls (" in told
    assert ". It took 8 episodes (38.1%); what left, against the 12 that stayed: broken 1 against 0 (" in told
    assert "p 9.1e-05). Reward of what left +0.00, of what stayed +1.00. It is the policy's: " in told
    accepted = naive({"drop:invalid_tool_calls": "to show it"})
    assert (accepted[1]["verdict"], accepted[1]["reason"]) == ("accepted", "to show it")
    refuse(accepted)
    nothing = audit([""], np.array([0]), {}, kept="trainable", exits=("unknown:edit_persistence",))
    with pytest.raises(ExclusionError, match=r"It took nothing yet\. It is the policy's"):
        refuse(nothing)


def shift(p: float, effect: float | None, low: float | None = None) -> dict[str, Any]:
    high = None if low is None else low + 0.5
    return {"p_holm": p, "effect": effect, "removed": 0.25, "kept": 0.75, "low": low, "high": high}


def test_what_differs_is_sure_and_of_account_the_most_first() -> None:
    """One in a hundred over all, and a fifth of a standard deviation, are just enough."""
    shifts = {
        "just": shift(0.01, 0.2),
        "unsure": shift(0.011, 5.0),
        "small": shift(0.0, 0.19),
        "much": shift(0.001, -0.9),
        "none": shift(0.0, None),
    }
    assert differing(shifts) == ["much", "just"]


@pytest.mark.parametrize(
    ("more", "took"),
    [
        ({}, "1 episode (5.0%)"),
        ({"episodes": 2}, "2 episodes (5.0%)"),
        ({"lost_turns": 1}, "1 model call out of 1 episode (5.0%) that stay"),
        ({"lost_turns": 3}, "3 model calls out of 1 episode (5.0%) that stay"),
    ],
)
def test_a_way_out_by_the_infrastructure_is_told_with_four_differences(
    more: dict[str, Any], took: str
) -> None:
    shifts = {f"v{n}": shift(0.002, 1.0 - n / 10, -0.75) for n in range(5)}
    row = {"exit": "arm", "by": "infrastructure", "verdict": "differs", "episodes": 1, "share": 0.05} | more
    (told,) = warnings([row | {"shifts": shifts}, row | {"by": "user"}, row | {"verdict": "same"}])
    each = ", ".join(f"v{n} 0.25 against 0.75 (difference -0.75 to -0.25, p 0.002)" for n in range(4))
    assert told.startswith(f"arm took {took}, and not by chance: {each}. If the policy can")
    assert ("in place of those that it took" in told) == ("lost_turns" in more)
    one = warnings([row | {"shifts": {"v": shift(0.002, 1.0)}}])
    assert ": v 0.25 against 0.75 (p 0.002). If" in one[0]


def test_calls_that_episodes_lost_are_held_against_calls_that_stayed() -> None:
    """Four episodes of two users; the fourth left, so that its lost call is none of what stays.

    Of the two that the third lost, the one with the lesser order is looked at. The first user's lost call is
    one of four calls, the second's one of two: 1 in 8 is as extreme.
    """
    parts = Parts(
        reasons=np.array(["", LOST, "", "", "", LOST, LOST, LOST], dtype=object),
        order=np.array([9, 5, 9, 9, 9, 4, 3, 1]),
        episodes=np.array([0, 0, 1, 1, 2, 2, 2, 3]),
        values={"turn_tokens": np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 7.0])},
    )
    reasons, users = ["", "", "", "greedy"], np.array([0, 0, 1, 1])
    values = {"edited": np.array([1.0, 0.0, 1.0, 1.0])}
    greedy, part, kept = audit(reasons, users, values, kept="trainable", parts=parts)
    assert (greedy["exit"], kept["episodes"]) == ("greedy", 3)
    assert "lost_turns" not in greedy
    assert (part["exit"], part["episodes"], part["lost_turns"], part["share"]) == (
        f"part:{LOST}",
        2,
        3,
        0.5,
    )
    assert part["edited"] == 1.0
    told = part["shifts"]["turn_tokens"]
    assert (told["removed"], told["kept"], told["p"]) == (1.0, 0.0, 1 / 8)
