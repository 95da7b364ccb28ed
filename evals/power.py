"""How often the gate says what, over many simulated suites: its power, before anyone relies on it.

Every world goes through the gate's own tests and its own rule for the verdict (`evals/criteria.py`,
`evals/gate.py`). Beside them the naive test: unpaired, every attempt taken for independent, two-sided 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from evals.cases import Metric
from evals.comparison import Comparison
from evals.criteria import State
from evals.gate import overall, state_of
from evals.stats.clusters import ClusterSums, Floats
from evals.stats.holm import holm
from evals.worlds import NONE, Effects, Tasks, cluster_totals, draw

POWER = 0.8


@dataclass(frozen=True)
class Rate:
    """How many of the worlds, with the exact 95 % interval (Clopper-Pearson)."""

    count: int
    worlds: int

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.worlds

    @property
    def interval(self) -> tuple[float, float]:
        """Two-sided 95 %."""
        found = scipy.stats.binomtest(self.count, self.worlds).proportion_ci(0.95, method="exact")
        return float(found.low), float(found.high)

    def to_json(self) -> dict[str, Any]:
        """Share, interval, worlds."""
        return {"value": self.value, "interval": self.interval, "worlds": self.worlds}


@dataclass(frozen=True)
class Rates:
    """What became of the worlds: pass and regressed by the gate, and losses found by the naive test."""

    passed: Rate
    regressed: Rate
    naive_regressed: Rate
    naive_passed: Rate


def success(margin: float) -> Metric:
    """A share of tasks done, as a suite gates it."""
    return Metric("success", "higher", margin, "share", "tasks done", bounds=(0.0, 1.0))


def rates(
    tasks: Tasks,
    margin: float,
    *,
    loss: float = 0.0,
    effects: Effects = NONE,
    suites: int = 1,
    alpha: float = 0.05,
    worlds: int = 2000,
    seed: int = 0,
) -> Rates:
    """The gate over `suites` suites of this kind, of which the first has the loss and the others none."""
    metric = success(margin)
    rng = np.random.default_rng([seed, suites, round(loss * 1e6)])
    tested = [
        _tested(tasks, effects, loss if n == 0 else 0.0, worlds, rng, metric, alpha) for n in range(suites)
    ]
    verdicts = [verdict([one.p_values[world] for one in tested], alpha) for world in range(worlds)]
    worst = np.min([one.naive for one in tested], axis=0)
    clear = np.min([one.naive_clear for one in tested], axis=0)
    return Rates(
        Rate(verdicts.count("pass"), worlds),
        Rate(verdicts.count("regressed"), worlds),
        Rate(int((worst < scipy.stats.norm.ppf(alpha / 2)).sum()), worlds),
        Rate(int((clear > scipy.stats.norm.isf(alpha)).sum()), worlds),
    )


def verdict(p_values: Sequence[tuple[float, float]], alpha: float) -> State:
    """The gate's verdict from (p_noninferior, p_regressed) of each gated metric."""
    adjusted = holm({place: pair[1] for place, pair in enumerate(p_values)})
    return overall({state_of(pair[0], adjusted[place], alpha) for place, pair in enumerate(p_values)})


@dataclass(frozen=True, eq=False)
class _Tested:
    """One suite in every world: the gate's p values, the naive z of no loss and of the margin [worlds]."""

    p_values: list[tuple[float, float]]
    naive: Floats
    naive_clear: Floats


def _tested(
    tasks: Tasks,
    effects: Effects,
    loss: float,
    worlds: int,
    rng: np.random.Generator,
    metric: Metric,
    alpha: float,
) -> _Tested:
    sizes = np.array(tasks.sizes, dtype=np.float64)
    found: list[tuple[float, float]] = []
    naive, clear = [], []
    for candidate, live in draw(tasks, effects, loss, worlds, rng):
        for sums in cluster_totals(candidate - live, tasks.sizes):
            one = Comparison(ClusterSums(sums, sizes), metric, alpha)
            found.append((one.p_noninferior, one.p_regressed))
        naive.append(naive_z(candidate, live, tasks.attempts))
        clear.append(naive_z(candidate, live, tasks.attempts, metric.margin))
    return _Tested(found, np.concatenate(naive), np.concatenate(clear))


def naive_z(candidate: Floats, live: Floats, attempts: int, margin: float = 0.0) -> Floats:
    """z of the unpaired test of two shares in each world, [worlds]: above -`margin` it is large.

    Args:
        candidate: share of each task's `attempts` that succeeded, [worlds, tasks]; `live` as well.
    """
    left, right = candidate.mean(axis=1), live.mean(axis=1)
    se = np.sqrt((left * (1 - left) + right * (1 - right)) / (candidate.shape[1] * attempts))
    return np.asarray((left - right + margin) / np.maximum(se, 1e-12))  # all done in both, or nothing


@dataclass(frozen=True)
class Needed:
    """How many tasks find a loss, and how often they did."""

    tasks: int
    power: Rate


def tasks_needed(
    loss: float,
    attempts: int,
    *,
    margin: float,
    effects: Effects,
    suites: int = 1,
    alpha: float = 0.05,
    worlds: int = 2000,
    seed: int = 0,
    naive: bool = False,
) -> Needed:
    """Tasks, each its own cluster, at which a loss is called regressed with 80 % power; by simulation.

    The first guess is normal arithmetic; it is moved by what the simulation says until it says 80 %.
    """
    one = Tasks((1,) * 20000, attempts)
    left, right = next(draw(one, effects, loss, 5, np.random.default_rng(seed)))
    variance = float(np.var(left - right))
    z = float(scipy.stats.norm.isf(alpha / 2 / (1 if naive else suites)))
    wanted = z + float(scipy.stats.norm.ppf(POWER))
    count = max(8, math.ceil(variance * (wanted / loss) ** 2))
    best: tuple[int, Rate] | None = None
    for _ in range(5):
        found = rates(
            Tasks((1,) * count, attempts),
            margin,
            loss=loss,
            effects=effects,
            suites=suites,
            alpha=alpha,
            worlds=worlds,
            seed=seed,
        )
        rate = found.naive_regressed if naive else found.regressed
        if best is None or abs(rate.value - POWER) < abs(best[1].value - POWER):
            best = count, rate
        if abs(rate.value - POWER) < 0.01:
            break
        reached = z + float(scipy.stats.norm.ppf(min(max(rate.value, 0.01), 0.995)))
        count = max(4, math.ceil(count * (wanted / max(reached, 0.2)) ** 2))
    assert best is not None
    return Needed(*best)
