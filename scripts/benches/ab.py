"""A/B decisions by simulation: how often nothing is called harm, and how often harm is caught.

Users with rates from a Beta distribution (mean 0.6, intraclass correlation 0.15), five episodes each,
which come in random order, so that users return; alpha 0.01, margin 0. Every look goes through
`evals/ab/`. Beside each figure what a per-episode z test that looks as often would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from evals.ab.arms import Users, difference
from evals.ab.decision import AbMetric, AbRules, look, planned_information

RATE, ICC, EPISODES, ALPHA, DROP = 0.6, 0.15, 5, 0.01, 0.1
REPLICATIONS = 2000
USERS = 2000
METRIC = AbMetric("edit_persistence", "higher", harm=0.0, margin=0.03)
RULES = AbRules(alpha_harm=ALPHA)


@dataclass(frozen=True)
class Setting:
    """Users of both arms, the treated arm's share and rate, and the number of looks.

    `past` is the share of users who have as many episodes from before the arms; the others joined later.
    """

    users: int
    share: float
    treated_rate: float
    looks: int
    past: float = 0.0


def figures() -> list[dict[str, Any]]:
    """All figures of the issue; the seeds are fixed."""
    found = []
    for looks in (20, 500):
        ours, naive = _rolled_back(Setting(USERS, 0.5, RATE, looks), REPLICATIONS, seed=looks)
        found.append(_figure(f"ab.aa_false_hi_{looks}", f"A/A rolled back, {looks} looks", ours, naive, "<="))
    late, naive = _rolled_back(Setting(USERS, 0.5, RATE, 20, past=0.6), REPLICATIONS, seed=3)
    what = "A/A rolled back, 20 looks, CUPED, 4 of 10 users joined later"
    found.append(_figure("ab.aa_false_cuped_hi_20", what, late, naive, "<="))
    worse = RATE * (1 - DROP)
    ours, naive = _rolled_back(Setting(USERS, 0.5, worse, 20), REPLICATIONS, seed=1)
    found.append(_figure("ab.harm_power_lo", "harm of 10 % caught, 2,000 users in halves", ours, naive, ">="))
    found += [_users_needed(0.1, worse), *_cuped(), _cuped_power(worse), _statsmodels()]
    return found


def _beta(rate: float) -> tuple[float, float]:
    total = 1 / ICC - 1
    return rate * total, (1 - rate) * total


def _planned(users: int, share: float) -> float:
    random = np.random.default_rng(99)
    past = random.binomial(EPISODES, random.beta(*_beta(RATE), 1000))
    return planned_information(Users.of(past, np.full(1000, EPISODES)), users, share)


def _looks(
    setting: Setting, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]:
    """(kept, episodes, treated, figure from before) of every user up to each look."""
    treated = random.random(setting.users) < setting.share
    rates = np.where(
        treated,
        random.beta(*_beta(setting.treated_rate), setting.users),
        random.beta(*_beta(RATE), setting.users),
    )
    before = None
    if setting.past:
        base = random.beta(*_beta(RATE), setting.users)  # the same users, before and now
        rates = np.where(treated, base * setting.treated_rate / RATE, base)
        known = random.random(setting.users) < setting.past
        before = np.where(known, random.binomial(EPISODES, base) / EPISODES, np.nan)
    who = random.permutation(np.repeat(np.arange(setting.users), EPISODES))
    kept = random.random(len(who)) < rates[who]
    sums, counts = np.zeros(setting.users), np.zeros(setting.users)
    for part in np.array_split(np.arange(len(who)), setting.looks):
        counts += np.bincount(who[part], minlength=setting.users)
        sums += np.bincount(who[part], kept[part], minlength=setting.users)
        yield sums, counts, treated, before


def _rolled_back(setting: Setting, replications: int, seed: int) -> tuple[tuple[int, int], float]:
    """((rolled back, replications), share the naive test would have)."""
    planned = {METRIC.name: _planned(setting.users, setting.share)}
    ours = naive = 0
    for each in np.random.default_rng(seed).spawn(replications):
        caught = caught_naively = False
        for sums, counts, treated, before in _looks(setting, each):
            arms = tuple(
                Users.of(sums[mine], counts[mine], None if before is None else before[mine])
                for mine in (~treated, treated)
            )
            caught_naively = caught_naively or _naive(*arms)
            if not caught:
                found = look(
                    [METRIC],
                    {METRIC.name: (arms[0], arms[1])},
                    (arms[0].users, arms[1].users),
                    (1 - setting.share, setting.share),
                    RULES,
                    planned=planned,
                    at_horizon=False,
                )
                caught = found.action == "roll_back"
            if caught and caught_naively:
                break
        ours += caught
        naive += caught_naively
    return (ours, replications), naive / replications


def _naive(control: Users, treated: Users) -> bool:
    """Whether a z test of episodes, as if they were independent and this look the only one, says harm."""
    n = [float(arm.counts.sum()) for arm in (control, treated)]
    if min(n) < 1:
        return False
    pooled = (float(control.sums.sum()) + float(treated.sums.sum())) / sum(n)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n[0] + 1 / n[1]))
    return error > 0 and (control.mean - treated.mean) / error > stats.norm.ppf(1 - ALPHA)


def _figure(name: str, what: str, ours: tuple[int, int], naive: float, sign: str) -> dict[str, Any]:
    caught, runs = ours
    interval = stats.binomtest(caught, runs).proportion_ci(0.9)  # each end is a one-sided 95 % bound
    value = interval.high if sign == "<=" else interval.low
    return {
        "id": name,
        "what": f"{what}; 95 % bound",
        "value": float(value),
        "unit": "share",
        "bar": f"{sign} {0.01 if sign == '<=' else 0.8}",
        "ours": caught / runs,
        "theirs": naive,
        "runs": runs,
        "spread": [float(interval.low), float(interval.high)],
    }


def _users_needed(share: float, worse: float) -> dict[str, Any]:
    """The smallest of a grid of user numbers at which the same harm is caught 80 times in 100."""
    caught = runs = 0
    for users in range(3000, 10500, 500):
        (caught, runs), _ = _rolled_back(Setting(users, share, worse, 20), 500, seed=users)
        if caught / runs >= 0.8:
            break
    return {
        "id": "ab.users_at_canary_10",
        "what": "users at which a canary of 10 % catches the same harm in 80 % (grid; share caught in ours)",
        "value": users,
        "unit": "users",
        "bar": "",
        "ours": caught / runs,
        "theirs": None,
        "runs": runs,
    }


def _cuped() -> list[dict[str, Any]]:
    """Variance left where users have five episodes before the test too."""
    random = np.random.default_rng(5)
    left = []
    for _ in range(200):
        rates = random.beta(*_beta(RATE), USERS)
        before, now = (random.binomial(EPISODES, rates) for _ in range(2))
        half, full = USERS // 2, np.full(USERS // 2, EPISODES)
        arms = [Users.of(now[at], full, before[at] / EPISODES) for at in (slice(half), slice(half, None))]
        left.append(difference(*arms).variance_left)
    return [
        {
            "id": "ab.cuped_variance_left",
            "what": "variance left by CUPED, as many episodes before as during",
            "value": float(np.mean(left)),
            "unit": "ratio",
            "bar": "",
            "runs": len(left),
            "spread": [float(np.quantile(left, 0.05)), float(np.quantile(left, 0.95))],
        }
    ]


def _cuped_power(worse: float) -> dict[str, Any]:
    """Harm of 10 % caught with 1,200 users in halves: a past of 6 in 10 users, and none of anybody's."""
    (found, runs), _ = _rolled_back(Setting(1200, 0.5, worse, 20, past=0.6), 500, seed=1)
    (without, _), _ = _rolled_back(Setting(1200, 0.5, worse, 20, past=1e-9), 500, seed=1)
    return {
        "id": "ab.cuped_harm_caught_1200",
        "what": "harm of 10 % caught, 1,200 users in halves, CUPED on 6 of 10 users; theirs: without",
        "value": found / runs,
        "unit": "share",
        "bar": "",
        "ours": found / runs,
        "theirs": without / runs,
        "runs": runs,
    }


