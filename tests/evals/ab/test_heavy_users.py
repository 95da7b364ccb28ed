"""Harm where some users make far more episodes than others: jobs that ask all night among people."""

from __future__ import annotations

import numpy as np
import pytest

from evals.ab.arms import Users
from evals.ab.decision import AbMetric, AbRules, look, planned_information

KEPT = AbMetric("edit_persistence", "higher", harm=0.0, margin=0.03, span=1.0)


def decided(control: Users, treated: Users) -> str:
    """At one look of a canary of a tenth, before its horizon, at the level of one of four metrics."""
    planned = {KEPT.name: planned_information(control, 2000, 0.1, 1.0)}
    rules, told = AbRules(alpha_harm=0.0025), {KEPT.name: (control, treated)}
    return look([KEPT], told, (900, 100), (0.9, 0.1), rules, planned=planned, at_horizon=False).action


def alike(rate: float, users: int, seed: int) -> Users:
    random = np.random.default_rng(seed)
    return Users.of(random.binomial(5, random.beta(6 * rate, 6 - 6 * rate, users)), np.full(users, 5))


def test_one_user_with_most_of_the_episodes_is_no_harm_that_is_certain() -> None:
    """A job that asks all night, among a hundred people: a canary was rolled back, by 0.73 at least."""
    control, people = alike(0.8, 900, 1), alike(0.8, 99, 2)
    job = Users.of(np.append(people.sums, 0.0), np.append(people.counts, 1e5))
    assert decided(control, people) == "hold"
    assert decided(control, job) == "hold"
    assert decided(control, alike(0.3, 100, 2)) == "roll_back"  # what harms all of them is


@pytest.mark.parametrize("tail", [1.1, 1.5])
def test_heavy_users_roll_no_equal_canary_back(tail: float) -> None:
    """At a single look up to 1 in 100 at a level of 1 in 400."""
    random, back = np.random.default_rng(5), 0

    def arm(users: int) -> Users:
        counts = np.minimum(np.ceil(random.pareto(tail, users) * 2 + 0.5), 20_000.0)
        kept = random.binomial(counts.astype(int), random.beta(0.8 * 7 / 3, 0.2 * 7 / 3, users))
        return Users(kept.astype(float), counts)

    for _ in range(1500):
        back += decided(arm(900), arm(100)) == "roll_back"
    assert back <= 7  # 0.0025 of 1,500, and chance
