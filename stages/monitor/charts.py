"""The control charts of a line: history and a cycle in, history and alarms out. Pure; no workspace needed.

    from stages.monitor import charts
    updated = charts.update(history, cycle)        # history: stages.monitor.history.History()
    updated.history, updated.alarms, updated.notes

Each behaviour is a series of adjusted values, turned into scores by what its own past says
(`evals/stats/charts/level.py`), summed up on the sides that do harm (`cusum.py`). All charts together alarm
in a clean cycle at the rate `Rules.alarms` at most, which is divided evenly among them. Every chart is made
anew from the windows that are remembered, so there is nothing else to keep. Not for: what a cycle's figures
are (`cycle.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from evals.stats.charts.cusum import limit
from evals.stats.charts.level import Level
from stages.monitor import cycle as cycles
from stages.monitor.behaviours import BEHAVIOURS, Behaviour, possible
from stages.monitor.cycle import Cycle
from stages.monitor.divergence import Divergence, divergence, diverges
from stages.monitor.history import Alarm, Figure, History, Window
from stages.wording import digits

Side = Literal["up", "down"]

DIVERGENCE = "divergence"
OF_NO_ACCOUNT = 0.005  # least standard error: half a point, half a percent
_KEPT_ALARMS = 200


@dataclass(frozen=True)
class Rules:
    """When to call.

    Attributes:
        alarms: false alarms a clean cycle, over all charts together, at most: it is divided as if no two
            charts ever alarmed together; what comes of it: docs/monitor.md.
        k: half the shift, in standard deviations, that is looked for.
        warm_up: windows before the first alarm.
        windows: how many are remembered.
        cohort: share of requests of another kind than usual from which on it is noted.
    """

    alarms: float = 0.02
    k: float = 1.0
    warm_up: int = 4
    windows: int = 200
    cohort: float = 0.25

    @property
    def rate(self) -> float:
        """False alarms a clean cycle of one chart."""
        return self.alarms / CHARTS

    @property
    def limit(self) -> float:
        """What a sum of scores has to pass."""
        return limit(self.k, self.rate)


@dataclass(frozen=True)
class Point:
    """One window of a chart.

    `score`: standard normal while nothing new happens; nan without a past. `sums`: by side that does harm.
    `usual`, `low`, `high`: the value that was expected and where 95 % of clean ones lie, in the behaviour's
    own unit; None without a past.
    """

    at: int
    figure: Figure
    score: float
    sums: Mapping[Side, float]
    since: Mapping[Side, int]
    usual: float | None
    low: float | None
    high: float | None
    alarm: Side | None


@dataclass(frozen=True)
class Updated:
    """History with the cycle in it; the alarms of this cycle; what else is worth knowing."""

    history: History
    alarms: list[Alarm]
    notes: list[str]


def update(history: History, cycle: Cycle, rules: Rules | None = None) -> Updated:
    """One cycle more. The history given is not changed."""
    rules = rules or Rules()
    window = cycles.window(cycle, history.reference)
    windows = [*history.windows, window]
    new = [found for name in BEHAVIOURS if (found := _alarm(name, windows, rules, cycle.line)) is not None]
    if (apart := _divergence(windows, rules, cycle.line)) is not None:
        new.append(apart)
    kept = windows[-rules.windows :]
    after = History(
        windows=kept,
        reference=cycles.remembered(cycle, history.reference),
        alarms=[*history.alarms, *new][-_KEPT_ALARMS:],
        forgotten=history.forgotten + len(windows) - len(kept),
    )
    return Updated(after, new, _notes(window, rules))


def chart(name: str, windows: Sequence[Window], rules: Rules | None = None) -> list[Point]:
    """The chart of one behaviour, a point for each window that has it."""
    rules, behaviour = rules or Rules(), BEHAVIOURS[name]
    sides: tuple[Side, ...] = ("up", "down") if behaviour.harm == "both" else (behaviour.harm,)
    told = [(*each, *scaled(each[2], behaviour)) for each in _of_the_same_requests(name, windows)]
    # of windows that no later cycle changes: what was called once stays on the chart, and nothing else
    level = Level(float(np.median([error for *_, error in told[: rules.warm_up or 1]] or [1.0])))
    sums, since = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0)
    points: list[Point] = []
    for n, window, figure, value, error in told:
        score = level.score(value, error)
        usual, low, high = _band(level, error, behaviour) if points else (None, None, None)
        alarm: Side | None = None
        for side in sides if not np.isnan(score) and n >= rules.warm_up else ():
            if sums[side] == 0.0:
                since[side] = window.at
            sums[side] = max(0.0, sums[side] + (score if side == "up" else -score) - rules.k)
            if sums[side] > rules.limit:
                alarm = side
        points.append(Point(window.at, figure, score, dict(sums), dict(since), usual, low, high, alarm))
        level.tell(value, error, alarmed=alarm is not None, doubted=any(sums.values()))
        if alarm is not None:
            sums = dict.fromkeys(sides, 0.0)
    return points


def _of_the_same_requests(name: str, windows: Sequence[Window]) -> list[tuple[int, Window, Figure]]:
    """(number, window, figure) of the windows that have the behaviour, oldest first; each figure's `adjusted`
    is of the requests that are usual now, at the newest."""
    found, moved = [], 0.0
    for n in range(len(windows) - 1, -1, -1):
        if (figure := windows[n].figures.get(name)) is not None:
            same = msgspec.structs.replace(figure, adjusted=figure.adjusted + moved)
            found.append((n, windows[n], same))
            moved += figure.mixed
    return found[::-1]


def scaled(figure: Figure, behaviour: Behaviour) -> tuple[float, float]:
    """A figure on the scale of its chart, with its standard error there.

    Shares by the arcsine of their root (Anscombe 1948), whose variance knows no share; amounts by log(1 + x).
    """
    if behaviour.scale == "share":
        n = figure.weight
        share = (min(1.0, max(0.0, figure.adjusted)) * n + 0.375) / (n + 0.75)
        steep = 2 * np.sqrt(share * (1 - share))
        error = max(figure.se / steep, 0.5 / np.sqrt(n))  # se 0 is not known to be so: binomial at least
        return float(np.arcsin(np.sqrt(share))), max(float(error), OF_NO_ACCOUNT)
    if behaviour.scale == "part":
        return figure.adjusted, max(figure.se, OF_NO_ACCOUNT)
    amount = max(0.0, figure.adjusted)
    return float(np.log1p(amount)), max(figure.se / (1 + amount), OF_NO_ACCOUNT)


def _unscaled(value: float, behaviour: Behaviour) -> float:
    if behaviour.scale == "share":
        return float(np.sin(np.clip(value, 0.0, np.pi / 2)) ** 2)
    if behaviour.scale == "part":
        return min(1.0, max(0.0, value))
    return max(0.0, float(np.expm1(value)))


def _band(level: Level, error: float, behaviour: Behaviour) -> tuple[float, float, float]:
    middle, half = level.mean, 1.96 * level.spread(error)
    usual, low, high = (_unscaled(x, behaviour) for x in (middle, middle - half, middle + half))
    return usual, low, high


def _alarm(name: str, windows: Sequence[Window], rules: Rules, line: str) -> Alarm | None:
    """The alarm of the newest window, if there is one."""
    if name not in windows[-1].figures:
        return None
    last = chart(name, windows, rules)[-1]
    if last.alarm is None:
        return None
    side, window, usual = last.alarm, windows[-1], last.usual or 0.0
    span = sum(each.at >= last.since[side] for each in windows)
    now = possible(name, last.figure.adjusted)
    return Alarm(
        id=alarm_id(line, window, name, side),
        behaviour=name,
        direction=side,
        at=window.at,
        since=last.since[side],
        checkpoint=window.checkpoint,
        score=round(last.sums[side], 3),
        limit=round(rules.limit, 3),
        value=last.figure.adjusted,
        usual=usual,
        text=f"{name} {'rose' if side == 'up' else 'fell'} to {digits(now)} where {digits(usual)} "
        f"was to be expected ({BEHAVIOURS[name].what}), over {span} {'cycle' if span == 1 else 'cycles'}",
    )


def _divergence(windows: Sequence[Window], rules: Rules, line: str) -> Alarm | None:
    found = divergence(windows)
    if found is None or len(windows) <= rules.warm_up or not diverges(found, rules.rate):
        return None
    window = windows[-1]
    if any(diverges(earlier, rules.rate) for earlier in _before(windows, rules)):
        return None  # it is told once, until it ends
    return Alarm(
        id=alarm_id(line, window, DIVERGENCE, "up"),
        behaviour=DIVERGENCE,
        direction="up",
        at=window.at,
        since=windows[-found.cycles].at,
        checkpoint=window.checkpoint,
        score=round(found.reward.slope / found.reward.error, 3),
        limit=round(found.gap.slope / found.gap.error, 3),
        value=found.newest[0],
        usual=found.newest[1],
        text=(
            f"training reward rises and what users tell does not, over {found.cycles} cycles: by "
            f"{found.reward.slope:+.2f} and {found.user.slope:+.2f} standard errors a cycle (p {found.p:.1g})"
        ),
    )


def _before(windows: Sequence[Window], rules: Rules) -> list[Divergence]:
    """The divergence of the window before, if it was one that could be told."""
    earlier = windows[:-1]
    found = divergence(earlier) if len(earlier) > rules.warm_up else None
    return [found] if found is not None else []


def _notes(window: Window, rules: Rules) -> list[str]:
    if window.cohort <= rules.cohort:
        return []
    moved = sorted(
        window.figures, key=lambda name: -abs(window.figures[name].value - window.figures[name].adjusted)
    )[:2]
    told = ", ".join(
        f"{name} {digits(window.figures[name].value)}, "
        f"{digits(possible(name, window.figures[name].adjusted))} of the usual ones"
        for name in moved
    )
    return [
        f"{window.cohort:.0%} of the requests are of another kind than usual ({told}): no change of policy"
    ]


def alarm_id(line: str, window: Window, name: str, side: Side) -> str:
    """Short enough to be typed, and the same when the same episodes of a line are distilled once more.

    More of them are another window: whoever looked at the one has not seen the other.
    """
    text = f"{line}\0{window.checkpoint}\0{window.at}\0{window.episodes}\0{name}\0{side}"
    return "a" + hashlib.sha256(text.encode()).hexdigest()[:8]


CHARTS = sum(2 if behaviour.harm == "both" else 1 for behaviour in BEHAVIOURS.values()) + 1
