"""Looks: the confidence sequence's numbers, and what is decided from them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from evals.ab.arms import Difference, Users
from evals.ab.confidence_sequence import (
    best_r,
    boundary,
    critical_z,
    log_e_value,
)
from evals.ab.decision import AbMetric, AbRules, Look, look, planned_information, sequence_width
from evals.ab.sample_ratio import sample_ratio

KEPT = AbMetric("edit_persistence", "higher", harm=0.0, margin=0.03)
PAST = Users.of(np.random.default_rng(9).binomial(5, 0.6, 500), np.full(500, 5))
PLANNED = {"edit_persistence": planned_information(PAST, 2000, 0.5)}


@pytest.mark.parametrize(("z", "r"), [(0.0, 0.3), (2.5, 4.0), (-1.0, 10.0)])
def test_the_evidence_is_the_mixture_it_says_it_is(z: float, r: float) -> None:
    # over effects with a half-normal prior of variance r, in standard errors
    mixed = integrate.quad(
        lambda effect: 2 * stats.norm.pdf(effect, scale=math.sqrt(r)) * math.exp(effect * z - effect**2 / 2),
        0,
        np.inf,
    )[0]
    assert math.exp(log_e_value(z, r)) == pytest.approx(mixed, rel=1e-6)


def test_the_bound_where_it_is_tightest() -> None:
    r = best_r(0.01)
    assert critical_z(r, 0.01) == pytest.approx(3.3534, abs=1e-3)
    assert critical_z(r / 2, 0.01) > critical_z(r, 0.01) < critical_z(r * 2, 0.01)
    known = Difference(0.1, 1 / 20, 0.5, 0.6, (50, 50), cautious_error=1 / 20, freedom=math.inf)
    width = sequence_width(known, 400.0, 0.01)
    assert known.value - width == pytest.approx(0.1 - 3.3534 / 20, abs=1e-4)
    assert known.value + width == pytest.approx(0.1 + 3.3534 / 20, abs=1e-4)
    unknown = replace(known, standard_error=math.nan)
    assert unknown.value - sequence_width(unknown, 400.0, 0.01) == -math.inf


@given(st.floats(-5, 5), st.floats(0.001, 1e4), st.floats(0.001, 0.2))
def test_more_evidence_with_more_z_and_bounds_around_the_value(z: float, r: float, alpha: float) -> None:
    assert log_e_value(z + 0.1, r) > log_e_value(z, r)
    assert critical_z(r, alpha) > stats.norm.ppf(1 - alpha) - 1e-9  # never tighter than a single look


def test_a_brownian_motion_seldom_crosses() -> None:
    random = np.random.default_rng(1)
    times = np.arange(1, 201) / 200
    paths = np.cumsum(random.normal(size=(4000, 200)), axis=1) / math.sqrt(200)
    bounds = [critical_z(best_r(0.05) * time, 0.05) for time in times]
    crossed = (paths / np.sqrt(times) > np.array(bounds)).any(axis=1).mean()
    assert 0.005 < crossed < 0.05


def test_the_sample_ratio_by_hand() -> None:
    # all four in one half, and it does not matter in which: 2 of 16 cases
    assert sample_ratio({"a": 4, "b": 0}, {"a": 0.5, "b": 0.5}).p == pytest.approx(2 / 16)
    # three users of thirty at a share of one per cent: 1 - P(0, 1 or 2); chi-square said 1e-6
    p = 1 - 0.99**30 - 30 * 0.01 * 0.99**29 - 435 * 0.01**2 * 0.99**28
    assert sample_ratio({"live": 27, "canary": 3}, {"live": 0.99, "canary": 0.01}).p == pytest.approx(p)
    assert sample_ratio({"a": 600, "b": 400}, {"a": 0.5, "b": 0.5}).wrong
    assert sample_ratio({"a": 0, "b": 0}, {"a": 0.9, "b": 0.1}).p == 1.0
    for shares in ({"b": 1.0}, {"a": 1.0}):
        with pytest.raises(ValueError, match="arms"):
            sample_ratio({"a": 1}, shares)


def _arm(rate: float, users: int, seed: int) -> Users:
    random = np.random.default_rng(seed)
    return Users.of(random.binomial(5, random.beta(6, 10 / rate * 0.6 - 6, users)), np.full(users, 5))


def _look(control: Users, treated: Users, *, at_horizon: bool = False, assigned: int = 0) -> str:
    found = look(
        [KEPT],
        {"edit_persistence": (control, treated)},
        (control.users, assigned or treated.users),
        (0.5, 0.5),
        AbRules(),
        planned=PLANNED,
        at_horizon=at_horizon,
    )
    assert found.reason
    return found.action


def test_what_is_decided() -> None:
    good, bad = _arm(0.6, 1000, 1), _arm(0.5, 1000, 2)
    assert _look(good, bad) == "roll_back"
    assert _look(good, _arm(0.6, 1000, 3)) == "hold"
    assert _look(good, _arm(0.62, 1000, 3), at_horizon=True) == "promote"
    assert _look(_arm(0.6, 60, 1), _arm(0.6, 60, 3), at_horizon=True) == "hold"  # too wide
    assert _look(good, bad, assigned=1300) == "hold"  # not what was assigned: nothing is concluded
    assert _look(_arm(0.6, 40, 1), _arm(0.1, 40, 2), at_horizon=True) == "hold"  # too few
    assert _look(good, _arm(0.1, 40, 2), assigned=1000) == "hold"  # of one arm


def test_harm_is_what_is_beyond_its_margin_and_all_metrics_share_the_level() -> None:
    arms = (_arm(0.6, 1000, 1), _arm(0.5, 1000, 2))

    def found(*harms: float) -> Look:
        metrics = [AbMetric(f"m{n}", "higher", harm=harm, margin=0.03) for n, harm in enumerate(harms)]
        told = {each.name: arms for each in metrics}
        planned = dict.fromkeys(told, PLANNED["edit_persistence"])
        return look(metrics, told, (1000, 1000), (0.5, 0.5), AbRules(), planned=planned, at_horizon=False)

    alone, both = found(0.02), found(0.02, 0.2)
    assert (alone.action, found(0.2).action) == ("roll_back", "hold")
    assert [each.harmful for each in both.metrics] == [True, False]
    for one, level in ((alone, 0.01), (both, 0.005)):
        metric = one.metrics[0]
        z = boundary(metric.difference.information, PLANNED["edit_persistence"], level)
        normal = metric.gain + z / math.sqrt(metric.difference.information)
        assert metric.harm_bound == pytest.approx(normal, abs=1e-3)  # of a thousand users t is nearly z
        t = float(stats.t.isf(stats.norm.sf(z), metric.difference.freedom))
        assert metric.harm_bound == pytest.approx(metric.gain + t * metric.difference.cautious_error)


def test_lower_is_better_is_the_same_the_other_way_round() -> None:
    complaints = AbMetric("dissatisfied_followup", "lower", harm=0.0, margin=0.03)
    fewer, more = _arm(0.5, 1000, 2), _arm(0.6, 1000, 1)
    found = look(
        [complaints],
        {"dissatisfied_followup": (fewer, more)},
        (1000, 1000),
        (0.5, 0.5),
        AbRules(),
        planned={"dissatisfied_followup": PLANNED["edit_persistence"]},
        at_horizon=False,
    )
    assert found.action == "roll_back"
    assert "dissatisfied_followup is worse by" in found.reason


def test_what_is_planned_with() -> None:
    # residuals 1, -1, 1, -1 over 16 counts: per user 4 / 256 * 4; 100 * 1/4 / 0.0625
    past = Users.of([3, 1, 3, 1], [4, 4, 4, 4])
    assert planned_information(past, 100, 0.5) == pytest.approx(400.0)
    with pytest.raises(ValueError, match="few"):
        planned_information(Users.of([1], [1]), 100, 0.5)
    with pytest.raises(ValueError, match="alike"):
        planned_information(Users.of([1, 1], [1, 1]), 100, 0.5)
    # of a share: the next of three users differs with a chance of 1/4; 100 * 1/4 / (3/16)
    assert planned_information(Users.of([1, 1], [1, 1]), 100, 0.5, 1.0) == pytest.approx(400 / 3)


@pytest.mark.parametrize("live", [1.0, 0.0])
@pytest.mark.parametrize("kind", ["all", "most"])
def test_harm_is_seen_where_the_live_arms_users_are_all_alike(live: float, kind: str) -> None:
    metric = AbMetric("some_share", "higher" if live else "lower", harm=0.0, margin=0.02, span=1.0)
    other = np.full(60, 1.0 - live)
    if kind == "most":
        other[:6] = live
    alike = Users.of(np.full(60, live), np.ones(60))

    def decided(treated: Users) -> str:
        planned = {"some_share": planned_information(alike, 2000, 0.5, 1.0)}
        arms = {"some_share": (alike, treated)}
        return look([metric], arms, (60, 60), (0.5, 0.5), AbRules(), planned=planned, at_horizon=False).action

    assert decided(Users.of(other, np.ones(60))) == "roll_back"
    assert decided(alike) == "hold"
    one = np.full(60, live)
    one[0] = 1.0 - live
    assert decided(Users.of(one, np.ones(60))) == "hold"  # one of sixty is no proof


@pytest.mark.parametrize(("users", "action"), [(100, "hold"), (400, "promote")])
def test_users_who_are_all_alike_are_as_many_as_they_are(users: int, action: str) -> None:
    # 1 - 0.05^(1/100) = 0.030, 1 - 0.05^(1/400) = 0.0075: a margin of 0.02 lies between
    broken = AbMetric("invalid_calls", "lower", harm=0.0, margin=0.02, span=1.0)
    nobody = Users.of(np.zeros(users), np.ones(users))
    found = look(
        [broken],
        {"invalid_calls": (nobody, nobody)},
        (users, users),
        (0.5, 0.5),
        AbRules(),
        planned={},
        at_horizon=True,
    )
    assert found.action == action
    assert found.metrics[0].promote_bound == pytest.approx(-(1 - 0.05 ** (1 / users)))


HEAVY = AbMetric("edit_persistence", "higher", harm=0.0, margin=0.03, span=1.0)
RARE = AbMetric("invalid_calls", "lower", harm=0.0, margin=0.02, span=1.0)


def _promoted(metric: AbMetric, rate: float, users: int, share: float, tail: float, loss: float) -> float:
    """How often of 600 worlds it is promoted. A user's chance is of Beta (intraclass correlation 0.3), how
    much somebody does is of Pareto, the heavier the lower its tail."""
    ok = 0
    for world in range(600):
        random = np.random.default_rng(world)
        chance = random.beta(rate / 0.3 * 0.7, (1 - rate) / 0.3 * 0.7, users)
        counts = np.minimum(np.ceil((random.pareto(tail, users) + 1) * 2), 2000).astype(int)
        treated = random.random(users) < share
        sums = random.binomial(counts, np.clip(chance - metric.sign * loss * treated, 0, 1))
        arms = [Users.of(sums[arm], counts[arm]) for arm in (~treated, treated)]
        found = look(
            [metric],
            {metric.name: (arms[0], arms[1])},
            (arms[0].users, arms[1].users),
            (1 - share, share),
            AbRules(min_users=10),
            planned={metric.name: 1000.0},
            at_horizon=True,
        )
        ok += found.metrics[0].non_inferior
    return ok / 600


@pytest.mark.parametrize(
    ("metric", "rate", "users", "tail", "before"),
    [
        (HEAVY, 0.6, 2000, 1.1, 0.12),
        (HEAVY, 0.9, 600, 1.5, 0.12),
        (HEAVY, 0.9, 2000, 1.1, 0.15),
        (RARE, 0.01, 600, 1.5, 0.14),
    ],
)
def test_a_loss_of_the_margin_is_seldom_promoted(
    metric: AbMetric, rate: float, users: int, tail: float, before: float
) -> None:
    """A canary of a tenth. `before` is what it was with a normal quantile of the users that were there."""
    assert _promoted(metric, rate, users, 0.1, tail, metric.margin) < 0.1 < before


def test_what_is_no_worse_is_promoted_still() -> None:
    assert _promoted(HEAVY, 0.9, 2000, 0.5, 3.0, 0.0) > 0.8
    assert _promoted(RARE, 0.01, 2000, 0.5, 3.0, 0.0) > 0.95


@pytest.mark.parametrize(("margin", "least"), [(0.02, 126), (0.03, 84)])
def test_so_many_users_a_promotion_takes_at_least(margin: float, least: int) -> None:
    """docs/ab.md says so: of nine times as many live users one broke a call, of the canary's none."""
    metric = replace(RARE, margin=margin)

    def promoted(users: int) -> bool:
        live, treated = np.zeros(9 * users), np.zeros(users)
        live[0] = 1.0
        arms = Users.of(live, np.full(len(live), 20)), Users.of(treated, np.full(users, 20))
        found = look(
            [metric],
            {metric.name: arms},
            (9 * users, users),
            (0.9, 0.1),
            AbRules(),
            planned={metric.name: 1e4},
            at_horizon=True,
        )
        return found.action == "promote"

    assert (promoted(least - 1), promoted(least)) == (False, True)


