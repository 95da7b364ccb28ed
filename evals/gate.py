"""The gate: does a candidate checkpoint lose anything that matters against the live one?

Per metric that a suite gates, with the gain signed so that more is better:

    pass          the gain's one-sided 1 - alpha lower bound is above -margin (non-inferior). All must
                  pass, so nothing is corrected (intersection-union test).
    regressed     not non-inferior, and the gain's two-sided 1 - alpha interval lies below zero, Holm
                  over all gated metrics. One is enough.
    inconclusive  neither; the report says how many cases would tell.

A loss inside its margin that is nevertheless certain passes and is named in the reasons. So that many
such losses do not add up unseen, the candidate is tested against the line's pinned anchor as well, by
the same rule and in the same family of Holm: a regression since the anchor is a regression. What cannot
be told against the anchor objects to nothing.

An attempt that the infrastructure lost is never a zero; a candidate that loses more of them than the
live checkpoint cannot pass.

Not here: running suites, one metric's comparison (`evals/criteria.py`), exit codes (`stages/eval/`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import scipy

from evals.cases import Attempt, SuiteSpec, pair
from evals.criteria import Criterion, State, criterion, joint_identical_pass
from evals.stats.holm import holm
from evals.stats.sequential import ONCE, Look

SHOWN = 200  # characters of why the infrastructure failed
Arms = tuple[Sequence[Attempt], Sequence[Attempt]]


@dataclass(frozen=True)
class Rules:
    """The numbers of a decision.

    Attributes:
        alpha: level of each one-sided non-inferiority test; regression tests share alpha / 2 a side.
        infra_limit: share of attempts either arm may lose to the infrastructure.
        look: which of how many planned looks this is (O'Brien-Fleming, `evals/stats/sequential.py`).
    """

    alpha: float = 0.05
    infra_limit: float = 0.01
    look: Look = ONCE


@dataclass(frozen=True)
class Infra:
    """Attempts the infrastructure lost, per arm. `p_more` tests that the candidate loses more (Fisher)."""

    candidate_failed: int
    candidate_attempts: int
    baseline_failed: int
    baseline_attempts: int
    p_more: float
    objection: str


@dataclass(frozen=True)
class SuiteResult:
    """A suite's criteria, its infrastructure account, and how often an identical model would pass it."""

    suite: str
    criteria: tuple[Criterion, ...]
    infra: Infra
    cases: int
    attempts: float
    identical_pass: float | None


@dataclass(frozen=True)
class Verdict:
    """What the gate says, and why. `identical_pass` is over all suites, None where it is not known.

    Attributes:
        suites: against the live checkpoint.
        drift: against the anchor; empty where that is not tested.
    """

    verdict: State
    reasons: tuple[str, ...]
    suites: tuple[SuiteResult, ...]
    rules: Rules
    identical_pass: float | None
    drift: tuple[SuiteResult, ...] = ()

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """All criteria against the live checkpoint, gated and reported."""
        return tuple(one for suite in self.suites for one in suite.criteria)

    def to_json(self) -> dict[str, Any]:
        """Plain data for verdict.json; None for what the data cannot say."""
        return {"schema": "rtrl-verdict/1", **asdict(self)}


Compared = Sequence[tuple[SuiteSpec, Arms]]


def decide(suites: Compared, rules: Rules, drift: Compared = ()) -> Verdict:
    """Compare and decide.

    Args:
        suites: per suite its declaration and (candidate's attempts, live checkpoint's attempts).
        rules: alpha and limits.
        drift: the same with the anchor's attempts, where there is an anchor that is not live.

    Raises:
        ValueError: the arms ran different cases under one name, or nothing is gated.
    """
    family = sum(metric.gated for spec, _ in (*suites, *drift) for metric in spec.metrics)
    results = [compare(spec, arms, rules, family) for spec, arms in suites]
    since = [compare(spec, arms, rules, family) for spec, arms in drift]
    if not _gated(results):
        raise ValueError("no suite gates any metric: nothing to decide")
    results, since = settle((results, since), rules)
    objections = [f"{one.suite}: {one.infra.objection}" for one in results if one.infra.objection]
    drifted = [one for one in _gated(since) if one.state == "regressed"]
    states = {one.state for one in (*_gated(results), *drifted)}
    known = [one.identical_pass for one in results if one.identical_pass is not None]
    return Verdict(
        verdict=overall(states, bool(objections)),
        reasons=(
            *objections,
            *filter(None, (one.reason() for one in _gated(results))),
            *(f"since the anchor, {one.reason()}" for one in drifted),
        ),
        suites=tuple(results),
        rules=rules,
        identical_pass=math.prod(known) if len(known) == len(results) else None,
        drift=tuple(since),
    )


def settle(families: Sequence[Sequence[SuiteResult]], rules: Rules) -> list[list[SuiteResult]]:
    """States after Holm over the gated metrics of all comparisons: against live, against the anchor."""
    gated = {
        (place, one.name): one.p_regressed for place, family in enumerate(families) for one in _gated(family)
    }
    adjusted = holm(gated)
    return [
        [
            replace(
                result,
                criteria=tuple(
                    _settled(one, adjusted[place, one.name], rules) if one.metric.gated else one
                    for one in result.criteria
                ),
            )
            for result in family
        ]
        for place, family in enumerate(families)
    ]


def _settled(one: Criterion, p_holm: float, rules: Rules) -> Criterion:
    return replace(one, p_holm=p_holm, state=state_of(one.p_noninferior, p_holm, rules.alpha))


def _gated(results: Sequence[SuiteResult]) -> list[Criterion]:
    return [one for result in results for one in result.criteria if one.metric.gated]


def compare(spec: SuiteSpec, arms: Arms, rules: Rules, family: int = 1) -> SuiteResult:
    """One suite, before Holm over a `family` of metrics: a state is "pass" or "inconclusive"."""
    candidate, baseline = arms
    paired = pair(candidate, baseline, [metric.name for metric in spec.metrics])
    compared = [
        criterion(spec.name, metric, paired, rules.alpha, rules.look, max(1, family))
        for metric in spec.metrics
    ]
    gated = [(data, found.metric) for found, data in compared if found.metric.gated]
    return SuiteResult(
        suite=spec.name,
        criteria=tuple(found for found, _ in compared),
        infra=infrastructure(candidate, baseline, rules),
        cases=len(paired.cases),
        attempts=paired.attempts,
        identical_pass=joint_identical_pass(gated, rules.alpha),
    )


def infrastructure(candidate: Sequence[Attempt], baseline: Sequence[Attempt], rules: Rules) -> Infra:
    """Count failures per arm and object where they could hide a result."""
    bad_c, bad_b = (sum(1 for one in arm if one.failure) for arm in (candidate, baseline))
    all_c, all_b = len(candidate), len(baseline)
    p_more = 1.0
    if all_c and all_b:
        table = [[bad_c, all_c - bad_c], [bad_b, all_b - bad_b]]
        p_more = float(scipy.stats.fisher_exact(table, alternative="greater").pvalue)
    objection = ""
    if not all_c or not all_b:
        objection = f"the {'baseline' if all_c else 'candidate'} has no attempts"
    elif alone := {one.case for one in candidate} ^ {one.case for one in baseline}:
        objection = f"{len(alone)} cases were tried on one side only, such as {min(alone)}"
    elif max(bad_c / all_c, bad_b / all_b) > rules.infra_limit or p_more <= rules.alpha:
        why = Counter(one.failure for one in (*candidate, *baseline) if one.failure).most_common(1)[0][0]
        objection = (
            f"the infrastructure lost {bad_c} of {all_c} attempts of the candidate and {bad_b} of {all_b} "
            f"of the baseline (allowed {100 * rules.infra_limit:.4g}%; more by the candidate: p = "
            f"{p_more:.2g}), most often: {why[:SHOWN]}"
        )
    return Infra(bad_c, all_c, bad_b, all_b, p_more, objection)


def overall(states: set[State], objected: bool = False) -> State:
    """The verdict over the gated metrics' states."""
    if "regressed" in states:
        return "regressed"
    return "pass" if states == {"pass"} and not objected else "inconclusive"


def state_of(p_noninferior: float, p_holm: float, alpha: float) -> State:
    """One gated metric's state: what is not non-inferior and certainly a loss has regressed."""
    if p_noninferior <= alpha:
        return "pass"
    return "regressed" if p_holm <= alpha / 2 else "inconclusive"
