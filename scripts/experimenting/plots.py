"""Plots: every figure by cycle, a line for each seed, a panel for each variant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experimenting.results import Run

SHOWN = ("edit_persistence", "dissatisfied_followup", "latency_s", "broken_calls", "ask_rate", "edit_rate")
_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568", "#b7791f", "#285e61", "#9b2c2c")


def draw(path: Path, runs: Sequence[Run]) -> None:
    """Write a PNG: one panel per figure, one colour per variant, one thin line per seed, their mean thick."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(run.setup.name for run in runs))
    figure = Figure(figsize=(13, 7), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, what in zip(figure.subplots(2, 3).flat, SHOWN, strict=True):
        for colour, name in zip(_COLOURS, names, strict=False):
            _variant(axes, [run for run in runs if run.setup.name == name], what, colour, name)
        axes.set_title(what.replace("_", " "), fontsize=10)
        axes.set_xlabel("cycle")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(names), 5), frameon=False)
    figure.savefig(path, dpi=80, metadata={"Software": "rtrl"})


def _variant(axes: Any, runs: Sequence[Run], what: str, colour: str, name: str) -> None:
    curves = [[point["value"] for point in run.curve(what)] for run in runs]
    for curve in curves:
        axes.plot(range(len(curve)), curve, color=colour, alpha=0.3, linewidth=0.8)
    length = min(map(len, curves), default=0)
    known = [[curve[at] for curve in curves if curve[at] is not None] for at in range(length)]
    means = [sum(values) / len(values) if values else None for values in known]
    axes.plot(range(length), means, color=colour, linewidth=2, label=name.replace("_", " "))
