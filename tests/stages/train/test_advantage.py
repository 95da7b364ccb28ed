import numpy as np
import pytest

from stages.linestate import Baseline
from stages.tokens import ExperienceEpisode
from stages.train.advantage import (
    advantages,
    ema_baselines,
    group_baselines,
    is_degenerate,
    updated_baselines,
)
from stages.train.config import TrainConfig
from stages.train.contributors import weigh_by


def test_a_warm_stratum_is_mixed_with_the_line() -> None:
    table = {"*": Baseline(0.5, 100.0), "rename": Baseline(0.8, 24.0)}
    # (24 * 0.8 + 8 * 0.5) / 32 = 23.2 / 32 = 0.725; a cold stratum has the line's 0.5
    result = ema_baselines(np.array([1.0, 0.0, 1.0]), ["rename", "vague", "rename"], table, 8.0)
    assert result == pytest.approx([0.725, 0.5, 0.725])


def test_the_batch_itself_never_moves_the_baseline_it_is_compared_with() -> None:
    table = {"*": Baseline(0.5, 100.0), "a": Baseline(0.8, 24.0)}
    low = ema_baselines(np.array([0.0, 0.0]), ["a", "a"], table, 8.0)
    high = ema_baselines(np.array([9.0, 9.0]), ["a", "a"], table, 8.0)
    assert low == pytest.approx(high)


def test_a_new_line_takes_the_mean_of_the_others() -> None:
    rewards = np.array([1.0, 0.0, 0.5, 0.1])
    strata = ["a", "a", "a", "b"]
    # first: others of the line (0 + .5 + .1) / 3 = .2, others of "a" sum .5, two of them: (.5 + 2 * .2) / 4
    result = ema_baselines(rewards, strata, {}, 2.0)
    assert result[0] == pytest.approx(0.225)
    # the only "b" has the mean of all others: 1.5 / 3
    assert result[3] == pytest.approx(0.5)


def test_without_shrinkage_a_lone_stratum_of_a_new_line_still_has_a_baseline() -> None:
    assert ema_baselines(np.array([1.0, 0.0]), ["a", "b"], {}, 0.0) == pytest.approx([0.0, 1.0])
    # of two in "a" each has the other, "b" has the mean of both
    assert ema_baselines(np.array([1.0, 0.0, 7.0]), ["a", "a", "b"], {}, 0.0) == pytest.approx(
        [0.0, 1.0, 0.5]
    )


def test_the_first_episode_of_a_new_line_has_no_other_to_be_held_against() -> None:
    assert ema_baselines(np.array([0.7]), ["a"], {}, 2.0).tolist() == [0.0]


def test_groups_leave_one_out() -> None:
    rewards = np.array([1.0, 0.0, 0.5, 7.0, 3.0])
    result = group_baselines(rewards, ["g", "g", "g", "alone", ""])
    assert result[:3] == pytest.approx([0.25, 0.75, 0.5])
    assert np.isnan(result[3:]).all()


def test_groups_outrank_strata_and_nothing_is_divided() -> None:
    table = {"*": Baseline(0.5, 10.0)}
    result, baseline = advantages(
        np.array([1.0, 0.0, 2.0]), ["a"] * 3, ["g", "g", ""], table, shrinkage=4.0, scale=False
    )
    assert baseline == pytest.approx([0.0, 1.0, 0.5])
    assert result == pytest.approx([1.0, -1.0, 1.5])


def test_scaling_divides_by_the_root_mean_square() -> None:
    table = {"*": Baseline(0.0, 10.0)}
    result, _ = advantages(np.array([3.0, -4.0]), ["a", "a"], ["", ""], table, shrinkage=0.0, scale=True)
    assert result == pytest.approx(np.array([3.0, -4.0]) / np.sqrt(12.5))
    nothing, _ = advantages(np.zeros(2), ["a", "a"], ["", ""], table, shrinkage=0.0, scale=True)
    assert nothing.tolist() == [0.0, 0.0]  # and not nan, which no one would refuse


def test_the_update_forgets_by_the_number_of_new_episodes() -> None:
    table = {"*": Baseline(0.0, 8.0), "a": Baseline(1.0, 4.0), "old": Baseline(0.3, 2.0)}
    after = updated_baselines(np.array([0.0, 0.5]), ["a", "a"], table, half_life=2.0)
    # n = 2, half-life 2: the old weights 4 and 8 halve to 2 and 4
    assert after["a"].weight == pytest.approx(4.0)
    assert after["a"].value == pytest.approx((2 * 1.0 + 0.5) / 4)
    assert after["*"].weight == pytest.approx(6.0)
    assert after["*"].value == pytest.approx(0.5 / 6)
    assert after["old"] == table["old"]


def test_one_user_decides_no_mean_by_a_flood_of_episodes() -> None:
    """With half of the episodes, all failed, a bot had everybody's wrong answers above the mean."""
    people = [(f"u{n}", "shared", 1.0 if n % 2 else 0.0) for n in range(20)]
    bot = [("bot", "bots", -4.0)] * 20
    episodes = [
        ExperienceEpisode(str(n), user, key, "a", reward, True, "", "")
        for n, (user, key, reward) in enumerate([*people, *bot])
    ]
    rewards = np.array([one.reward for one in episodes])
    weigh = weigh_by(episodes, TrainConfig(), {"shared"})
    # a tenth: 20 people and 20 / 9 of the bot's 20 episodes, each of which counts 1 / 9
    assert weigh(np.arange(40)) == pytest.approx([1.0] * 20 + [1 / 9] * 20)
    assert weigh(np.arange(20)).tolist() == [1.0] * 20  # of a stratum that the bot has nothing of
    _, baseline = advantages(rewards, ["a"] * 40, [""] * 40, {}, shrinkage=0.0, scale=False, weigh=weigh)
    others = 10 - 4 * 20 / 9, 19 + 20 / 9
    assert baseline[0] == pytest.approx(others[0] / others[1])  # of a wrong answer: 0.05
    assert baseline[1] == pytest.approx((others[0] - 1) / others[1])
    after = updated_baselines(rewards, ["a"] * 40, {}, 500.0, weigh)
    assert after["a"] == after["*"]
    assert (after["a"].value, after["a"].weight) == pytest.approx((others[0] / (200 / 9), 200 / 9))


def test_a_batch_that_teaches_nothing_is_named() -> None:
    varied = np.array([0.1, 0.2])
    assert is_degenerate(varied, varied - 0.1) == ""
    assert "rewards are 0.5" in is_degenerate(np.array([0.5, 0.5]), np.array([0.1, 0.3]))
    assert "advantages are 0" in is_degenerate(varied, np.zeros(2))
    # what rounding leaves of equal ones is no difference, however large they are
    assert "all 2 rewards are 0.3" in is_degenerate(np.array([0.1 + 0.2, 0.3]), np.array([0.1, 0.3]))
    assert "all 2 rewards are 3e+06" in is_degenerate(np.array([3e6, 3e6 + 1e-9]), np.array([0.1, 0.3]))
    assert "all 2 advantages are 3e+06" in is_degenerate(varied, np.array([3e6, 3e6 + 1e-9]))
