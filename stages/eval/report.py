"""The report artifact: verdict.json, summary.txt, and the attempts' files; and the meta the store lists.

`summary.txt` is what `rtrl show report@latest` prints: the verdict, explained on one screen.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.criteria import Criterion
from evals.gate import SuiteResult, Verdict
from evals.stats.intervals import Estimate
from stages.eval.arms import Reuse
from stages.stage import Artifact

SCREEN = 12  # metrics shown a line each
_ARROWS = {"higher": "up", "lower": "down"}
_NEXT = {
    "pass": "next: rtrl deploy",
    "regressed": "next: nothing is deployed, its data stays usable; `rtrl cycle` goes on from the live one",
}
_OTHER = "next: other cases, suites or margins ([eval]): no more of these would tell; or the next cycle"
_AGAIN = "next: mend what failed, then `rtrl eval --force`: without it what is known is told again"


@dataclass(frozen=True)
class Facts:
    """What the report says besides the verdict."""

    line: str
    candidate: Artifact
    baseline: Artifact
    anchor: Artifact | None = None
    reuse: Mapping[str, Reuse] = field(default_factory=dict)
    notes: Sequence[str] = ()


def figures(results: Sequence[SuiteResult]) -> dict[str, dict[str, dict[str, Any]]]:
    """Per suite and metric: both arms with intervals, the gain with its interval, the state."""
    return {
        result.suite: {
            one.metric.name: {
                "candidate": one.candidate.to_json(),
                "baseline": one.baseline.to_json(),
                "gain": one.gain,
                "low": one.low,
                "high": one.high,
                "margin": one.metric.margin,
                "gated": one.metric.gated,
                "state": one.state,
            }
            for one in result.criteria
        }
        for result in results
    }


def meta(verdict: Verdict, facts: Facts) -> dict[str, Any]:
    """What the store keeps of a report; small."""
    found: dict[str, Any] = {
        "report": "gate",
        "verdict": verdict.verdict,
        "candidate": facts.candidate.digest,
        "baseline": facts.baseline.digest,
        "reasons": list(verdict.reasons),
        "identical_pass": verdict.identical_pass,
        "suites": figures(verdict.suites),
    }
    if facts.anchor is not None and verdict.drift:
        found["anchor"] = facts.anchor.digest
        found["drift"] = figures(verdict.drift)
    return found


def write(folder: Path, verdict: Verdict, facts: Facts) -> None:
    """Write verdict.json and summary.txt."""
    document = {
        **verdict.to_json(),
        "candidate": {"ref": facts.candidate.ref, "digest": facts.candidate.digest},
        "baseline": {"ref": facts.baseline.ref, "digest": facts.baseline.digest},
        "reuse": {
            name: {"report": one.report, "reused": one.reused, "rerun": one.rerun, "p": one.p}
            for name, one in facts.reuse.items()
        },
        "notes": list(facts.notes),
    }
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False, default=str)
    (folder / "verdict.json").write_text(text + "\n", encoding="utf-8")
    (folder / "summary.txt").write_text(summary(verdict, facts), encoding="utf-8")


def summary(verdict: Verdict, facts: Facts) -> str:
    """The verdict on one screen."""
    lines = [
        f"{verdict.verdict.upper()}: {facts.candidate.ref} ({facts.candidate.digest[7:19]}) against "
        f"{facts.baseline.ref} ({facts.baseline.digest[7:19]}, live), line {facts.line}",
    ]
    for result in verdict.suites:
        lines += ["", *_suite(result, len(verdict.criteria) > SCREEN)]
    lines += ["", *_because(verdict)]
    for name, reuse in facts.reuse.items():
        lines.append(f"baseline of {name}: {reuse.note}")
    if verdict.drift and facts.anchor is not None:
        lines.append(f"since the anchor ({facts.anchor.ref}): {_drift(verdict.drift)}")
    return "\n".join([*lines, *facts.notes, _NEXT.get(verdict.verdict) or _next(verdict)]) + "\n"


def _next(verdict: Verdict) -> str:
    """What to do where nothing is decided: what would tell of all that is open, if anything would."""
    if any(one.infra.objection for one in verdict.suites):
        return _AGAIN
    undecided = [one for one in verdict.criteria if one.metric.gated and one.state == "inconclusive"]
    if not all(one.more_would_tell for one in undecided):
        return _OTHER
    more = " (--set eval.requests=N)" if any(one.suite == "harness" for one in undecided) else ""
    return f"next: more cases{more}, more attempts, or the next cycle"


def _suite(result: SuiteResult, long: bool) -> list[str]:
    """Its metrics, a line each; what is not gated shares one where there is much to show."""
    infra = result.infra
    clusters = max((one.clusters for one in result.criteria), default=0)
    interval = next((one.interval for one in result.criteria), "interval")
    lost = ""
    if infra.candidate_failed or infra.baseline_failed:
        lost = f"; infrastructure lost {infra.candidate_failed} (candidate), {infra.baseline_failed} (live)"
    lines = [
        f"{result.suite}: {result.cases} cases in {clusters} clusters, {result.attempts:g} attempt(s) each"
        f"{lost}",
        f"  {'':29}{'live':>9}{'candidate':>11}{'gain':>9}{interval:>20}{'margin':>8}  verdict",
    ]
    if not long:
        return lines + [_row(one) for one in result.criteria]
    others = [
        f"{one.metric.name} {_number(one.gain, sign=True)}" for one in result.criteria if not one.metric.gated
    ]
    lines += [_row(one) for one in result.criteria if one.metric.gated]
    if others:
        text = f"gains not gated: {', '.join(others)}"
        lines += textwrap.wrap(
            text, 100, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
    return lines


def _row(one: Criterion) -> str:
    name = f"{one.metric.name} ({_ARROWS[one.metric.direction]})"
    interval = f"{_number(one.low, sign=True)} to {_number(one.high, sign=True)}"
    state = one.state if one.metric.gated else "reported"
    margin = _number(one.metric.margin) if one.metric.gated else ""
    return (
        f"  {name:29}{_value(one.baseline):>9}{_value(one.candidate):>11}{_number(one.gain, sign=True):>9}"
        f"{interval:>20}{margin:>8}  {state}"
    )


def _because(verdict: Verdict) -> list[str]:
    look = verdict.rules.look
    lines = [f"look {look.number} of {look.planned} (O'Brien-Fleming)"] if look.planned > 1 else []
    lines += [f"because {reason}" for reason in verdict.reasons]
    if verdict.verdict == "pass" and not verdict.reasons:
        lines += ["because every gated metric is shown to lose less than its margin"]
    told = [
        f"{one.metric.name} {_number(one.tell.loss_caught)}"
        for one in verdict.criteria
        if one.metric.gated and one.tell is not None
    ]
    if verdict.identical_pass is not None:
        lines.append(
            f"an identical model would pass {100 * verdict.identical_pass:.0f} times in 100; "
            f"losses called regressed 80 times in 100: {', '.join(told)}"
        )
    return lines


def _drift(results: Sequence[SuiteResult]) -> str:
    parts = [
        f"{one.metric.name} {_number(one.gain, sign=True)} "
        f"({_number(one.low, sign=True)} to {_number(one.high, sign=True)})"
        f"{' REGRESSED' if one.state == 'regressed' else ''}"
        for result in results
        for one in result.criteria
        if one.metric.gated
    ]
    return ", ".join(parts)


def _value(estimate: Estimate) -> str:
    return _number(estimate.value)


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "?"
    digits = 1 if abs(value) >= 10 else 3
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
