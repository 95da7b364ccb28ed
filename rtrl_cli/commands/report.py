"""`rtrl report [REF]`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtrl_cli import options
from rtrl_cli.output import bold, envelope, message, pairs, show, table
from rtrl_cli.stage import open_store
from rtrl_cli.widths import width
from stages.wording import count

if TYPE_CHECKING:
    from stages.report.build import Report
    from stages.report.figures import Figure
    from stages.report.populations import Group

IN_TABLES = (
    "edit_persistence",
    "dissatisfied_followup",
    "edit_rejected",
    "invalid_tool_calls",
    "clarified",
    "edited",
)
_ALWAYS = 3  # columns of a table that say which group it is and how large
WITHIN = (
    "the page is inside the workspace, whose backups hold nothing unsealed: it has no texts of episodes "
    "(name a file elsewhere to have them)"
)
ON_SCREEN = 10  # groups of a population; the page and --json have more

Refs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[REF]...",
        help="experience@vN, or interactions@vN for the newest experience made from them; several as one.",
        show_default="experience@latest",
    ),
]
All = Annotated[
    bool,
    typer.Option("--all", help="All collects as one, what has left the logs since included."),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page to look at.", parser=options.path),
]
By = Annotated[
    str,
    typer.Option(
        "--by", metavar="NAMES", help="Populations: agent, model, repository, work, stratum, arm, checkpoint."
    ),
]
Last = Annotated[int, typer.Option("--last", min=1, help="Experiences of the line shown over time.")]
NoExamples = Annotated[
    bool, typer.Option("--no-examples", help="Leave the texts of the best and worst episodes out.")
]


def command(
    refs: Refs = None,
    everything: All = False,
    html: Html = None,
    by: By = "agent,model,repository,work",
    last: Last = 20,
    no_examples: NoExamples = False,
    as_json: options.Json = False,
    line: options.Line = None,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Say how the agent does: signals with intervals, over time, by population; and what was left out.

    Reads an experience, or several as one, and for --html and --json a few of their texts. docs/report.md
    says how the figures are made, and when one is not told.
    """
    from stages.report.build import build, parse_by
    from stages.report.chosen import choose

    started = time.monotonic()
    populations = parse_by(by)
    if html is not None:
        from stages.report.page import refuse_other

        html = html.expanduser().absolute()
        refuse_other(html)
    found, store = open_store(workspace, options.settings((), line))
    warnings = []
    if html is not None and not no_examples and found.holds(html):
        no_examples, warnings = True, [WITHIN]
    experiences = choose(store, refs or (), found.settings.workspace.line, everything=everything)
    texts = not no_examples and (html is not None or as_json)
    report = build(found, store, *experiences, by=populations, last=last, texts=texts)
    if html is not None:
        from stages.report.page import render, write

        write(html, render(report))
    _say(warnings, html)
    document = envelope(
        "report",
        "succeeded",
        inputs={"experience": report.ref},
        metrics={**report.to_json(), "html": None if html is None else str(html)},
        duration_s=round(time.monotonic() - started, 3),
        warnings=warnings,
    )
    show(as_json, document, lambda: text(report))


def _say(warnings: Sequence[str], page: Path | None) -> None:
    for warning in warnings:
        message(warning, kind="warning")
    if page is not None:
        message(f"wrote {page}")


