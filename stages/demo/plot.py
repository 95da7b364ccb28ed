"""The demo's plot: the five figures of use per cycle, and the held-out replay of first and last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.demo.figures import NAMES

_TITLES = {
    "edit_persistence": "edit persistence",
    "dissatisfied_followup": "dissatisfied follow-up",
    "latency_s": "latency, s",
    "invalid_calls": "requests with invalid calls",
    "ask_rate": "ask rate",
}
_USE, _FIRST, _LAST = "#2b6cb0", "#a0aec0", "#2f855a"


def draw(path: Path, rows: Sequence[Mapping[str, Any]], final: Mapping[str, Any] | None) -> None:
    """Write a PNG.

    Args:
        path: of the file.
        rows: per cycle {"cycle", "figures": {name: {"value", "low", "high"}}}.
        final: {"figures": {name: {"first": {...}, "last": {...}}}} of the replay, or None.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    cycles = [int(row["cycle"]) for row in rows]
    for axes, name in zip(figure.subplots(1, len(NAMES)), NAMES, strict=True):
        estimates = [row["figures"][name] for row in rows]
        _errorbar(axes, cycles, estimates, _USE, "use in each cycle, as read from events and messages", "o-")
        held = (final or {}).get("figures", {}).get(name)
        if held:
            ends = [min(cycles, default=1) - 0.25, max(cycles, default=1) + 0.25]
            _errorbar(axes, ends[:1], [held["first"]], _FIRST, "held-out users, first checkpoint", "s")
            _errorbar(axes, ends[1:], [held["last"]], _LAST, "held-out users, last checkpoint", "s")
        axes.set_title(_TITLES[name], fontsize=10)
        axes.set_xlabel("cycle")
        axes.set_xticks(cycles)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=110, metadata={"Software": "rtrl"})


def _errorbar(
    axes: Any, x: Sequence[float], estimates: Sequence[Mapping[str, Any]], colour: str, label: str, form: str
) -> None:
    points = [(at, one) for at, one in zip(x, estimates, strict=True) if one["value"] is not None]
    if not points:
        return
    values = [float(one["value"]) for _, one in points]
    below = [
        value - float(one["low"]) if one["low"] is not None else 0.0
        for value, (_, one) in zip(values, points, strict=True)
    ]
    above = [
        float(one["high"]) - value if one["high"] is not None else 0.0
        for value, (_, one) in zip(values, points, strict=True)
    ]
    axes.errorbar(
        [at for at, _ in points], values, yerr=[below, above], fmt=form, color=colour, capsize=3, label=label
    )
