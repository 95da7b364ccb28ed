"""What a suite measures and what came of each attempt: the records between suites, gate and report.

Not here: how a suite runs (`evals/suites/`), what is decided (`evals/gate.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from cursorbench.errors import IntegrityError
from evals.stats.clusters import Floats

SLACK = 1e-9  # of rounding, when attempts are averaged
LARGEST = 1e100  # of a figure: the squares of larger ones are no numbers
Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """One figure of a suite and what the gate tolerates of it.

    Attributes:
        name: stable name, `suite.name` in reports and settings.
        direction: which way is better.
        margin: the loss tolerated, in the metric's unit; read before the data, never after.
        unit: "share", "nats/byte", "tokens", "ms".
        what: one line for people.
        gated: part of the verdict; else reported only.
        bounds: where the figure of one case can lie, None when open.
        sampled: the same model gives another value next time (decides what equal values mean).
    """

    name: str
    direction: Direction
    margin: float
    unit: str
    what: str
    gated: bool = True
    bounds: tuple[float, float] | None = None
    sampled: bool = True

    @property
    def sign(self) -> float:
        """1 where more is better, else -1."""
        return 1.0 if self.direction == "higher" else -1.0

    @property
    def limits(self) -> tuple[float, float] | None:
        """Least and largest difference that one case of a sampled, bounded metric can show."""
        if not self.sampled or self.bounds is None:
            return None
        span = self.bounds[1] - self.bounds[0]
        return -span, span


@dataclass(frozen=True)
class SuiteSpec:
    """A suite's declaration: its metrics, attempts at a case per look, what its cases cluster by."""

    name: str
    metrics: tuple[Metric, ...]
    attempts: int
    cluster: str

    @property
    def sampled(self) -> bool:
        """More attempts can tell more of what is gated."""
        return any(metric.gated and metric.sampled for metric in self.metrics)


@dataclass(frozen=True)
class Attempt:
    """One attempt of one checkpoint at one case.

    Attributes:
        values: metric name to (numerator, denominator); denominator 0 where the metric says nothing.
        failure: why the infrastructure failed, "" when it did not. Such an attempt has no values and
            is never a zero.
        detail: what a person wants to see of it (stop reason, counts); not used by any test.
    """

    case: str
    cluster: str
    attempt: int
    values: Mapping[str, tuple[float, float]]
    failure: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Arm:
    """One metric of one arm, case by case: means over the attempts, and how uncertain these are.

    Attributes:
        numerators, denominators: [N].
        spread: variances and covariance of the means over repeated attempts, [N, 3] as (numerator,
            both, denominator); nan for a case with one attempt.
    """

    numerators: Floats
    denominators: Floats
    spread: Floats

    @property
    def columns(self) -> tuple[Floats, Floats]:
        """Numerators and denominators."""
        return self.numerators, self.denominators


@dataclass(frozen=True, eq=False)
class Paired:
    """The cases both arms could run, in one order; `attempts` is the mean number of attempts at a case."""

    cases: tuple[str, ...]
    clusters: tuple[str, ...]
    candidate: Mapping[str, Arm]
    baseline: Mapping[str, Arm]
    attempts: float


def pair(candidate: Iterable[Attempt], baseline: Iterable[Attempt], metrics: Sequence[str]) -> Paired:
    """Mean over a case's attempts per arm, for the cases with at least one attempt in each arm.

    Raises:
        ValueError: a case has two clusters, or an attempt lacks a metric.
    """
    left, right = _by_case(candidate), _by_case(baseline)
    cases = tuple(sorted(left.keys() & right.keys()))
    clusters = []
    for case in cases:
        labels = {one.cluster for one in (*left[case], *right[case])}
        if len(labels) != 1:
            raise ValueError(f"case {case} is in clusters {sorted(labels)}: the arms ran different suites")
        clusters.append(labels.pop())
    made = [len(arm[case]) for arm in (left, right) for case in cases]
    return Paired(
        cases,
        tuple(clusters),
        {name: _arm([left[case] for case in cases], name) for name in metrics},
        {name: _arm([right[case] for case in cases], name) for name in metrics},
        float(np.mean(made)) if made else 0.0,
    )


def bounded(metric: Metric, paired: Paired) -> Metric:
    """The metric with the bounds that its figures kept to, 0 to 1 or wider, where it is sampled and has none.

    Without any, figures that are all equal would be taken for those of a metric without chance.
    """
    if metric.bounds is not None or not (metric.sampled and metric.gated):
        return metric
    arms = paired.candidate[metric.name], paired.baseline[metric.name]
    seen = [y[n > 0] / n[n > 0] for y, n in (arm.columns for arm in arms)]
    ends = [float(end) for one in seen if one.size for end in (one.min(), one.max())]
    return replace(metric, bounds=(min(0.0, *ends), max(1.0, *ends))) if ends else metric


def refuse_out_of_bounds(paired: Paired, suite: str, metric: Metric) -> None:
    """What the gate rests on. Raises IntegrityError when a case's figure lies where none can, or is none."""
    low, high = metric.bounds or (0.0, 0.0)
    for arm in (paired.candidate[metric.name], paired.baseline[metric.name]):
        y, n = arm.columns
        none = ~((np.abs(y) <= LARGEST) & (np.abs(n) <= LARGEST))
        outside = (n > 0) & ((y < low * n - SLACK * n) | (y > high * n + SLACK * n))
        beyond = none if metric.bounds is None else none | outside
        if beyond.any():
            at = int(np.argmax(beyond))
            figure = f"{y[at] / n[at]:g}"
            if none[at]:
                figure = "beyond 1e100" if np.isfinite(y[at]) and np.isfinite(n[at]) else "no number"
            where = "" if metric.bounds is None else f": it lies between {low:g} and {high:g}"
            raise IntegrityError(
                f"{suite}.{metric.name} of case {paired.cases[at]} is {figure}{where}",
                hint="mend what measures it; the gate decides nothing by such a figure",
            )


def _by_case(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for one in attempts:
        if not one.failure:
            found.setdefault(one.case, []).append(one)
    return found


def _arm(cases: Sequence[Sequence[Attempt]], metric: str) -> Arm:
    for attempts in cases:
        if any(metric not in one.values for one in attempts):
            raise ValueError(f"an attempt at case {attempts[0].case} has no {metric}")
    count = np.array([len(attempts) for attempts in cases], dtype=np.int64)
    case = np.repeat(np.arange(len(cases)), count)
    values = np.array([one.values[metric] for attempts in cases for one in attempts], dtype=np.float64)
    y, n = values.reshape(-1, 2).T

    def total(column: Floats) -> Floats:
        return np.bincount(case, weights=column, minlength=len(cases)).astype(np.float64)

    mean_y, mean_n = total(y) / count, total(n) / count
    off_y, off_n = y - mean_y[case], n - mean_n[case]
    products = np.stack([total(off_y * off_y), total(off_y * off_n), total(off_n * off_n)], axis=1)
    freedom = np.where(count > 1, count * (count - 1), np.nan)
    return Arm(mean_y, mean_n, products / freedom[:, None])
