"""Verdicts of the gate on cases written by hand, and how often it is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cursorbench.errors import IntegrityError
from evals.cases import Attempt, Metric, SuiteSpec, bounded, pair
from evals.gate import Rules, decide, infrastructure
from evals.stats.sequential import Look

SUCCESS = Metric("success", "higher", 0.05, "share", "does what was meant", bounds=(0, 1))
COST = Metric("tokens", "lower", 10.0, "tokens", "length", gated=False)


def attempts(values: Sequence[float], *, per_user: int = 1, name: str = "success") -> list[Attempt]:
    return [
        Attempt(f"case{i:05}", f"user{i // per_user:05}", 0, {name: (float(value), 1.0)})
        for i, value in enumerate(values)
    ]


def suite(*metrics: Metric, name: str = "demo") -> SuiteSpec:
    return SuiteSpec(name, metrics, 1, "user")


def verdict(candidate: Sequence[float], baseline: Sequence[float], metric: Metric = SUCCESS) -> str:
    arms = (attempts(candidate, name=metric.name), attempts(baseline, name=metric.name))
    return decide([(suite(metric), arms)], Rules()).verdict


def coins(rng: np.random.Generator, p: float, count: int) -> list[float]:
    return list((rng.random(count) < p).astype(float))


def test_the_three_verdicts() -> None:
    base = [1.0, 0.0] * 1000
    assert verdict(base, base) == "pass"
    worse = [0.0 if i % 5 == 0 else value for i, value in enumerate(base)]  # 10 points lost
    assert verdict(worse, base) == "regressed"
    rng = np.random.default_rng(0)
    assert verdict(coins(rng, 0.5, 100), coins(rng, 0.5, 100)) == "inconclusive"


def test_lower_is_better_where_declared() -> None:
    invalid = Metric("invalid", "lower", 0.02, "share", "broken calls", bounds=(0, 1))
    none, some = [0.0] * 400, [0.0, 0.0, 0.0, 1.0] * 100
    assert verdict(none, some, invalid) == "pass"
    assert verdict(some, none, invalid) == "regressed"


def test_gain_and_interval_by_hand() -> None:
    # Differences 1, 0, 0, -1, 1, ...: mean .2; textbook paired t interval.
    candidate = [1.0, 0.0, 1.0, 0.0, 1.0] * 10
    baseline = [0.0, 0.0, 1.0, 1.0, 0.0] * 10
    result = decide([(suite(SUCCESS), (attempts(candidate), attempts(baseline)))], Rules())
    found = result.criteria[0]
    reference = stats.ttest_rel(candidate, baseline).confidence_interval(0.95)
    assert found.gain == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))
    assert found.bound == pytest.approx(0.2 - stats.t.isf(0.05, 49) * found.se)
    json.dumps(result.to_json(), allow_nan=False)


def test_intervals_are_called_what_alpha_makes_them() -> None:
    base = [1.0, 0.0] * 1000
    worse = [0.0 if i % 5 == 0 else value for i, value in enumerate(base)]
    for alpha, name in ((0.05, "95 % interval"), (0.01, "99 % interval"), (0.001, "99.9 % interval")):
        result = decide([(suite(SUCCESS), (attempts(worse), attempts(base)))], Rules(alpha))
        assert result.criteria[0].interval == name
        assert f"({name} -" in result.reasons[0]


def test_certain_loss_inside_its_margin_passes_and_is_named() -> None:
    base = [1.0] * 100 + [0.0] * 4900
    candidate = [0.0] * 50 + base[50:]  # one point lost in a hundred, for certain
    result = decide([(suite(SUCCESS), (attempts(candidate), attempts(base)))], Rules())
    assert result.verdict == "pass"
    assert "within its margin" in result.reasons[0]


def test_one_regression_among_passes_is_enough() -> None:
    base, bad = [1.0, 0.0] * 500, [0.0] * 1000
    other = Metric("other", "higher", 0.05, "share", "other", bounds=(0, 1))
    suites = [
        (suite(SUCCESS), (attempts(base), attempts(base))),
        (suite(other, name="second"), (attempts(bad, name="other"), attempts(base, name="other"))),
    ]
    assert decide(suites, Rules()).verdict == "regressed"


def test_reported_metrics_do_not_decide() -> None:
    both = [
        Attempt(one.case, one.cluster, 0, {**one.values, "tokens": (900.0, 1.0)})
        for one in attempts([1.0, 0.0] * 500)
    ]
    cheap = [Attempt(one.case, one.cluster, 0, {**one.values, "tokens": (10.0, 1.0)}) for one in both]
    result = decide([(suite(SUCCESS, COST), (both, cheap))], Rules())
    assert result.verdict == "pass"
    assert result.criteria[1].gain == -890


def test_nothing_gated_is_refused() -> None:
    arms = (attempts([1, 2], name="tokens"), attempts([1, 2], name="tokens"))
    with pytest.raises(ValueError, match="nothing to decide"):
        decide([(suite(COST), arms)], Rules())


def test_inconclusive_says_how_many_would_tell() -> None:
    rng = np.random.default_rng(2)
    arms = (attempts(coins(rng, 0.5, 150)), attempts(coins(rng, 0.5, 150)))
    result = decide([(suite(SUCCESS), arms)], Rules())
    tell = result.criteria[0].tell
    assert tell is not None
    assert tell.cases_if_equal is not None
    # Two fair coins differ with sd sqrt(.5): (1.645 + 1.282)^2 * .5 / .05^2 = 1,713 cases.
    assert tell.cases_if_equal == pytest.approx(1713, rel=0.25)
    assert "would tell" in result.reasons[0]


_TOLD = ((15, "885 cases of 59 clusters"), (10, "590 cases of 59 clusters"), (1, "59 cases"))


def test_more_cases_are_cases_of_more_clusters() -> None:
    """Two repositories of fifteen tasks: 885 cases would tell, it said, and no number of theirs does."""
    for per_user, told in _TOLD:
        same = attempts([1.0] * 30, per_user=per_user)
        (reason,) = decide([(suite(SUCCESS), (same, same))], Rules()).reasons
        # nothing differs: (1 - 0.05)^G <= 0.05 from G = 59 on
        assert f"; about {told} would tell (now 30 x 1)" in reason
    one = attempts([1.0] * 30, per_user=30)
    (reason,) = decide([(suite(SUCCESS), (one, one))], Rules()).reasons
    assert reason.startswith("demo.success: +0, no one knows how low against a margin of 0.05; all cases")


def test_no_edit_at_all_cannot_pass() -> None:
    kept = Metric("persistence", "higher", 0.05, "share", "kept", bounds=(0, 1))
    base = [Attempt(f"c{i}", f"u{i}", 0, {"persistence": (1.0, 1.0)}) for i in range(50)]
    asks = [Attempt(f"c{i}", f"u{i}", 0, {"persistence": (0.0, 0.0)}) for i in range(50)]
    result = decide([(suite(kept), (asks, base))], Rules())
    assert result.verdict == "inconclusive"
    assert result.reasons[0] == "demo.persistence: one side has nothing to measure"
    neither = decide([(suite(kept), (asks, asks))], Rules())
    assert neither.reasons[0] == "demo.persistence: neither side has anything to measure"


def lose(arm: list[Attempt], indices: Sequence[int]) -> list[Attempt]:
    gone = set(indices)
    return [
        Attempt(one.case, one.cluster, 0, {}, failure="engine down") if i in gone else one
        for i, one in enumerate(arm)
    ]


def test_infrastructure_failures_are_no_zeros() -> None:
    base = attempts([1.0] * 1000)
    broken = lose(base, range(0, 1000, 100))
    both = decide([(suite(SUCCESS), (broken, broken))], Rules())
    assert both.verdict == "pass"
    assert both.suites[0].cases == 990
    assert both.criteria[0].gain == 0


def test_a_candidate_cannot_void_its_own_gate() -> None:
    base = attempts([1.0, 0.0] * 500)
    # It loses nine in a thousand cases: below the limit, but more than the baseline by far.
    few = lose(base, range(0, 900, 100))
    result = decide([(suite(SUCCESS), (few, base))], Rules())
    assert result.verdict == "inconclusive"
    assert "infrastructure" in result.reasons[0]
    found = result.suites[0].infra
    assert found.p_more == pytest.approx(stats.hypergeom.sf(8, 2000, 9, 1000))  # all nine on its side
    assert not infrastructure(base, few, Rules()).objection  # the baseline's losses are not its doing
    more = infrastructure(lose(base, range(0, 1000, 50)), lose(base, range(0, 1000, 50)), Rules())
    assert (more.p_more > 0.05, "allowed 1%" in more.objection) == (True, True)
    assert infrastructure(lose(base, range(80)), lose(base, range(80)), Rules()).objection
    assert not infrastructure(lose(base, range(3)), lose(base, range(4)), Rules()).objection
    assert more.objection.endswith("most often: engine down")
    assert infrastructure([], base, Rules()).objection == "the candidate has no attempts"


def test_pairs_need_the_same_suite() -> None:
    left = [Attempt("c", "u1", 0, {"success": (1, 1)})]
    right = [Attempt("c", "u2", 0, {"success": (1, 1)})]
    with pytest.raises(ValueError, match="different suites"):
        pair(left, right, ["success"])
    with pytest.raises(ValueError, match="has no other"):
        pair(left, left, ["other"])


def test_attempts_of_a_case_are_averaged() -> None:
    left = [Attempt("c", "u", i, {"success": (value, 1)}) for i, value in enumerate((1.0, 0.0, 0.0, 0.0))]
    paired = pair(left, left[:1], ["success"])
    assert paired.candidate["success"].numerators.tolist() == [0.25]
    assert paired.baseline["success"].numerators.tolist() == [1.0]
    # One success in four: variance of an attempt 3/4 * (1/16) + ... = .25, of their mean .0625.
    assert paired.candidate["success"].spread[0] == pytest.approx([0.0625, 0, 0])
    assert np.isnan(paired.baseline["success"].spread).all()
    assert paired.attempts == 2.5


def test_gains_and_losses_that_cancel_leave_no_spread() -> None:
    """Of thirds they left -1.1e-16 in a cluster, which was a standard error, and two clusters passed."""
    left, right = ([one / 3 for one in thirds] for thirds in ([3, 3, 3, 1, 3, 2], [3, 3, 3, 3, 1, 2]))
    arms = (attempts(left, per_user=3), attempts(right, per_user=3))
    decided = decide([(suite(SUCCESS), arms)], Rules())
    (found,) = decided.criteria
    assert (decided.verdict, found.method, found.gain) == ("inconclusive", "equal", 0.0)
    assert found.bound == pytest.approx(-(1 - 0.05**0.5))  # a loss that neither of two clusters shows


def test_losses_that_add_up_since_the_anchor_regress() -> None:
    """Two points lost against live are within the margin; eight since the anchor are not."""
    anchor = [1.0] * 1000 + [0.0] * 1000
    live = [0.0] * 120 + anchor[120:]
    candidate = [0.0] * 160 + anchor[160:]
    near = [(suite(SUCCESS), (attempts(candidate), attempts(live)))]
    far = [(suite(SUCCESS), (attempts(candidate), attempts(anchor)))]
    assert decide(near, Rules()).verdict == "pass"
    result = decide(near, Rules(), far)
    assert result.verdict == "regressed"
    assert result.criteria[0].state == "pass"
    assert result.drift[0].criteria[0].state == "regressed"
    assert result.reasons[-1].startswith("since the anchor, demo.success: -0.08")
    assert result.drift[0].criteria[0].p_holm == pytest.approx(2 * result.drift[0].criteria[0].p_regressed)
    json.dumps(result.to_json(), allow_nan=False)


def test_what_cannot_be_told_against_the_anchor_objects_to_nothing() -> None:
    rng = np.random.default_rng(0)
    base = [1.0, 0.0] * 1000
    near = [(suite(SUCCESS), (attempts(base), attempts(base)))]
    far = [(suite(SUCCESS), (attempts(base[:40]), attempts(coins(rng, 0.5, 40))))]
    result = decide(near, Rules(), far)
    assert (result.drift[0].criteria[0].state, result.verdict) == ("inconclusive", "pass")


def test_an_early_look_asks_for_more() -> None:
    """A loss at z = -3.6 is told at the last of eight looks (2.07), not at the first (5.86)."""
    candidate = [0.0] * 30 + [1.0] * 20 + [1.0, 0.0] * 200
    baseline = [1.0] * 30 + [0.0] * 8 + [1.0] * 12 + [1.0, 0.0] * 200
    arms = (attempts(candidate), attempts(baseline))
    plain = decide([(suite(SUCCESS), arms)], Rules()).criteria[0]
    assert plain.gain is not None
    assert plain.se is not None
    assert plain.gain / plain.se == pytest.approx(-3.6, abs=0.3)
    found = {n: decide([(suite(SUCCESS), arms)], Rules(look=Look(n, 8))) for n in (1, 8)}
    assert (found[1].verdict, found[8].verdict) == ("inconclusive", "regressed")
    first, last = found[1].criteria[0], found[8].criteria[0]
    assert first.low is not None
    assert last.low is not None
    assert plain.low is not None
    assert first.low < last.low < plain.low  # repeated confidence intervals


def test_a_deterministic_metric_is_the_same_at_every_look() -> None:
    loss = Metric("loss", "lower", 0.05, "nats", "likelihood", sampled=False)
    rng = np.random.default_rng(1)
    base = rng.normal(size=100)
    arms = (
        attempts(list(base + 0.3), name="loss"),
        attempts(list(base + rng.normal(0, 0.1, 100)), name="loss"),
    )
    looks = [decide([(suite(loss), arms)], Rules(look=Look(n, 5))).criteria[0] for n in (1, 5)]
    assert looks[0].p_regressed == looks[1].p_regressed
    assert not suite(loss).sampled
    assert suite(SUCCESS, loss).sampled


def test_attempts_that_would_tell() -> None:
    """Fair coins of 150 users at two attempts: se of sqrt(.25 / 150); 5 points want .017: six times two."""
    rng = np.random.default_rng(3)
    arms = tuple(
        [
            Attempt(f"c{i:03}", f"u{i}", k, {"success": (float(rng.random() < 0.5), 1.0)})
            for i in range(150)
            for k in range(2)
        ]
        for _ in "cb"
    )
    result = decide([(suite(SUCCESS), (arms[0], arms[1]))], Rules())
    tell = result.criteria[0].tell
    assert tell is not None
    assert tell.attempts_if_equal == pytest.approx(12, abs=4)
    assert f"or {tell.attempts_if_equal} attempts at each case would tell (now 150 x 2)" in result.reasons[0]


@pytest.mark.parametrize(("users", "per_user"), [(100, 4), (15, 20), (8, 20)])
def test_identical_models_are_not_called_regressed(users: int, per_user: int) -> None:
    """Two samples of one model: at most 2.5 % regressed, and the pass rate is the one predicted."""
    rng = np.random.default_rng(users)
    count, worlds = users * per_user, 100
    outcomes, predicted = [], []
    for _ in range(worlds):
        skill = np.repeat(rng.beta(2, 3, size=users), per_user)
        arms = [attempts(list((rng.random(count) < skill).astype(float)), per_user=per_user) for _ in "cb"]
        result = decide([(suite(SUCCESS), (arms[0], arms[1]))], Rules())
        outcomes.append(result.verdict)
        predicted.append(result.identical_pass)
    assert stats.binomtest(outcomes.count("regressed"), worlds, 0.025, alternative="greater").pvalue > 0.001
    if users >= 20:
        assert outcomes.count("pass") / worlds == pytest.approx(np.mean(predicted), abs=0.15)


def test_the_loss_that_would_be_caught_knows_of_holm() -> None:
    base = attempts([1.0, 0.0] * 200)
    other = attempts([0.0, 1.0, 1.0, 0.0] * 100)
    one = decide([(suite(SUCCESS), (base, other))], Rules()).criteria[0].tell
    four = decide([(suite(SUCCESS, name=f"s{i}"), (base, other)) for i in range(4)], Rules()).criteria[0].tell
    assert one is not None
    assert four is not None
    # Normal arithmetic: (2.50 + .84) / (1.96 + .84).
    assert four.loss_caught / one.loss_caught == pytest.approx(3.34 / 2.80, rel=0.02)


def test_what_is_equal_without_chance_passes_without_a_margin() -> None:
    """Likelihoods of one model against its own: no number of cases would have passed them."""
    exact = Metric("loss", "lower", 0.0, "nats", "likelihood", sampled=False)
    assert verdict([0.5] * 20, [0.5] * 20, exact) == "pass"
    assert verdict([0.5001] * 20, [0.5] * 20, exact) == "regressed"
    assert verdict([0.4999] * 20, [0.5] * 20, exact) == "pass"
    arms = (attempts([0.5] * 20, name="loss"), attempts([0.5] * 20, name="loss"))
    found = decide([(suite(exact), arms)], Rules())
    assert (found.criteria[0].p_noninferior, found.criteria[0].p_regressed) == (0.0, 1.0)
    assert found.identical_pass == 1.0


def test_cases_of_one_side_only_object() -> None:
    """The verdict was of what both had, and nobody said so."""
    found = decide([(suite(SUCCESS), (attempts([1.0] * 100), attempts([1.0] * 200)))], Rules())
    assert found.verdict == "inconclusive"
    assert "100 cases were tried on one side only, such as case00100" in found.reasons[0]
    lost = [replace(one, failure="engine", values={}) for one in attempts([1.0] * 9)]
    found = decide([(suite(SUCCESS), (lost, attempts([1.0] * 9)))], Rules())
    assert found.reasons[1] == "demo.success: no case was tried on both sides"


def test_a_metric_without_bounds_is_as_uncertain_as_it_is_seen() -> None:
    """Of a task of one's own, sampled: six answers, all wrong on both sides, passed "100 times in 100"."""
    right = Metric("success", "higher", 0.05, "", "mine")
    for count, verdict_ in ((6, "inconclusive"), (58, "inconclusive"), (59, "pass")):
        same = attempts([0.0] * count)
        found = decide([(suite(right), (same, same))], Rules())
        assert found.verdict == verdict_  # (1 - 0.05)^G <= 0.05 from G = 59 on
        assert found.identical_pass == float(count == 59)
    points = [attempts([7.0] * 59), attempts([7.0] * 59)]  # of 0 to 7: (1 - 0.05 / 7)^59 = 0.655
    (one,) = decide([(suite(right), (points[0], points[1]))], Rules()).criteria
    assert one.p_noninferior == pytest.approx((1 - 0.05 / 7) ** 59)
    exact = replace(right, sampled=False)
    assert decide([(suite(exact), (points[0][:6], points[1][:6]))], Rules()).verdict == "pass"