def test_one_broken_call_is_no_reason_to_promote() -> None:
    """Sixty users of whom none broke a call were held, and promoted where one of them did."""
    good = Users.of(np.zeros(2000), np.full(2000, 5))
    for broken in range(3):
        treated = Users.of([1.0] * broken + [0.0] * (60 - broken), np.full(60, 5))
        found = look(
            [RARE],
            {RARE.name: (good, treated)},
            (2000, 60),
            (0.97, 0.03),
            AbRules(),
            planned={RARE.name: 1000.0},
            at_horizon=True,
        )
        assert found.action == "hold"


def test_a_metric_that_no_client_tells_of_neither_helps_nor_hinders() -> None:
    nothing = Users.of([], [])
    good = _arm(0.6, 1000, 1)
    thumbs = AbMetric("thumbs", "higher", harm=0.0, margin=0.02)
    found = look(
        [KEPT, thumbs],
        {"edit_persistence": (good, _arm(0.64, 1000, 3)), "thumbs": (nothing, nothing)},
        (1000, 1000),
        (0.5, 0.5),
        AbRules(),
        planned=PLANNED,
        at_horizon=True,
    )
    assert found.action == "promote"
    assert not found.metrics[1].measured


@pytest.mark.parametrize(("live", "canary"), [(100, 10), (100, 0), (0, 10)])
def test_too_few_users_are_told_as_such(live: int, canary: int) -> None:
    """It said "a loss of inf cannot be excluded"."""
    control, treated = (Users.of(np.full(n, 3.0), np.full(n, 5.0)) for n in (live, canary))
    arms = {KEPT.name: (control, treated)}
    found = look([KEPT], arms, (100, 10), (0.9, 0.1), AbRules(), planned=PLANNED, at_horizon=True)
    assert found.action == "hold"
    told = f"edit_persistence: known of {live} (control) and {canary} (treated) users, of each 50 are needed"
    assert found.reason == told
