"""The plots of the page: small SVGs by matplotlib, in the page's own colours, without a script.

Colours are written as CSS variables, so that one drawing serves light and dark; text stays text.
Not for: the numbers beside them, which the page repeats as tables for those who cannot see the plots.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from stages.report.figures import Figure, Reading
from stages.report.populations import Group
from stages.report.shown import told

_TEXT, _SERIES, _GRID, _BACK = "#010203", "#0a0b0c", "#0d0e0f", "#101112"
_CSS = {_TEXT: "currentColor", _SERIES: "var(--series)", _GRID: "var(--grid)", _BACK: "var(--card)"}
_BARS: dict[str, Any] = {"ecolor": _SERIES, "elinewidth": 1.2, "capsize": 2.5, "zorder": 2}
_WIDTH = 4.4  # inches at 72 points: about what a column of the page has
_LABEL = 24
_TICKS = 6
MOST_DOTS = 12


def over_time(figure: Figure, unit: str, windows: Sequence[Group]) -> str:
    """The figure by window with its intervals; "" with fewer than two points."""
    points = [(n, w, w.readings[figure.name]) for n, w in enumerate(windows) if figure.name in w.readings]
    points = [point for point in points if told(point[2])]
    if len(points) < 2:
        return ""
    drawing, axes = _axes(2.1)
    if unit == "experience":
        x: list[Any] = [n for n, _, _ in points]
        step = -(-len(windows) // _TICKS)
        axes.set_xticks(
            range(0, len(windows), step), [w.label for w in windows[::step]], parse_math=False, color=_TEXT
        )
        axes.set_xlim(-0.5, len(windows) - 0.5)
    else:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        x = [_date(w.label) for _, w, _ in points]
        first, last = _date(windows[0].label), _date(windows[-1].label)  # the same axis for every figure
        axes.set_xlim(first - 0.04 * (last - first), last + 0.04 * (last - first))
        locator = AutoDateLocator(minticks=2, maxticks=_TICKS)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    readings = [reading for _, _, reading in points]
    values = [_scaled(reading.value, figure) for reading in readings]
    axes.plot(x, values, color=_GRID, lw=1, zorder=1)
    axes.errorbar(x, values, yerr=_errors(readings, figure), fmt="none", **_BARS)
    _points(axes, x, values, readings)
    _scale(axes.set_ylim, axes.set_ylabel, readings, figure)
    axes.grid(axis="y", color=_GRID, lw=0.6)
    return _svg(drawing, f"time-{figure.name}")


def _date(label: str) -> datetime:
    """Of a day, a week's Monday, or a month."""
    return datetime.fromisoformat(label if len(label) > 7 else f"{label}-01")


def by_group(figure: Figure, name: str, groups: Sequence[Group]) -> str:
    """The figure of each group with its interval, the first on top; "" with fewer than two groups."""
    points = [(g, g.readings[figure.name]) for g in groups if told(g.readings[figure.name])]
    points = points[:MOST_DOTS]
    if len(points) < 2:
        return ""
    drawing, axes = _axes(0.75 + 0.2 * len(points))
    y = list(range(len(points)))
    readings = [reading for _, reading in points]
    values = [_scaled(reading.value, figure) for reading in readings]
    axes.errorbar(values, y, xerr=_errors(readings, figure), fmt="none", **_BARS)
    _points(axes, values, y, readings)
    axes.set_yticks(y, [_cut(g.label) for g, _ in points], parse_math=False, color=_TEXT)
    axes.set_ylim(len(points) - 0.5, -0.5)
    _scale(axes.set_xlim, axes.set_xlabel, readings, figure)
    axes.grid(axis="x", color=_GRID, lw=0.6)
    return _svg(drawing, f"{name}-{figure.name}")


def _axes(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(_WIDTH, height), layout="constrained")
    axes = drawing.subplots()
    axes.set_facecolor("none")
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_GRID)
    axes.tick_params(labelsize=8, colors=_TEXT, color=_GRID, length=3)
    return drawing, axes


def _points(axes: Any, x: Sequence[Any], y: Sequence[float], readings: Sequence[Reading]) -> None:
    """Full where there is an interval, hollow where there is none."""
    for hollow in (False, True):
        some = [n for n, one in enumerate(readings) if (one.low is None and one.high is None) == hollow]
        axes.plot(
            [x[n] for n in some], [y[n] for n in some], "o", color=_SERIES, markersize=4, clip_on=False,
            markerfacecolor=_BACK if hollow else _SERIES, zorder=3,
        )  # fmt: skip


def _scaled(value: float | None, figure: Figure) -> float:
    assert value is not None
    return 100 * value if figure.unit == "share" else value


def _errors(readings: Sequence[Reading], figure: Figure) -> list[list[float]]:
    below = [r.value - r.low if r.low is not None and r.value is not None else 0.0 for r in readings]
    above = [r.high - r.value if r.high is not None and r.value is not None else 0.0 for r in readings]
    return [[max(0.0, _scaled(end, figure)) for end in ends] for ends in (below, above)]


def _scale(limits: Any, label: Any, readings: Sequence[Reading], figure: Figure) -> None:
    """From 0 for shares and ratios, with room above; all of a share is 100 %."""
    if figure.unit == "number":
        return
    top = max(max(end for end in (r.value, r.high) if end is not None) for r in readings)
    if figure.unit == "share":
        limits(0, min(103.0, max(1.0, 108 * top)))
        label("%", fontsize=8, color=_TEXT)
    else:
        limits(0, 1.08 * top)


def _cut(text: str) -> str:
    """Names of one kind begin alike, and tell their difference at the end."""
    return text if len(text) <= _LABEL else text[: _LABEL // 2 - 1] + "…" + text[-_LABEL // 2 :]


def _svg(drawing: Any, salt: str) -> str:
    """An `<svg>` element for inlining: no ids but those that it refers to, no size of its own."""
    import matplotlib as mpl

    for axis in (drawing.axes[0].xaxis, drawing.axes[0].yaxis):
        axis.get_offset_text().set(color=_TEXT, fontsize=8)
    target = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.family": "sans-serif"}
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's fonts may have it
        drawing.savefig(target, format="svg", transparent=True, metadata=nothing)
    text = target.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->|<style.*?</style>", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], used), text)  # what is between tags is left alone
    text = re.sub(r'^<svg[^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _tag(tag: str, used: set[str]) -> str:
    """A tag without ids that nothing refers to, without fonts, with the page's colours and short numbers."""
    tag = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", tag)
    tag = re.sub(r"font-family: [^;]+; |font-family: [^;\"]+|transform=\"rotate\(-?0 [^\"]+\"", "", tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)  # a hundredth of a point is enough
    for sentinel, css in _CSS.items():
        tag = tag.replace(sentinel, css)
    return tag