def test_a_metric_without_bounds_has_those_of_its_figures() -> None:
    """3 and -2; what has nothing in its denominator has no figure."""
    made, told = Metric("made", "higher", 0.05, "", "mine"), {"a": (6.0, 2.0), "b": (0.0, 0.0)}
    arms = [
        [Attempt(case, case, 0, {"made": one}) for case, one in values.items()]
        for values in (told, {"a": (-2.0, 1.0), "b": (0.5, 1.0)})
    ]
    assert bounded(made, pair(*arms, ["made"])).bounds == (-2.0, 3.0)
    assert bounded(made, pair(arms[1][1:], arms[1][1:], ["made"])).bounds == (0.0, 1.0)
    assert bounded(replace(made, gated=False), pair(*arms, ["made"])).bounds is None


def test_one_cluster_asks_for_others() -> None:
    """Of "all cases" it spoke, also where others are there that say nothing of the metric."""
    arms = (attempts([0.0] * 50, per_user=50), attempts([1.0] * 50, per_user=50))
    found = decide([(suite(SUCCESS), arms)], Rules())
    assert found.verdict == "inconclusive"
    assert "all cases that tell are of one cluster" in found.reasons[0]


@pytest.mark.parametrize(
    ("candidate", "baseline", "beyond"),
    [(1.7, 0.5, "1.7"), (0.5, -0.2, "-0.2"), (0.5, math.nan, "no number")],
)
def test_a_figure_out_of_its_bounds_decides_nothing(candidate: float, baseline: float, beyond: str) -> None:
    """One that is no number ended the eval as a bug (exit 1)."""
    ones = [1.0] * 60
    with pytest.raises(IntegrityError, match=f"demo.success of case .* is {beyond}: it lies between 0 and 1"):
        verdict([*ones, candidate], [*ones, baseline])
    assert verdict([*ones, 1 + 1e-12], [*ones, 1.0]) == "pass"
    free = Metric("tokens", "lower", 5.0, "tokens", "used")
    told = [[Attempt("a", "u", 0, {"tokens": (one, 1.0)})] for one in (math.nan, 3.0)]
    with pytest.raises(IntegrityError, match=r"demo.tokens of case a is no number$"):
        decide([(suite(free), (told[1], told[0]))], Rules())


