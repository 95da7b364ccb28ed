"""The paired trend by hand."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from scipy import stats

from stages.monitor.divergence import divergence, diverges, trend
from stages.monitor.history import Window


def windows(rewards: list[float], users: list[float], spec: str = "s", error: float = 0.1) -> list[Window]:
    return [
        Window(
            at=n,
            checkpoint="c",
            episodes=9,
            users=3,
            figures={},
            spec=spec,
            reward=(r, error),
            user=(u, error),
        )
        for n, (r, u) in enumerate(zip(rewards, users, strict=True))
    ]


def test_a_trend_by_hand() -> None:
    """1, 2, 3, 4 with se 1: slope 1, squares of x 5; on the line, so se 1 / sqrt 5, 6 + 2 degrees."""
    found = trend([1.0, 2.0, 3.0, 4.0], 1.0)
    assert (found.slope, found.error) == pytest.approx((1.0, 1 / math.sqrt(5)))
    assert found.p == pytest.approx(stats.t.sf(math.sqrt(5), 8))


def test_points_off_their_line_widen_it() -> None:
    """0, 6, 0 about slope 0: off 24 with 1 degree; (6 + 24) / 7 of the variance."""
    found = trend([0.0, 6.0, 0.0], 1.0)
    assert (found.slope, found.error) == pytest.approx((0.0, math.sqrt(30 / 7 / 2)))
    unsure = trend([0.0, 6.0, 0.0], 2.0)  # off 24 / 4: (6 + 6) / 7 of its variance of 4
    assert unsure.error == pytest.approx(math.sqrt(4 * 12 / 7 / 2))


def test_reward_up_and_users_flat_diverge() -> None:
    found = divergence(windows([0, 0.5, 1.0, 1.5], [1.0, 1.0, 1.0, 1.0]))
    assert found is not None
    assert (found.reward.slope, found.user.slope, found.gap.slope) == pytest.approx((5.0, 0.0, 5.0))
    assert found.p == pytest.approx(stats.t.sf(5 / math.sqrt(2 / 5), 8))
    assert diverges(found, 1e-3)
    assert not diverges(found, 1e-7)


def test_the_gap_is_reward_less_users_and_both_have_to_be_sure() -> None:
    found = divergence(windows([0, 0.5, 1.0, 1.5], [1.0, 0.9, 0.8, 0.7]))
    assert found is not None
    assert (found.user.slope, found.gap.slope) == pytest.approx((-1.0, 6.0))
    assert found.user.p == pytest.approx(stats.t.sf(-math.sqrt(5), 8))
    fallen = divergence(windows([1.0, 1.0, 1.0, 1.0], [1.5, 1.0, 0.5, 0.0]))  # and no reward for it
    assert fallen is not None
    assert fallen.gap.p < 1e-3 < fallen.reward.p == fallen.p
    assert not diverges(fallen, 1e-3)


@pytest.mark.parametrize("users", [[0.0, 0.5, 1.0, 1.5], [0.0, 0.1, 0.2, 0.3]])
def test_users_who_are_better_off_too_do_not(users: list[float]) -> None:
    found = divergence(windows([0, 0.5, 1.0, 1.5], users))
    assert found is not None
    assert not diverges(found, 1e-3)


def test_evidence_that_comes_and_goes_does_not_end_the_other() -> None:
    """Signals that are not trained on count once four cycles on end have them; else all that users told."""
    plain = [replace(one, user=None, told=one.user) for one in windows([0, 0.5, 1.0, 1.5, 2.0], [1.0] * 5)]
    found = divergence(plain)
    assert found is not None
    assert found.user.slope == pytest.approx(0.0)
    stray = [*plain[:-1], replace(plain[-1], user=(9.0, 0.1))]
    assert divergence(stray) == found
    content = [1.0, 1.5, 2.0, 2.5, 3.0]
    lasting = [replace(one, user=(value, 0.1)) for one, value in zip(plain, content, strict=True)]
    held_out = divergence(lasting)
    assert held_out is not None
    assert held_out.user.slope == pytest.approx(5.0)
    assert held_out.newest == (2.0, 3.0)


def test_another_spec_begins_anew_and_few_say_nothing() -> None:
    earlier = windows([0, 1, 2], [0, 0, 0], spec="old")
    assert divergence([*earlier, *windows([0, 1, 2], [0, 0, 0])]) is None
    later = divergence([*earlier, *windows([0, 1, 2, 3], [0, 0, 0, 0])])
    assert later is not None
    assert later.cycles == 4
    assert divergence([]) is None
    assert divergence(windows([1, 1, 1, 1], [0, 0, 0, 0], error=0.0)) is None


def test_six_cycles_at_most_and_none_from_before_one_without_a_reward() -> None:
    """The eighth back is not among them; of the last five one has no reward, so four are too few."""
    rising = windows([9, 9, 0, 1, 2, 3, 4, 5], [0] * 8)
    found = divergence(rising)
    assert found is not None
    assert (found.cycles, found.reward.slope) == (6, pytest.approx(10.0))
    unrewarded = [*rising[:3], replace(rising[3], reward=None), *rising[4:]]
    shorter = divergence(unrewarded)
    assert shorter is not None
    assert shorter.cycles == 4
    assert divergence([*rising[:4], replace(rising[4], reward=None), *rising[5:]]) is None


@pytest.mark.parametrize("sure", ["reward", "user"])
def test_one_side_without_an_error_has_no_unit(sure: str) -> None:
    exact = [replace(one, **{sure: (1.0, 0.0)}) for one in windows([0, 1, 2, 3], [0, 0, 0, 0])]
    assert divergence(exact) is None