def _statsmodels() -> dict[str, Any]:
    """Largest difference to cluster-robust regressions of episodes, estimate and standard error."""
    import statsmodels.api as sm

    worst = 0.0
    for seed in range(20):
        random = np.random.default_rng(seed)
        counts = random.integers(1, 12, 400)
        treated = random.random(400) < 0.3
        sums = random.binomial(counts, random.beta(*_beta(RATE), 400))
        value = np.concatenate([np.repeat([1.0, 0.0], (k, n - k)) for k, n in zip(sums, counts, strict=True)])
        users = np.repeat(np.arange(400), counts)
        arm = treated[users].astype(float)
        slope = sm.OLS(value, sm.add_constant(arm)).fit().params[1]
        variance = 0.0
        for which in (0.0, 1.0):
            mine = arm == which
            ones = np.ones((int(mine.sum()), 1))
            fit = sm.OLS(value[mine], ones).fit(cov_type="cluster", cov_kwds={"groups": users[mine]})
            variance += float(fit.bse[0]) ** 2
        ours = difference(
            Users.of(sums[~treated], counts[~treated]), Users.of(sums[treated], counts[treated])
        )
        worst = max(worst, abs(ours.value - slope), abs(ours.standard_error - math.sqrt(variance)))
    return {
        "id": "ab.vs_statsmodels",
        "what": "largest difference to statsmodels' cluster-robust regression, estimate or standard error",
        "value": worst,
        "unit": "share",
        "bar": "<= 0.000001",
        "runs": 20,
    }
