"""What a run's trials say, axis by axis; the axes are never pooled into one figure.

Figures are means over tasks of a task's mean over its attempts, with 95 % intervals clustered as the tasks
say (by repository, or feature). pass@k is the unbiased estimate per task (`graders/pass_at.py`), over the
tasks with at least k graded attempts; a task that is marked ambiguous is in no pass@k. Infrastructure is
in no figure: it is counted, and above 1 % the run is void. Not here: comparing two models (`evals/gate.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cursorbench.graders.pass_at import pass_at
from evals.stats.intervals import Estimate, clustered
from evals.trials import causes
from evals.trials.record import Record

INFRA_LIMIT = 0.01
MAX_SAID = 300  # characters of why a trial was lost

Value = Callable[[Record], float | None]


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    axis: str
    name: str
    unit: str
    estimate: Estimate


@dataclass(frozen=True)
class Summary:
    """A run in figures.

    Attributes:
        void: why nothing may be concluded from the run, "" when it may.
        causes: trials by cause, the table's order.
        flags: graded trials by what their diff reached for.
    """

    tasks: int
    trials: int
    graded: int
    infrastructure: int
    void: str
    figures: tuple[Figure, ...]
    causes: Mapping[str, int]
    flags: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain data: axes as tables of name to estimate."""
        axes: dict[str, dict[str, Any]] = {}
        for one in self.figures:
            axes.setdefault(one.axis, {})[one.name] = {"unit": one.unit, **one.estimate.to_json()}
        return {
            "tasks": self.tasks,
            "trials": self.trials,
            "graded": self.graded,
            "infrastructure": self.infrastructure,
            "void": self.void,
            "axes": axes,
            "causes": dict(self.causes),
            "flags": dict(self.flags),
        }


def summarise(records: Sequence[Record], attempts: int) -> Summary:
    """The summary of a run of up to `attempts` attempts a task."""
    graded = [one for one in records if not one.infrastructure]
    lost = len(records) - len(graded)
    counts = Counter(one.cause for one in records)
    flags = Counter(flag for one in graded for flag in one.correctness.get("flags", ()))
    return Summary(
        tasks=len({one.task for one in records}),
        trials=len(records),
        graded=len(graded),
        infrastructure=lost,
        void=void(len(records), lost),
        figures=tuple(_figures(graded, attempts)),
        causes={name: counts[name] for name in causes.TABLE if counts[name]},
        flags=dict(sorted(flags.items())),
    )


def void(trials: int, lost: int) -> str:
    """Why a run with so many trials lost to the infrastructure is void; "" when it is not."""
    if trials == 0:
        return "there are no trials"
    if lost / trials > INFRA_LIMIT:
        return f"the infrastructure lost {lost} of {trials} trials (allowed {INFRA_LIMIT:.0%})"
    return ""


def losses(records: Sequence[Record]) -> list[str]:
    """What the infrastructure took, by cause: how many trials, and what the last of them said."""
    taken = {one.cause: one for one in records if one.infrastructure}
    counts = Counter(one.cause for one in records)
    return [
        f"lost: {counts[cause]} as {cause}: {' '.join(one.detail.split())[-MAX_SAID:]}"
        for cause, one in taken.items()
    ]


def _figures(graded: Sequence[Record], attempts: int) -> list[Figure]:
    told = [one for one in graded if not one.ambiguous]
    found = [Figure("correctness", "pass@1", "share", _passing(told, 1))]
    if attempts > 1:
        found.append(Figure("correctness", f"pass@{attempts}", "share", _passing(told, attempts)))
    for axis, name, unit, value, bounds in _MEANS:
        estimate = _mean(graded, value, bounds)
        if estimate.cases:
            found.append(Figure(axis, name, unit, estimate))
    return found


def _passing(graded: Sequence[Record], k: int) -> Estimate:
    rows = []
    for trials in _by_task(graded).values():
        if len(trials) >= k:
            rate = pass_at(k, sum(bool(one.passed) for one in trials), len(trials))
            rows.append((rate, trials[0].cluster))
    return _estimate(rows, (0.0, 1.0))


def _mean(graded: Sequence[Record], value: Value, bounds: tuple[float, float] | None) -> Estimate:
    rows = []
    for trials in _by_task(graded).values():
        known = [found for one in trials if (found := value(one)) is not None]
        if known:
            rows.append((sum(known) / len(known), trials[0].cluster))
    estimate = _estimate(rows, bounds)
    if estimate.low is None or bounds is not None:
        return estimate
    return replace(estimate, low=max(0.0, estimate.low))  # none of these can be negative


def _estimate(rows: Sequence[tuple[float, str]], bounds: tuple[float, float] | None) -> Estimate:
    values, clusters = [row[0] for row in rows], [row[1] for row in rows]
    return clustered(values, [1.0] * len(rows), clusters, bounds=bounds)


def _by_task(graded: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for one in graded:
        found.setdefault(one.task, []).append(one)
    return found


def _quality(name: str) -> Value:
    def value(one: Record) -> float | None:
        found = one.quality.get(name)
        return None if found is None else float(found)

    return value


def _right(one: Record) -> float | None:
    return None if one.right is None else float(one.right)


def _rubric(one: Record) -> float | None:
    met = one.rubric.get("met") or ()
    return sum(met) / len(met) if met else None


_SHARE = (0.0, 1.0)
_MEANS: tuple[tuple[str, str, str, Value, tuple[float, float] | None], ...] = (
    ("efficiency", "tokens", "tokens", lambda one: float(one.usage.tokens) or None, None),
    ("efficiency", "output_tokens", "tokens", lambda one: float(one.usage.output_tokens) or None, None),
    ("efficiency", "model_calls", "calls", lambda one: float(one.usage.calls) or None, None),
    ("efficiency", "tool_calls", "calls", lambda one: float(one.usage.tool_calls), None),
    ("efficiency", "invalid_calls", "calls", lambda one: float(one.usage.invalid_calls), None),
    ("efficiency", "seconds", "s", lambda one: one.usage.seconds, None),
    ("efficiency", "cost", "money", lambda one: one.cost, None),
    ("quality", "lint_added", "findings", _quality("lint"), None),
    ("quality", "types_added", "findings", _quality("types"), None),
    ("quality", "size_ratio", "of the kept", _quality("size_ratio"), None),
    ("interaction", "right", "share", _right, _SHARE),
    ("interaction", "asked", "share", lambda one: float(one.did == "asked"), _SHARE),
    ("rubric", "met", "share", _rubric, _SHARE),
)
