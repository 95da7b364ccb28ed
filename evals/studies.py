"""What a suite in hand can tell, before anyone relies on it: what `rtrl bench power` prints and draws.

Not here: the simulation (`evals/power.py`, `evals/worlds.py`), what a finished comparison could tell
(`Tell` in `evals/criteria.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cursorbench.errors import InputMissingError, UsageError
from evals.cases import Attempt
from evals.power import POWER, Rate, rates
from evals.stats.power import pass_probability
from evals.worlds import Effects, Tasks

LOSSES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4)
PRIOR = (1.2, 0.8)
FORMATS = (".png", ".svg", ".pdf")


def pilot(attempts: Iterable[Attempt], metric: str, tries: int | None = None) -> Tasks:
    """A suite as a checkpoint's attempts showed it: each task's success is drawn from what is known of it.

    Beta(1.2 + successes, 0.8 + failures) for each case; the clusters are the cases' own.

    Args:
        tries: attempts at each task from now on; by default as many as the pilot had on average.

    Raises:
        InputMissingError: (exit 5) no attempt says anything of the metric.
        UsageError: (exit 2) the metric is no share.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for one in attempts:
        numerator, denominator = one.values.get(metric, (0.0, 0.0))
        if one.failure or denominator == 0:
            continue
        if not 0 <= numerator <= denominator:
            raise UsageError(
                f"{metric} is no share: {numerator:g} of {denominator:g}", hint="name one that is"
            )
        row = found.setdefault((one.cluster, one.case), [0.0, 0.0, 0.0])
        for place, value in enumerate((numerator, denominator - numerator, 1.0)):
            row[place] += value
    if not found:
        raise InputMissingError(f"the attempts say nothing of {metric}")
    order = sorted(found)
    sizes: dict[str, int] = {}
    for cluster, _ in order:
        sizes[cluster] = sizes.get(cluster, 0) + 1
    made = float(np.mean([row[2] for row in found.values()]))
    prior = tuple((PRIOR[0] + found[key][0], PRIOR[1] + found[key][1]) for key in order)
    return Tasks(tuple(sizes.values()), tries or max(1, round(made)), prior)


@dataclass(frozen=True)
class Point:
    """A loss and how often it is called regressed."""

    loss: float
    regressed: float
    naive: float


@dataclass(frozen=True)
class Study:
    """What a gate of so many suites of one kind can tell.

    Attributes:
        loss_caught: the loss called regressed 80 times in 100; None when none up to 0.4 is.
        curve: power by loss.
    """

    suites: int
    identical_pass: Rate
    identical_regressed: Rate
    naive_identical_regressed: Rate
    loss_caught: float | None
    naive_loss_caught: float | None
    curve: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "suites": self.suites,
            "identical_pass": self.identical_pass.to_json(),
            "identical_regressed": self.identical_regressed.to_json(),
            "naive_identical_regressed": self.naive_identical_regressed.to_json(),
            "loss_caught": self.loss_caught,
            "naive_loss_caught": self.naive_loss_caught,
            "curve": [asdict(point) for point in self.curve],
        }


def study(
    tasks: Tasks,
    margin: float,
    *,
    effects: Effects,
    suites: int = 1,
    alpha: float = 0.05,
    worlds: int = 1000,
    seed: int = 0,
) -> Study:
    """How often an identical model passes, and the power over a range of losses with `effects`."""
    rest = {"suites": suites, "alpha": alpha, "seed": seed}
    same = rates(tasks, margin, worlds=2 * worlds, **rest)  # type: ignore[arg-type]
    mean = float(np.mean([a / (a + b) for a, b in tasks.prior]))
    curve = []
    for loss in LOSSES:
        if loss >= mean:
            break
        found = rates(tasks, margin, loss=loss, effects=effects, worlds=worlds, **rest)  # type: ignore[arg-type]
        curve.append(Point(loss, found.regressed.value, found.naive_regressed.value))
        if min(found.regressed.value, found.naive_regressed.value) > 0.99:
            break
    return Study(
        suites,
        same.passed,
        same.regressed,
        same.naive_regressed,
        _reaches([(point.loss, point.regressed) for point in curve]),
        _reaches([(point.loss, point.naive) for point in curve]),
        tuple(curve),
    )


def _reaches(curve: Sequence[tuple[float, float]], power: float = POWER) -> float | None:
    """Where the power first reaches `power`, by straight lines between the points."""
    before = (0.0, 0.0)
    for point in curve:
        if point[1] >= power:
            share = (power - before[1]) / (point[1] - before[1])
            return before[0] + share * (point[0] - before[0])
        before = point
    return None


def enough(
    tasks: Tasks, margin: float, alpha: float = 0.05, power: float = 0.9
) -> tuple[int | None, int | None]:
    """About how many tasks, or else attempts, let an identical model pass one such suite 90 times in 100.

    Returns:
        (tasks at the present attempts, attempts at the present tasks), None where no number would; by
        arithmetic: the variance of a task's difference is 2 E[p (1 - p)] / attempts, the degrees of
        freedom one less than the clusters.
    """
    pairs = np.array(tasks.prior)
    total = pairs.sum(axis=1)
    noise = 2 * float(np.mean(pairs[:, 0] * pairs[:, 1] / (total * (total + 1))))
    clusters = len(tasks.sizes)

    def passes(count: float, attempts: float) -> bool:
        freedom = clusters * count / tasks.count - 1
        if freedom < 1:
            return False
        se = math.sqrt(noise / (count * attempts))
        return pass_probability(se, freedom, margin, alpha=alpha) >= power

    if margin <= 0:
        return None, None
    count = next((n for n in _growing() if passes(n, tasks.attempts)), None)
    return count, next((k for k in _growing() if passes(tasks.count, k)), None)


def _growing() -> Iterable[int]:
    """1, 2, 3, ... in steps of a hundredth, up to a million."""
    count = 1
    while count <= 1_000_000:
        yield count
        count += max(1, count // 100)


def require_picture(out: Path) -> None:
    """Raise UsageError (exit 2) for a name whose end is none of FORMATS."""
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"{out.name} is no picture", hint=f"end it with {', '.join(FORMATS)}")


def draw_curves(studies: Sequence[Study], title: str, out: Path) -> None:
    """Power by loss, one line for each number of suites, the naive test dashed; the name's end is the format.

    Raises as `require_picture`.
    """
    require_picture(out)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for one, colour in zip(studies, ("tab:blue", "tab:orange", "tab:green"), strict=False):
        start = [(0.0, one.identical_regressed.value, one.naive_identical_regressed.value)]
        rows = start + [(point.loss, point.regressed, point.naive) for point in one.curve]
        losses, ours, naive = (100 * np.array(column) for column in zip(*rows, strict=True))
        axes.plot(losses, ours, marker="o", color=colour, label=f"{one.suites} suite(s)")
        axes.plot(losses, naive, linestyle="--", color=colour, label=f"{one.suites} suite(s), naive z-test")
    axes.axhline(100 * POWER, color="0.7", linewidth=1)
    axes.set_xlabel("loss, points")
    axes.set_ylabel("called regressed, times in 100")
    axes.set_title(title, fontsize="medium")
    axes.legend(fontsize="small")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