def test_a_figure_whose_square_is_no_number_decides_nothing() -> None:
    """Of exp(600) in one document the eval ended as a bug, after all attempts (OverflowError)."""
    free = Metric("ppl", "lower", 0.05, "", "exp of what one document costs")
    arms = (attempts([1e160, *[1.0] * 29], name="ppl"), attempts([1.0] * 30, name="ppl"))
    with pytest.raises(IntegrityError, match=r"demo.ppl of case case00000 is beyond 1e100$"):
        decide([(suite(free), arms)], Rules())
    large = (attempts([1e90, *[1.0] * 29], name="ppl"), attempts([1.0] * 30, name="ppl"))
    assert decide([(suite(free), large)], Rules()).verdict == "inconclusive"


@pytest.mark.parametrize("margin", [5e-324, 1e-30, 2.0, 1e308])
def test_what_would_tell_is_told_or_not_whatever_the_margin(margin: float) -> None:
    """A division by nothing, or a number of cases without end, where all cases are equal."""
    free = Metric("points", "higher", margin, "", "of a task of somebody's own")
    for candidate, base in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.0)):
        arms = (attempts([candidate] * 20, name="points"), attempts([base] * 20, name="points"))
        found = decide([(suite(free), arms)], Rules())
        tell = found.criteria[0].tell
        assert tell is not None
        assert tell.cases_if_equal == (None if margin < 1 else 2)
        assert (found.verdict == "pass") == (margin > 1 or candidate > base)


