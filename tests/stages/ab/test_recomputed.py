"""A look's row is enough to decide again: by the table of docs/ab.md, without the code that decided.

The bound of promotion was a normal quantile of the look's own error here; how often that promoted a loss
is in tests/evals/ab/test_decision.py.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from evals.ab.arms import Users
from stages.ab import look
from stages.ab.config import GUARDS, METRICS, AbConfig
from stages.ab.observe import ArmSeen
from stages.registry.canonical import plain


def arm(users: int, rates: dict[str, float], seed: int) -> ArmSeen:
    """Five of each metric a user, of which the rate counts; of metrics without a rate nothing is told."""
    random = np.random.default_rng(seed)
    told = {name: Users.of([], []) for name in (*METRICS, *GUARDS)}
    for name, rate in rates.items():
        told[name] = Users.of(random.binomial(5, rate, users), np.full(users, 5))
    return ArmSeen(users, 5 * users, told)


def critical(r: float, level: float) -> float:
    def over(z: float) -> float:
        mixture = math.exp(z * z * r / (2 * (1 + r))) * float(stats.norm.cdf(z * math.sqrt(r / (1 + r))))
        return 2 / math.sqrt(1 + r) * mixture - 1 / level

    return float(optimize.brentq(over, 0, 30))


def bounds(row: dict[str, Any], each: dict[str, Any], planned: float | None) -> tuple[float, float]:
    """(harm, promote) of a metric; infinite where the row has null."""
    s, rules = each["standard_error"], row["rules"]
    few = min(each["users"]) < rules["min_users"]
    if few or not s or not (planned or each["alike"]):
        return math.inf, -math.inf
    level = rules["alpha_harm"] / len(row["metrics"])
    harm = math.inf
    if planned:
        best = optimize.minimize_scalar(
            lambda log_r: critical(math.exp(log_r), level), bounds=(-3, 8), method="bounded"
        )
        z = critical(math.exp(best.x) / s**2 / planned, level)
        freedom = math.inf if each["freedom"] is None else each["freedom"]
        harm = each["gain"] + float(stats.t.isf(stats.norm.sf(z), freedom)) * each["cautious_error"]
    if each["alike"]:
        return harm, each["gain"] - (1 - rules["alpha_promote"] ** (1 / min(each["users"])))
    once = each["promote"]
    width = float(stats.t.ppf(1 - rules["alpha_promote"], once["freedom"])) * once["standard_error"]
    return harm, once["gain"] - width


def decided(row: dict[str, Any]) -> str:
    users, share = row["users"], row["share"]
    total = users["live"] + users["canary"]
    p = 1.0
    if total:
        chances = stats.binom.pmf(range(total + 1), total, share)
        p = float(chances[chances <= chances[users["canary"]] * (1 + 1e-7)].sum())
    assert row["sample_ratio_p"] == pytest.approx(p)
    found = {}
    for name, each in row["metrics"].items():
        found[name] = bounds(row, each, row["planned"].get(name))
        told = (each["harm_bound"], each["promote_bound"])
        assert [math.isfinite(one) for one in found[name]] == [one is not None for one in told], name
        for mine, theirs in zip(found[name], told, strict=True):
            assert theirs is None or mine == pytest.approx(theirs, abs=1e-5), name
    if p < 0.001:
        return "hold"
    if any(found[name][0] < -each["harm"] for name, each in row["metrics"].items()):
        return "roll_back"
    measured = [(name, each) for name, each in row["metrics"].items() if any(each["users"])]
    if not measured or not row["at_horizon"]:
        return "hold"
    return "promote" if all(found[name][1] > -each["margin"] for name, each in measured) else "hold"


KEPT, BROKEN = "edit_persistence", "invalid_calls"
CASES: dict[str, tuple[ArmSeen, ArmSeen, float, bool, str]] = {
    "nobody": (arm(0, {}, 1), arm(0, {}, 2), 0.5, True, "hold"),
    "one user": (arm(1, {KEPT: 0.6}, 1), arm(0, {}, 2), 0.5, True, "hold"),
    "all of one arm": (arm(400, {KEPT: 0.6}, 1), arm(0, {}, 2), 0.5, True, "hold"),
    "nothing told": (arm(200, {}, 1), arm(200, {}, 2), 0.5, True, "hold"),
    "worse": (arm(400, {KEPT: 0.9}, 1), arm(400, {KEPT: 0.2}, 2), 0.5, False, "roll_back"),
    "early": (arm(900, {KEPT: 0.6}, 1), arm(100, {KEPT: 0.9}, 2), 0.1, False, "hold"),
    "better": (arm(900, {KEPT: 0.6}, 1), arm(100, {KEPT: 0.9}, 2), 0.1, True, "promote"),
    "none broke a call": (arm(80, {BROKEN: 0}, 1), arm(80, {BROKEN: 0}, 2), 0.5, True, "hold"),
    "of many none did": (arm(300, {BROKEN: 0}, 1), arm(300, {BROKEN: 0}, 2), 0.5, True, "promote"),
    "others than assigned": (arm(400, {KEPT: 0.6}, 1), arm(60, {KEPT: 0.1}, 2), 0.5, True, "hold"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_decision_is_computed_again_from_its_row(case: str) -> None:
    live, treated, share, at_horizon, expected = CASES[case]
    canary: Any = SimpleNamespace(line="auto", data={"canary": {"share": share}})
    data, found = look.judge(AbConfig(), canary, live, treated, [], at_horizon=at_horizon)
    row = json.loads(json.dumps(plain(data)))  # as it is on record
    assert (found.action, decided(row)) == (expected, expected)
