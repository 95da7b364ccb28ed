"""How often the gate errs and what it can tell, by simulation through the gate's own code.

Task success is drawn from Beta(1.2, 0.8), effects of tasks are 0.7 logit, effects of clusters 0.4 logit
(`evals/worlds.py`); the naive unpaired z-test of all attempts stands beside each figure as `theirs`.
Takes a minute and a half on one core.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evals.comparison import Comparison
from evals.criteria import tested_gains
from evals.gate import Rules
from evals.population.replay import heldout
from evals.power import Rate, Rates, rates, success, tasks_needed, verdict
from evals.stats.clusters import ClusterSums
from evals.stats.sequential import Look
from evals.suites.harness import METRICS
from evals.worlds import NONE, Effects, Tasks, even, lopsided, shift
from stages.eval.config import EvalConfig

WORLDS = 4000
TASKS, ATTEMPTS, MARGIN = 200, 4, 0.05
LOOKS = 5
CLUSTERS = (None, 4, 10, 40)
HETEROGENEITY, CLUSTER_EFFECT = 0.7, 0.4
EDITS, INVALID = 0.8, (0.3, 4.0)  # of the harness suite: share of requests edited, Beta of broken calls (7 %)
Bits = NDArray[np.float64]


def figures() -> list[dict[str, Any]]:
    """Errors on models without a loss, then what it takes to find one."""
    return [*false_alarms(), *looks(), identical_pass(), *identical_by_size(), *needed()]


def settings() -> Iterator[tuple[str, Tasks, Effects, int]]:
    """Every setting without a loss: name, suite, effects, number of suites."""
    for suites in (1, 4):
        for clusters in CLUSTERS:
            name = f"{clusters or 'no'} clusters, {suites} suite(s)"
            tasks = Tasks(even(TASKS, clusters), ATTEMPTS)
            yield f"the same model, {name}", tasks, NONE, suites
            yield f"task effects, {name}", tasks, Effects(HETEROGENEITY), suites
            if clusters:
                yield (
                    f"task and cluster effects, {name}",
                    tasks,
                    Effects(HETEROGENEITY, CLUSTER_EFFECT),
                    suites,
                )
                skewed = Tasks(lopsided(TASKS, clusters), ATTEMPTS)
                name = f"{clusters} clusters of sizes 1, 1/2, 1/3, ..., {suites} suite(s)"
                yield (
                    f"task and cluster effects, {name}",
                    skewed,
                    Effects(HETEROGENEITY, CLUSTER_EFFECT),
                    suites,
                )


def false_alarms() -> list[dict[str, Any]]:
    """How often models without a loss on average are called regressed: the worst setting, then each."""
    found: list[tuple[str, Rates]] = []
    for number, (name, tasks, effects, suites) in enumerate(settings()):
        found.append((name, rates(tasks, MARGIN, effects=effects, suites=suites, worlds=WORLDS, seed=number)))
    name, worst = max(found, key=lambda one: one[1].regressed.interval[1])
    naive = max(one.naive_regressed.interval[1] for _, one in found)
    head = {
        "id": "gate.false_regressed_hi",
        "what": f"no loss called regressed, upper 95 % bound, worst of {len(found)} settings: {name}",
        "value": worst.regressed.interval[1],
        "unit": "share",
        "bar": "<= 0.05",
        "ours": worst.regressed.interval[1],
        "theirs": naive,
        "runs": WORLDS,
        "spread": list(worst.regressed.interval),
    }
    return [head, *(_rate(f"no loss called regressed: {name}", one) for name, one in found)]


def _rate(what: str, found: Rates) -> dict[str, Any]:
    slug = "".join(letter if letter.isalnum() else "_" for letter in what.partition(": ")[2])
    return {
        "id": "gate.false_regressed." + "_".join(filter(None, slug.split("_"))),
        "what": what,
        "value": found.regressed.value,
        "unit": "share",
        "bar": None,
        "ours": found.regressed.value,
        "theirs": found.naive_regressed.value,
        "runs": found.regressed.worlds,
        "spread": list(found.regressed.interval),
    }


def looks() -> Iterator[dict[str, Any]]:
    """Attempts added four times at an inconclusive comparison, beside looking as often without a boundary."""
    for name, effects in (("the same model", NONE), ("task effects", Effects(HETEROGENEITY))):
        ended = Counter(one for one in _sequences(effects, LOOKS))
        naive = Counter(one for one in _sequences(effects, 1))
        for verdict_, bar in (("regressed", "no loss called regressed"), ("pass", "it passes")):
            rate, other = Rate(ended[verdict_], WORLDS), Rate(naive[verdict_], WORLDS)
            yield {
                "id": f"gate.looks.{verdict_}.{name.replace(' ', '_')}",
                "what": f"{name}, {bar}, {LOOKS} looks at {TASKS} tasks, 2 attempts more each; theirs: no "
                "boundary",
                "value": rate.value,
                "unit": "share",
                "bar": None,
                "ours": rate.value,
                "theirs": other.value,
                "runs": WORLDS,
                "spread": list(rate.interval),
            }


def _sequences(effects: Effects, planned: int) -> Iterator[str]:
    """Verdicts of comparisons without a loss that end when they are told, or at the last look.

    With `planned` of 1 each look is taken for the only one.
    """
    rng = np.random.default_rng(0)
    metric, ones = success(MARGIN), np.ones(TASKS)
    moved = shift(((1.2, 0.8),), effects, 0.0)
    for _ in range(WORLDS):
        before = rng.beta(1.2, 0.8, size=TASKS)
        after = before
        if effects != NONE:
            effect = effects.heterogeneity * rng.normal(size=TASKS)
            after = special.expit(special.logit(np.clip(before, 1e-9, 1 - 1e-9)) + moved + effect)
        gained = np.zeros(TASKS)
        for number in range(1, LOOKS + 1):
            gained += rng.binomial(2, after) - rng.binomial(2, before)
            look = Look(number, LOOKS) if planned > 1 else Look()
            one = Comparison(ClusterSums(gained / (2 * number), ones), metric, Rules().alpha, look)
            said = verdict([(one.p_noninferior, one.p_regressed)], Rules().alpha)
            if said != "inconclusive":
                break
        yield said


def identical_pass() -> dict[str, Any]:
    """The same model through the gate as it is shipped: default suites, sizes, margins, held-out users."""
    config = EvalConfig()
    sizes = tuple(Counter(case.person.id for case in heldout(0, config.requests)).values())
    rng = np.random.default_rng(0)
    passed = naive = 0
    for _ in range(WORLDS):
        ours, theirs = _harness_world(sizes, config, rng)
        passed += ours
        naive += theirs
    rate = Rate(passed, WORLDS)
    return {
        "id": "gate.identical_pass_lo",
        "what": f"the same model passes the default suites ({config.requests} requests of {len(sizes)} "
        "users, 3 gated metrics, snippets), lower 95 % bound",
        "value": rate.interval[0],
        "unit": "share",
        "bar": ">= 0.9",
        "ours": rate.value,
        "theirs": naive / WORLDS,
        "runs": WORLDS,
        "spread": list(rate.interval),
    }


def _harness_world(sizes: tuple[int, ...], config: EvalConfig, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether one identical model passes the default suites, by the gate and by naive z bounds."""
    shape = (config.attempts, config.requests)
    skill, broken = rng.beta(1.2, 0.8, size=shape[1]), rng.beta(*INVALID, size=shape[1])
    arms = []
    for _ in "cb":
        right, edited = rng.random(shape) < skill, rng.random(shape) < EDITS
        arms.append(
            {
                "edit_persistence": ((right & edited).mean(axis=0), edited.mean(axis=0)),
                "dissatisfied_followup": (1.0 - right.mean(axis=0), np.ones(shape[1])),
                "invalid_calls": ((rng.random(shape) < broken).mean(axis=0), np.ones(shape[1])),
            }
        )
    p_values, clear, users = [], True, np.repeat(np.arange(len(sizes)), sizes).tolist()
    for metric in METRICS:
        if not metric.gated:
            continue
        pair = arms[0][metric.name], arms[1][metric.name]
        one = Comparison(tested_gains(metric, *pair, users), metric, config.alpha)
        p_values.append((one.p_noninferior, one.p_regressed))
        clear &= _naive_bound(metric.sign, *pair) > -metric.margin
    p_values.append((0.0, 1.0))  # snippets: likelihoods of the same weights are the same
    return verdict(p_values, config.alpha) == "pass", bool(clear)


