"""One metric compared between candidate and baseline: estimates, tests, and what the data could tell.

Not here: the verdict over all metrics (`evals/gate.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evals.cases import Metric, Paired
from evals.stats import power
from evals.stats.clusters import ClusterSums, cluster_sums
from evals.stats.inference import Inference
from evals.stats.intervals import Estimate, clustered
from evals.stats.paired import paired_values

State = Literal["pass", "regressed", "inconclusive"]


@dataclass(frozen=True)
class Tell:
    """What the suite in hand can tell of one metric, before anyone relies on it.

    Attributes:
        identical_pass: probability that an identical model passes this metric.
        loss_caught: the loss that is called regressed 80 times in 100.
        cases_if_equal: cases that would pass an equal model 90 times in 100.
        cases_if_observed: the same for a model as far off as was observed; None when no number would.
    """

    identical_pass: float
    loss_caught: float
    cases_if_equal: int | None
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
        p_noninferior: of gain <= -margin.
        p_regressed: of gain >= 0, before Holm.
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
            return f"{self.name}: one side has nothing to measure"
        gain = f"{self.gain:+.4g}"
        if self.state == "regressed":
            ends = f"{_end(self.low)} to {_end(self.high)}"
            return f"{self.name}: {gain} ({self.interval} {ends}) is a certain loss"
        if self.state == "inconclusive":
            needed = self.tell.cases_if_equal if self.tell else None
            would = f"about {needed} cases would tell" if needed else "no number of cases would tell"
            return (
                f"{self.name}: {gain}, could be as low as {_end(self.bound)} against a margin of "
                f"{self.metric.margin:g}; {would} (now {self.cases})"
            )
        if self.high is not None and self.high < 0:
            return f"{self.name}: {gain} is a certain loss, within its margin of {self.metric.margin:g}"
        return ""


def criterion(
    suite: str, metric: Metric, paired: Paired, alpha: float
) -> tuple[Criterion, ClusterSums | None]:
    """Compare one metric. The second value holds the gains' cluster sums, None when undefined.

    An arm with nothing to measure (no edit at all) can neither pass nor be called a loss.
    """
    candidate, baseline = (
        clustered(*arm[metric.name], paired.clusters, bounds=metric.bounds)
        for arm in (paired.candidate, paired.baseline)
    )
    if candidate.value is None or baseline.value is None:
        return _undefined(suite, metric, candidate, baseline, alpha), None
    gains = metric.sign * paired_values(paired.candidate[metric.name], paired.baseline[metric.name])
    data = cluster_sums(gains, paired.clusters)
    test = Inference(data, metric.span)
    low, high = test.interval(1 - alpha)
    p_noninferior = test.p_greater(-metric.margin)
    found = Criterion(
        suite=suite,
        metric=metric,
        state="pass" if p_noninferior <= alpha else "inconclusive",
        candidate=candidate,
        baseline=baseline,
        gain=data.mean,
        se=data.se if test.decidable else None,
        alpha=alpha,
        low=_finite(low),
        high=_finite(high),
        bound=_finite(test.lower(alpha)),
        p_noninferior=p_noninferior,
        p_regressed=test.p_less(0.0),
        p_holm=None,
        method=test.method,
        cases=data.cases,
        clusters=data.clusters,
        tell=_tell(data, metric.margin, alpha) if test.decidable else None,
    )
    return found, data


def _undefined(
    suite: str, metric: Metric, candidate: Estimate, baseline: Estimate, alpha: float
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
        tell=None,
    )


def _tell(data: ClusterSums, margin: float, alpha: float) -> Tell:
    se, clusters, cases = data.se, data.clusters, data.cases
    return Tell(
        identical_pass=power.pass_probability(se, clusters, margin, alpha=alpha),
        loss_caught=power.detectable_loss(se, clusters, alpha=alpha / 2),
        cases_if_equal=power.cases_needed(se, cases, clusters, margin, alpha=alpha),
        cases_if_observed=power.cases_needed(se, cases, clusters, margin, delta=data.mean, alpha=alpha),
    )


def joint_identical_pass(
    sums: Sequence[tuple[ClusterSums | None, Metric]], alpha: float, draws: int = 2000
) -> float | None:
    """Share of worlds with two identical models in which all these metrics of one suite pass.

    None where a metric is undefined or has fewer than two clusters; 1.0 without metrics.
    """
    if not sums:
        return 1.0
    data = [one for one, _ in sums if one is not None and one.clusters >= 2]
    if len(data) < len(sums):
        return None
    margins = [metric.margin for _, metric in sums]
    means, errors = power.identical_worlds(data, draws, seed=0)
    return power.share_passing(means, errors, margins, data[0].clusters, alpha)


def _end(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
