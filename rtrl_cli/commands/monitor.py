"""`rtrl monitor` and `rtrl monitor ack`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import bold, envelope, message, show, table
from rtrl_cli.stage import open_store

if TYPE_CHECKING:
    from stages.monitor.history import History
    from stages.monitor.standing import Standing
    from stages.registry.store import Store
    from stages.workspace import Workspace

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Show how the line behaves, cycle by cycle, and its alarms.",
)


@app.callback(invoke_without_command=True)
def monitor(
    context: typer.Context,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again; tell webhook and ping of what is new.")
    ] = False,
    every: options.Every = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Write the charts as PNG, SVG or PDF.", parser=options.path
        ),
    ] = None,
    as_json: options.Json = False,
    line: options.Line = None,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Show the control charts of the live checkpoint's line: each behaviour against its own history.

    NOW is reweighted to the usual requests, RAW is as measured. A chart alarms when its SUM passes the limit.
    An alarm blocks the gate (eval and deploy exit 3) until `rtrl monitor ack ALARM --reason TEXT`.
    """
    if context.invoked_subcommand is not None:
        _refuse_before_subcommand(context)
        return
    from stages.populations import require_line

    pause = options.pause(watch, every)
    if plot is not None:
        _require_picture(plot)
    found, store = open_store(workspace, options.settings((), line))
    require_line(store, found.settings)
    if pause is None:
        _look(found, store, plot, as_json)
        return
    while True:
        _watched(found, lambda: _look(found, store, plot, as_json))
        time.sleep(pause)


@app.command()
def ack(
    alarms: Annotated[list[str], typer.Argument(metavar="ALARM...", help="As `rtrl monitor` names them.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept on record.")],
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    line: options.Line = None,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Acknowledge alarms: put on record that somebody looked and why the gate may go on."""
    from stages.monitor.gate import acknowledge

    found, store = open_store(workspace, options.settings((), line))
    done = acknowledge(store, found.settings.workspace.line, alarms, reason=reason, dry_run=dry_run)
    ids = [one.alarm["id"] for one in done]
    document = envelope(
        "monitor ack",
        "succeeded" if ids and not dry_run else "noop",
        metrics={"acknowledged": ids, "reason": reason},
    )
    would = "would acknowledge" if dry_run else "acknowledged"
    lines = [f"{would} {one.alarm['id']}: {one.alarm['text']}" for one in done]
    show(as_json, document, lambda: "\n".join(lines) or "acknowledged already")


def _refuse_before_subcommand(context: typer.Context) -> None:
    """`rtrl monitor -w ELSEWHERE ack` would acknowledge here what was meant there."""
    from stages.errors import UsageError

    for each in context.command.params:
        source = context.get_parameter_source(str(each.name))
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{each.opts[0]} stands before {context.invoked_subcommand}, where it has no effect",
                hint=f"rtrl monitor {context.invoked_subcommand} ... {each.opts[0]} ...",
            )


def _look(found: Workspace, store: Store, plot: Path | None, as_json: bool) -> list[str]:
    """Show the charts, tell the webhook; the ids of alarms that wait for somebody."""
    from stages.monitor import view
    from stages.monitor.alert import tell
    from stages.monitor.charts import Rules
    from stages.monitor.history import History
    from stages.monitor.standing import monitors, standing

    line, config = found.settings.workspace.line, found.settings.distill
    rules = Rules(alarms=config.alarm_rate, warm_up=config.warm_up, windows=config.history)
    history = History.of_state(monitors(store.dir, line))
    alarms = standing(store.dir, line)
    warnings = tell(found, store)
    if plot is not None:
        view.draw(plot, history, rules)
    metrics: dict[str, Any] = {
        "line": line,
        **view.to_json(history, rules),
        "alarms": [one.to_dict() for one in alarms],
        "plot": str(plot) if plot else None,
    }
    for warning in warnings:
        message(warning, kind="warning")
    document = envelope("monitor", "succeeded", metrics=metrics, warnings=warnings)
    if not show(as_json, document, lambda: _text(found, history, alarms, rules)):
        raise typer.Exit(0)  # no later look has a reader either
    return [one.alarm["id"] for one in alarms if one.acknowledged is None]


def _watched(found: Workspace, look: Callable[[], list[str]]) -> None:
    """One of many looks: one that fails is a warning and a failed ping, and the next one is tried."""
    import sqlite3

    from stages.errors import RtrlError

    waiting: list[str] | None = None
    try:
        waiting = look()
    except (RtrlError, sqlite3.Error, OSError) as error:
        message(f"this look failed, the next one is tried: {error}", kind="warning")
    _ping(found, waiting)


def _require_picture(plot: Path) -> None:
    from stages.errors import UsageError

    if plot.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"{plot} is no picture that can be written", hint="name a .png, .svg or .pdf")


def _text(found: Workspace, history: History, alarms: list[Standing], rules: Any) -> str:
    from stages.line_in_hints import on_line
    from stages.monitor import view

    line = found.settings.workspace.line
    if not history.windows:
        text = f"line {line}: no cycle was distilled for the live checkpoint yet (`rtrl distill`)"
        return on_line(text, found)
    last = history.windows[-1]
    parts = [
        f"line {line}: {len(history.windows)} cycles, the last {view.day(last.at)} UTC with {last.episodes} "
        f"episodes of {last.users} users; {last.cohort:.0%} of its requests are of another kind than usual",
        table(view.HEADER, view.rows(view.charts_of(history, rules), rules)),
        *(on_line(_alarm(one), found) for one in alarms),
    ]
    if len(history.windows) <= rules.warm_up:
        parts.append(f"no alarm in the first {rules.warm_up} cycles: the charts have to learn what is usual")
    return "\n\n".join(parts)


def _alarm(one: Standing) -> str:
    from stages.monitor.view import day

    head = f"{one.alarm['id']}  {day(one.alarm['at'])}  {one.alarm['text']}"
    if one.acknowledged is None:
        how = f"`rtrl monitor ack {one.alarm['id']} --reason ...`"
        return f"{bold('ALARM')} {head}\n      blocks the gate: {how}"
    said = one.acknowledged
    other = "" if said.alarm == one.alarm["id"] else f" with {said.alarm}, which was hardly less"
    when = said.at[:16].replace("T", " ")
    return f"alarm {head}\n      acknowledged{other} by {said.by}, {when}: {said.reason}"


def _ping(found: Workspace, waiting: list[str] | None) -> None:
    """Of alarms that wait; None: nobody knows."""
    from stages.cycle.ping import ping

    config = found.settings.monitor
    failed = waiting is None or bool(waiting)
    body = {"alarms": waiting or [], "looked": waiting is not None}
    said = ping(config.ping.get_secret_value(), "fail" if failed else "", body, config.timeout_s)
    if said:
        message(said, kind="warning")