def probes(clear: float, *, others: int, count: int = 1) -> list[Attempt]:
    """So many cases that say something, in clusters of their own, beside others that say nothing."""
    told = [Attempt(f"clear{n}", f"clear{n}", 0, {"success": (clear, 1.0)}) for n in range(count)]
    return told + [Attempt(f"other{n}", f"other{n}", 0, {"success": (0.0, 0.0)}) for n in range(others)]


def test_cases_that_say_nothing_are_no_evidence() -> None:
    """One clear probe beside thirty ambiguous ones: thirty-one that agreed, said the gate, with p = 2e-19."""
    for candidate in (0.0, 1.0):
        arms = probes(candidate, others=30), probes(1.0, others=30)
        found = decide([(suite(SUCCESS), arms)], Rules())
        assert found.verdict == "inconclusive"
        assert (found.criteria[0].clusters, found.criteria[0].cases) == (1, 31)
        assert found.criteria[0].candidate.clusters == 1


def test_cases_that_say_nothing_change_no_test() -> None:
    """The same figures, p values and power with them and without; more of them are wanted in proportion."""
    rng = np.random.default_rng(3)
    here, there = coins(rng, 0.6, 40), coins(rng, 0.6, 40)
    rest = [Attempt(f"other{n}", f"other{n}", 0, {"success": (0.0, 0.0)}) for n in range(40)]
    plain = decide([(suite(SUCCESS), (attempts(here), attempts(there)))], Rules()).criteria[0]
    beside = decide([(suite(SUCCESS), (attempts(here) + rest, attempts(there) + rest))], Rules()).criteria[0]
    for name in ("gain", "se", "low", "bound", "p_noninferior", "p_regressed", "clusters", "method"):
        assert getattr(beside, name) == getattr(plain, name), name
    assert plain.tell is not None
    assert plain.tell.cases_if_equal is not None
    assert beside.tell is not None
    assert beside.tell.cases_if_equal == 2 * plain.tell.cases_if_equal


