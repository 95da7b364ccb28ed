"""Verdicts on recorded requests answered again: by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from stages.shadow.compare import Answered, Figure, Tolerance, Verdict, compare

LIMITS = Tolerance(rate=0.05, length=2.0, latency=3.0)
FINE = Answered(tokens=9, ms=90.0)


def judged(candidate: list[Answered], live: Answered = FINE, users: int = 100) -> Verdict:
    names = [f"u{number % users}" for number in range(len(candidate))]
    return compare(names, [live] * len(candidate), candidate, LIMITS)


def of(verdict: Verdict, name: str) -> Figure:
    return next(figure for figure in verdict.figures if figure.name == name)


def test_the_same_answers_pass() -> None:
    verdict = judged([FINE] * 32)
    assert verdict.reason == ""
    assert (verdict.requests, verdict.answered, verdict.errors) == (32, 32, {})
    assert [figure.difference for figure in verdict.figures] == [0.0] * 5
    # none of 32 was broken: 1 - 0.01^(1/32) = 0.134 may be still
    assert of(verdict, "broken_calls").high == pytest.approx(1 - 0.01 ** (1 / 32))


@pytest.mark.parametrize(("failed", "passes"), [(0, True), (5, True), (7, False), (32, False)])
def test_errors_are_counted_exactly(failed: int, passes: bool) -> None:
    # Clopper-Pearson, 99 %: 5 of 32 are at least 0.041, 7 of 32 at least 0.077
    verdict = judged([Answered(error="status_500")] * failed + [FINE] * (32 - failed))
    assert (verdict.reason == "") == passes
    assert of(verdict, "errors").difference == failed / 32
    assert verdict.errors == ({"status_500": failed} if failed else {})


def test_what_the_live_one_does_not_answer_either_is_no_reason() -> None:
    late, names = Answered(error="timeout"), [f"u{number}" for number in range(32)]
    # 12 of 32 late for the candidate alone, 12 for the live one alone, 8 answered by both
    swapped = compare(names, [FINE] * 12 + [late] * 12 + [FINE] * 8, [late] * 12 + [FINE] * 20, LIMITS)
    assert (swapped.reason, swapped.answered) == ("", 8)
    assert (swapped.errors, swapped.live_errors) == ({"timeout": 12}, {"timeout": 12})
    # where the live one answers all but two of them, at least 0.21 - 0.06 more are late
    worse = compare(names, [late] * 2 + [FINE] * 30, [FINE] * 2 + [late] * 14 + [FINE] * 16, LIMITS)
    low = stats.beta.ppf(0.01, 14, 32 - 14 + 1) - 2 / 32
    assert of(worse, "errors").low == pytest.approx(low)
    assert of(worse, "errors").difference == pytest.approx(12 / 32)
    assert worse.reason
    # a live engine that is down is no excuse for one that answers nothing
    assert compare(names, [late] * 32, [late] * 32, LIMITS).reason
    assert compare(names, [late] * 32, [FINE] * 32, LIMITS).reason == ""


def test_broken_calls_by_hand() -> None:
    # 12 of 24 broken where none was: 0.5, standard error sqrt(24 * 0.25 * 24 / 23) / 24 = 0.1043,
    # t of 23 degrees at 0.01 is 2.4999
    verdict = judged([Answered(tokens=9, ms=90.0, broken_calls=2)] * 12 + [FINE] * 12)
    figure = of(verdict, "broken_calls")
    assert (figure.live, figure.candidate, figure.difference) == (0.0, 0.5, 0.5)
    assert figure.low == pytest.approx(0.5 - 2.4999 * 0.10426, abs=1e-3)
    assert figure.failed
    assert (
        "50.0% of the answers with broken calls where it was 0.0%, certainly 23.9 points more"
        in verdict.reason
    )
    # where the live one breaks as many, it is no reason
    broken = Answered(tokens=9, ms=90.0, broken_calls=1)
    assert judged([broken] * 24, live=broken).reason == ""


def test_lengths_and_times_are_factors_either_way() -> None:
    longer = judged([Answered(tokens=29, ms=290.0)] * 20)  # (29 + 1) / (9 + 1)
    assert of(longer, "length").difference == pytest.approx(math.log(3))
    assert "answers are longer by a factor of 3.00" in longer.reason
    shorter = judged([Answered(tokens=1, ms=10.0)] * 20)
    assert "answers are shorter by a factor of 5.00" in shorter.reason
    slower = judged([Answered(tokens=9, ms=360.0)] * 20)  # 40 ms a token where it was 10
    assert of(slower, "latency").difference == pytest.approx(math.log(4))
    assert "slower" in slower.reason
    assert judged([Answered(tokens=9, ms=9.0)] * 20).reason == ""  # faster is no reason
    # 20 times slower, and nobody notices: 9 tokens take 19 ms in place of 0.9
    assert judged([Answered(tokens=9, ms=19.0)] * 20, live=Answered(tokens=9, ms=0.9)).reason == ""
    assert judged([Answered(tokens=14, ms=140.0)] * 20).reason == ""


def test_a_few_users_are_taken_as_requests_and_one_answer_says_nothing() -> None:
    broken = Answered(tokens=9, ms=90.0, broken_calls=1)
    assert judged([broken] * 20, users=2).reason
    assert judged([broken]).reason == ""
    assert judged([]).reason == ""
    nothing = judged([Answered(error="unreachable")] * 20)
    assert nothing.answered == 0
    assert "100.0% of the answers not answered" in nothing.reason
