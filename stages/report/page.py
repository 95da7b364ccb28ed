"""The report as one HTML page: readable without a script, in light and dark, asking nothing of the network.

Plots are SVGs in the page. All foreign text is escaped by the template. Not for: the figures (`build.py`).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.files import write_whole
from stages.errors import UsageError, classified
from stages.report import plots, shown
from stages.report.build import Report
from stages.report.examples import FORGOTTEN, GONE, SHOWN_STATE, UNREADABLE, WITHHELD
from stages.report.text import identifier
from stages.wording import digits

if TYPE_CHECKING:
    from jinja2 import Template

MARK = '<meta name="generator" content="rtrl report">'
_STATES = {
    SHOWN_STATE: "",
    FORGOTTEN: "Forgotten: the key of its user was destroyed, so its text can no longer be read.",
    GONE: "The interactions that held its text were removed.",
    UNREADABLE: "Its text cannot be opened.",
    WITHHELD: "Texts were left out.",
}


def render(report: Report) -> str:
    """The page. Deterministic: equal reports are equal pages."""
    time = report.over_time
    return _template().render(
        mark=MARK,
        report=report,
        shown=shown,
        digits=digits,
        most_dots=plots.MOST_DOTS,
        identifier=identifier,
        states=_STATES,
        time_plots={f.name: plots.over_time(f, time.unit, time.windows) for f in report.figures},
        group_plots={
            p.name: {f.name: plots.by_group(f, p.name, p.groups) for f in report.figures}
            for p in report.populations
        },
    )


def write(path: Path, text: str) -> None:
    """Write the page so that there is an old one or a whole new one at any time.

    Raises:
        UsageError: (exit 2) something stands there that is no report, or there is no such folder.
        DependencyDownError: (exit 13) the disk takes nothing.
    """
    refuse_other(path)
    with classified():
        write_whole(path, text.encode(), private=True)  # it may hold what users wrote


def refuse_other(path: Path) -> None:
    """Raises UsageError when `path` is there and no report of ours, or its folder is not."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="make it, or name another file")
    if not (path.exists() or path.is_symlink()):
        return
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            if MARK.encode() in file.read(2000):
                return
    raise UsageError(f"{path} is there and is no report", hint="name another file, or move it away")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    source = resources.files("stages.report").joinpath("page.html.jinja").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)
