"""Whether a candidate's answers to recorded requests are fit to be shown to users. Pure.

Each figure is compared request by request with what the live checkpoint answered at the same time;
intervals are of the paired differences, clustered by user (`evals/stats/`). A figure fails when its interval
lies wholly beyond what is tolerated: one bad answer is no reason, and a difference that chance explains is
none.

    errors          requests without an answer, where the live one gave one: the engine died, refused, or took
                    too long; less those where it is the other way round
    broken_calls    answers with a tool call that does not parse, or that no tool takes
    empty           answers with nothing in them but thoughts
    length          ln of tokens answered, against the live checkpoint's (each plus one)
    latency         ln of milliseconds per token, against the live checkpoint's; no reason below
                    `NOTICED_MS` for an answer of the live one's length: that is the machine's noise

What users do with the answers nobody knows here: that is the canary's question (`stages/ab/`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy

from evals.stats.clusters import cluster_sums
from evals.stats.inference import Inference
from evals.stats.intervals import finite

ALPHA = 0.01  # of each end of each interval
FEWEST_USERS = 8  # for an interval of users
NOTICED_MS = 100.0  # an answer that takes less than this longer is not slower for anybody


@dataclass(frozen=True)
class Answered:
    """One answer. With an `error` there is none. `ms` from the request to its end."""

    error: str = ""
    tokens: int = 0
    ms: float = 0.0
    broken_calls: int = 0
    empty: bool = False


@dataclass(frozen=True)
class Tolerance:
    """What a candidate may lose: `rate` of errors, broken calls and empty answers (0 to 1); `length` and
    `latency` as factors above 1 (shorter by the factor counts as well)."""

    rate: float
    length: float
    latency: float


@dataclass(frozen=True)
class Figure:
    """One comparison; `low` and `high` are an interval of `difference`. None where nothing can be said."""

    name: str
    live: float | None
    candidate: float | None
    difference: float | None
    low: float | None
    high: float | None
    tolerated: float
    failed: bool


@dataclass(frozen=True)
class Verdict:
    """The figures, and why the candidate is not shown to users ("" when it may be).

    `answered`: requests that both answered. `errors`, `live_errors`: the others, by kind.
    """

    figures: tuple[Figure, ...]
    reason: str
    requests: int
    answered: int
    errors: dict[str, int]
    live_errors: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For the record and for `--json`."""
        told = asdict(self)
        return {**told, "figures": [asdict(figure) for figure in self.figures], "passed": not self.reason}


def compare(
    users: Sequence[str], live: Sequence[Answered], candidate: Sequence[Answered], tolerance: Tolerance
) -> Verdict:
    """Compare answers to the same requests, in the same order; `users` says whose they were."""
    failures = [bool(each.error) for each in live], [bool(each.error) for each in candidate]
    both = [row for row, failed in enumerate(zip(*failures, strict=True)) if not any(failed)]
    clusters = [users[row] for row in both]
    if len(set(clusters)) < FEWEST_USERS:  # requests stand alone
        clusters = [str(row) for row in both]
    pairs = [(live[row], candidate[row]) for row in both]

    def paired(name: str, of: Callable[[Answered], float], tolerated: float, *, rate: bool) -> Figure:
        values = [(of(before), of(after)) for before, after in pairs]
        return _paired(name, values, clusters, tolerated, rate=rate)

    def noticed(figure: Figure) -> Figure:
        longer = sum(_ms(after) * before.tokens - before.ms for before, after in pairs)
        return replace(figure, failed=figure.failed and longer >= NOTICED_MS * len(pairs))

    figures = (
        _errors(*failures, tolerance.rate),
        paired("broken_calls", lambda each: float(each.broken_calls > 0), tolerance.rate, rate=True),
        paired("empty", lambda each: float(each.empty), tolerance.rate, rate=True),
        paired("length", lambda each: math.log1p(each.tokens), math.log(tolerance.length), rate=False),
        noticed(paired("latency", _per_token, math.log(tolerance.latency), rate=False)),
    )
    failed = [_words(figure) for figure in figures if figure.failed]
    return Verdict(figures, "; ".join(failed), len(candidate), len(both), _kinds(candidate), _kinds(live))


def _ms(each: Answered) -> float:
    """Milliseconds per token."""
    return max(each.ms, 0.01) / max(each.tokens, 1)


def _per_token(each: Answered) -> float:
    return math.log(_ms(each))


def _kinds(answers: Sequence[Answered]) -> dict[str, int]:
    return dict(sorted(Counter(each.error for each in answers if each.error).items()))


def _errors(live: Sequence[bool], candidate: Sequence[bool], tolerated: float) -> Figure:
    """Requests that only the candidate did not answer, less those that only the live one did not.

    Shares of all; Clopper and Pearson's interval of the first. A live engine that answered nothing is no
    measure: then against none.
    """
    requests = len(candidate)
    if not requests:
        return Figure("errors", None, None, None, None, None, tolerated, failed=False)
    if all(live):
        live = [False] * requests
    only = sum(after and not before for before, after in zip(live, candidate, strict=True))
    other = sum(before and not after for before, after in zip(live, candidate, strict=True)) / requests
    interval = scipy.stats.binomtest(only, requests).proportion_ci(1 - 2 * ALPHA)
    low, high = float(interval.low) - other, float(interval.high) - other
    shares = sum(live) / requests, sum(candidate) / requests
    return Figure("errors", *shares, shares[1] - shares[0], low, high, tolerated, low > tolerated)


def _paired(
    name: str,
    values: Sequence[tuple[float, float]],
    clusters: Sequence[str],
    tolerated: float,
    *,
    rate: bool,
) -> Figure:
    if not values:
        return Figure(name, None, None, None, None, None, tolerated, failed=False)
    live, candidate = (np.array(side) for side in zip(*values, strict=True))
    found = Inference(cluster_sums(candidate - live, clusters), (-1.0, 1.0) if rate else None)
    low, high = found.lower(ALPHA), found.upper(ALPHA)
    failed = low > tolerated or (name == "length" and high < -tolerated)
    difference = float((candidate - live).mean())
    return Figure(
        name,
        float(live.mean()),
        float(candidate.mean()),
        difference,
        finite(low),
        finite(high),
        tolerated,
        failed,
    )


def _words(figure: Figure) -> str:
    assert figure.difference is not None
    assert figure.low is not None or figure.high is not None
    if figure.name in ("length", "latency"):
        what = "answers are longer" if figure.name == "length" else "it is slower"
        if figure.difference < 0:
            low, worst = -figure.difference, -(figure.high or 0.0)
            what = "answers are shorter"
        else:
            low, worst = figure.difference, figure.low or 0.0
        return (
            f"{what} by a factor of {math.exp(low):.2f}, certainly by {math.exp(worst):.2f}; "
            f"{math.exp(figure.tolerated):.2g} is tolerated"
        )
    what = {"errors": "not answered", "broken_calls": "with broken calls", "empty": "empty"}[figure.name]
    return (
        f"{figure.candidate:.1%} of the answers {what} where it was {figure.live:.1%}, certainly "
        f"{100 * (figure.low or 0.0):.1f} points more; {100 * figure.tolerated:.4g} are tolerated"
    )
