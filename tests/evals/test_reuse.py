"""Stored attempts against attempts made again: when they are taken for another model's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from evals.cases import Attempt, Metric, SuiteSpec
from evals.reuse import DISAGREE_P, disagreement, least
from stages.eval.arms import _renewed

SPEC = SuiteSpec("s", (Metric("solved", "higher", 0.05, "share", "", bounds=(0, 1)),), 1, "task")


def attempts(*solved: float, number: int = 0) -> list[Attempt]:
    return [Attempt(f"t{n}", f"t{n}", number, {"solved": (value, 1.0)}) for n, value in enumerate(solved)]


def test_a_few_that_all_moved_alike_are_no_proof() -> None:
    """Their spread is 0, which says nothing of a sampled metric: as many may differ unseen."""
    again = [*attempts(1.0, 1.0), *attempts(0.0, 0.0, number=1)]  # two tasks, half of two attempts each
    p = disagreement(again, attempts(0.0, 0.0), SPEC)
    assert p == pytest.approx(2 * (2 / 3) ** 2)  # one task may be a whole point the other way
    assert disagreement(attempts(*[1.0] * 40), attempts(*[0.0] * 40), SPEC) <= DISAGREE_P
    assert disagreement(attempts(1.0, 0.0, 1.0), attempts(1.0, 0.0, 1.0), SPEC) == 1.0
    assert disagreement([], attempts(1.0), SPEC) == 1.0
    silent = [Attempt("t0", "t0", 0, {"solved": (0.0, 0.0)})]  # an arm that has none of it
    assert disagreement(silent, attempts(1.0), SPEC) == 1.0
    reported = replace(SPEC, metrics=(replace(SPEC.metrics[0], gated=False),))
    assert disagreement(attempts(*[1.0] * 40), attempts(*[0.0] * 40), reported) == 1.0


def test_a_check_of_few_cases_can_disagree() -> None:
    """Ten tasks of one repository: one was made again, and whatever it did, they agreed (p = 1)."""
    count = least(SPEC, 0.1)
    same = [replace(one, cluster="repository") for one in attempts(*[1.0] * count)]
    other = [replace(one, cluster="repository") for one in attempts(*[0.0] * count)]
    assert disagreement(other, same, SPEC) <= DISAGREE_P
    assert disagreement(other[1:], same[1:], SPEC) > DISAGREE_P
    exact = replace(SPEC, metrics=(replace(SPEC.metrics[0], sampled=False),))
    assert disagreement(other[:2], same[:2], exact) <= DISAGREE_P
    assert (least(exact, 0.1), least(SPEC, 0.0)) == (2, 0)


STORED, ANEW = attempts(*[0.0] * 200), attempts(*[0.0] * 200, number=1)


def renewed(again: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the stored attempts gave way to those made again, [cases], by the eval's own rule."""
    merged, _ = _renewed(STORED, [one for one, chosen in zip(ANEW, again, strict=True) if chosen], ())
    new = {one.case for one in merged if one.attempt}
    return np.array([one.case in new for one in STORED])


def passing(share: float, tried: int = 4, cycles: int = 15, worlds: int = 1500) -> float:
    """How often an identical candidate passes, margin 5 points, over the cycles of a line that begins afresh.

    What passes is live and tried anew; while nothing does, the live checkpoint's attempts stay, but for the
    cases that each eval makes again.
    """
    cases = len(STORED)
    random = np.random.default_rng(0)
    able = random.beta(1.2, 0.8, cases)

    def attempts(rows: int) -> NDArray[np.float64]:
        return random.binomial(tried, able, (rows, cases)) / tried

    live, passed = attempts(worlds), 0
    for _ in range(cycles):
        gains = attempts(worlds) - live
        error = gains.std(axis=1, ddof=1) / np.sqrt(cases)
        passes = gains.mean(axis=1) - stats.t.ppf(0.95, cases - 1) * error > -0.05
        passed += int(passes.sum())
        again = random.random((worlds, cases)).argsort(axis=1) < round(share * cases)
        for world in np.flatnonzero(~passes):
            again[world] = renewed(again[world])
        again[passes] = True
        live = np.where(again, attempts(worlds), live)
    return passed / (cycles * worlds)


def test_an_equal_model_passes_more_often_where_stored_attempts_are_renewed() -> None:
    """200 tasks x 4, of docs/gate.md: 79 of 100 when both are tried anew, 68 when what failed stays."""
    anew, never, tenth = passing(1.0), passing(0.0), passing(0.1)
    assert (anew, never) == (pytest.approx(0.79, abs=0.02), pytest.approx(0.68, abs=0.01))
    assert tenth == pytest.approx(0.72, abs=0.01)
    assert 0.2 < (tenth - never) / (anew - never) < 0.45