def text(report: Report) -> str:
    """The report for a terminal."""
    from stages.report import shown

    again = f" (and {report.repeated} times one of them in an earlier collect)" if report.repeated else ""
    head = {
        "report": f"{report.ref} of line {report.line}, from {', '.join(report.interactions)}",
        "episodes": f"{report.episodes}{again} in {count(report.sessions, 'session')} "
        f"of {count(report.users, 'user')}, {shown.span(report.first_at, report.last_at)}",
        "source": "captured by the gateway" if report.served else "session logs",
        "reward": f"spec {report.spec}",
    }
    parts = [pairs(head), _headline(report)]
    chosen = [one for one in report.figures if one.name in IN_TABLES]
    over_time = report.over_time
    if over_time.windows:
        earlier = len(over_time.windows) - ON_SCREEN
        more = f"  ({earlier} earlier ones not shown here)" if earlier > 0 else ""
        windows = over_time.windows[-ON_SCREEN:]
        parts.append(_groups(f"by {over_time.unit}{more}", windows, chosen, over_time.unit))
    parts += [f"not shown: {line}" for line in over_time.skipped]
    for one in report.populations:
        if len(one.groups) == 1:
            parts.append(f"{shown.POPULATIONS[one.name].lower()}: {one.groups[0].label} only")
            continue
        name = shown.POPULATIONS[one.name].lower()
        left = len(one.groups) - ON_SCREEN + one.rest
        more = f"  ({left} smaller ones not shown here)" if left > 0 else ""
        parts.append(_groups(f"by {name}{more}", one.groups[:ON_SCREEN], chosen, name))
    parts += [_left_out(report), _extremes(report), shown.HOW_TO_READ]
    return "\n\n".join(part for part in parts if part)


def _headline(report: Report) -> str:
    from stages.report import shown

    rows = []
    for figure in report.figures:
        one = report.readings[figure.name]
        known = f"{one.n} of {one.of}" if one.of else "-"
        value = shown.headline_value(one, figure) if one.value is not None else "-"
        rows.append((figure.title, value, shown.interval(one, figure) or "-", known, one.users, one.note))
    return table(("FIGURE", "VALUE", "95 % INTERVAL", "EPISODES", "USERS", "NOTE"), rows)


def _groups(title: str, groups: Sequence[Group], figures: Sequence[Figure], name: str) -> str:
    from stages.report import shown

    rows = []
    for one in groups:
        cells = [shown.cell(one.readings[f.name], f) if f.name in one.readings else "-" for f in figures]
        rows.append((one.label, one.episodes, one.users, *cells))
    header = (name.upper(), "EPISODES", "USERS", *(f.title.upper() for f in figures))
    shown_table, missing = _fitting(header, rows)
    more = f"  (wider than the terminal, not shown: {', '.join(missing).lower()})" if missing else ""
    return f"{bold(title)}{more}\n{shown_table}"


def _fitting(header: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[str, list[str]]:
    """The table with as many columns as a terminal is wide, and the names of the others: first those in which
    nothing is told, then the last ones."""
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    widths = [max(width(str(cell)) for cell in column) for column in zip(header, *rows, strict=True)]
    kept = list(range(len(header)))
    untold = [n for n in kept[_ALWAYS:] if all(row[n] == "-" for row in rows)]
    while len(kept) > _ALWAYS + 1 and sum(widths[n] for n in kept) + 2 * (len(kept) - 1) > limit:
        kept.remove(untold.pop() if untold else kept[-1])
    missing = [name for n, name in enumerate(header) if n not in kept]
    return table([header[n] for n in kept], [[row[n] for n in kept] for row in rows]), missing


def _left_out(report: Report) -> str:
    rows = [
        (row.what, row.reason, row.count, "" if row.share is None else f"{row.share:.1%}", row.about)
        for row in report.left_out.rows
    ]
    parts = []
    if timing := report.left_out.timing:
        parts.append(
            f"{timing.matured} episodes had matured, {timing.waiting} waited, {timing.too_late} came too "
            f"late for the gradient; {timing.events_too_late} events came too late for it"
        )
    if rows:
        parts.append(table(("LEFT OUT", "REASON", "COUNT", "SHARE", "WHAT THAT MEANS"), rows))
    return "\n\n".join(parts)


def _extremes(report: Report) -> str:
    from stages.report import shown
    from stages.report.text import identifier

    rows = [
        (
            place,
            f"{one.reward:+.3f}",
            identifier(one.episode_id)[:100],
            ", ".join(f"{t.signal} {t.contribution:+.3f}" for t in one.terms[:3] if t.contribution),
        )
        for place, of in (("best", report.best), ("worst", report.worst))
        for one in of
    ]
    found = table(("EPISODES", "REWARD", "ID", "LARGEST TERMS"), rows)
    return f"{found}\n\nmasked in their texts: {shown.masked(report.masked)}" if report.masked else found
