"""What `rtrl monitor` shows: charts as plain data, as a table with sparklines, as a picture.

Not for: making charts (`charts.py`), saying which alarms stand (`standing.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stages.monitor.behaviours import BEHAVIOURS, possible
from stages.monitor.charts import Point, Rules, chart
from stages.monitor.history import History

_BARS = "▁▂▃▄▅▆▇█"
_CYCLES = 24  # in a sparkline


def charts_of(history: History, rules: Rules) -> dict[str, list[Point]]:
    """The chart of every behaviour that any window has."""
    found = {name: chart(name, history.windows, rules) for name in BEHAVIOURS}
    return {name: points for name, points in found.items() if points}


def to_json(history: History, rules: Rules) -> dict[str, Any]:
    """Charts and windows as JSON-able data; times in ms."""
    return {
        "windows": len(history.windows),
        "limit": round(rules.limit, 3),
        "charts": {
            name: {
                "what": BEHAVIOURS[name].what,
                "harm": BEHAVIOURS[name].harm,
                "points": [_point(point) for point in points],
            }
            for name, points in charts_of(history, rules).items()
        },
        "cycles": [
            {
                "at": window.at,
                "checkpoint": window.checkpoint,
                "episodes": window.episodes,
                "users": window.users,
                "other_requests": window.cohort,
                "reward": window.reward and window.reward[0],
                "user_signals": window.user and window.user[0],
            }
            for window in history.windows
        ],
    }


def rows(charts: Mapping[str, Sequence[Point]], rules: Rules) -> list[tuple[str, ...]]:
    """A row for each chart, as `HEADER` says."""
    return [_row(name, points, rules) for name, points in charts.items()]


HEADER = ("BEHAVIOUR", "CYCLES", "NOW", "RAW", "USUAL", "95 % OF CLEAN", "SUM/LIMIT", "ALARM IN")


def sparkline(values: Sequence[float]) -> str:
    """One character a value, lowest to highest."""
    low, high = min(values), max(values)
    span = high - low
    return "".join(_BARS[round((v - low) / span * (len(_BARS) - 1)) if span > 0 else 0] for v in values)


def day(at: int) -> str:
    """A time (ms) as people read it, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def draw(path: Path, history: History, rules: Rules) -> None:
    """Write the charts as a picture (the suffix says which kind): values, what was usual, alarms."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = charts_of(history, rules)
    wide = 4
    deep = max(1, -(-len(found) // wide))
    figure = Figure(figsize=(16, 2.6 * deep), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, points) in enumerate(found.items(), start=1):
        axes = figure.add_subplot(deep, wide, place)
        x = list(range(1, len(points) + 1))
        known = [(n, p) for n, p in zip(x, points, strict=True) if p.low is not None]
        if known:
            at, low, high = ([n for n, _ in known], [p.low for _, p in known], [p.high for _, p in known])
            axes.fill_between(at, low, high, alpha=0.2, color="#2b6cb0")  # type: ignore[arg-type]
        axes.plot(x, [possible(name, p.figure.adjusted) for p in points], "o-", color="#2b6cb0", markersize=3)
        raw = [p.figure.value for p in points]
        axes.plot(x, raw, ":", color="#a0aec0")
        called = [(n, possible(name, p.figure.adjusted)) for n, p in zip(x, points, strict=True) if p.alarm]
        if called:
            axes.plot(*zip(*called, strict=True), "v", color="#c53030", markersize=9)
        axes.set_title(f"{name}: {BEHAVIOURS[name].what}", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.suptitle(
        "per cycle: blue reweighted to the usual requests, with where 95 % of clean cycles lie; dotted as "
        "measured; red an alarm",
        fontsize=9,
    )
    figure.savefig(path, dpi=100, metadata={"Software": "rtrl"} if path.suffix == ".png" else None)


def _point(point: Point) -> dict[str, Any]:
    return {
        "at": point.at,
        "value": point.figure.value,
        "adjusted": point.figure.adjusted,
        "expected": point.figure.expected,
        "se": point.figure.se,
        "usual": point.usual,
        "low": point.low,
        "high": point.high,
        "score": None if point.score != point.score else round(point.score, 3),  # nan
        "sums": {side: round(total, 3) for side, total in point.sums.items()},
        "alarm": point.alarm,
    }


def _row(name: str, points: Sequence[Point], rules: Rules) -> tuple[str, ...]:
    last = points[-1]
    alarms = [f"{day(p.at)} {'↑' if p.alarm == 'up' else '↓'}" for p in points if p.alarm]
    band = "-" if last.low is None or last.high is None else f"{_figure(last.low)} to {_figure(last.high)}"
    return (
        name,
        sparkline([possible(name, p.figure.adjusted) for p in points[-_CYCLES:]]),
        _figure(possible(name, last.figure.adjusted)),
        _figure(last.figure.value),
        "-" if last.usual is None else _figure(last.usual),
        band,
        f"{max(last.sums.values()):.1f}/{rules.limit:.1f}",
        ", ".join(alarms[-2:]) or "-",
    )


def _figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
