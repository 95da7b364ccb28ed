"""The summary on one screen, however many suites there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from evals.cases import Attempt, Metric, SuiteSpec
from evals.gate import Rules, decide
from evals.suites import behaviour, cursorbench, harness, perplexity
from stages.eval.report import Facts, summary
from stages.stage import Artifact

SUITES = {
    "harness": harness.METRICS,
    "snippets": (Metric("acc", "higher", 0.05, "share", "", bounds=(0.0, 1.0)),),
    "behaviour": behaviour.METRICS,
    "cursorbench:ours": cursorbench.METRICS,
    "perplexity:ours": perplexity.METRICS,
}


def arm(metrics: tuple[Metric, ...], rng: np.random.Generator) -> list[Attempt]:
    return [
        Attempt(f"c{i}", f"u{i % 30}", 0, {m.name: (float(rng.random() < 0.5), 1.0) for m in metrics})
        for i in range(120)
    ]


def artifact(version: int) -> Artifact:
    return Artifact("checkpoint", f"sha256:{version:064x}", version, "auto", 0, "", "", {}, Path())


def test_five_suites_fit_a_screen() -> None:
    rng = np.random.default_rng(0)
    suites = [
        (SuiteSpec(name, metrics, 1, "user"), (arm(metrics, rng), arm(metrics, rng)))
        for name, metrics in SUITES.items()
    ]
    text = summary(decide(suites, Rules()), Facts("auto", artifact(2), artifact(1)))
    lines = text.splitlines()
    gated = [metric for metrics in SUITES.values() for metric in metrics if metric.gated]
    assert len(lines) <= 45
    assert sum("harness" in line or line.startswith("  ") for line in lines) < 40
    for metric in gated:
        assert any(line.startswith(f"  {metric.name}") for line in lines)
    assert "gains not gated: edit_rate" in text
    assert max(map(len, lines[:30])) <= 110


def test_what_the_infrastructure_lost_is_not_mended_by_more_cases() -> None:
    """More cases, it said; and the same command again told the same verdict."""
    metrics = SUITES["snippets"]
    whole = arm(metrics, np.random.default_rng(0))
    broken = [
        replace(one, values={}, failure="engine_down: gone") if n < 40 else one for n, one in enumerate(whole)
    ]
    facts = Facts("auto", artifact(2), artifact(1))
    text = summary(decide([(SuiteSpec("s", metrics, 1, "user"), (broken, whole))], Rules()), facts)
    assert text.startswith("INCONCLUSIVE")
    assert "most often: engine_down: gone" in text
    assert text.splitlines()[-1].startswith("next: mend what failed, then `rtrl eval --force`")


def test_more_cases_are_advised_where_they_would_tell() -> None:
    """Of a model that never edits `rtrl eval` said: more cases, by a setting of another suite."""
    metrics = (harness.METRICS[0], SUITES["snippets"][0])
    rng = np.random.default_rng(0)
    facts = Facts("auto", artifact(2), artifact(1))

    def last(name: str, told: float, cases: int) -> str:
        def side() -> list[Attempt]:
            drawn = [told * (rng.random() < 0.5) for _ in range(cases)]
            return [
                Attempt(f"c{i}", f"u{i}", 0, {one.name: (value, told) for one in metrics})
                for i, value in enumerate(drawn)
            ]

        suite = SuiteSpec(name, metrics, 1, "user")
        return summary(decide([(suite, (side(), side()))], Rules()), facts).splitlines()[-1]

    told = last("harness", 1.0, 40)
    assert told == "next: more cases (--set eval.requests=N), more attempts, or the next cycle"
    assert last("ours", 1.0, 40) == told.replace(" (--set eval.requests=N)", "")
    assert last("harness", 0.0, 40).startswith("next: other cases, suites or margins ([eval])")