def test_metrics_over_different_cases_are_judged_together() -> None:
    """Their clusters are matched by name, each with its own degrees of freedom."""
    kept = Metric("kept", "higher", 0.5, "share", "", bounds=(0, 1))

    def arm(seed: int) -> list[Attempt]:
        luck = np.random.default_rng(seed).random(80) < 0.5
        return [
            Attempt(f"c{n}", f"c{n}", 0, {"success": (1.0, 1.0), "kept": (float(n % 2 and won), n % 2)})
            for n, won in enumerate(luck)
        ]

    found = decide([(suite(SUCCESS, kept), (arm(1), arm(2)))], Rules())
    assert [one.clusters for one in found.criteria] == [80, 40]
    assert found.identical_pass is not None
    assert 0.5 < found.identical_pass <= 1.0


def test_a_few_edits_that_all_stay_are_no_pass() -> None:
    """A ratio of 1 without any spread, of four edits in a thousand requests."""
    few = [Attempt(f"c{n}", f"c{n}", 0, {"success": (float(n < 4), float(n < 4))}) for n in range(1000)]
    many = [Attempt(f"c{n}", f"c{n}", 0, {"success": (float(n % 5 > 0), 1.0)}) for n in range(1000)]
    found = decide([(suite(SUCCESS), (few, many))], Rules())
    assert found.verdict == "inconclusive"
    assert found.criteria[0].gain == pytest.approx(0.2)
    assert found.criteria[0].bound is not None
    assert found.criteria[0].bound < -0.05
