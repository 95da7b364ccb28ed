"""A suite's profile as a picture: lines changed, prompt lengths and intents, with the published medians.

Not here: the figures (`profile.py`).
"""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import Any

from cursorbench.errors import UsageError
from cursorbench.tasks.profile import PUBLISHED, Profile
from cursorbench.tasks.suite import Suite

FORMATS = (".png", ".svg", ".pdf", ".html")


def draw(suite: Suite, profile: Profile, out: Path) -> None:
    """Write the picture; the name's end says which format.

    Raises:
        UsageError: (exit 2) a format that is none of FORMATS.
    """
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"{out.name} is no picture", hint=f"end it with {', '.join(FORMATS)}")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    lines, characters, intents = figure.subplots(1, 3)
    fields = [task.fields for task in suite.tasks]
    _histogram(
        lines,
        [one.lines_changed for one in fields if one.lines_changed is not None],
        "lines changed",
        [one.lines for one in PUBLISHED],
    )
    _histogram(
        characters,
        [one.prompt_chars for one in fields],
        "characters of the prompt",
        [one.characters for one in PUBLISHED],
    )
    intents.barh(list(profile.intents), list(profile.intents.values()), color="0.6")
    intents.invert_yaxis()
    intents.set_xlabel("tasks")
    intents.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(*lines.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    figure.suptitle(f"{profile.name}: {profile.tasks} tasks, {len(profile.clusters)} clusters")
    _save(figure, out, profile.name)


def _histogram(axes: Any, values: list[int], label: str, published: list[tuple[int, int]]) -> None:
    import numpy as np

    top = max([*values, *(high for _, high in published), 10])
    axes.hist(np.maximum(values, 1), bins=np.geomspace(1, top * 1.1, 24), color="0.6")
    for (low, high), one, colour in zip(published, PUBLISHED, ("tab:blue", "tab:orange"), strict=True):
        axes.axvspan(low, max(high, low * 1.02), color=colour, alpha=0.5, label=one.name)
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.yaxis.get_major_locator().set_params(integer=True)


def _save(figure: Any, out: Path, name: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix.lower() != ".html":
        figure.savefig(out, dpi=150)
        return
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    svg = picture.getvalue()
    head = f"<!doctype html><meta charset=utf-8><title>{html.escape(name)}</title>"
    out.write_text(head + svg[svg.index("<svg") :], encoding="utf-8")