def _naive_bound(sign: float, candidate: tuple[Bits, Bits], live: tuple[Bits, Bits]) -> float:
    shares = [float(y.sum() / n.sum()) for y, n in (candidate, live)]
    variances = (p * (1 - p) / arm[1].sum() for p, arm in zip(shares, (candidate, live), strict=True))
    return sign * (shares[0] - shares[1]) - 1.6449 * math.sqrt(sum(variances))


def identical_by_size() -> Iterator[dict[str, Any]]:
    """The same model at a benchmark of 200 tasks and at one of 46, margin 5 points."""
    for tasks, attempts in ((200, 4), (200, 8), (46, 8), (46, 32)):
        found = rates(Tasks(even(tasks), attempts), MARGIN, worlds=WORLDS)
        yield {
            "id": f"gate.identical_pass.{tasks}x{attempts}",
            "what": f"the same model passes {tasks} tasks x {attempts} attempts, margin 5 points",
            "value": found.passed.value,
            "unit": "share",
            "bar": None,
            "ours": found.passed.value,
            "theirs": found.naive_passed.value,
            "runs": WORLDS,
            "spread": list(found.passed.interval),
        }


def needed() -> Iterator[dict[str, Any]]:
    """Tasks x attempts at which a loss is called regressed 80 times in 100, the margin being the loss."""
    alpha = Rules().alpha
    for loss in (0.05, 0.02):
        for suites in (1, 4):
            for attempts in (1, 4, 16):
                effects = Effects(HETEROGENEITY)
                rest: dict[str, Any] = {"margin": loss, "effects": effects, "suites": suites, "alpha": alpha}
                ours = tasks_needed(loss, attempts, **rest)
                theirs = tasks_needed(loss, attempts, naive=True, **rest)
                yield {
                    "id": f"gate.tasks_for_{round(100 * loss)}_points.{suites}_suites.{attempts}_attempts",
                    "what": f"tasks at {attempts} attempts to call a {round(100 * loss)}-point loss in one "
                    f"of {suites} suite(s) regressed, 80 % power",
                    "value": ours.tasks,
                    "unit": "tasks",
                    "bar": None,
                    "ours": ours.tasks,
                    "theirs": theirs.tasks,
                    "runs": ours.power.worlds,
                    "power": [ours.power.value, theirs.power.value],
                }
