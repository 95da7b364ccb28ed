"""`rtrl status`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtrl_cli import options
from rtrl_cli.output import bold, envelope, pairs, show, size, table

if TYPE_CHECKING:
    from stages.workspace import Workspace as Place


def command(
    as_json: options.Json = False, quiet: options.Quiet = False, workspace: options.Workspace = None
) -> None:
    """Say what is live, what is running, what ran last, what there is, and the newest reports' figures."""
    from stages.registry.glance import glance
    from stages.workspace import Workspace

    found = Workspace.find(workspace)
    seen = {"workspace": str(found.root), "serving": serving(found.run_dir), **glance(found.store_dir)}
    warnings = [*_away(found.run_dir), *_set_up_otherwise(found)] if seen["serving"] else []
    for line in seen["lines"]:
        line["alarms"], unread = _alarms(found.store_dir, line["line"])
        warnings += unread
    document = envelope("status", "succeeded", metrics=seen, warnings=warnings)
    show(as_json, document, lambda: text(seen, warnings))


def _alarms(store_dir: Path, line: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(those of the line that nobody has acknowledged, why they cannot be told)."""
    from stages.errors import IntegrityError
    from stages.monitor.standing import standing

    try:
        return [one.alarm for one in standing(store_dir, line) if not one.acknowledged], []
    except IntegrityError as error:
        return [], [f"line {line}: {error.message} (`rtrl verify --full`)"]


_ASKED_S = 2.0  # that a gateway may take to say how its engines are
_AWAY = {
    "starting": "is starting",
    "down": "is down",
    "unknown": "changes its weights, or could not be verified",
}


def _away(run_dir: Path) -> list[str]:
    """Which engines of the running `rtrl serve` do not answer: it goes on without, and starts them again."""
    from http.client import HTTPException

    from stages.target.endpoint import running_endpoint
    from stages.target.wire import ask

    endpoint = running_endpoint(run_dir)
    if endpoint is None:
        return []
    try:
        _, told = ask(endpoint, "GET", "/admin/served", None, _ASKED_S)
    except (OSError, HTTPException):
        told = None
    if told is None:
        return ["the gateway does not say how its engines are: see the output of `rtrl serve`"]
    found = [(endpoint.line, each) for each in told.get("engines", [told])]
    found += [(arm, each) for arm in ("canary", "holdback") if (each := told.get(arm))]
    found += [(line, each) for line, each in told.get("lines", {}).items()]
    named = [(" ".join(filter(None, (name, each.get("name")))), each.get("engine")) for name, each in found]
    log = endpoint.engine.log
    return [f"the engine of {name} {_AWAY[how]} (log: {log})" for name, how in named if how in _AWAY]


def _set_up_otherwise(workspace: Place) -> list[str]:
    """What the running `rtrl serve` goes by otherwise than the settings say now. Names alone: a value may be
    a secret."""
    from stages.errors import UsageError
    from stages.target.as_served import differences
    from stages.target.endpoint import running_endpoint

    endpoint = running_endpoint(workspace.run_dir)
    try:
        names = list(differences(endpoint, workspace.settings)) if endpoint else []
    except UsageError as error:
        return [f"what is set up now cannot be told: {error.message}"]
    if not names:
        return []
    return [f"what is served has other settings: {', '.join(names)} (a new `rtrl serve` takes them up)"]


def serving(run_dir: Path) -> dict[str, Any] | None:
    """Where the running `rtrl serve` of the workspace listens; None when there is none. No keys."""
    from stages.target.endpoint import running_endpoint

    found = running_endpoint(run_dir)
    if found is None:
        return None
    engines = [found.line, *(["canary"] if found.canary else ()), *sorted(found.others)]
    return {
        "pid": found.pid,
        "line": found.line,
        "url": found.url,
        "since": found.started_at,
        "engines": engines,
    }


def ago(moment: str | None) -> str:
    """`3 min ago` of an ISO time; `3 min ahead` of one that the clock had before it was set back."""
    if not moment:
        return "-"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    side, seconds = ("ago", seconds) if seconds > -1 else ("ahead", -seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} {side}"
    return f"{max(seconds, 0):.0f} s {side}"


def text(seen: dict[str, Any], warnings: Sequence[str]) -> str:
    """The status for people."""
    parts = [pairs({"workspace": seen["workspace"], "serving": _serving_text(seen["serving"])})]
    if seen["lines"]:
        header = ("LINE", "LIVE", "SINCE", "ANCHOR", "LAST REPORT", "DEPLOYMENT")
        parts.append(table(header, map(_line_row, seen["lines"])))
    several = len(seen["lines"]) > 1
    parts += [
        f"{bold('ALARM')} {alarm['id']} of line {line['line']}: {alarm['text']} "
        f"(`rtrl monitor{' --line ' + line['line'] if several else ''}`)"
        for line in seen["lines"]
        for alarm in line["alarms"]
    ]
    parts += [f"{bold('WARNING')} {warning}" for warning in warnings]
    if seen["artifacts"]:
        rows = [
            (kind, each["count"], size(each["bytes"] or 0), each["newest"], ago(each["made"]))
            for kind, each in seen["artifacts"].items()
        ]
        parts.append(table(("KIND", "COUNT", "SIZE", "NEWEST", "MADE"), rows))
    if seen["runs"]:
        recent = [
            (run["id"], run["line"], _state(run, seen), ago(run["began"]), _error(run))
            for run in seen["runs"]
        ]
        parts.append(table(("RUN", "LINE", "STATE", "BEGAN", "ERROR"), recent))
    for name, report in seen["reports"].items():
        figures = {k: v for k, v in report.items() if isinstance(v, str | int | float | bool)}
        parts.append(f"{bold(f'report {name}')}\n{pairs(figures)}")
    return "\n\n".join(parts)


def _serving_text(noted: dict[str, Any] | None) -> str:
    if noted is None:
        return "nothing (`rtrl serve` starts it)"
    engines = f"; engines: {', '.join(noted['engines'])}" if len(noted["engines"]) > 1 else ""
    return f"{noted['url']} (pid {noted['pid']}, since {ago(noted['since'])}{engines})"


def _line_row(line: dict[str, Any]) -> tuple[str, ...]:
    live, anchor, report = line["live"], line["anchor"], line["report"]
    deployments = [
        f"{d['checkpoint']} {d['state']}" + (f" OVERRIDE: {d['reason']}" if d["override"] else "")
        for d in line.get("deployments", [])
    ]
    return (
        line["line"],
        live["ref"] if live else "-",
        ago(live["since"]) if live else "-",
        anchor["ref"] if anchor else "-",
        f"{report['ref']} {report['verdict'] or ''}".rstrip() if report else "-",
        ", ".join(deployments) or "-",
    )


def _state(run: dict[str, Any], seen: dict[str, Any]) -> str:
    dead = any(run["id"] == open_run["id"] and not open_run["alive"] for open_run in seen["running"])
    return f"{run['state']} (dead)" if dead else run["state"]


def _error(run: dict[str, Any]) -> str:
    return str(run["error"]["message"])[:60] if run["error"] else ""
