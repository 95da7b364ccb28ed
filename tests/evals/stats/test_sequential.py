"""O'Brien and Fleming's boundary: the published constants, scipy's multivariate normal, simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evals.stats.sequential import crossing, nominal, sequential_p

# Jennison & Turnbull (2000), "Group Sequential Methods", table 2.3: C_B(K, alpha), two-sided.
PUBLISHED = {
    (2, 0.05): 1.977, (3, 0.05): 2.004, (4, 0.05): 2.024, (5, 0.05): 2.040, (10, 0.05): 2.087,
    (2, 0.10): 1.678, (5, 0.10): 1.751,
}  # fmt: skip


def test_published_constants() -> None:
    for (looks, alpha), constant in PUBLISHED.items():
        assert stats.norm.isf(nominal(alpha / 2, looks, looks)) == pytest.approx(constant, abs=6e-4)


def test_five_looks_as_in_the_textbooks() -> None:
    boundary = [stats.norm.isf(nominal(0.025, look, 5)) for look in range(1, 6)]
    assert boundary == pytest.approx([4.56, 3.23, 2.63, 2.28, 2.04], abs=0.005)


def test_one_look_changes_nothing() -> None:
    assert nominal(0.05, 1, 1) == 0.05
    assert sequential_p(0.0321, 1, 1) == 0.0321


def test_what_is_certain_is_so_over_all_looks() -> None:
    assert [sequential_p(p, 2, 4) for p in (0.0, 1.0)] == [0.0, 1.0]


@pytest.mark.parametrize(("looks", "level"), [(2, 1.2), (3, 0.4), (5, 2.04)])
def test_against_the_multivariate_normal(looks: int, level: float) -> None:
    times = np.arange(1, looks + 1) / looks
    below = stats.multivariate_normal.cdf(
        np.full(looks, level), cov=np.minimum.outer(times, times), abseps=1e-7, releps=1e-7, maxpts=10**6
    )
    assert crossing(level, looks) == pytest.approx(1 - below, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 6).flatmap(lambda looks: st.tuples(st.integers(1, looks), st.just(looks))),
    st.floats(1e-6, 0.4),
)
def test_the_p_value_is_at_most_alpha_where_the_boundary_is_crossed(look: tuple[int, int], p: float) -> None:
    alpha = 0.05
    crossed = p <= nominal(alpha, *look)
    value = sequential_p(p, *look)
    assert value >= p - 1e-12
    assert (value <= alpha) == crossed or value == pytest.approx(alpha, abs=1e-9)


def test_looking_four_times_errs_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    looks, worlds = 4, 20000
    scores = np.cumsum(rng.normal(size=(worlds, looks)), axis=1)
    z = scores / np.sqrt(np.arange(1, looks + 1))
    limits = np.array([stats.norm.isf(nominal(0.05, look, looks)) for look in range(1, looks + 1)])
    found = int((z >= limits).any(axis=1).sum())
    assert stats.binomtest(found, worlds, 0.05).pvalue > 0.001
    naive = float((z >= stats.norm.isf(0.05)).any(axis=1).mean())
    assert naive > 0.1  # what looking as one likes does


def test_no_such_look() -> None:
    for made in (sequential_p, nominal):
        for look in (0, 3):
            with pytest.raises(ValueError, match=f"look {look} of 2"):
                made(0.1, look, 2)
