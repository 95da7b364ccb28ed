"""One metric compared between candidate and baseline: estimates, tests, and what the data could tell.

Not here: the verdict over all metrics (`evals/gate.py`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from evals.cases import Arm, Metric, Paired, bounded, refuse_out_of_bounds
from evals.comparison import Comparison
from evals.stats import power
from evals.stats.clusters import ClusterSums
from evals.stats.intervals import Estimate, clustered, finite
from evals.stats.paired import Columns, paired_sums, sampling_variance
from evals.stats.sequential import ONCE, Look
from evals.stats.sparse import aligned, with_few

State = Literal["pass", "regressed", "inconclusive"]


@dataclass(frozen=True)
class Tell:
    """What the suite in hand can tell of one metric, before anyone relies on it.

    Attributes:
        identical_pass: probability that an identical model passes this metric.
        loss_caught: the loss that is called regressed 80 times in 100, all else being equal (Holm's first
            step: alpha / 2 over the number of gated metrics).
        cases_if_equal: cases that would pass an equal model 90 times in 100.
        attempts_if_equal: attempts at each of the present cases that would; None when no number would, or
            when one attempt at each does not show what attempts are worth.
        cases_if_observed: cases that would pass a model as far off as was observed, None when none would.
    """

    identical_pass: float
    loss_caught: float
    cases_if_equal: int | None
    attempts_if_equal: int | None
    cases_if_observed: int | None


@dataclass(frozen=True)
class Criterion:
    """One metric compared. Gains are candidate minus baseline, signed so that more is better.

    Attributes:
        state: what this metric says by itself.
        gain, se: None where an arm has nothing to measure.
        alpha: level of the tests, and what the intervals leave out.
        low, high: two-sided 1 - alpha interval; None where an end is not known.
        bound: one-sided 1 - alpha lower bound, to be above -margin.
        p_noninferior: of gain <= -margin, over all planned looks.
        p_regressed: of gain >= 0, over all planned looks, before Holm.
        p_holm: `p_regressed` over all gated metrics; None when not gated.
        method: "t", "wild-bootstrap", "equal" or "none".
    """

    suite: str
    metric: Metric
    state: State
    candidate: Estimate
    baseline: Estimate
    gain: float | None
    se: float | None
    alpha: float
    low: float | None
    high: float | None
    bound: float | None
    p_noninferior: float
    p_regressed: float
    p_holm: float | None
    method: str
    cases: int
    clusters: int
    attempts: float
    tell: Tell | None

    @property
    def name(self) -> str:
        """`suite.metric`."""
        return f"{self.suite}.{self.metric.name}"

    @property
    def interval(self) -> str:
        """What the interval is called: "95 % interval"."""
        return f"{100 * (1 - self.alpha):g} % interval"

    def reason(self) -> str:
        """One line of what stands in the way or should be known, "" when nothing is remarkable."""
        if self.gain is None:
            both = self.candidate.value is None and self.baseline.value is None
            who = "neither side has anything" if both else "one side has nothing"
            return (
                f"{self.name}: {f'{who} to measure' if self.attempts else 'no case was tried on both sides'}"
            )
        gain = f"{self.gain:+.4g}"
        if self.state == "regressed":
            ends = f"{_end(self.low)} to {_end(self.high)}"
            return f"{self.name}: {gain} ({self.interval} {ends}) is a certain loss"
        if self.state == "inconclusive":
            low = "no one knows how low" if self.bound is None else f"could be as low as {self.bound:+.4g}"
            return (
                f"{self.name}: {gain}, {low} against a margin of {self.metric.margin:g}; "
                f"{self._would_tell()} (now {self.cases} x {self.attempts:g})"
            )
        if self.high is not None and self.high < 0:
            return f"{self.name}: {gain} is a certain loss, within its margin of {self.metric.margin:g}"
        return ""

    @property
    def more_would_tell(self) -> bool:
        """Whether more cases like these, or more attempts at them, would tell of an equal model."""
        return self.tell is not None and bool(self.tell.cases_if_equal or self.tell.attempts_if_equal)

    def _would_tell(self) -> str:
        if self.clusters < 2:
            return "all cases that tell are of one cluster, which says nothing of others"
        if self.tell is None or not self.more_would_tell:
            return "no number of cases would tell"
        ways = []
        if cases := self.tell.cases_if_equal:
            few = 2 * self.clusters <= self.cases  # as many more of the same clusters tell little
            ways.append(f"{cases} cases" + (f" of {self._clusters_of(cases)} clusters" if few else ""))
        if self.tell.attempts_if_equal:
            ways.append(f"{self.tell.attempts_if_equal} attempts at each case")
        return f"about {' or '.join(ways)} would tell"

    def _clusters_of(self, cases: int) -> int:
        return math.ceil(cases * self.clusters / self.cases - 1e-9)


def criterion(
    suite: str, metric: Metric, paired: Paired, alpha: float, look: Look = ONCE, family: int = 1
) -> tuple[Criterion, ClusterSums | None]:
    """Compare one metric. The second value holds the gains' cluster sums as tested, None when undefined.

    `family` is the number of gated metrics that Holm goes over.

    An arm with nothing to measure (no edit at all) can neither pass nor be called a loss. Raises
    IntegrityError when a figure is out of the metric's bounds.
    """
    refuse_out_of_bounds(paired, suite, metric)
    metric = bounded(metric, paired)
    arms = paired.candidate[metric.name], paired.baseline[metric.name]
    candidate, baseline = (clustered(*arm.columns, paired.clusters, bounds=metric.bounds) for arm in arms)
    if candidate.value is None or baseline.value is None:
        return _undefined(suite, metric, candidate, baseline, paired, alpha), None
    data = _gains(metric, arms[0].columns, arms[1].columns, paired.clusters)
    tested = tested_gains(metric, arms[0].columns, arms[1].columns, paired.clusters)
    test = Comparison(tested, metric, alpha, look)
    known = test.inference
    tell = _tell(known.data, metric, alpha, paired, arms, family) if known.decidable else None
    found = Criterion(
        suite=suite,
        metric=metric,
        state="pass" if test.p_noninferior <= alpha else "inconclusive",
        candidate=candidate,
        baseline=baseline,
        gain=data.mean,
        se=known.data.se if known.decidable else None,
        alpha=alpha,
        low=finite(test.interval[0]),
        high=finite(test.interval[1]),
        bound=finite(test.bound),
        p_noninferior=test.p_noninferior,
        p_regressed=test.p_regressed,
        p_holm=None,
        method=known.method,
        cases=len(paired.cases),
        clusters=data.clusters,
        attempts=paired.attempts,
        tell=tell,
    )
    return found, tested


def tested_gains(
    metric: Metric, candidate: Columns, baseline: Columns, clusters: Sequence[Hashable]
) -> ClusterSums:
    """The gains' cluster sums as tested, more being better; of few cases see `evals/stats/sparse.py`."""
    if metric.bounds is None:
        return _gains(metric, candidate, baseline, clusters)
    return _gains(metric, *with_few(candidate, baseline, clusters, metric.bounds))


