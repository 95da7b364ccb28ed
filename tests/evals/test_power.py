"""Power by simulation: against arithmetic, and against the whole gate on the same worlds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cursorbench.errors import InputMissingError, UsageError
from evals.cases import Attempt, SuiteSpec
from evals.comparison import Comparison
from evals.gate import Rules, decide
from evals.power import Rate, naive_z, rates, success, tasks_needed, verdict
from evals.stats.clusters import ClusterSums
from evals.studies import draw_curves, enough, pilot, study
from evals.worlds import NONE, Effects, Tasks, cluster_totals, draw, even


def test_rates_against_arithmetic() -> None:
    # Standard error of 200 x 4: sqrt(.08 / 200) = .02; a margin of 5 points passes P(T > 1.653 - 2.5).
    found = rates(Tasks(even(200), 4), 0.05, worlds=4000)
    assert found.passed.value == pytest.approx(stats.nct.sf(1.6525, 199, 2.5), abs=0.02)
    assert found.regressed.value == pytest.approx(0.025, abs=0.008)
    # The naive error knows nothing of pairs: sqrt(2 * .24 / 800) = .0245.
    assert found.naive_passed.value == pytest.approx(stats.norm.sf((1.6449 * 0.0245 - 0.05) / 0.02), abs=0.02)


@pytest.mark.parametrize("clusters", [None, 4, 10])
def test_the_verdict_is_the_one_of_the_whole_gate(clusters: int | None) -> None:
    tasks, metric = Tasks(even(40, clusters), 2), success(0.05)
    labels = np.repeat(np.arange(len(tasks.sizes)), tasks.sizes)
    seen = set()
    for candidate, live in draw(tasks, Effects(0.7, 0.4), 0.15, 24, np.random.default_rng(1)):
        for left, right in zip(candidate, live, strict=True):
            sums = cluster_totals((left - right)[None, :], tasks.sizes)[0]
            one = Comparison(ClusterSums(sums, np.array(tasks.sizes, dtype=float)), metric, 0.05)
            quick = verdict([(one.p_noninferior, one.p_regressed)], 0.05)
            arms = tuple(
                [
                    Attempt(f"{i:03}", str(label), k, {"success": (float(k < round(2 * share)), 1.0)})
                    for i, (label, share) in enumerate(zip(labels, arm, strict=True))
                    for k in range(2)
                ]
                for arm in (left, right)
            )
            whole = decide([(SuiteSpec("s", (metric,), 2, "c"), (arms[0], arms[1]))], Rules())
            assert quick == whole.verdict
            seen.add(quick)
    assert len(seen) > 1


def test_holm_over_four_suites() -> None:
    clear = (1.0, 0.005)  # .005 * 4 = .02 <= .025, .009 * 4 = .036
    assert verdict([clear, (0.0, 0.9), (0.0, 0.9), (0.0, 0.9)], 0.05) == "regressed"
    assert verdict([(1.0, 0.009), (0.0, 0.9), (0.0, 0.9), (0.0, 0.9)], 0.05) == "inconclusive"
    assert verdict([(1.0, 0.009)], 0.05) == "regressed"
    assert verdict([(0.05, 0.001), (0.01, 0.9)], 0.05) == "pass"


def test_the_naive_test_is_the_textbook_one() -> None:
    """0.7 and 0.6 of 50 tasks tried twice: se sqrt((.21 + .24) / 100) = .0670820."""
    candidate, live = np.repeat([[1.0, 0.4], [0.5, 0.5]], 25, axis=1), np.full((2, 50), [[0.6], [0.5]])
    assert naive_z(candidate, live, 2) == pytest.approx([1.4907120, 0.0])
    assert naive_z(candidate, live, 2, margin=0.05) == pytest.approx([2.2360680, 0.5**0.5])
    assert naive_z(np.ones((1, 4)), np.ones((1, 4)), 2).tolist() == [0.0]


def test_clopper_pearson() -> None:
    low, high = Rate(7, 200).interval
    assert stats.binom.sf(6, 200, low) == pytest.approx(0.025)
    assert stats.binom.cdf(7, 200, high) == pytest.approx(0.025)


def test_tasks_needed_against_arithmetic() -> None:
    # Effects none, 4 attempts: variance .08 less what a shift takes; (1.96 + .84)^2 * .081 / .1^2 = 64.
    found = tasks_needed(0.1, 4, margin=0.1, effects=NONE, worlds=1500)
    assert found.tasks == pytest.approx(66, abs=8)
    assert found.power.value == pytest.approx(0.8, abs=0.025)


def test_a_study_and_its_picture(tmp_path: Path) -> None:
    found = study(Tasks(even(60, 20), 4), 0.1, effects=Effects(0.7, 0.4), worlds=300)
    losses = [point.regressed for point in found.curve]
    assert losses[0] < 0.2
    assert losses[-1] > 0.9
    assert found.loss_caught is not None
    assert 0.08 < found.loss_caught < 0.2
    out = tmp_path / "a" / "power.png"
    draw_curves([found, found], "demo", out)
    assert out.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="no picture"):
        draw_curves([found], "demo", tmp_path / "power.txt")


def test_enough_is_where_an_identical_model_passes() -> None:
    count, attempts = enough(Tasks(even(200), 4), 0.05)
    # (1.645 + 1.282)^2 * .08 / .0025 = 274 tasks; at 200 tasks .32 * 8.565 / (200 * .0025) = 5.5.
    assert (count, attempts) == (pytest.approx(275, abs=4), 6)
    assert rates(Tasks(even(count), 4), 0.05, worlds=3000).passed.value == pytest.approx(0.9, abs=0.02)


def test_one_cluster_and_no_margin_are_never_enough() -> None:
    assert enough(Tasks((30,), 4), 0.05)[1] is None
    assert enough(Tasks(even(30), 4), 0.0) == (None, None)


def attempt(case: str, cluster: str, number: int, right: float, failure: str = "") -> Attempt:
    return Attempt(case, cluster, number, {} if failure else {"ok": (right, 1.0)}, failure=failure)


def test_a_pilot_is_what_was_seen() -> None:
    rows = [
        attempt("b", "u", 0, 1),
        attempt("b", "u", 1, 1),
        attempt("a", "v", 0, 0),
        attempt("a", "v", 1, 1),
        attempt("c", "v", 0, 0),
        attempt("c", "v", 1, 0, "engine down"),
    ]
    tasks = pilot(rows, "ok")
    assert tasks.sizes == (1, 2)
    assert tasks.prior == ((3.2, 0.8), (2.2, 1.8), (1.2, 1.8))
    assert tasks.attempts == 2
    assert pilot(rows, "ok", 9).attempts == 9
    with pytest.raises(InputMissingError):
        pilot(rows, "other")
    with pytest.raises(UsageError, match="no share"):
        pilot([attempt("a", "u", 0, 12.0)], "ok")
