"""Suites that never were: attempts of two models at tasks drawn at random, to see how often a gate errs.

A task's success probability is drawn from a Beta distribution (by default Beta(1.2, 0.8), a broad spread
with a mean of 0.6), or, after a pilot, from what the pilot saw of each task. The candidate's differs from
it on the logit scale by a shift that gives the wanted loss on average, by an effect of the task and by an
effect of its cluster, both normal. An identical model has no effects: it is the same model.

Not here: the decision (`evals/gate.py`) and what is made of it (`evals/power.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from evals.stats.clusters import Floats

CELLS = 2_000_000  # tasks drawn at a time, all worlds together
COUNTED = 100  # attempts up to which outcomes are counted: there are as many as its square


@dataclass(frozen=True)
class Effects:
    """How a candidate differs from the live model, task by task and cluster by cluster.

    Attributes:
        heterogeneity: standard deviation of a task's effect, logit.
        cluster: standard deviation of a cluster's effect, logit.
    """

    heterogeneity: float = 0.7
    cluster: float = 0.0


NONE = Effects(0.0, 0.0)


@dataclass(frozen=True)
class Tasks:
    """A suite as the simulation sees it.

    Attributes:
        sizes: tasks in each cluster.
        attempts: of each model at each task.
        prior: Beta parameters of a task's success, one pair for all or one for each task, cluster by cluster.
    """

    sizes: tuple[int, ...]
    attempts: int
    prior: tuple[tuple[float, float], ...] = ((1.2, 0.8),)

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or self.attempts < 1:
            raise ValueError("a suite has clusters of at least one task, and at least one attempt")
        if len(self.prior) not in (1, self.count):
            raise ValueError(f"{len(self.prior)} priors for {self.count} tasks")

    @property
    def count(self) -> int:
        """How many tasks."""
        return sum(self.sizes)


def even(tasks: int, clusters: int | None = None) -> tuple[int, ...]:
    """Cluster sizes as equal as can be; without `clusters` each task is its own."""
    if clusters is None or clusters >= tasks:
        return (1,) * tasks
    return tuple(len(part) for part in np.array_split(np.arange(tasks), clusters))


def lopsided(tasks: int, clusters: int) -> tuple[int, ...]:
    """Cluster sizes like 1, 1/2, 1/3, ...: one repository has most of the tasks."""
    weight = 1 / np.arange(1, clusters + 1)
    return tuple(int(size) for size in np.maximum(1, np.round(weight / weight.sum() * tasks)))


def draw(
    tasks: Tasks, effects: Effects, loss: float, worlds: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats]]:
    """Success shares (candidate, live), [worlds, tasks] in blocks, tasks in the order of their clusters.

    Args:
        loss: mean success lost, 0.05 for five points.

    Raises:
        ValueError: the tasks have less success than is to be lost.
    """
    if len(tasks.prior) == 1 and max(tasks.sizes) == 1 and tasks.attempts <= COUNTED:
        yield from _draw_singles(tasks, effects, loss, worlds, rng)
        return
    a, b = np.array(tasks.prior).T
    moved = shift(tasks.prior, effects, loss)
    labels = np.repeat(np.arange(len(tasks.sizes)), tasks.sizes)
    block = max(1, CELLS // tasks.count)
    for start in range(0, worlds, block):
        shape = (min(block, worlds - start), tasks.count)
        before = np.clip(rng.beta(a, b, size=shape), 1e-9, 1 - 1e-9)
        after = before
        if moved or effects != NONE:
            logit = scipy.special.logit(before) + moved
            logit += effects.heterogeneity * rng.normal(size=shape)
            logit += effects.cluster * rng.normal(size=(shape[0], len(tasks.sizes)))[:, labels]
            after = scipy.special.expit(logit)
        k = tasks.attempts
        yield rng.binomial(k, after) / k, rng.binomial(k, before) / k


def _draw_singles(
    tasks: Tasks, effects: Effects, loss: float, worlds: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats]]:
    """Tasks that are their own clusters, ten times as fast: only how many had which outcome is drawn."""
    k = tasks.attempts
    chances = outcomes(tasks.prior[0], effects, loss, k)
    left, right = np.divmod(np.arange((k + 1) ** 2), k + 1)
    block = max(1, CELLS // tasks.count)
    for start in range(0, worlds, block):
        size = min(block, worlds - start)
        counts = rng.multinomial(tasks.count, chances, size=size).ravel()
        candidate, live = (np.repeat(np.tile(side / k, size), counts) for side in (left, right))
        yield candidate.reshape(size, -1), live.reshape(size, -1)


@lru_cache(maxsize=256)
def outcomes(prior: tuple[float, float], effects: Effects, loss: float, attempts: int) -> Floats:
    """Probability of each (candidate's successes, live model's) at one task, [(attempts + 1)^2]."""
    moved = shift((prior,), effects, loss)
    k = attempts
    p = np.clip(scipy.stats.beta.ppf((np.arange(2000) + 0.5) / 2000, *prior), 1e-9, 1 - 1e-9)
    before = scipy.stats.binom.pmf(np.arange(k + 1)[None, :], k, p[:, None])
    nodes, weights = _normal(effects)
    after = sum(
        w
        * scipy.stats.binom.pmf(
            np.arange(k + 1)[None, :], k, scipy.special.expit(scipy.special.logit(p) + moved + z)[:, None]
        )
        for z, w in zip(nodes, weights, strict=True)
    )
    joint = np.asarray(after).T @ before / len(p)
    return np.asarray(joint.ravel() / joint.sum())


def _normal(effects: Effects) -> tuple[Floats, Floats]:
    """Nodes and weights of the effects' normal distribution, task and cluster together."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    return np.hypot(effects.heterogeneity, effects.cluster) * nodes, weights / weights.sum()


def cluster_totals(values: Floats, sizes: Sequence[int]) -> Floats:
    """Sums [worlds, clusters] of values [worlds, tasks]."""
    starts: NDArray[np.intp] = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
    return np.asarray(np.add.reduceat(values, starts, axis=1), dtype=np.float64)


@lru_cache(maxsize=256)
def shift(prior: tuple[tuple[float, float], ...], effects: Effects, loss: float) -> float:
    """What is added to every logit so that mean success falls by `loss`, whatever the effects do to it."""
    if loss == 0 and effects == NONE:
        return 0.0
    levels = (np.arange(400) + 0.5) / 400
    pairs = sorted(set(prior))
    share = np.array([prior.count(pair) for pair in pairs], dtype=np.float64)
    p = np.array([scipy.stats.beta.ppf(levels, *pair) for pair in pairs])
    logit = scipy.special.logit(np.clip(p, 1e-9, 1 - 1e-9))
    nodes, weights = _normal(effects)
    wanted = float(np.average(p.mean(axis=1), weights=share)) - loss

    def excess(moved: float) -> float:
        after = sum(w * scipy.special.expit(logit + moved + z) for z, w in zip(nodes, weights, strict=True))
        return float(np.average(np.asarray(after).mean(axis=1), weights=share)) - wanted

    if not 0 < wanted < 1:
        raise ValueError(f"tasks with a mean success of {wanted + loss:.3g} cannot lose {loss:.3g}")
    return float(scipy.optimize.brentq(excess, -30.0, 30.0))