def _gains(
    metric: Metric, candidate: Columns, baseline: Columns, clusters: Sequence[Hashable]
) -> ClusterSums:
    data = paired_sums(candidate, baseline, clusters)
    return replace(data, sums=metric.sign * data.sums)


def _undefined(
    suite: str, metric: Metric, candidate: Estimate, baseline: Estimate, paired: Paired, alpha: float
) -> Criterion:
    return Criterion(
        suite=suite,
        metric=metric,
        state="inconclusive",
        candidate=candidate,
        baseline=baseline,
        gain=None,
        se=None,
        alpha=alpha,
        low=None,
        high=None,
        bound=None,
        p_noninferior=1.0,
        p_regressed=1.0,
        p_holm=None,
        method="none",
        cases=min(candidate.cases, baseline.cases),
        clusters=min(candidate.clusters, baseline.clusters),
        attempts=paired.attempts,
        tell=None,
    )


def _tell(
    data: ClusterSums, metric: Metric, alpha: float, paired: Paired, arms: tuple[Arm, Arm], family: int
) -> Tell:
    margin, span = metric.margin, metric.limits[1] if metric.limits else 0.0
    told = np.count_nonzero(arms[0].denominators + arms[1].denominators)  # cases that say something of it

    def of_all(count: int | None) -> int | None:
        return None if count is None else math.ceil(count * len(paired.cases) / told)

    if data.se == 0 and span:
        unseen = partial(power.cases_needed_unseen, data, margin, span, alpha=alpha)
        return Tell(
            identical_pass=float(_identical_passes(data, metric, alpha)),
            loss_caught=power.rare_loss(data, span, alpha=alpha / 2 / family),
            cases_if_equal=of_all(unseen()),
            attempts_if_equal=None,
            cases_if_observed=of_all(unseen(delta=data.mean)),
        )
    sampling = [sampling_variance(arm.columns, arm.spread) for arm in arms]
    known = sum(one for one in sampling if one is not None)
    both = all(one is not None for one in sampling)
    attempts = power.attempts_needed(data, known, paired.attempts, margin, alpha=alpha) if both else None
    return Tell(
        identical_pass=power.pass_probability(data.se, data.freedom, margin, alpha=alpha),
        loss_caught=power.detectable_loss(data.se, data.freedom, alpha=alpha / 2 / family),
        cases_if_equal=of_all(power.cases_needed(data, margin, alpha=alpha)),
        attempts_if_equal=attempts,
        cases_if_observed=of_all(power.cases_needed(data, margin, delta=data.mean, alpha=alpha)),
    )


def joint_identical_pass(
    sums: Sequence[tuple[ClusterSums | None, Metric]], alpha: float, draws: int = 2000
) -> float | None:
    """Share of worlds with two identical models in which all these metrics of one suite pass.

    None where a metric is undefined or has fewer than two clusters; 1.0 without metrics.
    """
    if not sums:
        return 1.0
    known = [one for one, _ in sums if one is not None and one.clusters >= 2]
    metrics = [metric for _, metric in sums]
    if len(known) < len(sums):
        return None
    if not all(_identical_passes(*of, alpha) for of in zip(known, metrics, strict=True) if not of[0].se):
        return 0.0
    data, margins = aligned(known), [metric.margin for metric in metrics]
    means, errors = power.identical_worlds(data, draws, seed=0)
    return power.share_passing(means, errors, margins, [one.freedom for one in data], alpha)


def _identical_passes(data: ClusterSums, metric: Metric, alpha: float) -> bool:
    """Whether a model passes that differs in none of these cases."""
    return Comparison(ClusterSums(np.zeros(data.clusters), data.sizes), metric, alpha).p_noninferior <= alpha


def _end(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4g}"
