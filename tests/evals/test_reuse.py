"""Stored attempts against attempts made again: when they are taken for another model's."""

from __future__ import annotations

import pytest

from evals.cases import Attempt, Metric, SuiteSpec
from evals.reuse import DISAGREE_P, disagreement

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
