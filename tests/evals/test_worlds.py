"""Simulated suites: their means, variances and clusters are what the text says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, special, stats

from evals.worlds import NONE, Effects, Tasks, cluster_totals, draw, even, lopsided, outcomes, shift


def drawn(tasks: Tasks, effects: Effects, loss: float, worlds: int) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(draw(tasks, effects, loss, worlds, np.random.default_rng(0)))
    return np.concatenate([one[0] for one in blocks]), np.concatenate([one[1] for one in blocks])


def test_sizes() -> None:
    assert even(10, 4) == (3, 3, 2, 2)
    assert even(3) == (1, 1, 1)
    assert lopsided(110, 3) == (60, 30, 20)  # 1, 1/2, 1/3 of 11/6


def test_an_identical_model_differs_by_sampling_alone() -> None:
    # Variance of a difference: 2 E[p (1 - p)] / k = 2 * .96 / (2 * 3) / 4 = .08.
    candidate, live = drawn(Tasks(even(200), 4), NONE, 0.0, 500)
    assert candidate.shape == live.shape == (500, 200)
    assert live.mean() == pytest.approx(0.6, abs=0.005)
    assert (candidate - live).mean() == pytest.approx(0, abs=0.005)
    assert (candidate - live).var() == pytest.approx(0.08, rel=0.02)


def test_many_attempts_are_drawn_and_not_counted() -> None:
    """Their outcomes are as many as their square: 100,000 attempts took more memory than there is."""
    candidate, live = drawn(Tasks(even(20), 100_000), NONE, 0.0, 50)
    assert (candidate - live).var() == pytest.approx(0.32 / 100_000, rel=0.2)


@pytest.mark.parametrize("sizes", [even(100), even(100, 5)])
def test_the_loss_is_the_one_asked_for_whatever_the_effects(sizes: tuple[int, ...]) -> None:
    candidate, live = drawn(Tasks(sizes, 4), Effects(0.7, 0.4), 0.05, 2000)
    assert (live - candidate).mean() == pytest.approx(0.05, abs=0.004)


def test_the_shift_against_an_integral() -> None:
    moved = shift(((1.2, 0.8),), Effects(0.7, 0.0), 0.05)

    def after(z: float, p: float) -> float:
        q = special.expit(special.logit(p) + moved + 0.7 * z)
        return float(q * stats.norm.pdf(z) * stats.beta.pdf(p, 1.2, 0.8))

    mean, _ = integrate.dblquad(after, 1e-6, 1 - 1e-6, -6, 6, epsabs=1e-3)
    assert mean == pytest.approx(0.55, abs=2e-3)


def test_cluster_effects_are_shared() -> None:
    candidate, live = drawn(Tasks(even(120, 4), 8), Effects(0.0, 1.0), 0.0, 1500)
    sums = cluster_totals(candidate - live, even(120, 4)) / 30
    alone = (candidate - live).var() / 30
    assert sums.var() > 5 * alone


def test_outcomes_by_hand() -> None:
    # One attempt, the same model: both succeed with E[p^2] = a (a + 1) / ((a + b) (a + b + 1)) = .44.
    chances = outcomes((1.2, 0.8), NONE, 0.0, 1)
    assert chances == pytest.approx([0.24, 0.16, 0.16, 0.44], abs=1e-3)


def test_totals_by_hand() -> None:
    values = np.array([[1.0, 2, 3, 4]])
    assert cluster_totals(values, (1, 3)).tolist() == [[1, 9]]


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="cannot lose"):
        shift(((1.2, 0.8),), NONE, 0.7)
    with pytest.raises(ValueError, match="priors"):
        Tasks((2, 2), 1, ((1, 1), (1, 1)))
    with pytest.raises(ValueError, match="at least one"):
        Tasks((), 1)
